"""An engine that does what a test's script says: how long it takes, what it streams, which works fail."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from forwardpass.core.errors import Failure
from forwardpass.core.pipeline import Field
from forwardpass.engines.protocol import Arrays, Chunk, End, Event, ModelFile, ModelSignature, Work

ECHO = ModelSignature((Field("x", "FP32", (-1,)),), (Field("x", "FP32", (-1,)),), batched=True)


@dataclass(slots=True)
class FakeEngine:
    """Answers a work with its own inputs after ``steps`` steps; ``stream`` comes before that, one chunk a step."""

    model: ModelSignature = ECHO
    steps: int = 1
    stream: Sequence[Arrays] = ()
    answer: Callable[[Arrays], Arrays] = dict
    failure: Callable[[Work], Failure | None] = lambda work: None
    loaded: ModelFile | None = None
    closed: bool = False
    _running: dict[int, tuple[Work, int]] = field(default_factory=dict)  # work, steps it has had

    def load(self, file: ModelFile) -> None:
        self.loaded = file

    def signature(self) -> ModelSignature:
        return self.model

    def submit(self, items: Sequence[Work]) -> None:
        self._running.update({work.id: (work, 0) for work in items})

    def step(self) -> list[Event]:
        events: list[Event] = []
        for id, (work, had) in list(self._running.items()):
            self._running[id] = (work, had + 1)
            events.extend(self._events(work, had))
        return events

    def cancel(self, ids: Sequence[int]) -> None:
        for id in ids:
            self._running.pop(id, None)

    def close(self) -> None:
        self._running.clear()
        self.closed = True

    def _events(self, work: Work, had: int) -> Sequence[Event]:
        if failure := self.failure(work):
            return [self._end(work, {}, failure)]
        if had < len(self.stream):
            return [Chunk(work.id, self.stream[had])]
        if had + 1 < len(self.stream) + self.steps:
            return []
        return [self._end(work, self.answer(work.inputs), None)]

    def _end(self, work: Work, outputs: Arrays, failure: Failure | None) -> End:
        del self._running[work.id]
        return End(work.id, outputs, failure)
