"""Two engines and the same works, by turns: which is quicker, on a machine that is not always as quick itself."""

from collections.abc import Sequence
from dataclasses import dataclass

from forwardpass.core.clock import Clock
from forwardpass.engines.protocol import Arrays, End, Engine, Event, ModelFile, ModelSignature, Work

ROUNDS_MIN = 3
ROUNDS_MAX = 25
HOPELESS = 4.0  # times as slow in every turn so far: no more are needed
TURN_MIN_S = 0.002  # a quicker work is repeated until its turn takes so long


@dataclass(frozen=True, slots=True)
class Asked:
    """What a model was given while rows went through its pipeline, each by itself and some together."""

    alone: Sequence[Arrays] = ()
    together: Sequence[Arrays] = ()


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times as quick the second is."""

    alone: float
    together: float


class Listening:
    """An Engine that hands on to ``engine`` and keeps what it was given."""

    engine: Engine

    def __init__(self) -> None:
        self._heard: list[Arrays] = []

    def taken(self) -> list[Arrays]:
        """What it was given since this was last asked."""
        heard, self._heard = self._heard, []
        return heard

    def load(self, file: ModelFile) -> None:
        self.engine.load(file)

    def signature(self) -> ModelSignature:
        return self.engine.signature()

    def submit(self, items: Sequence[Work]) -> None:
        self._heard += [item.inputs for item in items]
        self.engine.submit(items)

    def step(self) -> list[Event]:
        return self.engine.step()

    def cancel(self, ids: Sequence[int]) -> None:
        self.engine.cancel(ids)

    def close(self) -> None:
        self.engine.close()


def answers_of(engine: Engine, works: Sequence[Arrays]) -> list[Arrays]:
    """What it answers to each. Raises the Failure of any."""
    return [_answer(engine, inputs) for inputs in works]


def duel(first: Engine, second: Engine, asked: Asked, clock: Clock, limit_s: float) -> Gain:
    """By turns for ``limit_s`` or a little longer, three turns each at least unless the second is far slower; the quickest of
    each counts.
    """
    groups = [group for group in (asked.alone, asked.together) if group]
    repeats = [_repeats(first, group, clock) for group in groups]
    best = [[float("inf")] * 2 for _ in groups]
    begun = clock()
    for number in range(ROUNDS_MAX):
        if number >= ROUNDS_MIN and clock() - begun > limit_s:
            break
        if number and all(times[1] > HOPELESS * times[0] for times in best):
            break
        for times, group, count in zip(best, groups, repeats, strict=True):
            for place, engine in enumerate((first, second)):
                times[place] = min(times[place], _turn_s(engine, group, count, clock))
    gains = [times[0] / times[1] for times in best]
    return Gain(gains[0] if asked.alone else gains[-1], gains[-1])


def _repeats(engine: Engine, works: Sequence[Arrays], clock: Clock) -> int:
    if _turn_s(engine, works, 1, clock) > TURN_MIN_S * ROUNDS_MAX:  # the first is often the slowest
        return 1
    return max(1, int(TURN_MIN_S / max(_turn_s(engine, works, 1, clock), 1e-6)))


def _turn_s(engine: Engine, works: Sequence[Arrays], count: int, clock: Clock) -> float:
    begun = clock()
    for _ in range(count):
        answers_of(engine, works)
    return clock() - begun


def _answer(engine: Engine, inputs: Arrays) -> Arrays:
    engine.submit((Work(1, inputs),))
    while True:
        for event in engine.step():
            if isinstance(event, End):
                if event.failure is not None:
                    raise event.failure
                return event.outputs
