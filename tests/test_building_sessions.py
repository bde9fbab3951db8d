"""A pipeline in Python while it is loaded: calls from several threads, interruptions, what is asked at once."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import fixtures_onnx as models

from forwardpass import Batch, ForwardpassError, Golden, Input, Misconfigured, Pipeline, Prediction, use
from forwardpass.building import answers
from forwardpass.client_retry import DeadlineError, ServerError
from forwardpass.client_wire import predict

LIMIT_S = 60
INTERRUPTED = """
import os, signal, threading
from forwardpass import Pipeline

reached, opened = threading.Event(), threading.Event()

def letters(word: str) -> int:
    reached.set()
    opened.wait(60)
    return len(word)

def interrupt() -> None:
    reached.wait(60)
    os.kill(os.getpid(), signal.SIGINT)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start without what it puts in the background
    made = Pipeline([letters], inputs={"word": "text"}, name="held")
    threading.Thread(target=interrupt).start()
    try:
        made.predict({"word": "a"})
    except KeyboardInterrupt:
        print("interrupted")
    opened.set()
    names = ("held", "forwardpass-held_0")
    for thread in [each for each in threading.enumerate() if each.name in names]:
        thread.join(60)
    print([each.name for each in threading.enumerate() if each.name in names])
    with made:
        print(made.predict({"word": "abc"}).outputs["letters"])
"""
AT_EXIT = """
import atexit
from forwardpass import Pipeline

def upper(text: str) -> str:
    return text.upper()

if __name__ == "__main__":
    kept = [Pipeline([upper], inputs={"text": "text"})]
    kept[0].predict({"text": "a"})
    atexit.register(kept.clear)
"""


class Gate:
    """Where a function waits for its test."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def pass_through(self) -> None:
        self.reached.set()
        assert self.opened.wait(LIMIT_S)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()


def held(gate: Gate, text: str = "hold", **options: Any) -> Pipeline:
    """Waits at the gate with this text; with another it answers."""

    def letters(word: str) -> int:
        if word == text or not text:
            gate.pass_through()
        return len(word)

    return Pipeline([letters], inputs={"word": "text"}, **options)


def quits(text: str) -> str:
    if text == "go":
        sys.exit(3)
    return text


def tensors(folder: Path, **options: Any) -> Pipeline:
    given = [Input("x", "tensor", datatype="FP32", shape=(4,))]
    return Pipeline([use.model(models.identity(folder / "m.onnx"))], inputs=given, **options)


def threads_of(name: str) -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name in (name, f"forwardpass-{name}_0")]


def test_a_function_that_ends_the_process_fails_its_row_alone() -> None:
    with Pipeline([quits], inputs={"text": "text"}) as made:
        stays, goes = made.predict([{"text": "a"}, {"text": "go"}])
        assert isinstance(stays, Prediction) and isinstance(goes, ServerError)
        assert "SystemExit: 3" in goes.__notes__[0]
        assert made.predict({"text": "b"}).outputs == {"quits": "b"}


def test_a_part_without_an_answer_is_the_outcome_of_its_rows_alone(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    with held(gate, batch=Batch(rows_max=2)) as made:
        made.check()
        monkeypatch.setattr(answers, "DEADLINE_S", 1.0)
        *done, late = made.predict([{"word": "a" * length} for length in range(1, 5)] + [{"word": "hold"}])
        gate.opened.set()
    assert [each.outputs["letters"] for each in done if isinstance(each, Prediction)] == [1, 2, 3, 4]
    assert isinstance(late, DeadlineError)


def test_an_interrupted_load_leaves_nothing_loaded(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(INTERRUPTED)  # a process of its own: a signal goes to all of one
    command = [sys.executable, str(tmp_path / "script.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    assert (done.stdout, done.stderr) == ("interrupted\n[]\n3\n", "")


def test_closing_waits_for_nobody_and_takes_nobodys_answer(gate: Gate) -> None:
    made = held(gate, name="closing")
    found: list[Any] = []
    asking = threading.Thread(target=lambda: found.append(made.predict({"word": "hold"}).outputs))
    asking.start()
    assert gate.reached.wait(LIMIT_S)
    made.close()
    gate.opened.set()
    asking.join(LIMIT_S)
    assert found == [{"letters": 4}]
    assert not [each for each in threads_of("closing") if each.name == "closing"]
    with made:
        assert made.predict({"word": "again"}).outputs == {"letters": 5}


def test_an_event_loop_may_run_around_it() -> None:
    async def ask() -> dict[str, Any]:
        with Pipeline([quits], inputs={"text": "text"}) as made:
            return made.predict({"text": "a"}).outputs

    assert asyncio.run(ask()) == {"quits": "a"}


def test_forgotten_at_the_end_of_the_process_it_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(AT_EXIT)
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=True)
    assert done.stderr == ""


@pytest.mark.parametrize("given", [
    [np.float32(1.0), np.float32(2.5), np.int64(3), np.float64(4)],
    (1, 2.5, 3, np.array(4)),
    np.array([1, 2.5, 3, 4], dtype=object),
])  # fmt: skip
def test_numpys_numbers_are_numbers_wherever_they_stand(given: Any, tmp_path: Path) -> None:
    sent = predict("any", {"x": given}, None, False).message(1.0).body
    assert sent in (b'{"x":[1.0,2.5,3,4.0]}', b'{"x":[1,2.5,3,4]}')
    with tensors(tmp_path) as made:
        assert made.predict({"x": given}).outputs == {"y": [1.0, 2.5, 3.0, 4.0]}


def test_records_may_come_from_a_generator(tmp_path: Path) -> None:
    with tensors(tmp_path) as made:
        outcomes = made.predict({"x": [float(row)] * 4} for row in range(3))
        assert [each.outputs["y"][0] for each in outcomes if isinstance(each, Prediction)] == [0.0, 1.0, 2.0]
        with pytest.raises(ForwardpassError, match="/instances/0: expected an object, got a string"):
            made.predict("abc")  # type: ignore[arg-type]  # what the types refuse already


def test_an_example_too_large_for_a_definition_is_refused_where_it_is_written() -> None:
    with pytest.raises(Misconfigured, match=r"^[0-9]+ bytes as pipeline\.toml; at most 1048576 bytes"):
        Pipeline([quits], inputs={"text": "text"}, golden=[Golden({"text": "a" * 2**20}, {"quits": "a"})])
