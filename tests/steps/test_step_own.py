"""Own functions of steps.py."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from forwardpass.core.errors import Code, Failed, Misconfigured, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.own import own_kind
from forwardpass.steps.protocol import Batch, Context, object_column, text_column

if TYPE_CHECKING:
    from tests.steps.conftest import Columns, Run

TEXT = Field("text", "BYTES", (), "text")
AMOUNT = Field("amount", "FP64", (), "number")
VECTOR = Field("vector", "FP32", (2,))
SOURCE = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Rate:
    factor: float

RATE = Rate(2.0)

def price(amount: float | None) -> float:
    return -1.0 if amount is None else amount * RATE.factor

def shout(text: str, amount: float | None) -> str:
    if text == "rude":
        raise ValueError("mind your\\nwords " + "x" * 200)
    if text == "odd":
        raise KeyError("secret")
    if text == "gone":
        raise SystemExit(3)
    return text.upper()

def twice(vector):
    return vector * 2

def change(vector):
    vector[0] = 9
    return 1.0

def echo(text):
    return {"one": 1, "1.5": 1.5, "big": 2**63, "huge": 2**70, "yes": True, "list": [1], "none": None}.get(text, text)

def spoil(found, tags, shape):
    found["a"].append(2)
    found["b"] = 3
    tags.clear()
    try:
        shape[0] = 1
    except ValueError:
        return "read-only"

def polite(text):
    raise ValueError("no")

def many(*text): ...
def stranger(colour): ...
_hidden = price
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("version")
    (folder / "steps.py").write_text(SOURCE)
    return folder


def test_a_function_is_called_with_each_rows_fields(run: "Run", folder: Path) -> None:
    options = {"output": "price", "datatype": "FP32"}
    batch = run("steps:price", options, {AMOUNT: np.array([1.5, np.nan])}, folder, trusted=True)
    assert batch.columns["price"].tolist() == [3.0, -1.0]
    assert batch.columns["price"].dtype == np.float32


def test_a_row_that_raises_fails_alone(run: "Run", folder: Path) -> None:
    given: Columns = {TEXT: ["a", "odd", "rude", "b"], AMOUNT: np.zeros(4)}
    batch = run("steps:shout", {"output": "loud", "datatype": "BYTES"}, given, folder, trusted=True)
    assert batch.columns["loud"].tolist() == ["A", "B"]
    assert isinstance(batch.failures[1], Failed)
    assert batch.failures[1].code is Code.STEP_FAILED
    assert "secret" not in batch.failures[1].text
    assert "KeyError" in batch.failures[1].detail


def test_a_row_that_would_end_the_process_fails_alone(run: "Run", folder: Path) -> None:
    given: Columns = {TEXT: ["a", "gone", "b"], AMOUNT: np.zeros(3)}
    batch = run("steps:shout", {"output": "loud", "datatype": "BYTES"}, given, folder, trusted=True)
    assert batch.columns["loud"].tolist() == ["A", "B"]
    assert (batch.failures[1].code, "SystemExit: 3" in batch.failures[1].detail) == (Code.STEP_FAILED, True)


def test_a_function_cannot_change_json_or_lists_that_others_read(run: "Run", folder: Path) -> None:
    found, tags = Field("found", "BYTES", (), "json"), Field("tags", "BYTES", (), "texts")
    shape = Field("shape", "FP32", (-1,), "ragged")
    given: Columns = {
        found: object_column([{"a": [1]}]),
        tags: object_column([["x"]]),
        shape: [np.zeros(2, np.float32)],
    }
    batch = run("steps:spoil", {"output": "x", "datatype": "BYTES"}, given, folder, trusted=True)
    assert batch.columns["x"].tolist() == ["read-only"]
    assert (batch.columns["found"][0], batch.columns["tags"][0]) == ({"a": [1]}, ["x"])


def test_a_value_error_refuses_the_row_with_its_text_cut_and_escaped(run: "Run", folder: Path) -> None:
    given: Columns = {TEXT: ["rude"], AMOUNT: np.zeros(1)}
    batch = run("steps:shout", {"output": "loud", "datatype": "BYTES"}, given, folder, trusted=True)
    assert isinstance(batch.failures[0], Refused)
    assert batch.failures[0].text.startswith("shout: mind your\\nwords xxx")
    assert len(batch.failures[0].text) < 80
    assert batch.failures[0].field == ""  # of two fields nobody knows which


def test_a_refusal_by_a_function_of_one_field_names_the_field(run: "Run", folder: Path) -> None:
    batch = run("steps:polite", {"output": "x", "datatype": "BYTES"}, {TEXT: ["rude"]}, folder, trusted=True)
    assert batch.failures[0].field == "text"


def test_a_tensor_goes_in_and_comes_out(run: "Run", folder: Path) -> None:
    given = {VECTOR: np.array([[1, 2], [3, 4]], dtype=np.float32)}
    options = {"output": "vector", "datatype": "FP64", "shape": [2]}
    batch = run("steps:twice", options, given, folder, trusted=True)
    assert batch.columns["vector"].tolist() == [[2, 4], [6, 8]]
    assert batch.columns["vector"].dtype == np.float64


def test_a_function_cannot_change_its_inputs(run: "Run", folder: Path) -> None:
    vector = np.array([[1.0, 2.0]], dtype=np.float32)
    batch = run("steps:change", {"output": "x", "datatype": "FP32"}, {VECTOR: vector}, folder, trusted=True)
    assert list(batch.failures) == [0]
    assert vector.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("datatype", "good", "bad"),
    [
        ("BYTES", "text", "one"),
        ("BYTES", "text", "\ud800"),
        ("FP32", "1.5", "yes"),
        ("FP64", "one", "text"),
        ("FP64", "one", "list"),
        ("INT64", "one", "1.5"),
        ("INT64", "one", "big"),
        ("INT64", "one", "huge"),
        ("INT64", "one", "yes"),
        ("BOOL", "yes", "one"),
        ("BYTES", "text", "none"),
    ],
)
def test_a_value_that_is_not_as_declared_fails_its_row(
    run: "Run", folder: Path, datatype: str, good: str, bad: str
) -> None:
    options = {"output": "x", "datatype": datatype}
    batch = run("steps:echo", options, {TEXT: [good, bad]}, folder, trusted=True)
    assert list(batch.failures) == [1]
    assert batch.failures[1].code is Code.STEP_FAILED


def test_own_code_runs_only_in_a_trusted_version(run: "Run", tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("raise SystemExit('it ran')")
    with pytest.raises(Misconfigured) as refusal:
        run("steps:price", {"output": "x", "datatype": "FP32"}, {AMOUNT: np.zeros(1)}, tmp_path)
    assert refusal.value.code is Code.NOT_TRUSTED


@pytest.mark.parametrize(
    ("use", "why"),
    [
        ("prize", "has no function 'prize'.*did you mean 'price'"),
        ("Rate", "has no function 'Rate'"),
        ("many", r"takes \*text"),
        ("stranger", "takes 'colour', which is no field; fields here: amount"),
    ],
)
def test_a_function_that_cannot_be_called_is_found_at_load(run: "Run", folder: Path, use: str, why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        run(f"steps:{use}", {"output": "x", "datatype": "FP32"}, {AMOUNT: np.zeros(1)}, folder, trusted=True)


@pytest.mark.parametrize(
    ("source", "code"), [(None, Code.DEFINITION_INVALID), ("1/0", Code.LOAD_FAILED), ("(", Code.LOAD_FAILED)]
)
def test_a_steps_file_that_is_missing_or_breaks_is_the_operators_fault(
    run: "Run", tmp_path: Path, source: str | None, code: Code
) -> None:
    if source is not None:
        (tmp_path / "steps.py").write_text(source)
    with pytest.raises(Misconfigured) as refusal:
        run("steps:f", {"output": "x", "datatype": "FP32"}, {AMOUNT: np.zeros(1)}, tmp_path, trusted=True)
    assert refusal.value.code is code


def test_changed_source_is_never_answered_from_an_older_one_and_no_byte_code_is_left(
    run: "Run", tmp_path: Path
) -> None:
    options: dict[str, Any] = {"output": "x", "datatype": "FP64"}
    answers = []
    for number in (1.0, 2.0):
        (tmp_path / "steps.py").write_text(f"def f(amount):\n    return {number}\n")
        answers += run("steps:f", options, {AMOUNT: np.zeros(1)}, tmp_path, trusted=True).columns["x"].tolist()
    assert answers == [1.0, 2.0]
    assert [each.name for each in tmp_path.iterdir()] == ["steps.py"]


def test_a_text_result_is_the_text_itself(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def shout(text: str) -> str:\n    return text.upper()\n")
    kind = own_kind("shout")
    known = {"text": Field("text", "BYTES", (), "text")}
    batch = Batch({"text": text_column(["a", "b"])}, 2, [0, 1])
    kind.prepare({"output": "loud", "datatype": "BYTES"}, known, Context(tmp_path, trusted=True))(batch)
    assert [type(value) for value in batch.columns["loud"]] == [str, str]
