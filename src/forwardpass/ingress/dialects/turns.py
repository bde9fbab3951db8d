"""Which sequence a request says it belongs to, in the form of each dialect."""

import re

from forwardpass.core.errors import Code
from forwardpass.core.request import Parameter, Turn
from forwardpass.ingress.message import HttpRequest
from forwardpass.pipeline.bounds import refuse

NAMES = ("sequence_id", "sequence_start", "sequence_end")
HEADERS = (b"x-sequence-id", b"x-sequence-start", b"x-sequence-end")
NUMBER_MAX = 2**64 - 1
ID_ALLOWED = "1 to 128 visible ASCII characters"
_ID = re.compile(r"[!-~]{1,128}")


def turn_of_parameters(given: dict[str, Parameter]) -> Turn | None:
    """From V2's ``sequence_id`` (a whole number or text; 0 and "" are none), ``sequence_start``, ``sequence_end``."""
    id = given.get("sequence_id", 0)
    if type(id) not in (int, str):
        raise refuse(Code.WRONG_TYPE, "/parameters/sequence_id", f"expected a whole number or {ID_ALLOWED}")
    if isinstance(id, int) and not 0 <= id <= NUMBER_MAX:
        raise refuse(Code.OUT_OF_RANGE, "/parameters/sequence_id", f"must be from 0 to {NUMBER_MAX}")
    for name in NAMES[1:]:
        if type(given.get(name, False)) is not bool:
            raise refuse(Code.WRONG_TYPE, f"/parameters/{name}", "expected a boolean")
    text = str(id) if id else ""
    return _turn(text, given.get("sequence_start") is True, given.get("sequence_end") is True, "/parameters/", NAMES)


def turn_of_headers(http: HttpRequest) -> Turn | None:
    """From the headers X-Sequence-Id, X-Sequence-Start and X-Sequence-End; the last two are true or false."""
    if not any(name in http.headers for name in HEADERS):
        return None
    start, end = (_flag(http, name) for name in HEADERS[1:])
    id = http.headers.get(HEADERS[0], b"").decode("latin-1")
    return _turn(id, start, end, "", [name.decode().title() for name in HEADERS])


def end_of_headers(http: HttpRequest) -> Turn:
    """From the header X-Sequence-Id alone: the end of that sequence."""
    turn = turn_of_headers(http)
    if turn is None:
        raise refuse(Code.MISSING_FIELD, "X-Sequence-Id", "is required to end a sequence")
    if turn.start:
        raise refuse(Code.INVALID_INPUT, "X-Sequence-Start", "nothing is started without a record")
    return Turn(turn.id, end=True)


def _turn(id: str, start: bool, end: bool, place: str, names: "list[str] | tuple[str, ...]") -> Turn | None:
    if not id:
        if start or end:
            flag = names[1] if start else names[2]
            raise refuse(Code.MISSING_FIELD, f"{place}{names[0]}", f"is required with {flag}")
        return None
    if not _ID.fullmatch(id):
        raise refuse(Code.OUT_OF_RANGE, f"{place}{names[0]}", f"must be {ID_ALLOWED}")
    return Turn(id, start, end)


def _flag(http: HttpRequest, name: bytes) -> bool:
    value = http.headers.get(name, b"false").lower()
    if value not in (b"true", b"false"):
        raise refuse(Code.WRONG_TYPE, name.decode().title(), "expected true or false")
    return value == b"true"
