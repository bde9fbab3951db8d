"""What ``forwardpass predict`` and ``forwardpass receipt`` do: fields from the command line, asked here or at a server."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import ProxyHandler, build_opener
from urllib.request import Request as UrlRequest

import orjson

from forwardpass.core.clock import monotonic_s, random_id
from forwardpass.core.errors import Code, Failed, Failure, Refused, show
from forwardpass.core.pipeline import ENCODED, Input, Version
from forwardpass.core.request import Request
from forwardpass.core.timeline import Timeline
from forwardpass.pipeline import fields
from forwardpass.settings import Settings
from forwardpass.trial import trial

TIMEOUT_S = 60.0
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def record(given: Sequence[str], inputs: Sequence[Input]) -> dict[str, Any]:
    """``name=value`` pairs as a record: text stays text, a file (``name=@path``) its bytes or text, all else is JSON.

    A single ``@path`` without a name goes to the only input. Raises Refused.
    """
    types = {wanted.name: wanted.type for wanted in inputs}
    return {name: _value(types.get(name, ""), text) for name, text in _pairs(given, [*types])}


async def ask_here(version: Version, given: Sequence[str], settings: Settings, *, receipt: bool) -> dict[str, Any]:
    """Load the version, answer once, unload. Raises the Failure it ended with."""
    definition = version.definition
    for guard in definition.guards:
        if guard.judge:
            text = f'the guard "{guard.name}" asks the pipeline "{guard.judge}", and no server is here to ask it'
            raise Refused(Code.MODEL_UNAVAILABLE, f"{text}: ask a running server, by the pipeline's name")
    # One request has nobody to share with: nothing need be proved or warmed up for more.
    batch, workers = replace(definition.batch, enabled=False), replace(definition.workers, count=1)
    version = replace(version, definition=replace(definition, batch=batch, workers=workers))
    async with trial(version, threads=settings.threads, deadline_s=settings.limits.deadline_s) as running:
        values = record(given, running.variant.signature.inputs)
        columns, rows = fields.encode(running.variant.signature, [values])
        now = monotonic_s()
        request = Request(random_id(), columns, rows, Timeline(now, now), receipt=receipt)
        answer = await running.handle.answer(running.variant, request)
    (result,) = fields.decode(answer, arrays=True)
    if isinstance(result, Failure):
        raise result
    notes = [{"name": note.name, **note.value} for note in answer.notes]
    return {
        # There and back by the server's encoder: numbers are as short, and as exact, as the server writes them.
        "outputs": orjson.loads(orjson.dumps(result, option=orjson.OPT_SERIALIZE_NUMPY)),
        **({"notes": notes} if notes else {}),
        **({"receipt": answer.receipt} if receipt else {}),
    }


def key_of(file: Path | None) -> str:
    """Who asks: the key in that file, or else in FORWARDPASS_KEY; "" is nobody. Raises Refused, never showing it.

    Never on the command line: every user of a machine can read those.
    """
    text = _file(str(file)).decode("latin-1") if file is not None else os.environ.get("FORWARDPASS_KEY", "")
    key = text.strip()
    if (file is not None and not key) or not (key.isascii() and key.isprintable() and " " not in key):
        raise Refused(Code.INVALID_INPUT, "a key is printable ASCII without spaces, alone in its file")
    return key


def ask_server(url: str, pipeline: str, given: Sequence[str], *, receipt: bool, key: str = "") -> Any:
    """The server's answer as it came; a form, so that the server decides what is text, bytes or JSON.

    Raises Refused or Failed with the server's own code.
    """
    place = quote(pipeline, safe="")
    described = _fetch(url, f"/v2/models/{place}", key=key)
    if not isinstance(described, dict) or "inputs" not in described:
        raise Failed(Code.INTERNAL, f"what answers at {url} is no server of pipelines")
    boundary = random_id()
    parts = [
        b'--%s\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
        % (boundary.encode(), name.encode(), _file(text[1:]) if text.startswith("@") else _utf8(name, text))
        for name, text in _pairs(given, [one["name"] for one in described["inputs"]])
    ]
    body = b"".join(parts) + b"--%s--\r\n" % boundary.encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    return _fetch(url, f"/predict/{place}" + ("?receipt=full" if receipt else ""), body, headers, key=key)


def fetch_receipt(url: str, id: str, *, key: str = "") -> Any:
    """What the server's admin plane knows of a request. Raises Refused or Failed."""
    return _fetch(url, f"/receipts/{quote(id, safe='')}", key=key)


def ask_admin(url: str, method: str, path: str, *, key: str = "") -> Any:
    """What the server's admin plane answers. Raises Refused or Failed."""
    return _fetch(url, path, key=key, method=method)


def _pairs(given: Sequence[str], names: Sequence[str]) -> list[tuple[str, str]]:
    pairs: dict[str, str] = {}
    for one in given:
        name, equals, text = one.partition("=")
        if one.startswith("@") and len(names) == 1:
            name, text = names[0], one
        elif not equals or not name.isprintable() or '"' in name:
            there = f"fields: {', '.join(names)}"
            raise Refused(Code.INVALID_INPUT, f'"{show(one)}": expected field=value or field=@file; {there}')
        if name in pairs:
            raise Refused(Code.INVALID_INPUT, f"{name}: is given twice", field=name)
        pairs[name] = text
    return list(pairs.items())


def _value(kind: str, text: str) -> Any:
    if text.startswith("@"):
        data = _file(text[1:])
        try:
            return data.decode() if kind in ("text", "category") else data
        except UnicodeDecodeError as error:
            raise Refused(Code.INVALID_UTF8, f"{text} is not UTF-8 text (byte {error.start})") from error
    if kind in ("text", "category") or kind in ENCODED:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Refused(Code.INVALID_UTF8, f"{name}: is not UTF-8 text", field=name) from error


def _file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Refused(Code.INVALID_INPUT, f"@{path} cannot be read: {error.strerror}") from error


def _fetch(
    url: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    key: str = "",
    method: str | None = None,
) -> Any:
    """The JSON that comes back. Raises Refused or Failed, whatever comes or does not."""
    opener = build_opener(*([ProxyHandler({})] if _host(url) in LOOPBACK else []))
    request = UrlRequest(url.rstrip("/") + path, body, dict(headers or {}), method=method)
    if key:
        request.add_unredirected_header("Authorization", f"Bearer {key}")  # it is for this server only
    try:
        try:
            answer = opener.open(request, timeout=TIMEOUT_S)
        except HTTPError as error:
            answer = error  # an answer like any other, to be read
        with answer:
            status, code, text = answer.status, answer.headers.get("X-Error-Code", ""), answer.read()
    except TimeoutError as error:
        raise Failed(Code.DEADLINE_EXCEEDED, f"{url} did not answer within {TIMEOUT_S:g} s") from error
    except URLError as error:
        raise Failed(Code.NOT_READY, f"no server answers at {url}: {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise Failed(Code.NOT_READY, f"{url} broke off: {type(error).__name__}", detail=str(error)) from error
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise _told(status, code, f"{url} answered {status} with something that is not JSON") from None
    if status >= 400:
        raise _told(status, code, _message(found) or f"{url} answered {status}")
    return found


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        clean = url.isascii() and url.isprintable() and " " not in url
        if clean and parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port):
            return parts.hostname
    except ValueError:
        pass  # a port or an address that is none
    raise Refused(Code.INVALID_INPUT, f'--url "{show(url)}": expected http://host:port')


def _message(found: Any) -> str:
    told = found.get("error", found.get("detail", "")) if isinstance(found, dict) else ""
    return str(told.get("message", "")) if isinstance(told, dict) else str(told)


def _told(status: int, code: str, text: str) -> Failure:
    """With the server's own code, if it is one of ours: who answered may be another server."""
    if code in [known.value for known in Code]:
        return (Refused if status < 500 else Failed)(Code(code), text)
    return Refused(Code.BAD_REQUEST, text) if 400 <= status < 500 else Failed(Code.INTERNAL, text)
