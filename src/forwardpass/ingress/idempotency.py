"""A request that is sent again with the same Idempotency-Key is not run again: its first answer is given once more.

Kept in memory and for a time only, so what is promised holds for a client's retries and not for ever.
"""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from hashlib import sha256

from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.message import HttpAnswer, HttpRequest

HEADER = "Idempotency-Key"
ENTRIES_MAX = 10_000
ENTRY_BYTES = 512  # what an entry holds beside its body
RUNNING_RETRY_S = 1.0
DECIDING = (
    b"accept", b"content-type", b"inference-header-content-length", b"x-amzn-sagemaker-custom-attributes",
    b"x-amzn-sagemaker-target-model", b"x-sequence-id", b"x-sequence-start", b"x-sequence-end",
)  # fmt: skip
"""The headers beside path, query and body that decide what the answer is."""

_BARE = re.compile(rb"[!#-~][!-~]{0,254}")
_QUOTED = re.compile(rb'"((?:[!#-\[\]-~]|\\["\\]){1,510})"')


def key_of(value: bytes) -> bytes:
    """The key in a header, quoted or bare. Raises Refused."""
    quoted = _QUOTED.fullmatch(value)
    key = re.sub(rb"\\(.)", rb"\1", quoted[1]) if quoted else value if _BARE.fullmatch(value) else b""
    if not 1 <= len(key) <= 255:
        text = f"{HEADER} must be 1 to 255 visible ASCII characters, in double quotes or bare"
        raise Refused(Code.OUT_OF_RANGE, text, field=HEADER)
    return key


def fingerprint(http: HttpRequest) -> bytes:
    """The same for requests that ask for the same, and for no others. Reads the whole body."""
    digest = sha256()
    parts = (http.path.encode(), http.query.encode(), *[http.headers.get(name, b"") for name in DECIDING], http.body)
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class _Kept:
    fingerprint: bytes
    status: int
    body: bytes
    content_type: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    until_s: float

    @property
    def size(self) -> int:
        return len(self.body) + ENTRY_BYTES

    def answer(self) -> HttpAnswer:
        return HttpAnswer(
            self.status, self.body, self.content_type, [*self.headers, (b"Idempotency-Replayed", b"true")]
        )


class KeptAnswers:
    """Answers by caller and key, for ``ttl_s``, up to ENTRIES_MAX and ``bytes_max``; of more the oldest are dropped.

    An answer that is larger than ``bytes_max`` by itself is not kept: its request would be run again.
    """

    def __init__(self, ttl_s: float, bytes_max: int, clock: Clock) -> None:
        self._ttl_s = ttl_s
        self._bytes_max = bytes_max
        self._clock = clock
        self._running: dict[tuple[str, bytes], bytes] = {}  # fingerprints
        self._kept: dict[tuple[str, bytes], _Kept] = {}  # the oldest first
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self, caller: str, key: bytes, asked: bytes) -> HttpAnswer | None:
        """The answer kept for this key; None: run the request of fingerprint ``asked``, and call ``end`` whatever
        comes of it. Raises Refused idempotency_mismatch, idempotency_running."""
        name = (caller, key)
        self._drop()
        kept = self._kept.get(name)
        first = kept.fingerprint if kept is not None else self._running.get(name)
        if first is not None and first != asked:
            text = f"this {HEADER} was used for another request; a key belongs to one request and its repetitions"
            raise Refused(Code.IDEMPOTENCY_MISMATCH, text, field=HEADER)
        if kept is not None:
            return kept.answer()
        if first is not None:
            text = f"the first request with this {HEADER} still runs"
            raise Refused(Code.IDEMPOTENCY_RUNNING, text, field=HEADER, retry_after_s=RUNNING_RETRY_S)
        self._running[name] = asked
        return None

    def end(self, caller: str, key: bytes, answer: HttpAnswer | None) -> None:
        """Keep an answer of 2xx; None, or any other, only frees the key: what refused it may be over by then."""
        name = (caller, key)
        asked = self._running.pop(name)
        if answer is None or not 200 <= answer.status < 300:
            return
        body = answer.body
        assert not isinstance(body, AsyncIterator), "a stream cannot be repeated"
        whole = body if isinstance(body, bytes) else b"".join(body)
        until_s = self._clock() + self._ttl_s
        kept = _Kept(asked, answer.status, whole, answer.content_type, tuple(answer.headers), until_s)
        if kept.size <= self._bytes_max:
            self._kept[name] = kept
            self._bytes += kept.size
            self._drop()

    def shrink(self) -> int:
        """Drop the older half; returns how many those were."""
        dropped = (len(self._kept) + 1) // 2
        for name in list(self._kept)[:dropped]:
            self._bytes -= self._kept.pop(name).size
        return dropped

    def _drop(self) -> None:
        now_s = self._clock()
        while self._kept:
            name, oldest = next(iter(self._kept.items()))
            if oldest.until_s > now_s and len(self._kept) <= ENTRIES_MAX and self._bytes <= self._bytes_max:
                return
            del self._kept[name]
            self._bytes -= oldest.size
