"""Sequences as a client sees them: requests that go on from each other, and what is known when one of them fails.

Nothing is sent here: ``client.py`` hands in how.
"""

import threading
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Protocol, Self, TypeVar

from forwardpass import client_wire as wire
from forwardpass.client_retry import ForwardpassError, RequestError, surely_not_run
from forwardpass.client_wire import Call, Prediction
from forwardpass.core.clock import random_id
from forwardpass.core.errors import Code
from forwardpass.core.request import Turn

T = TypeVar("T")

END_S = 2.0
"""The most that leaving a block takes: what the server did not hear of goes when it was idle for long enough."""


class Run(Protocol):
    """Makes a call within so many seconds."""

    def __call__(self, call: Call[T], deadline_s: float | None, /) -> T: ...


class RunLater(Protocol):
    def __call__(self, call: Call[T], deadline_s: float | None, /) -> Awaitable[T]: ...


class LiveSequence:
    """``predict`` sends the next record, ``predict(..., last=True)`` the last one, which ends the sequence.

    Steps do with the last record what they do at the end of the whole. Leaving the block without it ends the sequence
    too, without a record: then what was kept of it is only given up.
    A request that raised did not count. But when no answer of the server came (the connection broke, our deadline
    passed, the call was cancelled), nobody knows: the sequence is lost, and every further call raises ``sequence_lost``.
    """

    def __init__(self, run: Run, pipeline: str, version: int | None) -> None:
        self._run = run
        self._progress = _Progress(pipeline, version)

    @property
    def id(self) -> str:
        return self._progress.id

    def predict(
        self,
        fields: Mapping[str, object],
        *,
        last: bool = False,
        deadline_s: float | None = None,
        receipt: bool = False,
    ) -> Prediction:
        """As ``Client.predict``; only what surely did not run is tried again.

        One at a time, because their order is their meaning: RuntimeError otherwise, and after the end.
        """
        with self._progress.request(fields, last, receipt) as call:
            return self._progress.answered(self._run(call, deadline_s), last)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        call = self._progress.left()
        if call is not None:
            with suppress(ForwardpassError, RuntimeError):  # the latter: the client was closed before
                self._run(call, END_S)


class AsyncLiveSequence:
    """``LiveSequence`` for event loops: ``async with``, and ``predict`` is awaited."""

    def __init__(self, run: RunLater, pipeline: str, version: int | None) -> None:
        self._run = run
        self._progress = _Progress(pipeline, version)

    @property
    def id(self) -> str:
        return self._progress.id

    async def predict(
        self,
        fields: Mapping[str, object],
        *,
        last: bool = False,
        deadline_s: float | None = None,
        receipt: bool = False,
    ) -> Prediction:
        with self._progress.request(fields, last, receipt) as call:
            return self._progress.answered(await self._run(call, deadline_s), last)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        call = self._progress.left()
        if call is not None:
            with suppress(ForwardpassError, RuntimeError):
                await self._run(call, END_S)


class _Progress:
    """Where a sequence stands as far as its client knows."""

    def __init__(self, pipeline: str, version: int | None) -> None:
        self.id = random_id()
        self.ended = False
        self._pipeline = pipeline
        self._version = version
        self._started = False
        self._lost = False
        self._out = threading.Lock()  # a request is

    @contextmanager
    def request(self, fields: Mapping[str, object], last: bool, receipt: bool) -> Iterator[Call[Prediction]]:
        """The next request while it is out; whatever ends the block tells what is known of it."""
        if not self._out.acquire(blocking=False):
            raise RuntimeError("a request of this sequence is still out: one at a time")
        try:
            if self.ended:
                raise RuntimeError("the sequence has ended")
            if self._lost:
                text = "nobody knows whether the sequence's last request counted; begin a new sequence"
                raise RequestError(Code.SEQUENCE_LOST.value, text, field="sequence_id")
            turn = Turn(self.id, start=not self._started, end=last)
            call = wire.in_sequence(wire.predict(self._pipeline, fields, self._version, receipt), turn)
            self._lost = True  # until we know better
            try:
                yield call
            except ForwardpassError as error:
                self._lost = not _did_not_count(error)
                raise
            except ValueError:  # of what we were given: nothing was sent
                self._lost = False
                raise
        finally:
            self._out.release()

    def left(self) -> Call[None] | None:
        """No request comes any more. What tells the server so, if it may have something."""
        there = (self._started or self._lost) and not self.ended
        self.ended = True
        return wire.end_sequence(self._pipeline, self.id, self._version) if there else None

    def answered(self, prediction: Prediction, last: bool) -> Prediction:
        """From now on the version that began the sequence is asked, also when there is a newer one."""
        self._lost = False
        self._started = True
        self.ended = last
        self._version = prediction.version
        return prediction


def _did_not_count(error: ForwardpassError) -> bool:
    """Of a request that fails the server keeps nothing, or says of the next that the sequence is lost.

    So any error of its own will do; one by somebody on the way, or no answer, tells nothing.
    """
    return surely_not_run(error) or (error.status is not None and error.code in _CODES)


_CODES = frozenset(code.value for code in Code)
