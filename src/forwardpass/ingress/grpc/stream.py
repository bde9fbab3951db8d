"""The requests of one ModelStreamInfer call: run side by side, answered in the order in which they came."""

import asyncio
from collections.abc import Awaitable, Callable

from forwardpass.core.clock import RandomIds
from forwardpass.core.errors import Failure, Refused
from forwardpass.ingress.dialects.envelope import trace_of
from forwardpass.ingress.grpc.messages import Message, classes
from forwardpass.ingress.grpc.plane import GrpcCall, GrpcPlane

RUNNING_MAX = 64
"""Requests of one stream that run at the same time; more are not read until one is answered."""

RUNNING_BYTES_MAX = 64 * 1024 * 1024
"""Likewise of their bytes, where several run."""

Read = Callable[[], Awaitable[bytes | Refused | None]]
"""The next request, or why there is none to be had of what came; None when the client has said its last."""

Write = Callable[[bytes], Awaitable[None]]


class StreamAnswers:
    """A request that fails is answered with ``error_message`` and its id, and the stream goes on.

    Requests of one sequence run one after the other. ``run`` ends when the client has said its last and all is
    answered; cancelling it gives up what has not run.
    """

    def __init__(self, plane: GrpcPlane, call: GrpcCall, read: Read, write: Write) -> None:
        self._plane = plane
        self._call = call
        self._read = read
        self._write = write
        self._ids = RandomIds()
        self._bytes = 0
        self._room = asyncio.Event()
        self._line: asyncio.Queue[tuple[asyncio.Task[bytes], int] | None] = asyncio.Queue()
        self._last: dict[str, asyncio.Task[bytes]] = {}  # of each sequence that runs
        self._reading: asyncio.Future[bytes | Refused | None] | None = None
        self._ended = False

    def end(self) -> None:
        """Take no more requests; those that came are answered."""
        self._ended = True
        if self._reading is not None:
            self._reading.cancel()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(self._answer_in_order())
            while (body := await self._next()) is not None:
                size = 0 if isinstance(body, Refused) else len(body)
                while self._line.qsize() >= RUNNING_MAX or (self._bytes and self._bytes + size > RUNNING_BYTES_MAX):
                    self._room.clear()
                    await self._room.wait()
                self._bytes += size
                self._line.put_nowait((await self._start(group, body), size))
            self._line.put_nowait(None)
            await writing

    async def _next(self) -> bytes | Refused | None:
        """The next request; None when the client, or ``end``, has said there is no more."""
        if self._ended:
            return None
        self._reading = asyncio.ensure_future(self._read())
        try:
            return await self._reading
        except asyncio.CancelledError:
            if self._ended and self._reading.cancelled():
                return None
            raise

    async def _answer_in_order(self) -> None:
        while (entry := await self._line.get()) is not None:
            answer, size = entry
            await self._write(await answer)
            self._bytes -= size
            self._room.set()

    async def _start(self, group: asyncio.TaskGroup, body: bytes | Refused) -> "asyncio.Task[bytes]":
        """The task that answers one request."""
        id = self._ids.next()
        if isinstance(body, Refused):
            message: Message | Failure = body
        else:
            message = await self._plane.outcome(self._plane.parsed("ModelInferRequest", body), id, self._call)
        if isinstance(body, bytes) and not isinstance(message, Failure):
            return self._run(group, message, len(body), id)
        self._plane.count(message)
        return group.create_task(self._refuse(message))

    def _run(self, group: asyncio.TaskGroup, message: Message, size: int, id: str) -> "asyncio.Task[bytes]":
        sequence = _sequence(message)
        task = group.create_task(self._answer(message, size, id, self._last.get(sequence)))
        if sequence:
            self._last[sequence] = task
            task.add_done_callback(lambda done: self._forget(sequence, done))
        return task

    def _forget(self, sequence: str, done: "asyncio.Task[bytes]") -> None:
        if self._last.get(sequence) is done:
            del self._last[sequence]

    async def _refuse(self, refusal: Failure) -> bytes:
        return _error(refusal, "")

    async def _answer(self, message: Message, size: int, id: str, before: "asyncio.Task[bytes] | None") -> bytes:
        if before is not None:
            await asyncio.wait((before,))
        work = self._plane.infer(self._call, message, size, id, _wrapped, trace_of(self._call.http.headers))
        answer = await self._plane.outcome(work, id, self._call)
        return _error(answer, message.id) if isinstance(answer, Failure) else answer[0]


def _sequence(message: Message) -> str:
    """What tells a request's sequence from the others; "" is none."""
    if "sequence_id" not in message.parameters:
        return ""
    return str(message.parameters["sequence_id"])


def _wrapped(response: Message) -> Message:
    return classes()["ModelStreamInferResponse"](infer_response=response)


def _error(failure: Failure, id: str) -> bytes:
    response = classes()["ModelStreamInferResponse"](error_message=failure.text)
    response.infer_response.id = id
    response.infer_response.parameters["error_code"].string_param = failure.code
    answer: bytes = response.SerializeToString()
    return answer
