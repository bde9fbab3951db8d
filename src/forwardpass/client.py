"""A small client of a forwardpass server: ``Client`` for threads, ``AsyncClient`` for event loops, else the same.

    with Client("http://localhost:8000") as client:
        client.predict("reviews", {"text": "lovely"}).outputs["label"]

Every call has a deadline, told to the server as well, and raises a ForwardpassError of ``client_retry.py`` or returns
the whole answer. What a call says is in ``client_wire.py``; here it is only sent, and sent again. Where a sequence
stands is in ``client_sequence.py``.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
import httpx

from forwardpass import client_wire as wire
from forwardpass.client_retry import (
    Attempts,
    ConnectionFailed,
    DeadlineError,
    ForwardpassError,
    OverloadedError,
    RequestError,
    Retries,
    RetryBudget,
    ServerError,
    out_of_time,
)
from forwardpass.client_sequence import AsyncLiveSequence, LiveSequence
from forwardpass.client_wire import Answer, Array, Call, Message, Prediction
from forwardpass.core.clock import monotonic_s, pause

__all__ = [
    "AsyncClient",
    "AsyncLiveSequence",
    "Client",
    "ConnectionFailed",
    "DeadlineError",
    "ForwardpassError",
    "LiveSequence",
    "OverloadedError",
    "Prediction",
    "RequestError",
    "RetryBudget",
    "ServerError",
]

T = TypeVar("T")
_NOT_HEALTHY = (OverloadedError, ServerError, DeadlineError, ConnectionFailed)


_LIMITS = httpx.Limits(max_connections=128, max_keepalive_connections=128)
"""No connection is closed while there is room: a pool that keeps fewer closes some under threads that take them."""


class _Target:
    """Where a client sends to and on what terms: what both clients share."""

    def __init__(self, url: str, key: str | None, deadline_s: float, retries: RetryBudget | None) -> None:
        key = os.environ.get(wire.KEY_VARIABLE) or None if key is None else key
        parsed = httpx.URL(url)
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
            raise ValueError("the url must be http:// or https://, a host and at most a path")
        if key is not None and not (key and key.isascii() and key.isprintable() and " " not in key):
            raise ValueError("a key is printable ASCII without spaces")  # not shown: it is a secret
        self._url = url.rstrip("/")
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._retries = Retries(retries or RetryBudget())
        self.deadline_s = _checked(deadline_s)

    def attempts(self, call: Call[T], deadline_s: float | None) -> Attempts:
        given_s = self.deadline_s if deadline_s is None else _checked(deadline_s)
        return self._retries.call(given_s, repeatable=call.repeatable)

    def request(self, call: Call[T], message: Message) -> dict[str, Any]:
        """The arguments of httpx's ``stream`` for one attempt."""
        headers = {**self._headers, **message.headers}
        return {"method": call.method, "url": self._url + call.path, "headers": headers, "content": message.body}


class Client:
    """Blocking; one for many threads.

    ``deadline_s`` (at most 300) is for each call with all its retries. Each wait for the network is bounded by it, but
    connecting, sending and the first byte are waits of their own: a call can take longer than it, AsyncClient's not.
    ``key`` says who asks; without, the variable FORWARDPASS_KEY. ``transport`` is httpx's, for TLS settings and tests.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        deadline_s: float = 30.0,
        retries: RetryBudget | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._target = _Target(url, key, deadline_s, retries)
        self._http = httpx.Client(transport=transport, limits=_LIMITS)

    def predict(
        self,
        pipeline: str,
        fields: Mapping[str, object],
        *,
        version: int | None = None,
        deadline_s: float | None = None,
        receipt: bool = False,
    ) -> Prediction:
        """The answer to one record. Values are plain or numpy's; bytes travel as base64."""
        return self._run(wire.predict(pipeline, fields, version, receipt), deadline_s)

    def predict_many(
        self,
        pipeline: str,
        records: Sequence[Mapping[str, object]],
        *,
        version: int | None = None,
        deadline_s: float | None = None,
    ) -> list[Prediction | ForwardpassError]:
        """One outcome per record, in order.

        Raises when the request fails as a whole: also when one record does not fit the inputs, or when all fail.
        """
        return self._run(wire.predict_many(pipeline, records, version), deadline_s) if records else []

    def sequence(self, pipeline: str, *, version: int | None = None) -> LiveSequence:
        """A new sequence, for a ``with`` block: its records are sent one after the other and all go on from the last."""
        return LiveSequence(self._run, pipeline, version)

    def infer(
        self,
        pipeline: str,
        inputs: Mapping[str, Array],
        *,
        outputs: Iterable[str] | None = None,
        version: int | None = None,
        deadline_s: float | None = None,
    ) -> dict[str, Array]:
        """Arrays to arrays, of any strides and byte order. Text is sent from str or bytes and comes back as bytes."""
        return self._run(wire.infer(pipeline, inputs, outputs, version), deadline_s)

    def metadata(self, pipeline: str, *, version: int | None = None) -> dict[str, Any]:
        """Names, datatypes and shapes of the inputs and outputs, as V2 gives them."""
        return self._run(wire.metadata(pipeline, version), None)

    def live(self) -> bool:
        """Whether the server runs. Asked once; False when nobody answers."""
        return self._healthy("live")

    def ready(self) -> bool:
        """Whether every pipeline answers. Asked once; False when nobody answers."""
        return self._healthy("ready")

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _healthy(self, what: str) -> bool:
        call = wire.health(what)
        try:
            wire.value(call, self._send(call, self._target.deadline_s))
        except _NOT_HEALTHY:
            return False
        return True

    def _run(self, call: Call[T], deadline_s: float | None) -> T:
        attempts = self._target.attempts(call, deadline_s)
        while True:
            left_s = attempts.left_s()
            try:
                return wire.value(call, self._send(call, left_s))
            except ForwardpassError as error:
                wait_s = attempts.wait_s(error)
            pause(wait_s)

    def _send(self, call: Call[T], left_s: float) -> Answer:
        end_s = monotonic_s() + left_s
        parts: list[bytes] = []
        try:
            with self._http.stream(**self._target.request(call, call.message(left_s)), timeout=left_s) as response:
                for part in response.iter_bytes():
                    parts.append(part)
                    if monotonic_s() > end_s:
                        raise out_of_time()
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _failure(error) from error
        return Answer(response.status_code, response.headers, b"".join(parts))


class AsyncClient:
    """``Client`` for event loops: the same calls, to be awaited, and a deadline bounds the whole of a call."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        deadline_s: float = 30.0,
        retries: RetryBudget | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._target = _Target(url, key, deadline_s, retries)
        self._http = httpx.AsyncClient(transport=transport, timeout=None, limits=_LIMITS)

    async def predict(
        self,
        pipeline: str,
        fields: Mapping[str, object],
        *,
        version: int | None = None,
        deadline_s: float | None = None,
        receipt: bool = False,
    ) -> Prediction:
        return await self._run(wire.predict(pipeline, fields, version, receipt), deadline_s)

    async def predict_many(
        self,
        pipeline: str,
        records: Sequence[Mapping[str, object]],
        *,
        version: int | None = None,
        deadline_s: float | None = None,
    ) -> list[Prediction | ForwardpassError]:
        return await self._run(wire.predict_many(pipeline, records, version), deadline_s) if records else []

    def sequence(self, pipeline: str, *, version: int | None = None) -> AsyncLiveSequence:
        return AsyncLiveSequence(self._run, pipeline, version)

    async def infer(
        self,
        pipeline: str,
        inputs: Mapping[str, Array],
        *,
        outputs: Iterable[str] | None = None,
        version: int | None = None,
        deadline_s: float | None = None,
    ) -> dict[str, Array]:
        return await self._run(wire.infer(pipeline, inputs, outputs, version), deadline_s)

    async def metadata(self, pipeline: str, *, version: int | None = None) -> dict[str, Any]:
        return await self._run(wire.metadata(pipeline, version), None)

    async def live(self) -> bool:
        return await self._healthy("live")

    async def ready(self) -> bool:
        return await self._healthy("ready")

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _healthy(self, what: str) -> bool:
        call = wire.health(what)
        try:
            wire.value(call, await self._send(call, self._target.deadline_s))
        except _NOT_HEALTHY:
            return False
        return True

    async def _run(self, call: Call[T], deadline_s: float | None) -> T:
        attempts = self._target.attempts(call, deadline_s)
        while True:
            left_s = attempts.left_s()
            try:
                return wire.value(call, await self._send(call, left_s))
            except ForwardpassError as error:
                wait_s = attempts.wait_s(error)
            await anyio.sleep(wait_s)

    async def _send(self, call: Call[T], left_s: float) -> Answer:
        try:
            with anyio.fail_after(left_s):
                async with self._http.stream(**self._target.request(call, call.message(left_s))) as response:
                    body = await response.aread()
        except TimeoutError:
            raise out_of_time() from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _failure(error) from error
        return Answer(response.status_code, response.headers, body)


def _checked(deadline_s: float) -> float:
    if not 0 < deadline_s <= wire.DEADLINE_S_MAX:
        raise ValueError(f"deadline_s must be more than 0 and at most {wire.DEADLINE_S_MAX:g}, got {deadline_s}")
    return deadline_s


def _failure(error: httpx.RequestError) -> ForwardpassError:
    match error:
        case httpx.TimeoutException():
            return out_of_time()
        case httpx.DecodingError():
            return ServerError("bad_answer", "the answer's content encoding is broken")
    failed = ConnectionFailed("connection_failed", f"no answer from the server: {error}")
    failed.sent = not isinstance(error, httpx.ConnectError)
    return failed
