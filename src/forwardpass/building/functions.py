"""Plain typed functions as steps: what ``@step`` says of one, and what its annotations say."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import isasyncgenfunction, iscoroutinefunction, isfunction, isgeneratorfunction
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints, overload

from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.core.pipeline import Step
from forwardpass.steps.catalogue import OWN_PREFIX
from forwardpass.steps.options import read
from forwardpass.steps.own import Own, own_kind
from forwardpass.steps.protocol import StepKind

F = TypeVar("F", bound=Callable[..., object])

_SAID = "__forwardpass_step__"
_DATATYPES: dict[object, str] = {str: "BYTES", float: "FP64", int: "INT64", bool: "BOOL"}
_ALLOWED = "-> str, float, int or bool, or @step(datatype=..., shape=...)"


@dataclass(frozen=True, slots=True)
class Function:
    """A function that is a step: in this process the object itself, in a folder its source in ``steps.py``."""

    name: str
    act: Callable[..., object]
    options: dict[str, Any]

    @property
    def step(self) -> Step:
        return Step(f"{OWN_PREFIX}{self.name}", self.options)

    @property
    def kind(self) -> StepKind:
        return own_kind(self.name, self.act)


@overload
def step(function: F, /) -> F: ...
@overload
def step(*, output: str = ..., datatype: str = ..., shape: tuple[int, ...] = ...) -> Callable[[F], F]: ...


def step(
    function: Callable[..., object] | None = None,
    /,
    *,
    output: str | None = None,
    datatype: str | None = None,
    shape: tuple[int, ...] | None = None,
) -> Any:
    """Makes a step of a function that is called once per row: its parameters are names of fields.

    It becomes the field ``output`` (the function's name). The datatype is that of the return annotation: str BYTES,
    float FP64, int INT64, bool BOOL, ``Annotated[np.ndarray, "FP32", (4,)]`` an array; what is given here goes first.
    A ValueError refuses the row with its text. The function itself stays what it is.
    """
    given = {"output": output, "datatype": datatype, "shape": None if shape is None else list(shape)}

    def decorate(function: F) -> F:
        said = {name: value for name, value in given.items() if value is not None}
        _checked(function, said)
        setattr(function, _SAID, said)
        return function

    return decorate if function is None else decorate(function)


def function_of(act: Callable[..., object]) -> Function:
    """What a function is as a step, decorated or not. Raises Misconfigured."""
    options = _checked(act, getattr(act, _SAID, {}))
    return Function(act.__name__, act, options)


def _checked(act: Callable[..., object], said: dict[str, Any]) -> dict[str, Any]:
    """The options of its step."""
    name = getattr(act, "__name__", repr(act))
    if not isfunction(act) or not name.isidentifier() or name.startswith("_"):
        raise _wrong(name, "is no function with a public name", "a function made by def")
    if iscoroutinefunction(act) or isgeneratorfunction(act) or isasyncgenfunction(act):
        raise _wrong(name, "gives no value when it is called", "a plain function, which returns its value")
    options = {"output": name, **_annotated(act), **said}
    if "datatype" not in options:
        raise _wrong(name, "its return annotation says nothing of the datatype", _ALLOWED)
    _, troubles = read(Own, options)
    if troubles:
        problems = tuple(Problem("", f"{name}.{key}", found, allowed) for key, found, allowed in troubles)
        raise Misconfigured(Code.DEFINITION_INVALID, problems)
    return options


def _annotated(act: Callable[..., object]) -> dict[str, Any]:
    """What the return annotation says of datatype and shape; nothing where it is something else."""
    try:
        annotation = get_type_hints(act, include_extras=True).get("return")
    except (NameError, TypeError, AttributeError):  # an annotation that names what is not there is a note for people
        return {}
    if get_origin(annotation) is Annotated:
        said: dict[str, Any] = {}
        for extra in get_args(annotation)[1:]:
            said |= {"datatype": extra} if isinstance(extra, str) else {}
            said |= {"shape": list(extra)} if isinstance(extra, tuple) else {}
        return said
    return {"datatype": _DATATYPES[annotation]} if annotation in _DATATYPES else {}


def _wrong(name: str, found: str, allowed: str) -> Misconfigured:
    return Misconfigured(Code.DEFINITION_INVALID, (Problem("", name, found, allowed),))
