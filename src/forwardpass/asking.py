"""What ``forwardpass predict`` and ``forwardpass receipt`` do: fields from the command line, asked here or at a server."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request as UrlRequest
from urllib.request import urlopen

from forwardpass.core.clock import monotonic_s, random_id
from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.pipeline import Input, Version
from forwardpass.core.request import Request
from forwardpass.core.timeline import Timeline
from forwardpass.pipeline import fields
from forwardpass.trial import trial

TIMEOUT_S = 60.0


def record(given: Sequence[str], inputs: Sequence[Input]) -> dict[str, Any]:
    """``name=value`` pairs as a record: text stays text, a file (``name=@path``) its bytes or text, all else is JSON.

    A single ``@path`` without a name goes to the only input. Raises Refused.
    """
    types = {wanted.name: wanted.type for wanted in inputs}
    return {name: _value(types.get(name, ""), text) for name, text in _pairs(given, [*types])}


async def ask_here(version: Version, given: Sequence[str], threads: int, *, receipt: bool) -> dict[str, Any]:
    """Load the version, answer once, unload. Raises the Failure it ended with."""
    async with trial(version, threads=threads) as running:
        values = record(given, running.variant.signature.inputs)
        columns, rows = fields.encode(running.variant.signature, [values])
        now = monotonic_s()
        request = Request(random_id(), columns, rows, Timeline(now, now), receipt=receipt)
        answer = await running.handle.answer(running.variant, request)
    (result,) = fields.decode(answer)
    if isinstance(result, Failure):
        raise result
    notes = [{"name": note.name, **note.value} for note in answer.notes]
    return {
        "outputs": result,
        **({"notes": notes} if notes else {}),
        **({"receipt": answer.receipt} if receipt else {}),
    }


def ask_server(url: str, pipeline: str, given: Sequence[str], *, receipt: bool) -> Any:
    """The server's answer as it came; a form, so that the server decides what is text, bytes or JSON.

    Raises Refused or Failed with the server's own code.
    """
    names = [one["name"] for one in _fetch(UrlRequest(f"{url}/v2/models/{pipeline}"))["inputs"]]
    boundary = random_id()
    parts = [
        b'--%s\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
        % (boundary.encode(), name.encode(), _file(text[1:]) if text.startswith("@") else text.encode())
        for name, text in _pairs(given, names)
    ]
    body = b"".join(parts) + b"--%s--\r\n" % boundary.encode()
    query = "?receipt=full" if receipt else ""
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    return _fetch(UrlRequest(f"{url}/predict/{pipeline}{query}", body, headers))


def fetch_receipt(url: str, id: str) -> Any:
    return _fetch(UrlRequest(f"{url}/receipts/{id}"))


def _pairs(given: Sequence[str], names: Sequence[str]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for one in given:
        name, equals, text = one.partition("=")
        if one.startswith("@") and len(names) == 1:
            name, text = names[0], one
        elif not equals:
            raise Refused(
                Code.INVALID_INPUT, f'"{one}": expected field=value or field=@file; fields: {", ".join(names)}'
            )
        pairs.append((name, text))
    return pairs


def _value(kind: str, text: str) -> Any:
    if text.startswith("@"):
        data = _file(text[1:])
        return data.decode() if kind in ("text", "category") else data
    if kind in ("text", "category", "bytes"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Refused(Code.INVALID_INPUT, f"@{path} cannot be read: {error.strerror}") from error


def _fetch(request: UrlRequest) -> Any:
    try:
        with urlopen(request, timeout=TIMEOUT_S) as response:
            return json.loads(response.read())
    except HTTPError as error:
        body = json.loads(error.read() or b"{}")
        told = body.get("error", body.get("detail", body))
        text = told["message"] if isinstance(told, dict) and "message" in told else str(told)
        code = error.headers.get("X-Error-Code", Code.INTERNAL.value)
        raise (Refused if error.code < 500 else Failed)(Code(code), text) from error
    except URLError as error:
        raise Failed(Code.NOT_READY, f"no server answers at {request.host}: {error.reason}") from error
