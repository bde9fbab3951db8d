"""A pipeline written in Python: tried in this process, saved, and then the same as on a server."""

import gc
import math
import os
import threading
import weakref
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests import fixtures_onnx as models
from tests.serving import forwardpass, serving

from forwardpass import (
    Batch,
    ForwardpassError,
    Golden,
    Input,
    Misconfigured,
    Pipeline,
    Prediction,
    Sequences,
    Turn,
    step,
    use,
)
from forwardpass.client_retry import RequestError, ServerError

SUFFIX = "!"
TABLE = {"a": [1, 2.5], "b": (True, None)}
LOCK = threading.Lock()


def shouted(text: str) -> str:
    return text.upper() + SUFFIX


@step
def shout(text: str) -> str:
    """Capitals."""
    if not text:
        raise ValueError("nothing to shout")
    return shouted(text)


@step(output="letters", datatype="FP32")
def count(text: str) -> float:
    return float(len(text) / 3)


@step
def powers(text: str) -> Annotated[NDArray[np.float32], "FP32", (2,)]:
    return np.array([len(text), math.sqrt(len(text))], dtype=np.float32)


def table(text: str) -> int:
    return len(TABLE) + len(text)


def breaks(text: str) -> bool:
    return bool(1 // (len(text) - len(text)))


def locked(text: str) -> bool:
    return LOCK.locked()


async def waits(text: str) -> str:
    return text


def functions(*more: Any, **options: Any) -> Pipeline:
    return Pipeline([shout, count, powers, *more], inputs={"text": "text"}, outputs=["shout", "letters"], **options)


def tensors(model: Path, **options: Any) -> Pipeline:
    return Pipeline([use.model(model)], inputs=[Input("x", "tensor", datatype="FP32", shape=(4,))], **options)


def test_functions_are_steps_whose_annotations_say_what_they_make() -> None:
    with Pipeline([shout, count, powers, table], inputs={"text": "text"}) as made:
        outputs = made.predict({"text": "abcd"}).outputs
    assert outputs == {"table": 6}
    assert [each.options["datatype"] for each in made.definition.steps] == ["BYTES", "FP32", "FP32", "INT64"]


def test_one_record_is_answered_and_many_each_with_its_own_outcome() -> None:
    with functions() as made:
        one = made.predict({"text": "hey"})
        many = made.predict([{"text": "hey"}, {"text": ""}])
        assert made.predict([]) == []
    assert one.outputs == {"shout": "HEY!", "letters": 1.0}
    assert isinstance(many[0], Prediction) and many[0].outputs == one.outputs
    assert isinstance(many[1], RequestError) and many[1].message == "shout: nothing to shout"


def test_what_fails_is_raised_as_a_client_would_and_own_code_shows_its_traceback() -> None:
    with functions(breaks) as made:
        with pytest.raises(RequestError, match="/text: expected a string, got an integer"):
            made.predict({"text": 3})
        with pytest.raises(RequestError, match="/instances/1/text"):
            made.predict([{"text": "a"}, {"text": 3}])
        with pytest.raises(ServerError, match="step breaks could not do this row") as failed:
            made.predict({"text": "a"})
    assert "ZeroDivisionError" in failed.value.__notes__[0]


def test_arrays_are_taken_as_a_client_would_send_them(tmp_path: Path) -> None:
    with tensors(models.identity(tmp_path / "m.onnx")) as made:
        for given in ([1, 2.5, 3, 4], np.array([1, 2.5, 3, 4]), np.array([1, 2.5, 3, 4], dtype=np.float32)):
            assert made.predict({"x": given}).outputs == {"y": [1.0, 2.5, 3.0, 4.0]}
        with pytest.raises(RequestError, match="/x"):
            made.predict({"x": np.zeros(3)})


def test_golden_examples_are_verified_when_it_is_first_loaded(tmp_path: Path) -> None:
    model = models.identity(tmp_path / "m.onnx")
    with tensors(model, golden=[Golden({"x": np.ones(4)}, {"y": [1.0, 1.0, 1.0, 1.0]})]) as right:
        checked = right.check()
    assert (checked.golden, checked.batching, checked.outputs[0].shape) == (1, "on", (4,))
    wrong = tensors(model, golden=[Golden({"x": [1.0] * 4}, {"y": [2.0] * 4})])
    with pytest.raises(Misconfigured, match=r"golden\[0\]\.expect\.y"):
        wrong.predict({"x": [1.0] * 4})


def test_the_pipelines_own_checks_hold_here_too(tmp_path: Path) -> None:
    made = Pipeline([use.model(models.nan_maker(tmp_path / "m.onnx"))])
    with made, pytest.raises(ServerError, match="not a finite number"):
        made.predict({"x": [-1.0]})


def test_more_records_than_a_queue_holds_are_answered(tmp_path: Path) -> None:
    with tensors(models.identity(tmp_path / "m.onnx"), batch=Batch(rows_max=1000)) as made:
        records = [{"x": [float(row)] * 4} for row in range(5000)]
        outcomes = made.predict(records)
        assert [outcome.outputs["y"][0] for outcome in outcomes if isinstance(outcome, Prediction)] == list(range(5000))
        with pytest.raises(RequestError, match="/instances/4500/x"):
            made.predict([*records[:4500], {"x": "no"}])


def test_rows_that_depend_on_each_other_run_together_or_not_at_all(tmp_path: Path) -> None:
    with tensors(models.mean_over_batch(tmp_path / "m.onnx"), batch=Batch(rows_max=4)) as made:
        together = made.predict([{"x": [0.0] * 4}, {"x": [2.0] * 4}])
        assert [outcome.outputs["y"][0] for outcome in together if isinstance(outcome, Prediction)] == [-1.0, 1.0]
        with pytest.raises(RequestError, match="its rows depend on each other"):
            made.predict([{"x": [0.0] * 4}] * 5)


def test_a_sequence_goes_on_from_one_call_to_the_next(tmp_path: Path) -> None:
    nodes = [models.node("Add", "x before", "y"), models.node("Identity", "y", "after")]
    inputs: list[models.Value] = [(name, models.FLOAT, ("N", 1)) for name in ("x", "before")]
    outputs: list[models.Value] = [(name, models.FLOAT, ("N", 1)) for name in ("y", "after")]
    model = use.model(models.write(tmp_path / "sum.onnx", nodes, inputs, outputs, {}), state={"before": "after"})
    given = [Input("x", "tensor", datatype="FP32", shape=(1,))]
    with Pipeline([model], inputs=given, outputs="y", sequence=Sequences()) as made:
        sums = [made.predict({"x": [2.0]}, sequence=Turn("a", start=number == 0)).outputs["y"] for number in range(3)]
        alone = made.predict({"x": [5.0]}, sequence=Turn("b", start=True)).outputs["y"]
    assert (sums, alone) == ([[2.0], [4.0], [6.0]], [5.0])


def test_a_file_is_found_where_it_is_and_goes_into_the_folder_under_its_name(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "labels.txt").write_text("a\nb\nc\nd\n")
    model = models.identity(tmp_path / "far" / "m.onnx")
    made = Pipeline([use.model(model), use.labels(tmp_path / "far" / "labels.txt")], files={"model.json": model})
    assert made.definition.steps[1].options == {"file": "labels.txt"}
    assert sorted(made.files) == ["labels.txt", "m.onnx", "model.json"]
    with pytest.raises(Misconfigured, match=r"there is no file .*nowhere"):
        Pipeline([use.model(model), use.labels(tmp_path / "nowhere")])
    other = models.identity(tmp_path / "m.onnx")
    with pytest.raises(Misconfigured, match=r"two files are called m\.onnx"):
        Pipeline([use.model(model), use.model(other)])


def test_saved_it_is_what_ran_here_with_the_same_digest_and_bytes(tmp_path: Path) -> None:
    with functions(golden=[Golden({"text": "abc"}, {"letters": 1.0})]) as made:
        folder = made.save(tmp_path / "letters" / "1")
        here = made.predict({"text": "é"})
        with Pipeline.open(folder, trusted=True) as opened:
            there = opened.predict({"text": "é"})
            records = [{"text": "é" * length} for length in range(9)]
            assert opened.predict_json(records) == made.predict_json(records)
    assert (here.outputs, here.digest) == (there.outputs, there.digest)


def test_a_saved_folder_runs_only_when_trusted(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="forwardpass trust"):
        Pipeline.open(functions().save(tmp_path / "letters" / "1"))


def test_a_saved_function_has_what_it_uses_of_its_module(tmp_path: Path) -> None:
    text = (functions(table).save(tmp_path / "1") / "steps.py").read_text()
    for line in ("import math", "import numpy as np", "SUFFIX = '!'", f"TABLE = {TABLE!r}", "def shouted(text: str)"):
        assert f"\n{line}" in text
    assert "@step" not in text


@pytest.mark.parametrize("name", ["closure", "lock", "own module", "global"])
def test_a_function_that_cannot_stand_by_itself_runs_here_and_is_not_saved(name: str, tmp_path: Path) -> None:
    times = len(name)

    def closure(text: str) -> str:
        return text * times

    def module(text: str) -> bool:
        return models.INT64 > 0

    def changing(text: str) -> str:
        global SUFFIX  # noqa: PLW0603 - what is to be refused
        SUFFIX = "!"
        return SUFFIX

    made, said = {
        "closure": (closure, "uses times of the function around it"),
        "lock": (locked, "uses LOCK (lock), which has no source of its own"),
        "own module": (module, "uses models of tests.fixtures_onnx, which is a file of yours"),
        "global": (changing, "changes SUFFIX of its module"),
    }[name]
    with Pipeline([made], inputs={"text": "text"}) as pipeline:
        assert pipeline.predict({"text": "a"}).outputs == {made.__name__: made("a")}
        with pytest.raises(Misconfigured) as refused:
            pipeline.save(tmp_path / "1")
    assert said in str(refused.value)
    assert not (tmp_path / "1").exists()


def test_a_function_whose_file_was_changed_since_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "letters_of_mine.py").write_text("def one(text: str) -> int:\n    return 1 + len(text)\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("letters_of_mine")
    made = Pipeline([module.one], inputs={"text": "text"})
    (tmp_path / "letters_of_mine.py").write_text("def one(text: str) -> int:\n    return len(text) * 2 + 1\n")
    with pytest.raises(Misconfigured, match="was changed after this process had read it"):
        made.save(tmp_path / "1")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda text: text, "is no function with a public name"),
        (len, "is no function with a public name"),
        (waits, "gives no value when it is called"),
        (test_a_saved_folder_runs_only_when_trusted, "its return annotation says nothing of the datatype"),
    ],
)
def test_what_is_no_step_is_refused_at_once(function: Any, said: str) -> None:
    with pytest.raises(Misconfigured, match=said):
        step(function)


def test_a_wrong_declaration_is_refused_where_it_is_written() -> None:
    with pytest.raises(Misconfigured, match=r"size\.datatype.*\n?.*size\.shape"):

        @step(datatype="FP8", shape=(0,))
        def size(text: str) -> float:
            return 0.0


def test_closed_it_loads_again_and_forgotten_it_leaves_nothing(tmp_path: Path) -> None:
    made = tensors(models.identity(tmp_path / "m.onnx"), name="leaving")
    made.predict({"x": [0.0] * 4})
    made.close()
    assert made.predict({"x": [1.0] * 4}).outputs == {"y": [1.0] * 4}
    gone = weakref.ref(made)
    del made
    gc.collect()
    assert gone() is None
    assert not [thread for thread in threading.enumerate() if thread.name == "leaving"]


def test_the_bytes_are_those_of_a_server(tmp_path: Path) -> None:
    with functions() as made:
        folder = made.save(tmp_path / "models" / "letters" / "1")
        for path in folder.rglob("*"):
            os.utime(path, (1_000_000_000, 1_000_000_000))  # not just written: no time to settle is needed
        data = tmp_path / "data"
        forwardpass("trust", folder, data=data)
        with serving(tmp_path / "models", data=data) as server:
            for record in ({"text": "hello"}, {"text": "ß" * 50}):
                reply = server.predict("letters", record)
                assert reply.body == made.predict_json(record)
                assert reply.headers["x-pipeline-digest"] == made.predict(record).digest
            many = {"instances": [{"text": "a"}, {"text": ""}, {"text": "abc"}]}
            assert server.predict("letters", many).body == made.predict_json(many["instances"])
            refused = server.predict("letters", {"text": ""})
            with pytest.raises(ForwardpassError) as here:
                made.predict({"text": ""})
            assert (here.value.code, here.value.status) == (refused.json["error"]["code"], refused.status)
