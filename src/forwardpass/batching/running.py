"""What the workers are at: when each will be free, as far as their batches were predicted."""

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Sent:
    """A batch in a worker; one that was sent ahead waits there until those before it have ended."""

    worker: int
    sent_s: float
    expected_s: float


class Running:
    """``workers`` take batches; one that is waited for though it has none is away: it starts, or starts again."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._sent: dict[int, deque[Sent]] = {}
        self._ended_s: dict[int, float] = {}
        self._awaited: set[int] = set()

    @property
    def idle(self) -> bool:
        """No worker has a batch."""
        return not self._sent

    def await_worker(self, worker: int) -> None:
        self._awaited.add(worker)

    def vacant(self, worker: int) -> None:
        """It takes a batch now."""
        self._awaited.discard(worker)

    def begin(self, worker: int, now: float, expected_s: float) -> Sent:
        sent = Sent(worker, now, expected_s)
        self._sent.setdefault(worker, deque()).append(sent)
        return sent

    def end(self, sent: Sent, now: float) -> float:
        """It was answered, or its worker died. Returns for how long the worker was at it and at nothing else."""
        began_s = max(sent.sent_s, self._ended_s.get(sent.worker, 0.0))
        waiting = self._sent[sent.worker]
        waiting.remove(sent)
        if not waiting:
            del self._sent[sent.worker]
        self._ended_s[sent.worker] = now
        return now - began_s

    def left_s(self, worker: int, now: float) -> float:
        """Until this worker is free. One that is overdue by so much is expected to need as much again."""
        sent = self._sent.get(worker)
        if not sent:
            return 0.0
        left_s = max(sent[0].sent_s, self._ended_s.get(worker, 0.0)) + sent[0].expected_s - now
        return abs(left_s) + sum([each.expected_s for each in sent]) - sent[0].expected_s

    def free_in_s(self, now: float) -> list[float]:
        """For each worker that can be counted on, the soonest first; never empty."""
        busy = [self.left_s(worker, now) for worker in self._sent]
        away = len(self._awaited - self._sent.keys())
        return sorted([0.0] * (self.workers - len(busy) - away) + busy) or [0.0]
