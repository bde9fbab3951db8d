"""Which inputs take token ids, and how ids and counts of tokens travel: front, worker and back."""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.steps import tokenizer_files

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Input, Pipeline, Rule, Step, Version
from forwardpass.core.request import Answer, Request
from forwardpass.core.timeline import Timeline
from forwardpass.core.tokens import TokenIds
from forwardpass.execution.local import LocalWorker
from forwardpass.execution.plan import build
from forwardpass.execution.process import WorkerProcess
from forwardpass.pipeline.fields import decode, encode
from forwardpass.steps.kind import Kind
from forwardpass.steps.own import Own
from forwardpass.steps.protocol import Batch
from forwardpass.trial import trial

TEXT, OTHER = Input("text", "text"), Input("other", "text")
TOKENIZE = {"tokenizer": "tokenizer.json", "tokens_max": 6, "input": "text", "pad": "row"}
CUT = Step("tokenize", TOKENIZE)
OWN_CODE = "def shout(text: str) -> str:\n    return text.upper()\n"


def version(folder: Path, *steps: Step, outputs: Sequence[str] = ("input_ids",), **more: Any) -> Version:
    tokenizer_files.write(folder)
    (folder / "steps.py").write_text(OWN_CODE)
    definition = Pipeline(steps, (TEXT, OTHER), outputs=tuple(outputs), **more)
    return Version("p", 1, "0" * 64, str(folder), definition, trusted=True)


def token_inputs(served: Version) -> frozenset[str]:
    plan = build(served, threads=1)
    assert {column.name for column in plan.signature.columns if column.ids} == plan.signature.token_inputs
    return plan.signature.token_inputs


def test_a_text_that_only_tokenizers_read_may_be_ids(tmp_path: Path) -> None:
    again = Step("tokenize", {**TOKENIZE, "tokens_max": 4})
    assert token_inputs(version(tmp_path, CUT, again)) == {"text"}
    assert token_inputs(version(tmp_path, Step("tokenize", {**TOKENIZE, "pair": "other"}))) == {"text", "other"}


SHOUT = Step("steps:shout", {"output": "shouted", "datatype": "BYTES"})


@pytest.mark.parametrize(
    "steps",
    [
        (Step("tokenize", {**TOKENIZE, "offsets": "places"}),),
        (Step("tokenize", {**TOKENIZE, "words": "words"}),),
        (Step("normalize_text", {"input": "text"}), CUT),
        (CUT, Step("normalize_text", {"input": "text", "output": "copy"})),
        (CUT, SHOUT),
        (CUT, Step("expand", {"over": {"input_ids": "id"}, "keep": ["text"]}), Step("fold", {"lists": {"id": "ids"}})),
    ],
    ids=["offsets", "words", "before", "after", "own code", "kept by expand"],
)
def test_a_text_that_anything_else_reads_must_be_text(tmp_path: Path, steps: Sequence[Step]) -> None:
    assert token_inputs(version(tmp_path, *steps)) == set()


def test_a_text_that_is_answered_or_that_a_rule_reads_must_be_text(tmp_path: Path) -> None:
    assert token_inputs(version(tmp_path, CUT, outputs=("input_ids", "text"))) == set()
    rules = {name: Rule("short", f'{name} == "a"', flag="short") for name in ("text", "other")}
    assert token_inputs(version(tmp_path, CUT, rules=(rules["text"],))) == set()
    assert token_inputs(version(tmp_path, CUT, rules=(rules["other"],))) == {"text"}


def answered(served: Version, records: Sequence[dict[str, object]], make: Any = WorkerProcess) -> Answer:
    """With its receipt."""

    async def ask() -> Answer:
        async with trial(served, threads=1, deadline_s=10, make_worker=make) as running:
            columns, rows = encode(running.variant.signature, records, root="/input")
            now = monotonic_s()
            request = Request("r", columns, rows, Timeline(now, now), receipt=True)
            return await running.handle.answer(running.variant, request)

    return asyncio.run(ask())


def of(*texts: object) -> list[dict[str, object]]:
    return [{"text": text, "other": ""} for text in texts]


@pytest.mark.parametrize("worker", [WorkerProcess, LocalWorker])
def test_ids_reach_the_tokenizer_and_tokens_are_counted_as_the_library_does(tmp_path: Path, worker: Any) -> None:
    reference = tokenizer_files.write(tmp_path)
    answer = answered(version(tmp_path, CUT), of("a man", TokenIds((4, 5, 6)), "bread"), worker)
    expected = [reference.encode(text).ids for text in ("a man", "a man eats", "bread")]
    assert decode(answer) == [{"input_ids": ids} for ids in expected]
    assert answer.tokens == sum(map(len, expected))
    assert answer.receipt is not None
    assert answer.receipt["tokens"] == answer.tokens


@pytest.mark.parametrize("worker", [WorkerProcess, LocalWorker])
def test_an_unknown_id_is_the_callers_fault_and_its_row_counts_no_tokens(tmp_path: Path, worker: Any) -> None:
    answer = answered(version(tmp_path, CUT), of("a man", TokenIds((4, 99))), worker)
    assert {row: (type(each), each.code) for row, each in answer.failures.items()} == {1: (Refused, Code.OUT_OF_RANGE)}
    assert answer.tokens == 4


def test_tokens_of_a_request_in_many_parts_are_summed(tmp_path: Path) -> None:
    texts = ["a man " * length for length in range(60)]
    answer = answered(version(tmp_path, CUT), of(*texts))
    assert answer.tokens == sum(min(2 + 2 * length, 6) for length in range(60))


def test_tokens_of_several_tokenizers_are_summed(tmp_path: Path) -> None:
    again = Step("tokenize", {**TOKENIZE, "tokens_max": 4})
    assert answered(version(tmp_path, CUT, again), of("a man eats bread")).tokens == 6 + 4


def test_rows_run_again_one_by_one_count_once(tmp_path: Path) -> None:
    def act(batch: Batch) -> None:
        if "bread" in batch.columns["text"]:
            raise RuntimeError("a defect of ours")
        batch.columns["shouted"] = batch.columns["text"]

    kind = Kind("steps:shout", Own, lambda options, known: [known["text"]], lambda options, known, context: act)
    answer = answered(
        version(tmp_path, CUT, SHOUT), of("a", "bread", "a man"), partial(LocalWorker, own={kind.name: kind})
    )
    assert list(answer.failures) == [1]
    assert answer.tokens == 3 + 4


def test_where_nothing_is_tokenized_there_are_no_tokens_and_the_receipt_is_silent(tmp_path: Path) -> None:
    copy = Step("normalize_text", {"input": "text", "output": "copy"})
    answer = answered(version(tmp_path, copy, outputs=("copy",)), of("a man"))
    assert answer.tokens == 0
    assert answer.receipt is not None
    assert "tokens" not in answer.receipt
