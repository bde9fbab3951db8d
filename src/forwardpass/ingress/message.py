"""One HTTP request and one answer, as the data plane's protocol hands them over: bytes, no policy."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from forwardpass.admit.quotas import Admission
from forwardpass.core.errors import Code

Headers = Sequence[tuple[bytes, bytes]]


class HttpRequest(msgspec.Struct):
    """A whole, framed request. ``headers`` has lower-case names; a repeated header's values are joined with ", "."""

    method: bytes
    path: str  # percent-decoded once, without the query
    query: str  # undecoded
    headers: Mapping[bytes, bytes]
    body: bytes
    received_s: float  # clock when the last byte was here
    peer: str = ""  # its address, as ``connections.address_of`` tells them apart
    encoding: bytes = b""  # that ``body`` still has: gzip or deflate
    subject: str = ""  # of the client's certificate, where one was shown and verified
    admission: Admission | None = None  # what it has taken of quotas, where there are any
    sent_bytes: int = 0  # of a body that is not in here, as it came

    def leave(self) -> None:
        """It has been answered, or given up: it counts no more as one that runs."""
        if self.admission is not None:
            self.admission.leave()

    unpacked_bytes: int = 0  # that are counted in flight, besides the body as it came


class HttpAnswer(msgspec.Struct):
    """``body`` is sent with a Content-Length (a sequence of buffers without copying), an iterator chunk by chunk."""

    status: int
    body: bytes | Sequence[bytes | memoryview] | AsyncIterator[bytes] = b""
    content_type: bytes = b"application/json"
    headers: list[tuple[bytes, bytes]] = []
    close: bool = False


Respond = Callable[[HttpRequest], Awaitable[HttpAnswer]]
Screen = Callable[[HttpRequest], Awaitable[HttpAnswer | None]]
"""Given a request without its body: the answer where the body need not come in."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """FAULTS 3.0; each has a boundary test. Times in seconds, sizes in bytes."""

    header_bytes_max: int = 16 * 1024
    header_count_max: int = 100
    url_bytes_max: int = 8 * 1024
    header_time_s: float = 5.0
    body_bytes_max: int = 64 * 1024 * 1024
    bytes_in_flight_max: int = 256 * 1024 * 1024  # of all connections
    body_grace_s: float = 10.0
    body_rate_min: int = 1024  # bytes a second, after the grace
    idle_time_s: float = 60.0
    write_time_s: float = 30.0
    connections_max: int = 1000
    connections_per_address_max: int = 1000
    pipelined_max: int = 16
    chunks_max: int = 65536
    decompressed_ratio_max: int = 100  # applies beyond 1 MiB
    write_buffer_max: int = 256 * 1024
    hosts: tuple[str, ...] = ()  # allowed Host names without port; () = any


@dataclass(frozen=True, slots=True)
class HttpStatistics:
    """Counts of one listener."""

    connections: int  # open now
    running: int  # requests being answered now
    requests: int  # handed to respond since the start
    cancelled: int  # of these, given up because the client went away
    refused: dict[Code, int]  # by this protocol itself


@dataclass(frozen=True, slots=True)
class FrontStatistics:
    """A process that listens beside the owner."""

    state: str
    pid: int | None
    deaths: int
    connections: int
    running: int
