"""token_windows."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.steps.test_step_text import write_tokenizer
from tokenizers import Tokenizer

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field

if TYPE_CHECKING:
    from tests.steps.conftest import Run

TEXT = Field("text", "BYTES", (), "text")
QUESTION, DOCUMENT = Field("question", "BYTES", (), "text"), Field("document", "BYTES", (), "text")
OPTIONS: dict[str, Any] = {"tokenizer": "tokenizer.json", "tokens_max": 5}
PAIR: dict[str, Any] = {**OPTIONS, "input": "question", "pair": "document", "tokens_max": 8}
LONG = "a man eats bread a man eats"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("version")
    write_tokenizer(folder)
    return folder


def test_a_long_text_becomes_windows_with_special_tokens_and_their_places(run: "Run", folder: Path) -> None:
    columns = run("token_windows", {**OPTIONS, "stride": 1}, {TEXT: [LONG]}, folder).columns
    assert columns["input_ids"].tolist() == [[1, 4, 5, 6, 2], [1, 6, 7, 4, 2], [1, 4, 5, 6, 2]]
    assert columns["window"].tolist() == ["a man eats", "eats bread a", "a man eats"]
    assert columns["start"].tolist() == [0, 6, 17]
    assert columns["end"].tolist() == [10, 18, 27]
    assert "text" not in columns


def test_windows_know_the_text_they_belong_to(run: "Run", folder: Path) -> None:
    batch = run("token_windows", OPTIONS, {TEXT: ["a", LONG]}, folder)
    assert batch.columns["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1] * 5, [1] * 5, [1, 1, 1, 0, 0]]
    assert batch.fold().tolist() == [0, 1, 1, 1]
    assert batch.columns["text"].tolist() == ["a", LONG]


@pytest.mark.parametrize("stride", [0, 1, 2])
@pytest.mark.parametrize("count", range(1, 12))
def test_windows_are_the_librarys_own(run: "Run", folder: Path, stride: int, count: int) -> None:
    text, question = " ".join((LONG + " bread bread bread bread").split()[:count]), "a man"
    reference = Tokenizer.from_file(str(folder / "tokenizer.json"))
    reference.no_padding()
    reference.enable_truncation(8, stride=stride, strategy="only_second")
    whole = reference.encode(question, text)
    batch = run("token_windows", {**PAIR, "stride": stride}, {QUESTION: [question], DOCUMENT: [text]}, folder)
    kept = zip(batch.columns["input_ids"], batch.columns["attention_mask"], strict=True)
    assert [ids[mask == 1].tolist() for ids, mask in kept] == [each.ids for each in (whole, *whole.overflowing)]


def test_of_a_pair_the_places_are_those_in_the_windows_text(run: "Run", folder: Path) -> None:
    options = {**PAIR, "tokens_max": 6, "offsets": "offsets", "words": "words"}
    columns = run("token_windows", options, {QUESTION: ["a"], DOCUMENT: ["a man eats"]}, folder).columns
    assert columns["window"].tolist() == ["a man", "eats"]
    assert columns["offsets"][1].tolist() == [[0, 0], [0, 0], [0, 0], [0, 4], [0, 0], [0, 0]]
    assert columns["words"].tolist() == [[-1, -1, -1, 0, 1, -1], [-1, -1, -1, 2, -1, -1]]


def test_an_empty_text_is_one_window(run: "Run", folder: Path) -> None:
    columns = run("token_windows", OPTIONS, {TEXT: [""]}, folder).columns
    assert columns["input_ids"].tolist() == [[1, 2]]
    assert (columns["window"][0], columns["start"][0], columns["end"][0]) == ("", 0, 0)


def test_a_text_of_too_many_windows_is_cut_and_told(run: "Run", folder: Path) -> None:
    batch = run("token_windows", {**OPTIONS, "windows_max": 2, "stride": 1}, {TEXT: ["a", LONG]}, folder)
    assert batch.columns["window"].tolist() == ["a", "a man eats", "eats bread a"]
    assert batch.notes == [(1, "truncated", {"field": "text", "tokens": 7, "kept": 5})]


def test_a_text_of_too_many_windows_can_be_refused_alone(run: "Run", folder: Path) -> None:
    options = {**OPTIONS, "windows_max": 2, "overflow": "refuse"}
    batch = run("token_windows", options, {TEXT: [LONG, "a"]}, folder)
    assert batch.failures[0].code is Code.INPUT_TOO_LARGE
    assert batch.failures[0].text == "text: is 7 tokens long; at most 6 fit 2 windows"
    assert batch.columns["window"].tolist() == ["a"]


def test_a_question_that_leaves_no_room_fails_alone(run: "Run", folder: Path) -> None:
    columns: dict[Field, list[str | None]] = {QUESTION: ["a a a a", "a", None], DOCUMENT: ["a", "a", "a"]}
    batch = run("token_windows", {**PAIR, "stride": 1}, columns, folder)
    text = "question: is 4 tokens long; at most 3 are allowed beside windows of document"
    assert batch.failures[0].text == text
    assert batch.failures[2].code is Code.MISSING_FIELD
    assert batch.fold().tolist() == [0]


def test_when_every_text_fails_there_is_still_a_level_to_fold(run: "Run", folder: Path) -> None:
    batch = run("token_windows", {**OPTIONS, "offsets": "offsets", "words": "words"}, {TEXT: [None]}, folder)
    assert batch.rows == 0
    assert batch.fold().tolist() == []


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"stride": 5}, r"below tokens_max \(5\)"),
        ({"stride": 3}, "at least 6: 2 tokens are special ones"),
        ({"offsets": "window"}, "offsets"),
        ({"buckets": [9]}, "ascending"),
    ],
)
def test_windows_that_cannot_be_are_refused(run: "Run", folder: Path, change: dict[str, Any], match: str) -> None:
    with pytest.raises(Misconfigured, match=match):
        run("token_windows", {**OPTIONS, **change}, {TEXT: ["a"]}, folder)
