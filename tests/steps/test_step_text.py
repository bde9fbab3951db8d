"""normalize_text and tokenize."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field

if TYPE_CHECKING:
    from tests.steps.conftest import Run

TEXT = Field("text", "BYTES", (), "text")
WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "a", "man", "eats", "bread", "sep", "[", "]"]


def write_tokenizer(folder: Path, **padding: Any) -> None:
    """A file like those in the wild: special tokens around, padding and truncation fixed inside."""
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=128, **padding)
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("version")
    write_tokenizer(folder)
    return folder


OPTIONS = {"tokenizer": "tokenizer.json", "tokens_max": 6}


def test_text_is_normalized_in_the_order_promised(run: "Run") -> None:
    options = {"form": "NFKC", "lower": True, "strip": True, "collapse_spaces": True}
    batch = run("normalize_text", options, {TEXT: [" \ufb01sh  \t&\u00a0CHIPS\n", "e\u0301"]})
    assert batch.columns["text"].tolist() == ["fish & chips", "\u00e9"]


def test_without_options_only_the_form_changes(run: "Run") -> None:
    assert run("normalize_text", {}, {TEXT: [" E\u0301  \ufb01"]}).columns["text"].tolist() == [" \u00c9  \ufb01"]


def test_normalizing_leaves_a_missing_category_missing(run: "Run") -> None:
    country = Field("country", "BYTES", (), "category")
    batch = run("normalize_text", {"input": "country", "output": "code", "lower": True}, {country: ["NL", None]})
    assert batch.columns["code"].tolist() == ["nl", None]
    assert batch.columns["country"].tolist() == ["NL", None]


def test_tokens_are_padded_to_the_longest_row_only(run: "Run", folder: Path) -> None:
    columns = run("tokenize", OPTIONS, {TEXT: ["a man", "a"]}, folder).columns
    assert columns["input_ids"].tolist() == [[1, 4, 5, 2], [1, 4, 2, 0]]
    assert columns["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert columns["token_type_ids"].tolist() == [[0] * 4, [0] * 4]
    assert {column.dtype for name, column in columns.items() if name != "text"} == {np.dtype(np.int64)}


def test_a_cut_text_keeps_its_special_tokens_and_says_so(run: "Run", folder: Path) -> None:
    batch = run("tokenize", OPTIONS, {TEXT: ["a", "a man eats bread a man"]}, folder)
    assert batch.columns["input_ids"][1].tolist() == [1, 4, 5, 6, 7, 2]
    assert batch.notes == [(1, "truncated", {"field": "text", "tokens": 8, "kept": 6})]


def test_a_text_of_exactly_the_most_tokens_is_not_cut(run: "Run", folder: Path) -> None:
    assert run("tokenize", OPTIONS, {TEXT: ["a man eats bread"]}, folder).notes == []


def test_a_text_too_long_is_refused_alone_with_both_numbers(run: "Run", folder: Path) -> None:
    options = {**OPTIONS, "overflow": "refuse"}
    batch = run("tokenize", options, {TEXT: ["a man eats bread a", "a"]}, folder)
    assert batch.failures[0].code is Code.INPUT_TOO_LARGE
    assert batch.failures[0].text == "text: is 7 tokens long; at most 6 are allowed"
    assert batch.columns["input_ids"].tolist() == [[1, 4, 2]]


@pytest.mark.parametrize(("text", "length"), [("a", 4), ("a man", 4), ("a man a", 5), ("a man a a", 6)])
def test_buckets_are_the_only_lengths(run: "Run", folder: Path, text: str, length: int) -> None:
    batch = run("tokenize", {**OPTIONS, "buckets": [4, 5]}, {TEXT: [text]}, folder)
    assert batch.columns["input_ids"].shape == (1, length)


@pytest.mark.parametrize("buckets", [[5, 4], [4, 4], [4, 7]])
def test_buckets_ascend_up_to_the_most_tokens(run: "Run", folder: Path, buckets: list[int]) -> None:
    with pytest.raises(Misconfigured, match="ascending"):
        run("tokenize", {**OPTIONS, "buckets": buckets}, {TEXT: ["a"]}, folder)


def test_a_special_token_in_the_text_is_text(run: "Run", folder: Path) -> None:
    ids = run("tokenize", OPTIONS, {TEXT: ["a [SEP]"]}, folder).columns["input_ids"][0].tolist()
    assert ids.count(2) == 1
    assert ids[-1] == 2


def test_the_file_says_the_padding_and_its_side(run: "Run", tmp_path: Path) -> None:
    write_tokenizer(tmp_path, direction="left", pad_id=9, pad_type_id=1)
    columns = run("tokenize", OPTIONS, {TEXT: ["a man", "a"]}, tmp_path).columns
    assert columns["input_ids"].tolist() == [[1, 4, 5, 2], [9, 1, 4, 2]]
    assert columns["attention_mask"].tolist() == [[1, 1, 1, 1], [0, 1, 1, 1]]
    assert columns["token_type_ids"].tolist() == [[0, 0, 0, 0], [1, 0, 0, 0]]


def test_a_text_that_is_no_unicode_or_missing_fails_alone(run: "Run", folder: Path) -> None:
    batch = run("tokenize", OPTIONS, {TEXT: ["\ud800", "a", None]}, folder)
    assert {row: failure.code for row, failure in batch.failures.items()} == {
        0: Code.INVALID_UTF8,
        2: Code.MISSING_FIELD,
    }
    assert batch.columns["input_ids"].tolist() == [[1, 4, 2]]


def test_a_text_without_any_token_fails_alone(run: "Run", tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    batch = run("tokenize", OPTIONS, {TEXT: ["", "a"]}, tmp_path)
    assert batch.failures[0].code is Code.INVALID_INPUT
    assert batch.columns["input_ids"].tolist() == [[1]]


def test_tokens_are_the_librarys_own(run: "Run", folder: Path) -> None:
    texts = ["a man eats bread", "bread zzz ] [", "a man eats bread a man eats"]
    reference = Tokenizer.from_file(str(folder / "tokenizer.json"))
    reference.no_padding()
    reference.enable_truncation(6)
    ids = run("tokenize", OPTIONS, {TEXT: texts}, folder).columns["input_ids"]
    assert [row[row != 0].tolist() for row in ids] == [reference.encode(text).ids for text in texts]


def test_the_most_tokens_must_leave_room_for_text(run: "Run", folder: Path) -> None:
    with pytest.raises(Misconfigured, match="at least 3: 2 tokens are special ones"):
        run("tokenize", {**OPTIONS, "tokens_max": 2}, {TEXT: ["a"]}, folder)


def test_a_file_that_is_no_tokenizer_is_the_operators_fault(run: "Run", tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"labels": []}))
    with pytest.raises(Misconfigured, match=r"tokenizer\.json: tokenizer: not a tokenizer\.json that can be read"):
        run("tokenize", OPTIONS, {TEXT: ["a"]}, tmp_path)


def test_a_missing_library_says_how_to_get_it(run: "Run", folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(Misconfigured, match=r"pip install 'forwardpass\[text\]'") as refusal:
        run("tokenize", OPTIONS, {TEXT: ["a"]}, folder)
    assert refusal.value.code is Code.RUNTIME_MISSING
