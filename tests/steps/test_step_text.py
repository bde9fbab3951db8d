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


def test_what_a_batch_is_filled_up_with_is_counted(run: "Run", folder: Path) -> None:
    batch = run("tokenize", OPTIONS, {TEXT: ["a man", "a"]}, folder)
    assert (batch.elements, batch.padding) == (4 + 3, 1)


def test_a_cut_text_keeps_its_special_tokens_and_says_so(run: "Run", folder: Path) -> None:
    batch = run("tokenize", OPTIONS, {TEXT: ["a", "a man eats bread a man"]}, folder)
    assert batch.columns["input_ids"][1].tolist() == [1, 4, 5, 6, 7, 2]
    assert batch.notes == [(1, "truncated", {"field": "text", "tokens": 8, "kept": 6})]


def test_a_text_that_is_cut_at_its_beginning_says_that_too(run: "Run", tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_text(
        file.read_text().replace('"direction": "Right",\n    "max_length"', '"direction": "Left",\n    "max_length"')
    )
    batch = run("tokenize", OPTIONS, {TEXT: ["a man eats bread a man"]}, tmp_path)
    assert batch.notes == [(0, "truncated", {"field": "text", "tokens": 8, "kept": 6, "from": "left"})]


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


def test_a_row_padded_for_itself_is_as_long_as_it_is_alone(run: "Run", folder: Path) -> None:
    options = {**OPTIONS, "pad": "row", "offsets": "places", "words": "words"}
    columns = run("tokenize", options, {TEXT: ["a man", "a"]}, folder).columns
    assert [row.tolist() for row in columns["input_ids"]] == [[1, 4, 5, 2], [1, 4, 2]]
    assert [row.tolist() for row in columns["attention_mask"]] == [[1] * 4, [1] * 3]
    assert [row.tolist() for row in columns["places"]] == [[[0, 0], [0, 1], [2, 5], [0, 0]], [[0, 0], [0, 1], [0, 0]]]
    bucketed = run("tokenize", {**options, "buckets": [3, 5]}, {TEXT: ["a man", "a"]}, folder).columns
    assert [row.tolist() for row in bucketed["input_ids"]] == [[1, 4, 5, 2, 0], [1, 4, 2]]


def test_of_rows_padded_for_themselves_one_that_is_refused_fails_alone(run: "Run", folder: Path) -> None:
    options = {**OPTIONS, "pad": "row", "overflow": "refuse"}
    batch = run("tokenize", options, {TEXT: ["a man eats bread a", "a"]}, folder)
    assert list(batch.failures) == [0]
    assert [row.tolist() for row in batch.columns["input_ids"]] == [[1, 4, 2]]


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


QUERY, DOCUMENT = Field("query", "BYTES", (), "text"), Field("document", "BYTES", (), "text")
PAIR: dict[str, Any] = {**OPTIONS, "input": "query", "pair": "document"}
PROCESSORS = {
    "bert": processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1)),
    "roberta": processors.RobertaProcessing(("[SEP]", 2), ("[CLS]", 1)),
    "template": processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    ),
}


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize(("cut", "strategy"), [("longest", "longest_first"), ("second", "only_second")])
def test_a_pair_is_encoded_and_cut_as_by_the_library(
    run: "Run", folder: Path, tmp_path: Path, processor: str, cut: str, strategy: str
) -> None:
    reference = Tokenizer.from_file(str(folder / "tokenizer.json"))
    reference.no_padding()
    reference.post_processor = PROCESSORS[processor]
    reference.save(str(tmp_path / "tokenizer.json"))
    reference.enable_truncation(9, strategy=strategy)
    pairs = [(" ".join(["a"] * first), " ".join(["man"] * second)) for first in range(5) for second in range(1, 9)]
    columns = {QUERY: [query for query, _ in pairs], DOCUMENT: [document for _, document in pairs]}
    batch = run("tokenize", {**PAIR, "tokens_max": 9, "cut": cut}, columns, tmp_path)
    for row, (query, document) in enumerate(pairs):
        expected, size = reference.encode(query, document), sum(batch.columns["attention_mask"][row])
        assert batch.columns["input_ids"][row][:size].tolist() == expected.ids
        assert batch.columns["token_type_ids"][row][:size].tolist() == expected.type_ids


def test_of_a_pair_each_cut_text_is_told_in_its_own_tokens(run: "Run", folder: Path) -> None:
    options = {**PAIR, "tokens_max": 7}
    batch = run("tokenize", options, {QUERY: ["a man eats", "a"], DOCUMENT: ["a man eats bread", "a man"]}, folder)
    assert batch.notes == [
        (0, "truncated", {"field": "query", "tokens": 3, "kept": 2}),
        (0, "truncated", {"field": "document", "tokens": 4, "kept": 2}),
    ]


@pytest.mark.parametrize(("cut", "whole_field"), [("first", "document"), ("second", "query")])
def test_a_text_that_may_not_be_cut_and_leaves_no_room_fails_alone(
    run: "Run", folder: Path, cut: str, whole_field: str
) -> None:
    columns = {QUERY: ["a a a", "a"], DOCUMENT: ["a a a", "a"]}
    batch = run("tokenize", {**PAIR, "cut": cut}, columns, folder)
    other = "query" if whole_field == "document" else "document"
    assert batch.failures[0].text == f"{whole_field}: is 3 tokens long; at most 2 are allowed beside {other}"
    assert batch.columns["input_ids"].tolist() == [[1, 4, 2, 4, 2]]


def test_a_pair_too_long_together_is_refused(run: "Run", folder: Path) -> None:
    batch = run("tokenize", {**PAIR, "overflow": "refuse"}, {QUERY: ["a a"], DOCUMENT: ["a a"]}, folder)
    assert batch.failures[0].code is Code.INPUT_TOO_LARGE
    assert batch.failures[0].text == "query and document: are together 7 tokens long; at most 6 are allowed"


def test_without_a_name_the_first_text_is_the_latest_that_is_not_the_second(run: "Run", folder: Path) -> None:
    options = {**OPTIONS, "pair": "document"}
    batch = run("tokenize", options, {QUERY: ["a"], DOCUMENT: ["man"]}, folder)
    assert batch.columns["input_ids"].tolist() == [[1, 4, 2, 5, 2]]


def test_places_are_in_characters_and_zero_outside_the_text(run: "Run", folder: Path) -> None:
    options = {**OPTIONS, "offsets": "offsets", "words": "words"}
    columns = run("tokenize", options, {TEXT: ["\U0001f600\u00e9 man", "a"]}, folder).columns
    assert columns["offsets"].tolist() == [[[0, 0], [0, 2], [3, 6], [0, 0]], [[0, 0], [0, 1], [0, 0], [0, 0]]]
    assert columns["words"].tolist() == [[-1, 0, 1, -1], [-1, 0, -1, -1]]


def test_places_of_a_pair_are_those_in_the_second_text(run: "Run", folder: Path) -> None:
    options = {**PAIR, "offsets": "offsets", "words": "words"}
    columns = run("tokenize", options, {QUERY: ["a"], DOCUMENT: [" a man"]}, folder).columns
    assert columns["offsets"].tolist() == [[[0, 0], [0, 0], [0, 0], [1, 2], [3, 6], [0, 0]]]
    assert columns["words"].tolist() == [[-1, -1, -1, 0, 1, -1]]


def test_places_move_with_padding_on_the_left(run: "Run", tmp_path: Path) -> None:
    write_tokenizer(tmp_path, direction="left")
    columns = run("tokenize", {**OPTIONS, "offsets": "offsets"}, {TEXT: ["a man", "a"]}, tmp_path).columns
    assert columns["offsets"][1].tolist() == [[0, 0], [0, 0], [0, 1], [0, 0]]


@pytest.mark.parametrize(
    "change",
    [
        {"cut": "first"},
        {"pair": "document", "cut": "first", "overflow": "refuse"},
        {"input": "document", "pair": "document"},
        {"offsets": "input_ids"},
        {"offsets": "x", "words": "x"},
    ],
)
def test_options_without_effect_or_in_conflict_are_refused(run: "Run", folder: Path, change: dict[str, str]) -> None:
    with pytest.raises(Misconfigured):
        run("tokenize", {**OPTIONS, **change}, {QUERY: ["a"], DOCUMENT: ["a"]}, folder)


def test_a_pair_needs_room_for_a_token_of_each(run: "Run", folder: Path) -> None:
    with pytest.raises(Misconfigured, match="at least 5: 3 tokens are special ones"):
        run("tokenize", {**PAIR, "tokens_max": 4}, {QUERY: ["a"], DOCUMENT: ["a"]}, folder)
