"""``use = "steps:NAME"``: a plain typed Python function in the version's ``steps.py``, called once per row.

Its parameters are names of fields. It gets str, bytes, int, float, bool, None for a missing value, and a read-only
array for a tensor; it returns one value of the declared datatype and shape. It runs only in a version the operator
trusts.
"""

import inspect
import math
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np

from forwardpass.core.errors import Code, Failed, Misconfigured, Refused, show
from forwardpass.core.own_code import module_at
from forwardpass.core.pipeline import Field
from forwardpass.core.tensor import NUMPY_NAMES
from forwardpass.steps.kind import Kind, invalid
from forwardpass.steps.options import choice, did_you_mean, field_name, option, several, whole
from forwardpass.steps.protocol import Batch, Column, Context, FieldMap, Prepared

FILE = "steps.py"
DETAIL_CHARACTERS_MAX = 4096
_ACCEPTED = {"FP32": "iuf", "FP64": "iuf", "INT64": "iu", "BOOL": "b"}
"""Datatype -> the numpy kinds of value that may become it."""


@dataclass(frozen=True, kw_only=True)
class Own:
    """Calls the function with each row's fields. A ValueError it raises refuses that row with the error's text; any
    other exception, or a value that is not as declared, fails that row."""

    output: str = option(field_name(), "the field the function's value becomes")
    datatype: Literal["BYTES", "FP32", "FP64", "INT64", "BOOL"] = option(
        choice("BYTES", "FP32", "FP64", "INT64", "BOOL"), "the value's type; BYTES is text"
    )
    shape: tuple[int, ...] = option(several(whole(1, 2**20), least=0), "the value's shape; [] is one value", ())


def own_kind(function: str, act: Callable[..., object] | None = None) -> Kind[Own]:
    """The kind of step that calls this function of ``steps.py``; with ``act``, that one in its place."""
    return Kind(f"steps:{function}", Own, _own_fields, partial(_own, function, act))


def _own_fields(options: Own, known: FieldMap) -> list[Field]:
    kind: Literal["text", "tensor"] = "text" if options.datatype == "BYTES" else "tensor"
    return [Field(options.output, options.datatype, options.shape, kind)]


def _own(
    function: str, given: Callable[..., object] | None, options: Own, known: FieldMap, context: Context
) -> Prepared:
    act = given or _load(function, context)
    parameters = _parameters(function, act, known)
    blamed = parameters[0] if len(parameters) == 1 else ""  # of several fields only the author knows which is wrong
    dtype = np.dtype(object if options.datatype == "BYTES" else NUMPY_NAMES[options.datatype])

    def run(batch: Batch) -> None:
        result = np.zeros((batch.rows, *options.shape), dtype=dtype)
        given = {parameter: _values(batch.columns[parameter]) for parameter in parameters}
        for row in range(batch.rows):
            try:
                try:
                    value = act(**{parameter: values[row] for parameter, values in given.items()})
                except ValueError as error:
                    raise Refused(Code.INVALID_INPUT, f"{function}: {show(str(error))}", field=blamed) from None
                result[row] = _as_declared(value, options)
            except Refused as refusal:
                batch.fail(row, refusal)
            except (Exception, SystemExit):  # the author's code may raise anything, and only this row is to fail
                detail = traceback.format_exc()[-DETAIL_CHARACTERS_MAX:]
                batch.fail(row, Failed(Code.STEP_FAILED, f"step {function} could not do this row", detail=detail))
        batch.columns[options.output] = result

    return run


def _values(column: Column) -> Any:
    """The rows as the function gets them: plain Python values, NaN as None, tensors as read-only arrays.

    Lists and tables are copies: what the function does to them changes no field.
    """
    if column.ndim > 1:
        return _read_only(column)
    values = column.tolist()
    if column.dtype == object:
        return [_as_given(value) for value in values]
    return [None if math.isnan(value) else value for value in values] if column.dtype.kind == "f" else values


def _read_only(array: Column) -> Column:
    view = array.view()
    view.flags.writeable = False
    return view


def _as_given(value: Any) -> Any:
    match value:
        case list():
            return [_as_given(each) for each in value]
        case dict():
            return {key: _as_given(each) for key, each in value.items()}
        case np.ndarray():
            return _read_only(value)
        case _:
            return value


def _as_declared(value: object, options: Own) -> Any:
    """The value as a row of the output's array. Raises when it is not of the declared datatype and shape."""
    array = np.array(value, dtype=object) if options.datatype == "BYTES" else np.asarray(value)
    if array.shape != options.shape:
        raise ValueError(f"shape {list(array.shape)} instead of {list(options.shape)}")
    if options.datatype == "BYTES":
        for element in array.flat:
            if not isinstance(element, str):
                raise TypeError(f"{type(element).__name__} instead of text")
            element.encode()  # a lone surrogate could not leave the server
        return array[()]  # a scalar as itself: an object array would keep the array around it
    if array.dtype.kind not in _ACCEPTED[options.datatype] or (
        array.dtype == np.uint64 and options.datatype == "INT64"
    ):
        raise TypeError(f"{array.dtype} instead of {options.datatype}")
    with np.errstate(over="ignore"):  # an infinity is found by the pipeline's own checks
        return array.astype(NUMPY_NAMES[options.datatype])


def _load(function: str, context: Context) -> Callable[..., object]:
    if not context.trusted:
        raise Misconfigured(Code.NOT_TRUSTED, f"step {function} is own code, which runs only in a trusted version")
    path = context.folder / FILE
    if not path.is_file():
        raise invalid("use", f"steps:{function}, and there is no {FILE}", f"a file {FILE} beside pipeline.toml")
    module = _module(path)
    functions = [each for each, value in vars(module).items() if inspect.isfunction(value) and not each.startswith("_")]
    if function not in functions:
        there = f"functions there: {', '.join(functions) or 'none'}{did_you_mean(function, functions)}"
        raise invalid("use", f"{FILE} has no function {function!r}", there)
    found: Callable[..., object] = getattr(module, function)
    return found


def _module(path: Path) -> ModuleType:
    try:
        return module_at(path)
    except (Exception, SystemExit) as error:  # the author's code may raise anything
        where = f"{FILE} could not be loaded: {type(error).__name__}: {show(str(error))}"
        raise Misconfigured(Code.LOAD_FAILED, where, detail=traceback.format_exc()[-DETAIL_CHARACTERS_MAX:]) from None


def _parameters(function: str, act: Callable[..., object], known: FieldMap) -> list[str]:
    found = inspect.signature(act).parameters
    for parameter in found.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise invalid("use", f"{function} takes {parameter}", "parameters that are names of fields")
        if parameter.name not in known:
            there = f"fields here: {', '.join(known) or 'none'}{did_you_mean(parameter.name, known)}"
            raise invalid("use", f"{function} takes {parameter.name!r}, which is no field", there)
    return list(found)
