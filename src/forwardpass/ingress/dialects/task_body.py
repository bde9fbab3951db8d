"""What bodies of requests by task have in common: strict JSON of a declared type, and the pipeline that they name."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import TaskKind
from forwardpass.core.tokens import TokenIds
from forwardpass.ingress import strict_json
from forwardpass.ingress.dialect import Target
from forwardpass.ingress.dialects.envelope import media_type
from forwardpass.ingress.message import HttpRequest
from forwardpass.ingress.routes import no_query, version_number
from forwardpass.pipeline.bounds import refuse

TEXTS_MAX = 2048
"""Texts or documents of one request: OpenAI's own bound."""

GivenInput = str | list[str | int | list[int]]
"""One text or several, each as such or as token ids."""

Message = TypeVar("Message", bound=msgspec.Struct)


def read(
    http: HttpRequest,
    kind: type[Message],
    harmless: Sequence[str] = (),
    parts: Mapping[str, Sequence[str]] | None = None,
) -> Message:
    """The body as a message of this kind; keys that are ``harmless`` are left unread. Raises Refused.

    ``parts`` maps places of objects within it, indices written ``*``, to the keys that these take.
    """
    if http.query:
        raise no_query()
    media, parameters = media_type(http.headers.get(b"content-type", b"application/json").decode("latin-1"))
    if media != "application/json" or parameters.get("charset", "utf-8").lower() != "utf-8":
        raise Refused(Code.UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json", field="Content-Type")
    value = strict_json.decode(http.body)
    if not isinstance(value, dict):
        raise Refused(Code.WRONG_TYPE, "the body must be a JSON object")
    for name in harmless:
        value.pop(name, None)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        allowed = {"": (*kind.__struct_fields__, *harmless), **(parts or {})}
        raise strict_json.explain(error, allowed) from None


def target_of(model: str | None, *tasks: TaskKind) -> Target:
    """Who answers: ``pipeline`` or ``pipeline:version``; without a name whoever alone has one of the tasks.

    Raises Refused version_not_found for what cannot be a version.
    """
    name = model or ""
    pipeline, colon, version = name.partition(":")
    return Target(pipeline or name, version_number(version) if colon else None, tasks)


def end_of(direction: str | None) -> str:
    """Where TEI's ``truncation_direction`` says a text is cut, "" for not said. Raises Refused."""
    if direction is None:
        return ""
    if direction.lower() not in ("left", "right"):
        raise refuse(Code.OUT_OF_RANGE, "/truncation_direction", 'must be "left" or "right"')
    return direction.lower()


def texts_of(given: GivenInput, where: str, too_many: Code) -> list[str | TokenIds]:
    """The texts of an ``input``. Raises Refused for none, an empty one, too many and a list of several kinds."""
    if isinstance(given, str):
        return [_not_empty(given, where)]
    if not given:
        raise refuse(Code.MISSING_FIELD, where, "is empty; at least one text is needed")
    first = given[0]
    if isinstance(first, int):
        return [TokenIds(tuple(_same(each, int, place, where) for place, each in enumerate(given)))]
    if len(given) > TEXTS_MAX:
        raise refuse(too_many, where, f"has {len(given)} texts; at most {TEXTS_MAX} are allowed")
    if isinstance(first, str):
        return [_not_empty(_same(each, str, place, where), f"{where}/{place}") for place, each in enumerate(given)]
    lists = (_same(each, list, place, where) for place, each in enumerate(given))
    return [TokenIds(tuple(_not_empty(ids, f"{where}/{place}"))) for place, ids in enumerate(lists)]


def place_of(given: GivenInput, where: str, row: int) -> str:
    """Where the text of a row stands in an ``input``."""
    alone = isinstance(given, str) or isinstance(given[0], int)
    return where if alone else f"{where}/{row}"


Part = TypeVar("Part", str, int, list[int])
_Sized = TypeVar("_Sized", str, list[int])


def _same(value: object, kind: type[Part], place: int, where: str) -> Part:
    if not isinstance(value, kind):
        text = "texts, token ids and lists of these do not go together; all must be what the first one is"
        raise refuse(Code.WRONG_TYPE, f"{where}/{place}", text)
    return value


def _not_empty(value: _Sized, where: str) -> _Sized:
    if not value:
        raise refuse(Code.MISSING_FIELD, where, "is empty")
    return value


def positive(value: int | None, where: str) -> int | None:
    """The value. Raises Refused below 1."""
    if value is not None and value < 1:
        raise refuse(Code.OUT_OF_RANGE, where, "must be 1 or more")
    return value
