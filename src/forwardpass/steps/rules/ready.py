"""Rules made ready: what is wrong with them is found, their expressions are compiled and tried on made-up values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from forwardpass.core.errors import Misconfigured
from forwardpass.core.pipeline import Field, Rule
from forwardpass.steps.kind import describe, invalid
from forwardpass.steps.options import Trouble, Wrong, did_you_mean
from forwardpass.steps.rules.expressions import FIELDS, TYPES, Expression, compiled
from forwardpass.steps.rules.values import UNKNOWN, can_be_missing, can_be_set, fitted, is_number_for, sample

ELEMENT = "element"  # in a rule with each: the element itself


@dataclass(frozen=True, slots=True)
class Ready:
    """A rule to be applied. ``settings``: output or key = its value as the column holds it, or the expression of it."""

    rule: Rule
    when: Expression
    settings: dict[str, Any]
    names: tuple[str, ...]  # fields that its expressions read by their names
    keys: tuple[str, ...]  # and through ``fields``
    own: tuple[str, ...]  # with each, names that are the element's if it has them


def mistakes(rule: Rule) -> Iterator[Trouble]:
    """What is wrong with a rule whatever the fields are, as (key, found, allowed); expressions only with the library."""
    if not (rule.set or rule.drop or rule.flag or rule.refuse):
        yield "", "it does nothing", "one of set, drop, flag and refuse at least"
    if rule.refuse and (rule.set or rule.drop or rule.flag):
        yield "refuse", "has other actions beside it, which a refused row never shows", "refuse alone"
    if rule.each and rule.drop not in ((), True):
        yield "drop", "a list in a rule with each", "drop = true, which removes the element"
    if not rule.each and rule.drop is True:
        yield "drop", "true in a rule without each", "a list of outputs"
    if rule.drop is True and rule.set:
        yield "set", "has no effect on an element that is dropped", "set or drop"
    for place, name in enumerate(dropped(rule)):
        if name in rule.set or name in dropped(rule)[:place]:
            yield f"drop[{place}]", "is set or dropped already", "each output once"
    texts = {"when": rule.when}
    texts |= {f"set.{name}.cel": value["cel"] for name, value in rule.set.items() if _is_expression(value)}
    for key, text in texts.items():
        try:
            compiled(text)
        except Wrong as wrong:
            yield key, wrong.found, wrong.allowed
        except Misconfigured:  # no library: loading says so
            return


def made_ready(rule: Rule, readable: Mapping[str, Field], outputs: Mapping[str, Field]) -> Ready:
    """The rule over these fields, of which ``outputs`` can be changed. Raises Misconfigured."""
    if rule.each and (rule.each not in outputs or outputs[rule.each].kind != "json"):
        lists = [name for name, output in outputs.items() if output.kind == "json"]
        raise invalid("each", f"no JSON output is named {rule.each!r}", f"such outputs: {', '.join(lists) or 'none'}")
    when = _expression("when", rule.when, rule, readable)
    if type(_tried("when", when, rule, readable)) not in (bool, type(None)):
        raise invalid("when", "it is neither true nor false", "an expression that is, such as a comparison")
    settings = {name: _setting(f"set.{name}", name, value, rule, readable, outputs) for name, value in rule.set.items()}
    for place, name in enumerate(dropped(rule)):
        if not can_be_missing(_output(name, f"drop[{place}]", outputs)):
            allowed = "a text, a JSON value or a floating tensor: others cannot be null"
            raise invalid(f"drop[{place}]", describe(outputs[name]), allowed)
    expressions = [when, *(each for each in settings.values() if isinstance(each, Expression))]
    names = {name for each in expressions for name in each.names} - {FIELDS}
    keys = {key for each in expressions for key in each.keys}
    return Ready(
        rule,
        when,
        settings,
        names=tuple(sorted(names & readable.keys())),
        keys=tuple(sorted(keys)),
        own=tuple(sorted(names - {ELEMENT})) if rule.each else (),
    )


def _expression(key: str, text: str, rule: Rule, readable: Mapping[str, Field]) -> Expression:
    try:
        expression = compiled(text)
    except Wrong as wrong:
        raise invalid(key, wrong.found, wrong.allowed) from None
    free = set[str]() if rule.each else expression.names - expression.bound - TYPES - {FIELDS}
    for name in sorted((free | expression.keys) - readable.keys()):
        there = f"fields here: {', '.join(readable) or 'none'}{did_you_mean(name, readable)}"
        raise invalid(key, f"no field that a rule can read is named {name!r}", there)
    return expression


def _tried(key: str, expression: Expression, rule: Rule, readable: Mapping[str, Field]) -> Any:
    """The expression's value with made-up fields of the right types, None when that cannot be said."""
    made = {name: sample(readable[name]) for name in (expression.names | expression.keys) & readable.keys()}
    if rule.each or any(value is UNKNOWN for value in made.values()):
        return None
    try:
        return expression.trial({**made, FIELDS: made})
    except Wrong as wrong:
        raise invalid(key, wrong.found, wrong.allowed) from None


def _setting(
    key: str, name: str, value: Any, rule: Rule, readable: Mapping[str, Field], outputs: Mapping[str, Field]
) -> Any:
    target = Field(name, "BYTES", (), "json") if rule.each else _output(name, key, outputs)
    if not can_be_set(target):
        raise invalid(key, describe(target), "an output of one number, truth or text, a list of texts, or JSON")
    try:
        if not _is_expression(value):
            return fitted(target, value)
        key = f"{key}.cel"
        expression = _expression(key, value["cel"], rule, readable)
        tried = _tried(key, expression, rule, readable)
        if tried is not None and not is_number_for(target, tried):  # whether a number is too large, rows will show
            fitted(target, tried)
        return expression
    except Wrong as wrong:
        raise invalid(key, wrong.found, wrong.allowed) from None


def _is_expression(value: Any) -> bool:
    return type(value) is dict and value.keys() == {"cel"} and type(value["cel"]) is str


def dropped(rule: Rule) -> tuple[str, ...]:
    """The outputs that a rule without ``each`` drops."""
    return () if isinstance(rule.drop, bool) else rule.drop


def _output(name: str, key: str, outputs: Mapping[str, Field]) -> Field:
    if name not in outputs:
        there = f"outputs: {', '.join(outputs)}{did_you_mean(name, outputs)}"
        raise invalid(key, f"no output is named {name!r}", there)
    return outputs[name]
