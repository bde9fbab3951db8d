"""The python engine: the author's class or function, and what becomes of its errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.engines.discover import engine_kind
from forwardpass.engines.protocol import End, Engine, ModelFile, Work

TABLE = {"x": {"datatype": "FP32", "shape": [2]}}
CLASS = """
import pathlib

class Model:
    def load(self, folder, threads):
        self.factor = float((pathlib.Path(folder) / "factor.txt").read_text()) + threads / 4

    def predict(self, batch):
        if (batch["x"] < 0).any():
            raise RuntimeError("secret: negative")
        return {"x": batch["x"] * self.factor}

    def close(self):
        (pathlib.Path(__file__).parent / "closed").touch()
"""


def load(folder: Path, code: str, **options: Any) -> Engine:
    (folder / "steps.py").write_text(code)
    engine = engine_kind("python").make()
    options = {"inputs": TABLE, "outputs": TABLE, **options}
    engine.load(ModelFile(str(folder / "steps.py"), options, threads=2))
    return engine


def ask(engine: Engine, rows: Any) -> End:
    engine.submit([Work(1, {"x": np.array(rows, np.float32)})])
    (end,) = engine.step()
    assert isinstance(end, End)
    return end


def test_a_class_is_loaded_with_its_folder_and_threads_asked_and_closed_once(tmp_path: Path) -> None:
    (tmp_path / "factor.txt").write_text("3")
    engine = load(tmp_path, CLASS)
    assert ask(engine, [[1, 2]]).outputs["x"].tolist() == [[3.5, 7]]
    engine.close()
    (tmp_path / "closed").unlink()
    engine.close()
    assert not (tmp_path / "closed").exists()


def test_a_function_will_do(tmp_path: Path) -> None:
    engine = load(tmp_path, "def twice(batch):\n    return {'x': batch['x'] * 2}\n", call="twice")
    assert ask(engine, [[1, 2]]).outputs["x"].tolist() == [[2, 4]]


def test_an_error_of_the_model_is_told_to_the_log_only(tmp_path: Path) -> None:
    (tmp_path / "factor.txt").write_text("3")
    engine = load(tmp_path, CLASS)
    failure = ask(engine, [[-1, 0]]).failure
    assert failure is not None
    assert (failure.code, failure.text) == (Code.ENGINE_FAILED, "the model raised an error")
    assert "secret: negative" in failure.detail
    assert ask(engine, [[1, 0]]).failure is None


def test_a_model_that_would_end_the_process_has_failed(tmp_path: Path) -> None:
    failure = ask(load(tmp_path, "def f(batch):\n    raise SystemExit(3)\n", call="f"), [[1, 2]]).failure
    assert failure is not None
    assert (failure.code, "SystemExit: 3" in failure.detail) == (Code.ENGINE_FAILED, True)
    with pytest.raises(Misconfigured, match=r"steps\.py: Model could not be loaded"):
        load(tmp_path, "raise SystemExit(3)\n")


def test_an_answer_that_is_no_table_of_arrays_is_a_failure(tmp_path: Path) -> None:
    failure = ask(load(tmp_path, "def f(batch):\n    return [1]\n", call="f"), [[1, 2]]).failure
    assert failure is not None
    assert failure.text == "the model did not return a table of arrays"


@pytest.mark.parametrize("code", ["class Model:\n    pass\n", "x = 1 / 0\n", "def other(): ...\n", "class Model(\n"])
def test_code_that_cannot_be_loaded_is_the_operators_fault(tmp_path: Path, code: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        load(tmp_path, code)
    assert caught.value.code is Code.LOAD_FAILED
    assert caught.value.text == "steps.py: Model could not be loaded"
    assert "Error" in caught.value.detail


def test_byte_code_beside_the_file_is_not_run(tmp_path: Path) -> None:
    load(tmp_path, "def f(batch):\n    return batch\n", call="f")
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize(("batched", "rows"), [(True, None), (False, 1)])
def test_a_model_that_is_not_batched_gets_one_row_at_a_time(tmp_path: Path, batched: bool, rows: int | None) -> None:
    signature = load(tmp_path, "def f(batch):\n    return batch\n", call="f", batched=batched).signature()
    assert (signature.batched, signature.fixed_rows) == (batched, rows)
