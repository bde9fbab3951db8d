"""Makes an Engine of a one-shot runtime: a one-shot answer is a stream of one End."""

from collections import deque
from collections.abc import Sequence

from forwardpass.core.errors import Failure
from forwardpass.engines.protocol import End, Event, ModelFile, ModelSignature, Predictor, Work


class OneShot:
    """Works run one after the other, each whole, in the order in which they were submitted."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._waiting: deque[Work] = deque()
        self._open = False

    def load(self, file: ModelFile) -> None:
        self._open = True
        self._predictor.load(file)

    def signature(self) -> ModelSignature:
        return self._predictor.signature()

    def submit(self, items: Sequence[Work]) -> None:
        self._waiting.extend(items)

    def step(self) -> list[Event]:
        if not self._waiting:
            return []
        work = self._waiting.popleft()
        try:
            return [End(work.id, self._predictor.predict(work.inputs))]
        except Failure as failure:
            return [End(work.id, {}, failure)]

    def cancel(self, ids: Sequence[int]) -> None:
        dropped = set(ids)
        self._waiting = deque(work for work in self._waiting if work.id not in dropped)

    def close(self) -> None:
        self._waiting.clear()
        if self._open:
            self._open = False
            self._predictor.close()
