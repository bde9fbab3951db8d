"""The model step: which fields a graph's inputs take, what is refused before anything is loaded, and at load."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import fixtures_onnx as models

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field
from forwardpass.execution.model_step import ModelStep
from forwardpass.steps.protocol import Batch, Column, Context, text_column

ONNX = {"engine": "onnxruntime", "file": "m.onnx"}
X = Field("x", "FP32", (4,))


def run(folder: Path, options: dict[str, Any], known: list[Field], columns: dict[str, Column]) -> Batch:
    rows = len(next(iter(columns.values())))
    batch = Batch(columns, rows, list(range(rows)))
    context = Context(folder, trusted=True)
    step = ModelStep(context)
    step.prepare(options, {field.name: field for field in known}, context)(batch)
    step.close()
    return batch


def refusal(folder: Path, options: dict[str, Any], known: list[Field], *, trusted: bool = True) -> Misconfigured:
    with pytest.raises(Misconfigured) as caught:
        ModelStep(Context(folder, trusted=trusted)).fields(options, {field.name: field for field in known})
    return caught.value


@pytest.mark.parametrize(
    ("change", "key", "allowed"),
    [
        (
            {"engine": "onnxruntim"},
            "engine",
            "installed: auto, onnxruntime, openvino, python; did you mean 'onnxruntime'?",
        ),
        ({"file": "none.onnx"}, "file", "a file in the pipeline's folder"),
        ({"file": "../m.onnx"}, "file", "the name of a file in the pipeline's folder"),
        ({"optimisation": "all"}, "optimisation", "did you mean 'optimization'?"),
        ({"optimization": "most"}, "optimization", '"all" or "extended" or "basic" or "off"'),
        ({"spinning": 1}, "spinning", "true or false"),
        ({"engine": "openvino", "precision": "fp64"}, "precision", '"fp32" or "bf16"'),
        ({"engine": "auto"}, "tolerance", "{ absolute = 0.001, cosine = 0.9999 }, or one of the two"),
        ({"engine": "auto", "tolerance": {}}, "tolerance", "{ absolute = 0.001, cosine = 0.9999 }"),
        ({"engine": "auto", "tolerance": {"cosine": 2}}, "tolerance", "{ absolute = 0.001, cosine = 0.9999 }"),
        ({"inputs": {"x": 3}}, "inputs.x", "the name of a field"),
        (
            {"call": "Model"},
            "call",
            "options here: engine, file, inputs, outputs, state, constants, optimization, spinning",
        ),
        ({"engine": "python"}, "inputs", "own code declares them"),
        ({"engine": "python", "inputs": {"x": "y"}}, "inputs.x", 'a table such as { datatype = "FP32", shape = [4] }'),
        ({"engine": "python", "inputs": {"x": {"datatype": "FP"}}}, "inputs.x", "a table such as"),
    ],
)
def test_wrong_options_are_found_without_loading_the_model(
    tmp_path: Path, change: dict[str, Any], key: str, allowed: str
) -> None:
    (tmp_path / "m.onnx").write_bytes(b"never read")
    found = [text for place, _, text in ModelStep().check({**ONNX, **change}, tmp_path) if place == key]
    assert found
    assert allowed in found[0]


def test_right_options_have_no_problems(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"never read")
    options = {**ONNX, "optimization": "basic", "spinning": True, "inputs": {"in:0": "x"}, "outputs": {"out:0": "y"}}
    assert ModelStep().check(options, tmp_path) == []


def test_inputs_are_taken_by_name_and_outputs_keep_theirs(tmp_path: Path) -> None:
    models.add(tmp_path / "m.onnx")
    fields = [Field(name, "FP32", (3,)) for name in ("b", "c", "a")]
    a, b, c = (np.full((2, 3), value, np.float32) for value in (1, 2, 4))
    assert run(tmp_path, ONNX, fields, {"a": a, "b": b, "c": c}).columns["y"].tolist() == [[3.0] * 3] * 2


def test_inputs_and_outputs_can_be_mapped_to_fields(tmp_path: Path) -> None:
    models.add(tmp_path / "m.onnx")
    options = {**ONNX, "inputs": {"a": "p", "b": "p"}, "outputs": {"y": "twice"}}
    batch = run(tmp_path, options, [Field("p", "FP32", (3,))], {"p": np.ones((1, 3), np.float32)})
    assert batch.columns["twice"].tolist() == [[2.0] * 3]


def test_a_single_input_takes_the_latest_field_that_fits(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx")
    fields = [Field("old", "FP32", (4,)), Field("new", "FP32", (4,)), Field("other", "FP32", (5,))]
    old, new, other = np.zeros((1, 4), np.float32), np.ones((1, 4), np.float32), np.zeros((1, 5), np.float32)
    columns: dict[str, Column] = {"old": old, "new": new, "other": other}
    assert run(tmp_path, ONNX, fields, columns).columns["y"].tolist() == [[1.0] * 4]


@pytest.mark.parametrize(
    ("field", "key"),
    [
        (Field("x", "FP64", (4,)), "x (FP64[4]) does not fit"),  # would be rounded
        (Field("x", "INT64", (4,)), "x (INT64[4]) does not fit"),
        (Field("x", "FP32", (5,)), "x (FP32[5]) does not fit"),
        (Field("x", "BYTES", (), "text"), "x (text) does not fit"),
        (Field("z", "FP64", (4,)), "no field is named 'x'"),
    ],
)
def test_a_field_that_would_have_to_be_changed_is_refused_naming_both(tmp_path: Path, field: Field, key: str) -> None:
    models.identity(tmp_path / "m.onnx")
    problem = refusal(tmp_path, ONNX, [field]).problems[0]
    assert key in problem.found
    assert "x (FP32[4])" in problem.found


def test_what_loses_nothing_is_widened(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx")
    batch = run(tmp_path, ONNX, [Field("x", "INT16", (4,))], {"x": np.full((1, 4), 7, np.int16)})
    assert batch.columns["y"].tolist() == [[7.0] * 4]


def test_one_value_a_row_fits_an_axis_of_one(tmp_path: Path) -> None:
    models.nan_maker(tmp_path / "m.onnx")
    assert run(tmp_path, ONNX, [Field("x", "FP32")], {"x": np.ones(2, np.float32)}).columns["y"].tolist() == [[0.0]] * 2


def test_unknown_names_in_the_tables_are_refused_with_those_of_the_graph(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx")
    assert "inputs of the model: x (FP32[4])" in str(refusal(tmp_path, {**ONNX, "inputs": {"z": "x"}}, [X]))
    assert "outputs of the model: y (FP32[4])" in str(refusal(tmp_path, {**ONNX, "outputs": {"z": "x"}}, [X]))


def test_a_missing_or_broken_string_fails_its_row_alone(tmp_path: Path) -> None:
    models.text_identity(tmp_path / "m.onnx")
    batch = run(tmp_path, ONNX, [Field("x", "BYTES")], {"x": text_column(["a", None, "\udcff", "ü"])})
    assert batch.columns["y"].tolist() == ["a", "ü"]
    assert {row: failure.code for row, failure in batch.failures.items()} == {
        1: Code.MISSING_FIELD,
        2: Code.INVALID_UTF8,
    }


def test_own_code_runs_only_in_a_trusted_version(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("raise SystemExit\n")
    table = {"x": {"datatype": "FP32", "shape": [4]}}
    options = {"engine": "python", "file": "steps.py", "inputs": table, "outputs": table}
    assert refusal(tmp_path, options, [X], trusted=False).code is Code.NOT_TRUSTED


def test_own_code_can_name_its_fields_and_take_raw_bytes(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(
        "import numpy as np\ndef f(batch):\n    return {'n': np.array([len(each) for each in batch['raw']])}\n"
    )
    options = {
        "engine": "python", "file": "steps.py", "call": "f",
        "inputs": {"raw": {"datatype": "BYTES", "field": "image"}},
        "outputs": {"n": {"datatype": "INT64", "field": "size"}},
    }  # fmt: skip
    batch = run(tmp_path, options, [Field("image", "BYTES", (), "bytes")], {"image": text_column([b"abc", b""])})
    assert batch.columns["size"].tolist() == [3, 0]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("{}", "the model returned no output x"),
        ("{'x': batch['x'].astype('f8')}", "x: the model returned float64; FP32 is declared"),
        ("{'x': batch['x'][:1]}", "x: the model returned 1 rows for 2"),
        ("{'x': np.full((), 1, 'f4')}", "x: the model returned no rows for 2"),
        ("{'x': batch['x'][:, :3]}", "x: the model returned rows of [3]; [4] is declared"),
    ],
)
def test_outputs_that_are_not_as_declared_fail_the_batch(tmp_path: Path, answer: str, text: str) -> None:
    (tmp_path / "steps.py").write_text(f"import numpy as np\ndef f(batch):\n    return {answer}\n")
    table = {"x": {"datatype": "FP32", "shape": [4]}}
    options = {"engine": "python", "file": "steps.py", "call": "f", "inputs": table, "outputs": table}
    with pytest.raises(Exception, match=r"the model returned") as caught:
        run(tmp_path, options, [X], {"x": np.ones((2, 4), np.float32)})
    assert str(caught.value) == text


def test_a_model_of_one_row_at_a_time_answers_any_number_of_rows(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx", (1, 4))
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert run(tmp_path, ONNX, [X], {"x": rows}).columns["y"].tolist() == rows.tolist()


def test_a_model_of_three_rows_at_a_time_refuses_other_numbers(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx", (3, 4))
    with pytest.raises(Exception, match="exactly 3 rows at a time; 2 came"):
        run(tmp_path, ONNX, [X], {"x": np.ones((2, 4), np.float32)})


def test_a_graph_without_an_axis_for_rows_is_run_row_by_row(tmp_path: Path) -> None:
    models.identity(tmp_path / "m.onnx", (), models.STRING)
    assert run(tmp_path, ONNX, [Field("x", "BYTES")], {"x": text_column(["a", "b"])}).columns["y"].tolist() == [
        "a",
        "b",
    ]


def test_a_dimension_of_zero_never_reaches_a_model_that_could_die_of_it(tmp_path: Path) -> None:
    models.unique_axis0(tmp_path / "m.onnx")
    with pytest.raises(Exception, match=r"rows of shape \[0\] came") as caught:
        run(tmp_path, ONNX, [Field("x", "FP32", (-1,))], {"x": np.zeros((3, 0), np.float32)})
    assert getattr(caught.value, "code", None) is Code.SHAPE_MISMATCH


def test_a_model_that_the_optimiser_breaks_is_loaded_with_less_of_it(tmp_path: Path) -> None:
    models.gather_range(tmp_path / "m.onnx")
    step = ModelStep(Context(tmp_path))
    step.model(ONNX)
    assert step.settings["optimization"] == "basic"
    assert step.warnings == [
        "the engine's optimiser changes this model's answers: loaded with optimization = 'basic' instead"
    ]


def test_a_model_that_the_optimiser_keeps_right_is_loaded_as_asked(tmp_path: Path) -> None:
    models.network(tmp_path / "m.onnx")
    step = ModelStep(Context(tmp_path, threads=2))
    step.model(ONNX)
    assert step.settings == {"engine": "onnxruntime", "threads": 2, "optimization": "all", "spinning": False}
    assert step.warnings == []
