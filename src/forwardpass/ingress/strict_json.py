"""JSON as RFC 8259 writes it and nothing more, with a bound on everything a text can multiply.

msgspec already refuses what is no JSON: other encodings than UTF-8, a byte order mark, NaN and Infinity, numbers beyond
a double, lone surrogates, text after the value. It keeps the last of two equal keys; finding those is done by counting:
the colons outside strings are the keys a text writes, so it repeats one exactly when fewer keys were decoded.
Everything here is pure, linear in the text and safe to call from a thread.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from forwardpass.core.errors import Code, Refused, show
from forwardpass.pipeline.bounds import unknown_field


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """FAULTS 3.0; each has a boundary test."""

    text_bytes_max: int = 16 * 1024 * 1024
    depth_max: int = 64
    keys_max: int = 100_000
    containers_max: int = 500_000  # lists and objects, of ``decode``


LIMITS = JsonLimits()
DECODE_ERRORS = (msgspec.MsgspecError, RecursionError)
"""What a msgspec decoder can raise for a client's text."""

_decoder = msgspec.json.Decoder()
_ALL_BUT_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))
_CHUNK_BYTES = 65_536
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`?$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")
_TYPES = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
_POINTER = re.compile(r"(/[a-z_]+|/[0-9]+)*")
_WORDS = {
    "array": "a list", "bool": "a boolean", "float": "a number", "int": "an integer", "null": "null",
    "object": "an object", "str": "a string",
}  # fmt: skip


def decode(text: bytes, limits: JsonLimits = LIMITS) -> object:
    """The value of a JSON text as plain Python. Raises Refused json_* or body_too_large."""
    keys_max = count_keys(text, limits)
    check_nesting(text, limits)
    try:
        value: object = _decoder.decode(text)
    except DECODE_ERRORS as error:
        raise _invalid(error) from None
    decoded = _keys_decoded(value, keys_max)
    if decoded != keys_max and decoded != sum(part.count(b":") for part in _outside_strings(text)):
        # Numbers are read already: their text is enough here, and Python's own integer limit stays out of it.
        json.loads(text, object_pairs_hook=_distinct, parse_int=str, parse_float=str)
    return value


def check_size(text: bytes, limits: JsonLimits = LIMITS) -> None:
    """Raises Refused body_too_large."""
    if len(text) > limits.text_bytes_max:
        raise Refused(
            Code.BODY_TOO_LARGE, f"JSON text has {len(text)} bytes; at most {limits.text_bytes_max} are allowed"
        )


def count_keys(text: bytes, limits: JsonLimits = LIMITS) -> int:
    """No fewer than the keys the text writes. Raises Refused past the size or key limit, before anything is parsed.

    A typed decoder that got as many keys as this says met no key twice; with fewer only ``decode`` can tell.
    """
    check_size(text, limits)
    colons = text.count(b":")
    if colons > limits.keys_max:
        colons = 0
        for part in _outside_strings(text):
            colons += part.count(b":")
            if colons > limits.keys_max:
                most = limits.keys_max
                raise Refused(
                    Code.JSON_TOO_MANY_KEYS, f"JSON text has more than {most} keys, which are the most allowed"
                )
    return colons


def explain(error: Exception, allowed: Mapping[str, Sequence[str]], root: str = "") -> Refused:
    """A typed decoder's error in our words. ``allowed`` maps a place, indices written ``*``, to the keys it takes."""
    text, _, path = str(error).partition(" - at `$")
    place = _pointer(path)
    pointer = root + place
    if found := _UNKNOWN.search(text):
        keys = allowed.get(re.sub(r"/\d+", "/*", place), ())
        return unknown_field(found[1], tuple(keys), pointer)
    if found := _MISSING.search(text):
        missing = f"{pointer}/{found[1]}"
        return Refused(Code.MISSING_FIELD, f"{missing} is required", field=missing)
    where = pointer or "the body"
    if found := _TYPES.search(text):
        wanted = " or ".join(_WORDS.get(word, "another value") for word in found[1].split(" | "))
        came = _WORDS.get(found[2], "another value")
        return Refused(Code.WRONG_TYPE, f"{where}: expected {wanted}, got {came}", field=pointer)
    if "out of range" in text:
        return Refused(Code.OUT_OF_RANGE, f"{where}: the number is too large", field=pointer)
    return Refused(Code.JSON_INVALID, f"{where}: not valid JSON", field=pointer, detail=text)


def _pointer(path: str) -> str:
    """The JSON pointer of a decoder's path, which does not name the keys of dictionaries; no client's text is let in."""
    pointer = path.removesuffix("`").replace("[...]", "").replace("[", "/").replace("]", "").replace(".", "/")
    return pointer if _POINTER.fullmatch(pointer) else ""


def _invalid(error: Exception) -> Refused:
    reason = str(error).partition(" - at ")[0].removeprefix("JSON is malformed: ").lower()
    return Refused(Code.JSON_INVALID, f"the body is not valid JSON: {reason}")


def _outside_strings(text: bytes) -> Iterator[bytes]:
    """What a text has outside its strings, part by part: other threads run between two. An open string has no end."""
    start, inside = 0, 0
    while start < len(text):
        end = start + _CHUNK_BYTES
        part = text[start:end]
        if (len(part) - len(part.rstrip(b"\\"))) % 2:  # what it escapes belongs to it
            part += text[end : end + 1]
        start += len(part)
        if b"\\" in part:
            part = part.replace(b"\\\\", b"").replace(b'\\"', b"")
        between_quotes = part.split(b'"')
        yield b"".join(between_quotes[inside::2])
        inside ^= (len(between_quotes) - 1) % 2


def check_nesting(text: bytes, limits: JsonLimits = LIMITS) -> None:
    """Raises Refused json_too_deep, or json_too_many_keys for too many lists and objects."""
    if text.count(b"[") + text.count(b"{") <= limits.depth_max:
        return
    depth = containers = 0
    for part in _outside_strings(text):
        chunk = np.frombuffer(part.translate(None, _ALL_BUT_BRACKETS), dtype=np.uint8)
        if not len(chunk):
            continue
        opening = (chunk == ord("[")) | (chunk == ord("{"))
        depths = depth + np.cumsum(np.where(opening, 1, -1))
        if depths.max() > limits.depth_max:
            raise Refused(Code.JSON_TOO_DEEP, f"JSON is nested too deep; at most {limits.depth_max} levels are allowed")
        depth = int(depths[-1])
        containers += int(opening.sum())
        if containers > limits.containers_max:
            most = limits.containers_max
            raise Refused(Code.JSON_TOO_MANY_KEYS, f"JSON text has more than {most} lists and objects")


def _keys_decoded(value: object, enough: int) -> int:
    """The keys of all objects in a value; stops looking once ``enough`` were seen, as there can be no more."""
    keys = 0
    waiting = [value]
    while waiting and keys < enough:
        container = waiting.pop()
        if isinstance(container, dict):
            keys += len(container)
            waiting.extend(item for item in container.values() if isinstance(item, dict | list))
        elif isinstance(container, list):
            waiting.extend(item for item in container if isinstance(item, dict | list))
    return keys


def _distinct(pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise Refused(Code.JSON_DUPLICATE_KEY, f"the key '{show(key)}' is given twice in one JSON object")
        seen.add(key)
