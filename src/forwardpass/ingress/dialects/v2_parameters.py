"""The parameters of V2 requests, inputs and outputs: those with a meaning here, checked; reserved ones refused."""

import difflib
import re
from collections.abc import Iterable

from msgspec import UNSET

from forwardpass.core.errors import Code, Refused, show
from forwardpass.core.pipeline import Field
from forwardpass.core.request import Parameter, Request
from forwardpass.ingress.dialects.caching import leave_alone
from forwardpass.ingress.dialects.envelope import DEADLINE_S_MAX, check_receipt
from forwardpass.ingress.dialects.turns import NAMES as SEQUENCE_NAMES
from forwardpass.ingress.dialects.turns import turn_of_parameters
from forwardpass.ingress.dialects.v2_classification import check_classes
from forwardpass.ingress.dialects.v2_input import InferInput, Parameters
from forwardpass.pipeline.bounds import refuse, unknown_field

COUNT_MAX = 64
STRING_CHARACTERS_MAX = 1024
PRIORITY_MAX = 2**32 - 1

_MEANT = ("priority", "timeout", "receipt", "cache", "binary_data_output", *SEQUENCE_NAMES)
_UNSUPPORTED = ("shared_memory_region", "shared_memory_byte_size", "shared_memory_offset")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def apply_parameters(request: Request, parameters: Parameters) -> None:
    """Set what the request's own parameters ask for; those of other names are without effect, as V2 allows it.

    ``timeout`` is in microseconds, 0 the server's default, and cut to the longest deadline; ``priority`` 0 is the
    default, 1 the highest; ``cache`` false leaves kept answers alone. A name that is nearly one of ours is refused as a slip of the pen.
    """
    if len(parameters) > COUNT_MAX:
        raise refuse(Code.OUT_OF_RANGE, "/parameters", f"at most {COUNT_MAX} are allowed, got {len(parameters)}")
    sequence: dict[str, Parameter] = {}
    for name, value in parameters.items():
        where = f"/parameters/{name}"
        match name:
            case "priority":
                request.priority, request.priority_field = _integer(value, where, PRIORITY_MAX), where
            case "timeout":
                timeout_us = _integer(value, where, None)
                request.deadline_s = min(timeout_us / 1e6, DEADLINE_S_MAX) if timeout_us else None
            case "receipt":
                check_receipt(value, where)
                request.receipt = True
            case "cache":
                if not _boolean(value, where):
                    leave_alone(request)
            case "binary_data_output":
                request.binary_default = _boolean(value, where)
            case "sequence_id" | "sequence_start" | "sequence_end":
                sequence[name] = value
            case _:
                _check_other(name, value, where)
    if sequence:
        request.sequence = turn_of_parameters(sequence)


def apply_output(request: Request, output: Field, parameters: Parameters, where: str) -> None:
    """Set what the parameters of an output ask for. Raises Refused, also for what the output does not fit."""
    for name, value in parameters.items():
        match name:
            case "binary_data":
                request.binary[output.name] = _boolean(value, f"{where}/parameters/{name}")
            case "classification":
                request.classes[output.name] = check_classes(value, output, f"{where}/parameters/{name}")
            case _:
                raise _unknown(name, ("binary_data", "classification"), f"{where}/parameters")


def input_bytes(given: InferInput, where: str) -> int | None:
    """How many of the binary bytes are the input's, None when its values are JSON. Raises Refused for both or neither."""
    if not given.parameters and given.data is not UNSET:
        return None
    size: int | None = None
    for name, value in (given.parameters or {}).items():
        if name != "binary_data_size":
            raise _unknown(name, ("binary_data_size",), f"{where}/parameters")
        size = _integer(value, f"{where}/parameters/binary_data_size", None)
    if size is None and given.data is UNSET:
        raise refuse(Code.MISSING_FIELD, f"{where}/data", "is required (or parameters/binary_data_size)")
    if size is not None and given.data is not UNSET:
        raise refuse(Code.INVALID_INPUT, f"{where}/data", "cannot go with parameters/binary_data_size")
    return size


def refuse_input_parameters(names: Iterable[str], where: str) -> None:
    """Raises Refused for any: only REST's inputs have one, which says where their bytes are."""
    for name in names:
        text = "is not supported" if name in _UNSUPPORTED else "is unknown; inputs have no parameters here"
        raise refuse(Code.UNKNOWN_FIELD, f"{where}/parameters/{show(name)}", text)


def _check_other(name: str, value: Parameter, where: str) -> None:
    """Raises Refused for a name that has a meaning elsewhere or is nearly one of ours, and for what is no name."""
    if name == "classification":
        raise refuse(Code.UNKNOWN_FIELD, where, "is a parameter of outputs, not of requests")
    if name in _UNSUPPORTED or not _NAME.fullmatch(name) or name == "constructor":
        raise _unknown(name, _MEANT, "/parameters")
    if difflib.get_close_matches(name, _MEANT, 1, 0.85):
        raise unknown_field(name, _MEANT, "/parameters")
    if isinstance(value, str) and len(value) > STRING_CHARACTERS_MAX:
        raise refuse(Code.OUT_OF_RANGE, where, f"at most {STRING_CHARACTERS_MAX} characters are allowed")


def _unknown(name: str, allowed: tuple[str, ...], place: str) -> Refused:
    if name in _UNSUPPORTED:
        return refuse(Code.UNKNOWN_FIELD, f"{place}/{name}", "is not supported")
    return unknown_field(name, allowed, place)


def _integer(value: Parameter, where: str, most: int | None) -> int:
    if type(value) is not int:
        raise refuse(Code.WRONG_TYPE, where, "expected an integer")
    if value < 0 or (most is not None and value > most):
        limit = "" if most is None else f" and at most {most}"
        raise refuse(Code.OUT_OF_RANGE, where, f"must be 0 or more{limit}")
    return value


def _boolean(value: Parameter, where: str) -> bool:
    if type(value) is not bool:
        raise refuse(Code.WRONG_TYPE, where, "expected a boolean")
    return value
