"""tokenize of texts that came as token ids, and how many tokens it counts."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.steps import tokenizer_files
from tokenizers import processors

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Field
from forwardpass.core.tokens import TokenIds

if TYPE_CHECKING:
    from tests.steps.conftest import Run

TEXT, OTHER = Field("text", "BYTES", (), "text"), Field("other", "BYTES", (), "text")
OPTIONS: dict[str, Any] = {"tokenizer": "tokenizer.json", "tokens_max": 6}
TEXTS = ["a man", "bread", "a man eats bread", "a man eats bread a man eats", "zzz a", ""]
PROCESSORS = {
    "template": tokenizer_files.SURROUNDED,
    "bert": processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1)),
    "roberta": processors.RobertaProcessing(("[SEP]", 2), ("[CLS]", 1)),
    "only behind": processors.TemplateProcessing("$A [SEP]", "$A [SEP] $B:1 [SEP]:1", tokenizer_files.SPECIAL),
    "only before": processors.TemplateProcessing("[CLS] $A", "[CLS] $A $B:1", tokenizer_files.SPECIAL),
}


def ids_of(reference: Any, text: str, *, special: bool = False) -> TokenIds:
    return TokenIds(tuple(reference.encode(text, add_special_tokens=special).ids))


def plain(columns: dict[str, Any]) -> list[Any]:
    return [columns[name].tolist() for name in ("input_ids", "attention_mask", "token_type_ids")]


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("cuts", ["right", "left"])
@pytest.mark.parametrize("processor", PROCESSORS)
def test_ids_give_what_their_text_gives(run: "Run", tmp_path: Path, processor: str, cuts: str, special: bool) -> None:
    reference = tokenizer_files.write(tmp_path, PROCESSORS[processor], cuts=cuts)
    ids = [ids_of(reference, text, special=special) for text in TEXTS]
    by_text, by_ids = (run("tokenize", OPTIONS, {TEXT: given}, tmp_path) for given in (TEXTS, ids))
    assert plain(by_ids.columns) == plain(by_text.columns)
    assert by_ids.notes == by_text.notes
    reference.enable_truncation(6, direction=cuts)
    assert by_ids.tokens == {row: len(reference.encode(text)) for row, text in enumerate(TEXTS)}


def test_ids_and_texts_share_a_batch(run: "Run", tmp_path: Path) -> None:
    tokenizer_files.write(tmp_path)
    columns = run("tokenize", OPTIONS, {TEXT: ["a", TokenIds((4, 5))]}, tmp_path).columns
    assert columns["input_ids"].tolist() == [[1, 4, 2, 0], [1, 4, 5, 2]]


def test_ids_with_special_tokens_at_one_end_only_get_both(run: "Run", tmp_path: Path) -> None:
    tokenizer_files.write(tmp_path)
    columns = run("tokenize", OPTIONS, {TEXT: [TokenIds((1, 4)), TokenIds((4, 2))]}, tmp_path).columns
    assert columns["input_ids"].tolist() == [[1, 1, 4, 2], [1, 4, 2, 2]]


def test_of_a_pair_one_may_be_ids(run: "Run", tmp_path: Path) -> None:
    reference = tokenizer_files.write(tmp_path)
    options = {**OPTIONS, "tokens_max": 9, "input": "text", "pair": "other"}
    columns = {TEXT: ["a man", TokenIds((4, 5))], OTHER: [TokenIds((6, 7)), "eats bread"]}
    batch = run("tokenize", options, columns, tmp_path)
    expected = reference.encode("a man", "eats bread")
    assert batch.columns["input_ids"].tolist() == [expected.ids] * 2
    assert batch.columns["token_type_ids"].tolist() == [expected.type_ids] * 2
    assert batch.tokens == {0: len(expected), 1: len(expected)}


def test_an_id_outside_the_vocabulary_fails_its_row_alone(run: "Run", tmp_path: Path) -> None:
    tokenizer_files.write(tmp_path)
    batch = run("tokenize", OPTIONS, {TEXT: [TokenIds((4, 7, 8)), TokenIds((4,))]}, tmp_path)
    assert batch.failures[0].code is Code.OUT_OF_RANGE
    assert batch.failures[0].text == "text/2: token id 8 is not in the vocabulary of 8 tokens"
    assert batch.columns["input_ids"].tolist() == [[1, 4, 2]]


def test_ids_too_many_are_refused_as_a_text_is(run: "Run", tmp_path: Path) -> None:
    tokenizer_files.write(tmp_path)
    batch = run("tokenize", {**OPTIONS, "overflow": "refuse"}, {TEXT: [TokenIds((4,) * 5)]}, tmp_path)
    assert batch.failures[0].text == "text: is 7 tokens long; at most 6 are allowed"


def test_no_ids_where_nothing_is_put_around_them_fail_as_an_empty_text_does(run: "Run", tmp_path: Path) -> None:
    tokenizer_files.write(tmp_path, processors.ByteLevel())
    batch = run("tokenize", OPTIONS, {TEXT: [TokenIds(()), "", TokenIds((4,))]}, tmp_path)
    assert {row: failure.text for row, failure in batch.failures.items()} == dict.fromkeys(
        (0, 1), "text: holds no token"
    )
    assert batch.tokens == {2: 1}


def test_padding_is_no_token_that_counts(run: "Run", tmp_path: Path) -> None:
    tokenizer_files.write(tmp_path)
    assert run("tokenize", {**OPTIONS, "buckets": [6]}, {TEXT: ["a", "a man"]}, tmp_path).tokens == {0: 3, 1: 4}


def test_tokens_of_all_windows_count_for_their_text(run: "Run", tmp_path: Path) -> None:
    reference = tokenizer_files.write(tmp_path)
    reference.enable_truncation(5, stride=1)
    texts = ["a man eats bread a man", "a"]
    wholes = [reference.encode(text) for text in texts]
    batch = run("token_windows", {**OPTIONS, "tokens_max": 5, "stride": 1}, {TEXT: texts}, tmp_path)
    assert batch.tokens == {row: len(whole) + sum(map(len, whole.overflowing)) for row, whole in enumerate(wholes)}
