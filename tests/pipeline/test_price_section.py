"""The section [price]: what it may hold, that nothing in it is without effect, and what a request comes to by it."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests import fixtures_onnx

import forwardpass
from forwardpass.admit.quotas import Use
from forwardpass.core.errors import Code, Failed, Misconfigured, Refused
from forwardpass.core.pipeline import Field, Input, Pipeline, Price, Signature, Step, Version
from forwardpass.core.request import Answer, Request
from forwardpass.core.timeline import Timeline
from forwardpass.execution.kinds import kinds
from forwardpass.pipeline import fields
from forwardpass.pipeline.charge import most, used
from forwardpass.pipeline.definition import parse, to_toml

MODEL = '[[steps]]\nuse = "model"\nengine = "onnxruntime"\nfile = "m.onnx"\n'
TOKENS = '[[inputs]]\nname = "text"\ntype = "text"\n[[steps]]\nuse = "tokenize"\ntokenizer = "t.json"\ntokens_max = 8\n'


def parsed(folder: Path, text: str) -> Pipeline:
    for name in ("m.onnx", "t.json"):
        (folder / name).write_bytes(b"never read")
    return parse(text, file="pipeline.toml", folder=folder, kinds=kinds())


@pytest.mark.parametrize(
    ("section", "price"),
    [
        ("", Price(0.0, 1.0, 0.0)),
        ("[price]\nrequest = 2\nrow = 0\n", Price(2.0, 0.0, 0.0)),
        ("[price]\nrow = 0.25\n", Price(row=0.25)),
    ],
)
def test_a_section_is_read_and_written(tmp_path: Path, section: str, price: Price) -> None:
    pipeline = parsed(tmp_path, MODEL + section)
    assert pipeline.price == price
    assert parse(to_toml(pipeline), file="x", folder=tmp_path, kinds=kinds()) == pipeline


def test_tokens_have_a_price_where_they_are_counted(tmp_path: Path) -> None:
    assert parsed(tmp_path, TOKENS + "[price]\ntoken = 0.001\n").price.token == 0.001
    with pytest.raises(Misconfigured, match=r"price.token: has no effect: no step counts tokens"):
        parsed(tmp_path, MODEL + "[price]\ntoken = 0.001\n")


def test_a_pipeline_written_in_python_has_its_price(tmp_path: Path) -> None:
    fixtures_onnx.identity(tmp_path / "m.onnx")
    step = forwardpass.Step("model", {"engine": "onnxruntime", "file": "m.onnx"})
    made = forwardpass.Pipeline([step], files={"m.onnx": tmp_path / "m.onnx"}, price=forwardpass.Price(row=3.0))
    made.save(tmp_path / "saved")
    assert "price = { row = 3.0 }" in (tmp_path / "saved" / "pipeline.toml").read_text()


@pytest.mark.parametrize("wrong", ["row = -1", "row = nan", "row = inf", 'row = "1"', "rows = 1", "request = true"])
def test_what_no_price_can_be_is_refused(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(Misconfigured, match=r"price.ro|price.request"):
        parsed(tmp_path, f"{MODEL}[price]\n{wrong}\n")


PRICE = Price(request=10.0, row=1.0, token=0.5)
TEXTS = (Input("query", "text"), Input("documents", "texts"))


def request(*records: Mapping[str, object]) -> Request:
    columns, rows = fields.encode(Signature(TEXTS, ()), records)
    return Request("r", columns, rows, Timeline())


def test_the_most_is_a_token_a_byte_and_the_special_ones_of_each_pair_of_texts() -> None:
    pipeline = Pipeline((Step("tokenize", {"tokens_max": 256}),), price=PRICE)
    reserved = most(pipeline, Signature(TEXTS, ()), request({"query": "abc", "documents": ["ab", "cdé"]}))
    # [CLS] abc [SEP] ab [SEP] and [CLS] abc [SEP] cdé [SEP], a token a byte: 8 + 10
    assert reserved.tokens >= 18
    assert reserved.tokens <= 40
    assert (reserved.rows, reserved.cost) == (1, 10 + 1 + 0.5 * reserved.tokens)


def test_what_counts_no_tokens_reserves_none() -> None:
    records = ({"query": "abc", "documents": ["ab"]}, {"query": "", "documents": ["c"]})
    assert most(Pipeline((Step("model"),), price=PRICE), Signature(TEXTS, ()), request(*records)) == Use(2, 0, 12.0)


@pytest.mark.parametrize(
    ("failures", "use"),
    [
        ({}, Use(3, 8, 10 + 3 + 4.0)),
        ({1: Refused(Code.RULE_REFUSED, "")}, Use(3, 8, 10 + 3 + 4.0)),
        ({1: Failed(Code.STEP_FAILED, "")}, Use(2, 8, 10 + 2 + 4.0)),
        (dict.fromkeys(range(3), Failed(Code.STEP_FAILED, "")), Use()),
    ],
)
def test_rows_that_fail_by_our_fault_cost_nothing(failures: dict[int, Refused | Failed], use: Use) -> None:
    version = Version("p", 1, "", "", Pipeline((Step("tokenize", {"tokens_max": 256}),), price=PRICE))
    answer = Answer(version, Signature((), (Field("y", "FP32"),)), {}, 3, failures, (), tokens=8)
    assert used(answer) == use
