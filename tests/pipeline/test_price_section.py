"""The section [price]: what it may hold, that nothing in it is without effect, and what a request comes to by it."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests import fixtures_onnx

import forwardpass
from forwardpass.admit.quotas import Use
from forwardpass.core.errors import Misconfigured
from forwardpass.core.pipeline import Input, Pipeline, Price, Signature, Step
from forwardpass.core.request import Request
from forwardpass.core.timeline import Timeline
from forwardpass.execution.kinds import kinds
from forwardpass.pipeline import fields
from forwardpass.pipeline.charge import most
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


LONG = {"query": "x" * 600, "documents": ["yy", "zz", "zz"]}


@pytest.mark.parametrize(
    ("steps", "tokens"),
    [
        ((Step("tokenize", {"tokens_max": 256}),), 256),
        ((Step("tokenize", {"tokens_max": 256}), Step("tokenize", {"tokens_max": 100})), 356),
        ((Step("steps:made_text"), Step("tokenize", {"tokens_max": 64})), 64),
        ((Step("steps:made_text"), Step("tokenize", {"input": "made", "tokens_max": 64})), 64),
        ((Step("steps:made_text"), Step("tokenize", {"input": "made", "tokens_max": 5000})), 5000),
        ((Step("expand", {"over": {"documents": "one"}}), Step("tokenize", {"input": "one", "tokens_max": 8})), 24),
        (
            (
                Step("expand", {"over": {"documents": "one"}}),
                Step("fold"),
                Step("tokenize", {"input": "query", "tokens_max": 8}),
            ),
            8,
        ),
        ((Step("token_windows", {"tokens_max": 16, "windows_max": 2}),), 32),
    ],
)
def test_a_step_makes_at_most_as_many_tokens_of_a_row_as_it_says(steps: tuple[Step, ...], tokens: int) -> None:
    assert most(Pipeline(steps), Signature(TEXTS, ()), request(LONG)).tokens == tokens


def test_tokens_are_not_looked_for_where_nothing_depends_on_them() -> None:
    pipeline = Pipeline((Step("tokenize", {"tokens_max": 256}),), price=Price(row=2.0))
    assert most(pipeline, Signature(TEXTS, ()), request(LONG), tokens=False) == Use(1, 0, 2.0)
