"""JSON schemas: whether a JSON value, or a text that holds one, is as a schema says."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from forwardpass.core.errors import Code, Misconfigured, show
from forwardpass.steps.options import Wrong

FILE_BYTES_MAX = 1024 * 1024
ALLOWED = "a JSON schema, complete in itself (draft 4 to 2020-12)"


def schema_check(schema: str, folder: Path) -> Callable[[Any], bool]:
    """What is true of a value that does not fit. ``schema`` is a file's name or the schema as JSON text.

    Nothing is fetched that a schema refers to outside itself. Raises Wrong.
    """
    text = schema if is_text(schema) else _read(folder / schema)
    try:
        import jsonschema_rs
    except ModuleNotFoundError as error:
        advice = "guards with a schema need the jsonschema-rs library: pip install 'forwardpass[guards]'"
        raise Misconfigured(Code.RUNTIME_MISSING, advice, detail=str(error)) from None
    try:
        validator = jsonschema_rs.validator_for(
            msgspec.json.decode(text), retriever=_fetch_nothing, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (ValueError, RecursionError) as error:  # its ValidationError is one
        raise Wrong(show(str(error).split("\n")[0]), ALLOWED) from None

    def fails(value: Any) -> bool:
        return not validator.is_valid(value)

    return fails


def is_text(schema: str) -> bool:
    """Whether it is a schema itself and no file's name."""
    return schema.startswith("{")


def parsed(text: str) -> Any:
    """The JSON value in a text. Raises ValueError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError) as error:
        raise ValueError("no JSON") from error


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError:
        raise Wrong("the file cannot be read", ALLOWED) from None
    if len(data) > FILE_BYTES_MAX:
        raise Wrong("the file is too large", f"at most {FILE_BYTES_MAX} bytes")
    return data


def _fetch_nothing(uri: str) -> Any:
    raise ValueError("a schema refers to nothing outside itself")
