"""The ranking example: the cosines its model is known for, in order, whoever else asks, by every way in."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.examples.ways import outputs_by_every_way
from tests.serving import Server

from forwardpass.core.errors import Code, Refused
from forwardpass.steps.protocol import Batch

Ask = Callable[[str, Sequence[Mapping[str, object]]], Batch]

FOOD, BREAD, VIOLIN = "A man is eating food.", "A man is eating a piece of bread.", "A woman is playing violin."
HORSE, WHITE_HORSE = "A man is riding a horse.", "A man is riding a white horse on an enclosed ground."
HELP = ["Our opening hours are nine to five.", "You will get a refund within 14 days.", "We are hiring engineers."]


def ranked(ask: Ask, query: str, documents: Sequence[str]) -> list[dict[str, Any]]:
    (ranking,) = ask("ranking", [{"query": query, "documents": documents}]).columns["ranking"]
    found: list[dict[str, Any]] = ranking
    return found


def test_documents_come_nearest_first_with_the_cosines_of_the_model(ask: Ask) -> None:
    ranking = ranked(ask, FOOD, [VIOLIN, BREAD])
    assert [(each["index"], each["document"]) for each in ranking] == [(1, BREAD), (0, VIOLIN)]
    assert [each["score"] for each in ranking] == pytest.approx([0.7553, -0.0700], abs=1e-3)
    assert ranked(ask, HORSE, [WHITE_HORSE])[0]["score"] == pytest.approx(0.737, abs=1e-3)


def test_a_question_finds_its_answer_without_a_word_in_common(ask: Ask) -> None:
    assert ranked(ask, "How do I get my money back?", HELP)[0]["document"] == HELP[1]


def test_equal_documents_have_equal_scores_and_stay_in_their_order(ask: Ask) -> None:
    first, second, _ = ranked(ask, FOOD, [BREAD, VIOLIN, BREAD])
    assert (first["index"], second["index"]) == (0, 2)
    assert first["score"] == second["score"]


def test_requests_of_unlike_lengths_are_ranked_together_as_they_are_alone(ask: Ask) -> None:
    requests = [
        {"query": FOOD, "documents": [VIOLIN, BREAD]},
        {"query": "How do I get my money back?", "documents": HELP * 12},
        {"query": "horses", "documents": ["word " * 200, HORSE]},
    ]
    together = ask("ranking", requests).columns["ranking"]
    for request, ranking in zip(requests, together, strict=True):
        (alone,) = ask("ranking", [request]).columns["ranking"]
        scores = {each["index"]: each["score"] for each in alone}
        assert {each["index"]: each["score"] for each in ranking} == pytest.approx(scores, abs=1e-5)


def test_a_long_document_is_cut_and_the_answer_says_so(ask: Ask) -> None:
    batch = ask("ranking", [{"query": FOOD, "documents": [VIOLIN, "food " * 400]}])
    assert [(row, name, value["field"], value["tokens"], value["kept"]) for row, name, value in batch.notes] == [
        (0, "truncated", "document", 402, 256)
    ]


@pytest.mark.parametrize(
    ("documents", "code"),
    [([], Code.OUT_OF_RANGE), ([FOOD] * 101, Code.INPUT_TOO_LARGE), (FOOD, Code.WRONG_TYPE)],
    ids=["none", "too many", "no list"],
)
def test_what_is_no_list_of_1_to_100_documents_is_refused(ask: Ask, documents: object, code: Code) -> None:
    with pytest.raises(Refused) as refusal:
        ask("ranking", [{"query": FOOD, "documents": documents}])
    assert (refusal.value.code, refusal.value.field) == (code, "/documents")


def test_every_way_in_gives_the_same_bytes(
    served: Callable[[str], Server], folder_of: Callable[[str], Path], data: Path
) -> None:
    given = {"query": FOOD, "documents": [VIOLIN, BREAD, HORSE]}
    answers = outputs_by_every_way(served("ranking"), folder_of("ranking"), given, data)
    assert b'"document":"A man is eating a piece of bread."' in answers["http"]
    assert len(set(answers.values())) == 1, answers
