"""Texts made to be slow: taken in two seconds at the most, or refused by name (M17)."""

import time
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from tests.steps.conftest import run_step
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import TEXT_BYTES_MAX, Field, Input
from forwardpass.pipeline.bounds import check_lengths

TEXT = Field("text", "BYTES", (), "text", given=True)
SECONDS_MAX = 4.0  # of the processor; twice what is promised, for machines that are slow or busy
MARKS = "\u0301\u0327"  # of two classes, in the wrong order
TOO_MANY_MARKS = {
    "combining marks": MARKS,
    "marks of halfwidth forms": "\uff9e\u0301",
    "marks of Tibetan vowels": "\u0f73\u0301",
}
HOSTILE = {
    "one letter": "a",
    "combining marks": MARKS,
    "right to left": "\u202e\u05d0\u05d1",
    "zero width": "\u200b\u200d",
    "NUL": "\0",
    "Chinese": "\u4e2d",
}
TAKEN = {
    **HOSTILE,
    "white space": " ",
    "sigma": "\u03a3\u0301",
    "combining marks": "a" + MARKS * 128,  # as many as are taken
    "emoji joined": "\U0001f468\u200d",
    "long decompositions": "\ufdfa",
}


def long(part: str) -> str:
    """As much of it as one text may be."""
    return part * (TEXT_BYTES_MAX // len(part.encode()))


def _word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "##a": 4}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return tokenizer


def _byte_pairs() -> Tokenizer:
    alphabet = {each: place for place, each in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE({**alphabet, "aa": 256, "aaaa": 257}, [("a", "a"), ("aa", "aa")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("version")
    _word_piece().save(str(folder / "pieces.json"))
    _byte_pairs().save(str(folder / "pairs.json"))
    return folder


def in_time(use: str, options: dict[str, Any], text: str, folder: Path = Path("/nowhere")) -> Any:
    """The batch of this text, after a neighbour that gets its answer; made in the time that it may take."""
    began = time.process_time()
    batch = run_step(use, options, {TEXT: ["a", text]}, folder)
    took_s = time.process_time() - began
    assert took_s <= SECONDS_MAX
    assert 0 not in batch.failures
    assert all(isinstance(failure, Refused) for failure in batch.failures.values())
    return batch


@pytest.mark.parametrize("name", TAKEN)
def test_a_text_is_normalized_in_time(name: str) -> None:
    options = {"form": "NFKC", "lower": True, "strip": True, "collapse_spaces": True}
    assert not in_time("normalize_text", options, long(TAKEN[name])).failures


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
@pytest.mark.parametrize("name", TOO_MANY_MARKS)
def test_marks_that_would_take_minutes_to_order_are_refused(name: str, form: str) -> None:
    batch = in_time("normalize_text", {"form": form}, long(TOO_MANY_MARKS[name]))
    assert batch.failures[1].text == "text: has more than 256 combining characters in a row"
    assert batch.failures[1].code is Code.INVALID_INPUT


def test_every_character_that_becomes_a_mark_counts_as_one() -> None:
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    marks = [each for each in every if unicodedata.combining(unicodedata.normalize("NFKD", each)[0])]
    assert len(marks) > 900
    batch = run_step("normalize_text", {"form": "NFKC"}, {TEXT: [each * 257 for each in marks]})
    assert len(batch.failures) == len(marks)


@pytest.mark.parametrize(("use", "tokenizer"), [("tokenize", "pieces.json"), ("token_windows", "pairs.json")])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_text_is_cut_into_tokens_in_time(folder: Path, name: str, use: str, tokenizer: str) -> None:
    batch = in_time(use, {"tokenizer": tokenizer, "tokens_max": 512}, long(HOSTILE[name]), folder)
    assert not batch.failures


@pytest.mark.parametrize("use", ["tokenize", "token_windows"])
def test_half_a_surrogate_pair_is_refused_alone(folder: Path, use: str) -> None:
    batch = in_time(use, {"tokenizer": "pieces.json", "tokens_max": 8}, "a\ud800", folder)
    assert batch.failures[1].code is Code.INVALID_UTF8


def test_half_a_surrogate_pair_is_normalized_as_it_is() -> None:
    assert in_time("normalize_text", {}, "a\ud800").columns["text"].tolist() == ["a", "a\ud800"]


@pytest.mark.parametrize(("marks", "refused"), [(256, False), (257, True)])
def test_so_many_combining_characters_in_a_row_are_taken(marks: int, refused: bool) -> None:
    batch = in_time("normalize_text", {}, "b" + "\u0301" * marks)
    assert bool(batch.failures) is refused


def test_without_a_form_no_number_of_them_is_too_many() -> None:
    text = long(MARKS)
    batch = in_time("normalize_text", {"form": "none", "lower": True}, text)
    assert batch.columns["text"].tolist() == ["a", text]


@pytest.mark.parametrize("kind", ["text", "texts", "category", "record"])
def test_a_text_without_a_bound_of_its_own_has_the_usual_one(kind: Any) -> None:
    given = Input("text", kind)
    check_lengths([b"a" * TEXT_BYTES_MAX], given, lambda row: f"/text/{row}")
    with pytest.raises(Refused, match="/text/0: has 1048577 bytes; at most 1048576 are allowed") as refusal:
        check_lengths([b"a" * (TEXT_BYTES_MAX + 1)], given, lambda row: f"/text/{row}")
    assert refusal.value.code is Code.INPUT_TOO_LARGE


@pytest.mark.parametrize("given", [Input("x", "text", bytes_max=2 * TEXT_BYTES_MAX), Input("x", "image")])
def test_a_bound_that_is_written_may_be_larger_and_files_have_none(given: Input) -> None:
    check_lengths([b"a" * (2 * TEXT_BYTES_MAX)], given, str)
