"""The requests of one ModelStreamInfer call: run side by side, answered in the order in which they came."""

import asyncio
from typing import Protocol

import msgspec

from forwardpass.core.caller import Caller as Identified
from forwardpass.core.clock import RandomIds
from forwardpass.core.errors import Failure
from forwardpass.ingress.dialects.envelope import trace_of
from forwardpass.ingress.grpc.decoding import InferCall
from forwardpass.ingress.grpc.encoding import size_of, stream_error, streamed
from forwardpass.ingress.grpc.large_fields import Buffers
from forwardpass.ingress.grpc.plane import Body, GrpcCall, GrpcPlane
from forwardpass.ingress.message import Headers

LOOK_S = 1.0
"""How often a stream that says nothing is asked for whether its client is still known."""

RUNNING_MAX = 64
"""Requests of one stream that run at the same time; more are not read until one is answered."""


class Caller(Protocol):
    """The client's side of the call, and what the call holds."""

    sent_bytes: int  # of the request that was read last, as it came

    async def read(self) -> Body | Failure | None:
        """The next request, held from here on, or why it cannot be had; None when there are no more."""

    async def write(self, answer: Buffers) -> None:
        """Returns when it has left."""

    def hold(self, size: int) -> None:
        """So many bytes more are held, or fewer."""

    def end(self) -> None:
        """Have ``read`` give what is there already, then None."""

    def full(self) -> bool:
        """Whether so much is held that a request should wait until another one is answered."""


class StreamAnswers:
    """A request that fails is answered with ``error_message`` and its id, and the stream goes on.

    Requests of one sequence run one after the other. ``run`` ends when there are no more and all are answered, or
    with the failure of a client that is not known, or no more: looked at before the first, with each, and every
    LOOK_S in between. Cancelling it gives up what has not run.
    """

    def __init__(self, plane: GrpcPlane, call: GrpcCall, caller: Caller) -> None:
        self._plane = plane
        self._call = call
        self._caller = caller
        self._ids = RandomIds()
        self._unknown: Failure | None = None  # why nobody is known to ask
        self._open = 0  # requests whose answers have not left
        self._room = asyncio.Event()
        self._line: asyncio.Queue[asyncio.Task[Buffers] | None] = asyncio.Queue()
        self._last: dict[str, asyncio.Task[Buffers]] = {}  # of each sequence that runs

    async def run(self) -> Failure | None:
        if not await self._known():
            return self._unknown
        async with asyncio.TaskGroup() as group:
            writing, watching = group.create_task(self._answer_in_order()), group.create_task(self._watch())
            while (body := await self._caller.read()) is not None and await self._known():
                self._open += 1
                self._line.put_nowait(await self._start(group, body))
                body = None  # what is parsed may be all that is needed of it
                while self._open >= RUNNING_MAX or (self._open and self._caller.full()):
                    self._room.clear()
                    await self._room.wait()
            watching.cancel()
            self._line.put_nowait(None)
            await writing
        return self._unknown

    async def _known(self) -> bool:
        if self._unknown is None:
            self._unknown = await self._plane.unknown(self._call)
        return self._unknown is None

    async def _watch(self) -> None:
        await asyncio.sleep(LOOK_S)
        while await self._known():
            await asyncio.sleep(LOOK_S)
        self._caller.end()

    async def _answer_in_order(self) -> None:
        while (task := await self._line.get()) is not None:
            answer = await task
            await self._caller.write(answer)
            self._caller.hold(-size_of(answer))
            self._open -= 1
            self._room.set()

    async def _start(self, group: asyncio.TaskGroup, body: Body | Failure) -> "asyncio.Task[Buffers]":
        """The task that answers one request; its answer is held in place of the request."""
        id = self._ids.next()
        call = self._alone(self._caller.sent_bytes)
        if isinstance(body, Failure):
            return group.create_task(self._refuse(body, 0, call, id))
        asked = await self._plane.outcome(self._plane.parsed(body), id, self._call)
        if isinstance(asked, Failure):
            return group.create_task(self._refuse(asked, len(body), call, id))
        return self._run(group, asked, call, id)

    def _alone(self, sent_bytes: int) -> GrpcCall:
        """The call for one of its requests: what that takes of quotas is its own."""
        http = msgspec.structs.replace(self._call.http, sent_bytes=sent_bytes)
        return msgspec.structs.replace(self._call, http=http)

    def _run(self, group: asyncio.TaskGroup, asked: InferCall, call: GrpcCall, id: str) -> "asyncio.Task[Buffers]":
        sequence = _sequence(asked)
        task = group.create_task(self._answer(asked, call, id, self._last.get(sequence)))
        if sequence:
            self._last[sequence] = task
            task.add_done_callback(lambda done: self._forget(sequence, done))
        return task

    def _forget(self, sequence: str, done: "asyncio.Task[Buffers]") -> None:
        if self._last.get(sequence) is done:
            del self._last[sequence]

    async def _refuse(self, refusal: Failure, size: int, call: GrpcCall, id: str) -> Buffers:
        """What cannot be read is a request all the same, and counts as one."""
        try:
            admitted = await self._plane.outcome(self._plane.admit(call), id, call)
        finally:
            call.http.leave()
        refusal = admitted if isinstance(admitted, Failure) else refusal
        self._plane.count(refusal)
        return self._in_place_of(size, stream_error(refusal, ""))

    async def _answer(
        self, asked: InferCall, call: GrpcCall, id: str, before: "asyncio.Task[Buffers] | None"
    ) -> Buffers:
        if before is not None:
            await asyncio.wait((before,))
        given = await self._plane.outcome(self._inferred(asked, call, id), id, call)
        answer = stream_error(given, asked.message.id) if isinstance(given, Failure) else given[0]
        return self._in_place_of(asked.size, answer)

    def _in_place_of(self, size: int, answer: Buffers) -> Buffers:
        self._caller.hold(size_of(answer) - size)
        return answer

    async def _inferred(self, asked: InferCall, call: GrpcCall, id: str) -> tuple[Buffers, Headers]:
        try:
            caller = await self._admitted(call)  # not before it is unpacked: a refusal of one request needs its id
            return await self._plane.infer(call, asked, id, streamed, trace_of(call.http.headers), caller)
        finally:
            call.http.leave()

    async def _admitted(self, call: GrpcCall) -> Identified:
        try:
            return await self._plane.admit(call)
        except Failure as failure:
            self._plane.count(failure)
            raise


def _sequence(asked: InferCall) -> str:
    """What tells a request's sequence from the others; "" is none."""
    parameters = asked.message.parameters
    return str(parameters["sequence_id"]) if "sequence_id" in parameters else ""
