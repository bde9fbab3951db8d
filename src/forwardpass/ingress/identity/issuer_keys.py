"""The public keys of who issues tokens (a JWKS, RFC 7517), from a file or over HTTPS, read again as they change."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

import orjson

from forwardpass.core.clock import Clock, monotonic_s
from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.ingress.identity.beside import beside

if TYPE_CHECKING:
    from jwt import PyJWK

REFRESH_S = 300.0
FILE_REFRESH_S = 5.0
"""How old they may become, from an issuer and from a file; a token of an unknown key has them read sooner."""

UNKNOWN_S = 30.0
"""At most so often: anybody can send tokens of unknown keys."""

FETCH_S = 5.0  # for each step of a fetch, and for a document's content
DOCUMENT_BYTES_MAX = 1024 * 1024
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_log = logging.getLogger("forwardpass.identity")


class IssuerKeys:
    """By key id. What was read stays known while the issuer is away; what cannot be read is logged."""

    def __init__(self, source: str, clock: Clock) -> None:
        """Raises Misconfigured settings_invalid for a source that anybody on the way could change."""
        if not is_source(source):
            problem = Problem("settings", "auth.jwks", f"found {source!r}", "a file, or an https URL")
            raise Misconfigured(Code.SETTINGS_INVALID, (problem,))
        self.reads = 0  # how often they were read
        self._source = source
        self._clock = clock
        self._keys: dict[str, PyJWK] = {}
        self._renewing = asyncio.Lock()
        self._tried_s = -UNKNOWN_S

    async def find(self, id: str) -> "PyJWK | None":
        """The key of that id, asked for at its source if it is not known; of a set of one the id may be empty."""
        key = self._known(id)
        if key is None:
            async with self._renewing:
                if self._known(id) is None and self._clock() - self._tried_s >= UNKNOWN_S:
                    await self._renew()
            key = self._known(id)
        return key

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Keep them fresh within the block. Raises Misconfigured for a file that has none now: an issuer may come back."""
        if "://" not in self._source:
            try:
                await asyncio.to_thread(_read, self._source)
            except (OSError, ValueError) as error:
                problem = Problem("settings", "auth.jwks", f"cannot be used: {error}", "a file with a JWKS")
                raise Misconfigured(Code.SETTINGS_INVALID, (problem,)) from error
        async with beside(self._watch):
            yield

    async def _watch(self) -> None:
        while True:
            async with self._renewing:
                await self._renew()
            await asyncio.sleep(REFRESH_S if "://" in self._source else FILE_REFRESH_S)

    def _known(self, id: str) -> "PyJWK | None":
        if not id and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(id)

    async def _renew(self) -> None:
        self._tried_s = self._clock()
        try:
            self._keys = await asyncio.to_thread(_read, self._source)
        except (OSError, HTTPException, ValueError) as error:
            _log.error("the issuer's keys cannot be read; what was known stays", extra={"event": {"detail": error}})
        else:
            self.reads += 1


def is_source(text: str) -> bool:
    """Whether keys may be read from there: a file, or an https URL (http on this machine)."""
    parts = urlsplit(text)
    return "://" not in text or parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)


def _read(source: str) -> "dict[str, PyJWK]":
    """Raises OSError, HTTPException or ValueError."""
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    document = _document(source)
    further = document.get("jwks_uri")
    if isinstance(further, str):  # what was named is the issuer's discovery
        if "://" not in further or not is_source(further):
            raise ValueError("jwks_uri is no https URL")
        document = _document(further)
    listed = document.get("keys")
    if not isinstance(listed, list):
        raise ValueError("it has no list of keys")
    keys: dict[str, PyJWK] = {}
    for each in listed:
        if not isinstance(each, dict) or each.get("kty") not in ("RSA", "EC", "OKP") or each.get("use", "sig") != "sig":
            continue  # a shared secret, or one that signs nothing
        try:
            keys[str(each.get("kid", ""))] = PyJWK.from_dict(each)
        except PyJWTError:
            continue  # of a kind that we do not know: the others are none the worse
    if not keys:
        raise ValueError("none of its keys can check a signature")
    return keys


def _document(source: str) -> dict[str, Any]:
    if "://" not in source:
        text = Path(source).read_bytes()
    else:
        local = urlsplit(source).hostname in LOOPBACK
        opener = build_opener(_Stay, *([ProxyHandler({})] if local else []))
        try:
            with opener.open(Request(source, headers={"Accept": "application/json"}), timeout=FETCH_S) as answer:
                text = _content(answer)
        except URLError as error:
            raise OSError(f"it does not answer: {error.reason}") from error
    if len(text) > DOCUMENT_BYTES_MAX:
        raise ValueError(f"it is larger than {DOCUMENT_BYTES_MAX} bytes")
    document = orjson.loads(text)
    if not isinstance(document, dict):
        raise ValueError("it is no JSON object")
    return document


def _content(answer: HTTPResponse) -> bytes:
    """As much as may come, in as long as it may take. Raises TimeoutError."""
    text, end_s = b"", monotonic_s() + FETCH_S
    while len(text) <= DOCUMENT_BYTES_MAX and (part := answer.read1(DOCUMENT_BYTES_MAX)):
        text += part
        if monotonic_s() > end_s:
            raise TimeoutError("it comes too slowly")
    return text


class _Stay(HTTPRedirectHandler):
    """Goes nowhere else: where keys come from is the operator's choice."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None
