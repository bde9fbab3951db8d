"""V2's log settings, as far as they do something here: what is logged, and how lines write the time."""

from collections.abc import Mapping
from dataclasses import replace

from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.strict_json import decode
from forwardpass.observe.log import LogChoice
from forwardpass.pipeline.bounds import refuse, unknown_field

FORMATS = ("default", "ISO8601")
_LEVELS = {"log_info": "info", "log_warning": "warning", "log_error": "error"}
_NAMES = (*_LEVELS, "log_verbose_level", "log_format", "log_file")


def log_settings(choice: LogChoice) -> dict[str, object]:
    """All of them. There is no log file: lines go to standard error."""
    return {
        "log_file": "",
        "log_info": choice.info,
        "log_warning": choice.warning,
        "log_error": choice.error,
        "log_verbose_level": int(choice.verbose),
        "log_format": FORMATS[choice.iso],
    }


def changed(choice: LogChoice, body: bytes) -> LogChoice:
    """The choice with what the body names changed; ``log_verbose_level`` 1 adds a line for each request. Raises Refused."""
    members = decode(body)
    if not isinstance(members, dict):
        raise Refused(Code.WRONG_TYPE, "the body: expected an object")
    for name, value in members.items():
        choice = replace(choice, **_change(name, value))
    return choice


def _change(name: str, value: object) -> Mapping[str, bool]:
    where = f"/{name}"
    if name in _LEVELS:
        if not isinstance(value, bool):
            raise refuse(Code.WRONG_TYPE, where, "expected a boolean")
        return {_LEVELS[name]: value}
    if name == "log_verbose_level":
        if type(value) is not int:
            raise refuse(Code.WRONG_TYPE, where, "expected an integer")
        if value not in (0, 1):
            raise refuse(Code.OUT_OF_RANGE, where, "must be 0 or 1")
        return {"verbose": value == 1}
    if name == "log_format":
        if value not in FORMATS:
            raise refuse(Code.OUT_OF_RANGE, where, f"must be one of {', '.join(FORMATS)}")
        return {"iso": value == "ISO8601"}
    if name == "log_file":
        raise refuse(Code.INVALID_INPUT, where, "cannot be set: lines go to standard error")
    raise unknown_field(name, _NAMES)
