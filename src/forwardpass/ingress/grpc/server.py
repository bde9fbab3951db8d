"""The calls of gRPC clients to the plane and back, with the protocol itself in grpcio's hands."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from forwardpass.ingress.grpc.encoding import GrpcAnswer
from forwardpass.ingress.grpc.plane import STREAM, GrpcCall, GrpcPlane
from forwardpass.ingress.grpc.stream import StreamAnswers

WRITE_TIME_S = 30.0
"""How long one message of a stream may wait for a client that does not read."""


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """FAULTS 3.0; sizes in bytes."""

    message_bytes_max: int = 64 * 1024 * 1024  # also of what a compressed one unpacks to
    metadata_bytes_max: int = 16 * 1024
    connections_max: int = 1000
    streams_max: int = 100  # calls of one connection at the same time
    calls_max: int = 1000  # of all connections
    ping_pause_ms: int = 10_000  # a client that pings more often, PING_STRIKES_MAX times, is sent away
    ping_strikes_max: int = 2


@dataclass(frozen=True, slots=True)
class GrpcStatistics:
    """Counts of one listener."""

    running: int  # calls being answered now
    requests: int  # calls since the start; a stream is one
    cancelled: int  # of these, given up because the client went away


class GrpcServer:
    """Serves the plane on one port."""

    def __init__(self, plane: GrpcPlane, limits: GrpcLimits) -> None:
        self.port = 0  # the one listened on, also when any was asked for
        self._plane = plane
        self._limits = limits
        self._server: Any = None
        self._streams: set[StreamAnswers] = set()
        self._running = self._requests = self._cancelled = 0

    async def start(self, address: str, *, key: bytes = b"", certificate: bytes = b"") -> None:
        """Listen on ``host:port`` or ``unix:/path``, with TLS when there is a certificate. Raises OSError."""
        # grpcio logs to standard error by itself, where our log is lines of JSON; it forks nothing of ours.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        import grpc

        assert self._server is None, "started twice"
        server = grpc.aio.server(options=self._options(), maximum_concurrent_rpcs=self._limits.calls_max)
        services: dict[str, dict[str, Any]] = {}
        for method in self._plane.routes:
            _, service, name = method.split("/")
            services.setdefault(service, {})[name] = self._entry(method, name)
        server.add_generic_rpc_handlers(
            tuple(grpc.method_handlers_generic_handler(service, methods) for service, methods in services.items())
        )
        try:
            if certificate:
                self.port = server.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)]))
            else:
                self.port = server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address}") from error
        self._server = server
        await server.start()

    async def drain(self, grace_s: float) -> None:
        """Take no new call, let running requests end within the grace, then cut the rest."""
        if self._server is not None:
            for stream in tuple(self._streams):
                stream.end()
            await self._server.stop(grace_s)
            self._server = None

    def statistics(self) -> GrpcStatistics:
        return GrpcStatistics(self._running, self._requests, self._cancelled)

    def _entry(self, method: str, name: str) -> Any:
        """What grpcio calls for a method; messages stay bytes."""
        import grpc

        if name == STREAM:

            async def stream(_: Any, context: Any) -> None:
                await self._counted(context, self._stream(_call(method, context), context))

            return grpc.stream_stream_rpc_method_handler(stream)

        async def unary(body: bytes, context: Any) -> bytes:
            return await self._counted(context, self._plane.respond(_call(method, context), body))

        return grpc.unary_unary_rpc_method_handler(unary)

    async def _stream(self, call: GrpcCall, context: Any) -> GrpcAnswer:
        import grpc

        async def read() -> bytes | None:
            message = await context.read()
            return None if message is grpc.aio.EOF else message

        async def write(message: bytes) -> None:
            async with asyncio.timeout(WRITE_TIME_S):
                await context.write(message)

        answers = StreamAnswers(self._plane, call, read, write)
        self._streams.add(answers)
        try:
            await answers.run()
        finally:
            self._streams.discard(answers)
        return GrpcAnswer(b"", ())

    async def _counted(self, context: Any, work: Awaitable[GrpcAnswer]) -> bytes:
        self._running += 1
        self._requests += 1
        try:
            answer = await work
        except asyncio.CancelledError:
            self._cancelled += 1
            raise
        finally:
            self._running -= 1
        metadata = tuple((name.decode(), value.decode()) for name, value in answer.metadata)
        if answer.status:
            await context.abort(_status(answer.status), answer.text, metadata)
        context.set_trailing_metadata(metadata)
        return answer.message

    def _options(self) -> list[tuple[str, int]]:
        limits = self._limits
        return [
            ("grpc.max_receive_message_length", limits.message_bytes_max),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", limits.metadata_bytes_max),
            ("grpc.absolute_max_metadata_size", limits.metadata_bytes_max),
            ("grpc.max_concurrent_streams", limits.streams_max),
            ("grpc.max_allowed_incoming_connections", limits.connections_max),
            ("grpc.http2.min_ping_interval_without_data_ms", limits.ping_pause_ms),
            ("grpc.http2.max_ping_strikes", limits.ping_strikes_max),
            ("grpc.so_reuseport", 0),
        ]


def _status(number: int) -> Any:
    import grpc

    return next(status for status in grpc.StatusCode if status.value[0] == number)


def _call(method: str, context: Any) -> GrpcCall:
    headers = {
        name.encode(): value.encode() if isinstance(value, str) else value
        for name, value in context.invocation_metadata()
    }
    remaining_s: Callable[[], float | None] = context.time_remaining
    return GrpcCall(method, headers, remaining_s)
