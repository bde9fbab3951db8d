"""Which of two engines is quicker, in virtual time."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from forwardpass.core.errors import Code, Failed
from forwardpass.engines.protocol import Arrays, Event, ModelFile, Work
from forwardpass.execution.duel import Asked, Listening, answers_of, duel
from forwardpass.testing.fake_engine import FakeEngine

ROWS = {"x": np.ones((2, 4), np.float32)}
MANY = {"x": np.ones((16, 4), np.float32)}


class Time:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Slow(FakeEngine):
    """Takes so many virtual seconds for a work of so many rows."""

    def __init__(self, time: Time, took_s: Mapping[int, float], **given: Any) -> None:
        super().__init__(**given)
        self._time, self._took_s, self._rows = time, took_s, 0

    def submit(self, items: Any) -> None:
        self._rows = len(items[0].inputs["x"])
        super().submit(items)

    def step(self) -> list[Event]:
        self._time.now_s += self._took_s[self._rows]
        return super().step()


def test_gains_are_told_alone_and_together() -> None:
    time = Time()
    first, second = Slow(time, {2: 0.1, 16: 0.8}), Slow(time, {2: 0.2, 16: 0.2})
    gain = duel(first, second, Asked([ROWS], [MANY]), time, 1.0)
    assert [gain.alone, gain.together] == pytest.approx([0.5, 4.0])


def test_where_no_rows_go_together_a_lone_one_counts() -> None:
    time = Time()
    gain = duel(Slow(time, {2: 0.3}), Slow(time, {2: 0.1}), Asked([ROWS]), time, 1.0)
    assert [gain.alone, gain.together] == pytest.approx([3.0, 3.0])


def test_a_slow_model_has_three_turns_and_no_more() -> None:
    time = Time()
    duel(Slow(time, {2: 100.0}), Slow(time, {2: 100.0}), Asked([ROWS]), time, 1.0)
    assert time.now_s <= 100.0 * (2 + 3 * 2)  # two to find out how long a turn is


def test_what_is_far_slower_has_one_turn() -> None:
    time = Time()
    gain = duel(Slow(time, {2: 1.0}), Slow(time, {2: 50.0}), Asked([ROWS]), time, 1.0)
    assert gain.together == pytest.approx(0.02)
    assert time.now_s <= 1.0 * 2 + 1.0 + 50.0


def test_what_an_engine_is_given_is_heard_once() -> None:
    listening = Listening()
    listening.engine = FakeEngine()
    listening.load(ModelFile(""))
    answers_of(listening, [ROWS, MANY])
    assert [len(work["x"]) for work in listening.taken()] == [2, 16]
    assert listening.taken() == []


def test_a_work_that_fails_is_raised() -> None:
    def refuse(work: Work) -> Failed | None:
        return Failed(Code.ENGINE_FAILED, "no")

    works: list[Arrays] = [ROWS]
    with pytest.raises(Failed, match="no"):
        answers_of(FakeEngine(failure=refuse), works)
