"""The rules of a pipeline: what the business says of an answer after the model has had its say.

``prepare`` checks and compiles them, and applies them to a batch as the step behind the last. Rules are taken in the
order written; a later one sees what an earlier one set. A rule that fires leaves notes on its row, named "rule". An
expression that has no value for a row (null compared, a key that is not there) fails that row: no rule is skipped.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from forwardpass.core.errors import Code, Failed, Misconfigured, Problem, Refused
from forwardpass.core.pipeline import Field, Pipeline, Rule
from forwardpass.steps.options import Wrong
from forwardpass.steps.protocol import Batch, Prepared
from forwardpass.steps.rules.expressions import FIELDS, TYPES, Expression, Unanswered
from forwardpass.steps.rules.ready import ELEMENT, Ready, dropped, made_ready
from forwardpass.steps.rules.values import ELEMENTS_MAX, can_be_read, fitted, plain_values

NOTE = "rule"


def prepare(definition: Pipeline, known: Mapping[str, Field], outputs: Sequence[Field]) -> Prepared:
    """The definition's rules over the fields ``known`` at its end. Raises Misconfigured with all that is wrong."""
    padded = definition.batch.padding is not None
    written = {output.name: output for output in outputs}
    readable = {name: each for name, each in known.items() if can_be_read(each, padded=padded)}
    ready: list[Ready] = []
    problems: list[Problem] = []
    for place, rule in enumerate(definition.rules):
        try:
            ready.append(made_ready(rule, readable, written))
        except Misconfigured as error:
            if error.code is not Code.DEFINITION_INVALID:
                raise
            problems += [replace(each, key=f"rules[{place}].{each.key}") for each in error.problems]
    if problems:
        raise Misconfigured(Code.DEFINITION_INVALID, tuple(problems))

    read = {name: known[name] for each in ready for name in (*each.names, *each.keys, each.rule.each) if name}

    def run(batch: Batch) -> None:
        rows = _Rows(batch, read, written)
        for each in ready:
            (_apply_each if each.rule.each else _apply)(each, rows)

    return run


def withhold(batch: Batch) -> None:
    """Make the floating numbers that rules dropped NaN, which JSON shows as null; after the answers were checked."""
    for name in {name for _, name in batch.withheld}:
        column = batch.columns[name].copy()
        column[[(origin, name) in batch.withheld for origin in batch.origin]] = np.nan
        batch.columns[name] = column


@dataclass(slots=True)
class _Rows:
    """The rows as expressions see them, each field converted once and again after it was changed."""

    batch: Batch
    fields: Mapping[str, Field]
    outputs: Mapping[str, Field]
    converted: dict[str, list[Any]] = field(default_factory=dict)
    owned: set[str] = field(default_factory=set)  # columns that are ours to write to

    def values(self, name: str, rule: Rule) -> list[Any]:
        if name not in self.converted:

            def too_large(row: int) -> None:
                text = f'the rule "{rule.name}": {name} has more than {ELEMENTS_MAX} elements'
                self.batch.fail(row, Failed(Code.STEP_FAILED, text, field=name))

            values = plain_values(self.fields[name], self.batch.columns[name], too_large)
            for row, origin in enumerate(self.batch.origin if self.batch.withheld else ()):
                if (origin, name) in self.batch.withheld:
                    values[row] = None
            self.converted[name] = values
        return self.converted[name]

    def variables(self, ready: Ready) -> Iterator[tuple[int, dict[str, Any]]]:
        """Each row that has not failed, and what the rule's expressions may name."""
        named = [(name, self.values(name, ready.rule)) for name in ready.names]
        keyed = [(key, self.values(key, ready.rule)) for key in ready.keys]
        for row in range(self.batch.rows):
            if row not in self.batch.failing:
                variables = {name: values[row] for name, values in named}
                if keyed:
                    variables[FIELDS] = {key: values[row] for key, values in keyed}
                yield row, variables

    def write(self, name: str, row: int, value: Any) -> None:
        if name not in self.owned:
            self.batch.columns[name] = self.batch.columns[name].copy()
            self.owned.add(name)
        self.batch.columns[name][row] = value
        self.batch.withheld.discard((self.batch.origin[row], name))
        self.converted.pop(name, None)

    def drop(self, name: str, row: int) -> None:
        if self.outputs[name].datatype == "BYTES":
            self.write(name, row, None)
        else:
            self.batch.withheld.add((self.batch.origin[row], name))
            self.converted.pop(name, None)


def _apply(ready: Ready, rows: _Rows) -> None:
    """A rule on every row by itself."""
    for row, variables in rows.variables(ready):
        try:
            if not _fires(ready.when, variables):
                continue
            if ready.rule.refuse:
                rows.batch.fail(row, _refused(ready.rule))
                continue
            values = {name: _value(each, rows.outputs[name], variables) for name, each in ready.settings.items()}
        except Unanswered as why:
            rows.batch.fail(row, _failed(ready.rule, why))
            continue
        for name, value in values.items():
            rows.write(name, row, value)
        for name in dropped(ready.rule):
            rows.drop(name, row)
        _note(rows.batch, row, ready.rule)


def _apply_each(ready: Ready, rows: _Rows) -> None:
    """A rule on every element of a list; of none where the list is null."""
    name = ready.rule.each
    lists = rows.values(name, ready.rule)
    for row, variables in rows.variables(ready):
        try:
            kept, fired = _elements(ready, lists[row], variables)
        except Unanswered as why:
            rows.batch.fail(row, _failed(ready.rule, why))
            continue
        if not fired:
            continue
        if ready.rule.refuse:
            rows.batch.fail(row, _refused(ready.rule))
            continue
        if ready.rule.drop or ready.settings:
            rows.write(name, row, kept)
        _note(rows.batch, row, ready.rule, each=name, elements=fired)


def _elements(ready: Ready, elements: Any, variables: dict[str, Any]) -> tuple[list[Any], int]:
    """The list as the rule leaves it, and how often it fired. What the rule does not change stays the same object."""
    if elements is not None and not isinstance(elements, list):
        raise Unanswered(f"{ready.rule.each} is no list", "")
    kept: list[Any] = []
    fired = 0
    for element in elements or ():
        table = element if isinstance(element, dict) else {}
        own = {name: table.get(name, variables.get(name)) for name in ready.own if name in table or name not in TYPES}
        scope = {**variables, **own, ELEMENT: element}
        if not _fires(ready.when, scope):
            kept.append(element)
            continue
        fired += 1
        if ready.rule.drop:
            continue
        if ready.settings and not isinstance(element, dict):
            raise Unanswered(f"an element of {ready.rule.each} has no keys to set", "")
        anything = Field("", "BYTES", (), "json")
        changed = {key: _value(each, anything, scope) for key, each in ready.settings.items()}
        kept.append({**element, **changed} if changed else element)
    return kept, fired


def _fires(when: Expression, variables: dict[str, Any]) -> bool:
    found = when.value(variables)
    if type(found) is not bool:
        raise Unanswered("when is neither true nor false", f"it is of type {type(found).__name__}")
    return found


def _value(setting: Any, target: Field, variables: dict[str, Any]) -> Any:
    if not isinstance(setting, Expression):
        return setting
    try:
        return fitted(target, setting.value(variables))
    except Wrong as wrong:
        raise Unanswered(f"what it sets is {wrong.found}, where {wrong.allowed} belongs", "") from None


def _refused(rule: Rule) -> Refused:
    return Refused(Code.RULE_REFUSED, f"{rule.name}: {rule.refuse}")


def _failed(rule: Rule, why: Unanswered) -> Failed:
    return Failed(Code.STEP_FAILED, f'the rule "{rule.name}": {why.reason}', detail=why.detail)


def _note(batch: Batch, row: int, rule: Rule, **where: Any) -> None:
    """One note for each thing the rule did."""
    if rule.set:
        batch.note(row, NOTE, {"rule": rule.name, "did": "set", "names": list(rule.set), **where})
    if rule.drop:
        names = {"names": list(dropped(rule))} if dropped(rule) else {}
        batch.note(row, NOTE, {"rule": rule.name, "did": "drop", **names, **where})
    if rule.flag:
        batch.note(row, NOTE, {"rule": rule.name, "did": "flag", "text": rule.flag, **where})
