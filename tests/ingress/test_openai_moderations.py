"""OpenAI's moderations over a pipeline that classifies: all categories, and when they are true."""

import math
from typing import Any

import pytest
from tests.ingress.task_calls import answered, classifier, embedder, json_of, refused, requested, texts

from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Field, Input, Signature, Task
from forwardpass.core.request import Note
from forwardpass.ingress.dialects.openai_moderations import MODERATIONS

CATEGORIES = {
    "hate", "hate/threatening", "harassment", "harassment/threatening", "illicit", "illicit/violent", "self-harm",
    "self-harm/intent", "self-harm/instructions", "sexual", "sexual/minors", "violence", "violence/graphic",
}  # fmt: skip
"""PROTOCOLS 5.8."""
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAEC"}}


def result(signature: Signature, *outputs: Any) -> Any:
    answer = json_of(answered(MODERATIONS, signature, {"input": "x"}, *outputs))
    assert answer["id"].startswith("modr-")
    assert answer["model"] == "letters"
    return answer["results"][0]


def test_every_category_is_there_and_a_label_beyond_them_is_one_more() -> None:
    found = result(classifier("violence", "spam"), [[0.25, 0.75]])
    assert found["categories"].keys() == found["category_scores"].keys() == CATEGORIES | {"spam"}
    assert found["category_applied_input_types"].keys() == CATEGORIES | {"spam"}
    assert {label for label, is_true in found["categories"].items() if is_true} == {"spam"}
    assert (found["category_scores"]["violence"], found["category_scores"]["hate"]) == (0.25, 0)
    applied = found["category_applied_input_types"]
    assert (applied["violence"], applied["hate"]) == (["text"], [])
    assert found["flagged"]


@pytest.mark.parametrize(("score", "flagged"), [(0.75, False), (0.875, True), (1.0, True)])
def test_the_tasks_threshold_flags_and_is_enough(score: float, flagged: bool) -> None:
    found = result(classifier("hate", threshold=0.875), [[score]])
    assert (found["flagged"], found["categories"]["hate"]) == (flagged, flagged)


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_a_score_that_is_no_number_is_a_failure_not_harmless(score: float) -> None:
    with pytest.raises(Failed) as caught:
        result(classifier("hate", "calm"), [[score, 0.5]])
    assert (caught.value.code, caught.value.field) == (Code.NON_FINITE_OUTPUT, "scores")


def test_scores_that_a_rule_withheld_are_left_out() -> None:
    dropped = Note(0, "rule", {"rule": "unsure", "did": "drop", "names": ["scores"]})
    answer = answered(MODERATIONS, classifier("hate"), {"input": "x"}, [[math.nan]], notes=[dropped])
    found = json_of(answer)["results"][0]
    assert (found["flagged"], found["category_scores"]["hate"]) == (False, 0)


def test_a_harmless_label_flags_nothing() -> None:
    found = result(classifier("safe", "hate", harmless=("safe",)), [[0.9, 0.1]])
    assert not found["flagged"]
    assert not found["categories"]["safe"]


def test_labels_may_be_an_output_of_their_own() -> None:
    outputs = (Field("label", "BYTES", (), "text"), Field("score", "FP32"))
    task = Task("classify", "it", output="score", label="label")
    found = result(Signature((Input("it", "text"),), outputs, task=task), ["hate"], [0.5])
    assert (found["categories"]["hate"], found["category_scores"]["hate"]) == (True, 0.5)


def test_a_picture_comes_as_a_data_url_and_nothing_is_fetched() -> None:
    signature = classifier("sexual", kind="image")
    assert texts(requested(MODERATIONS, signature, {"input": [PICTURE]})) == [b"\0\1\2"]
    away = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    assert "nothing is fetched" in refused(MODERATIONS, signature, {"input": [away]}).text
    applied = json_of(answered(MODERATIONS, signature, {"input": [PICTURE]}, [[0.1]]))["results"][0]
    assert applied["category_applied_input_types"]["sexual"] == ["image"]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ([], Code.MISSING_FIELD), ("", Code.MISSING_FIELD), ([{"type": "text"}], Code.MISSING_FIELD),
        ([{"type": "text", "image_url": {"url": "x"}}], Code.MISSING_FIELD), ([PICTURE], Code.INVALID_INPUT),
        ([{"type": "text", "text": "a"}] * 2, Code.INVALID_INPUT), ([{"type": "audio"}], Code.OUT_OF_RANGE),
        ([PICTURE | {"text": "a"}], Code.INVALID_INPUT), ([{"type": "text", "text": "a", "txt": 1}], Code.UNKNOWN_FIELD), (1, Code.WRONG_TYPE),
    ],
)  # fmt: skip
def test_what_makes_no_input_is_refused(given: Any, code: Code) -> None:
    assert refused(MODERATIONS, classifier("a", "b"), {"input": given}).code == code


def test_a_text_may_be_a_part() -> None:
    parts = {"input": [{"type": "text", "text": "a"}], "user": "me"}
    assert texts(requested(MODERATIONS, classifier("a", "b"), parts)) == [b"a"]


def test_an_embedder_moderates_nothing() -> None:
    assert "it embeds texts" in refused(MODERATIONS, embedder(), {"input": "a"}).text
