"""The document form of a pipeline, plain dicts and lists as TOML holds them, and its table of what each key may be.

``read`` makes the frozen object of a document and lists every key that is unknown, of a wrong type or out of bounds;
``to_document`` is its inverse. What only shows when several keys are seen together is ``rules.py``'s work.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, get_args

from forwardpass.core.errors import show
from forwardpass.core.pipeline import (
    Batch,
    Cache,
    Checks,
    Golden,
    Guard,
    Input,
    InputType,
    Padding,
    Pipeline,
    Price,
    Queue,
    Rule,
    Sequences,
    Step,
    Task,
    Workers,
)
from forwardpass.core.tensor import DATATYPES, RANK_MAX
from forwardpass.pipeline.cache_section import CACHE
from forwardpass.pipeline.guards_section import GUARD
from forwardpass.pipeline.price_section import PRICE
from forwardpass.pipeline.task_section import TASK
from forwardpass.pipeline.toml_lines import join
from forwardpass.pipeline.toml_values import (
    WRONG,
    Findings,
    by_name,
    digest,
    free_text,
    list_of,
    number,
    one_of,
    plain_data,
    short_name,
    table,
    true_or_false,
    whole,
)

SENTENCE_CHARACTERS_MAX = 200  # with a name it fits into a failure's text
BYTES_MAX = 2**40


def read(document: Mapping[str, Any]) -> tuple[Pipeline, Findings]:
    """The pipeline a document describes; keys with a problem are left at their default."""
    findings = Findings()
    pipeline: Pipeline = _PIPELINE(document, "", findings)
    return pipeline, findings


def to_document(pipeline: Pipeline) -> dict[str, Any]:
    """The document ``read`` makes this pipeline of; what equals its default is left out."""
    document: dict[str, Any] = _plain_form(pipeline)
    return document


def _plain_form(value: Any) -> Any:
    match value:
        case Step():
            return {"use": value.use, **{name: _plain_form(given) for name, given in value.options.items()}}
        case (
            Pipeline()
            | Input()
            | Rule()
            | Checks()
            | Batch()
            | Padding()
            | Queue()
            | Sequences()
            | Cache()
            | Task()
            | Workers()
            | Price()
            | Golden()
            | Guard()
        ):
            form = {}
            for spec in dataclasses.fields(value):
                given = getattr(value, spec.name)
                default = spec.default if spec.default_factory is dataclasses.MISSING else spec.default_factory()
                if default is dataclasses.MISSING or given != default:
                    form[spec.name] = _plain_form(given)
            return form
        case dict():
            return {name: _plain_form(given) for name, given in value.items()}
        case list() | tuple():
            return [_plain_form(given) for given in value]
        case _:
            return value


def _step(value: Any, key: str, findings: Findings) -> Any:
    if type(value) is not dict or "use" not in value:
        findings.broken.append(key)
        findings.wrong(join(key, "use"), "missing", 'a table with the kind of step, as in use = "model"')
        return Step("")
    use = short_name(value["use"], join(key, "use"), findings)
    if use is WRONG:
        findings.broken.append(key)
        use = ""
    options = {}
    for name, given in value.items():
        if name != "use" and short_name(name, join(key, str(name)), findings) is not WRONG:
            understood = plain_data(given, join(key, name), findings)
            if understood is not WRONG:
                options[name] = understood
    return Step(use, options)


def _sentence(value: Any, key: str, findings: Findings) -> Any:
    if type(value) is str and value.isprintable() and 0 < len(value) <= SENTENCE_CHARACTERS_MAX:
        return value
    return findings.wrong(key, show(value), f"a text of 1 to {SENTENCE_CHARACTERS_MAX} printable characters")


def _true_or_names(value: Any, key: str, findings: Findings) -> Any:
    if value is True:
        return True
    if type(value) is list:
        return list_of(short_name, count_max=1024)(value, key, findings)
    return findings.wrong(key, show(value), "a list of outputs, or true in a rule with each")


def _record(value: Any, key: str, findings: Findings) -> Any:
    return plain_data(value, key, findings) if type(value) is dict else findings.wrong(key, show(value), "a table")


def _range(value: Any, key: str, findings: Findings) -> Any:
    bound = number(infinite=True)
    if type(value) is list and len(value) == 2:
        low, high = (bound(given, join(key, place), findings) for place, given in enumerate(value))
        if low is WRONG or high is WRONG:
            return WRONG
        if low <= high:
            return (low, high)
    return findings.wrong(key, show(value), "[lowest, highest]")


_INPUT = table(
    Input,
    {
        "name": short_name,
        "type": one_of(*get_args(InputType)),
        "bytes_max": whole(1, BYTES_MAX),
        "bytes_min": whole(0, BYTES_MAX),
        "count_max": whole(1, 65_536),
        "min": number(),
        "max": number(),
        "missing": true_or_false,
        "columns": by_name(one_of("number", "category"), count_max=4096),
        "datatype": one_of(*DATATYPES),
        "shape": list_of(whole(-1, 2**31 - 1), count_max=RANK_MAX - 1),
    },
    name="",
    type="tensor",
)
_RULE = table(
    Rule,
    {
        "name": short_name,
        "when": free_text,
        "each": short_name,
        "set": by_name(plain_data, count_max=1024),
        "drop": _true_or_names,
        "flag": _sentence,
        "refuse": _sentence,
    },
    name="",
    when="",
)
_CHECKS = table(Checks, {"finite": true_or_false, "range": by_name(_range, count_max=1024)})
_PADDING = table(
    Padding,
    {
        "fields": by_name(number(), count_max=256),
        "buckets": list_of(whole(1, 2**31 - 1), count_max=1024),
    },
    fields={},
)
_BATCH = table(
    Batch,
    {
        "enabled": true_or_false,
        "rows_max": whole(1, 65_536, or_word="auto"),
        "wait_ms": number(0, 1000),
        "cost": short_name,
        "cost_max": number(0, above=True),
        "buckets_bytes": list_of(whole(1, BYTES_MAX), count_max=1024),
        "padding": _PADDING,
        "tolerance": number(0, 1),
    },
)
_QUEUE = table(
    Queue,
    {
        "rows_max": whole(1, 10_000_000),
        "bytes_max": whole(1, BYTES_MAX),
        "wait_max_s": number(0, 3600, above=True),
    },
)
_SEQUENCES = table(
    Sequences,
    {"idle_s": number(0, 86_400, above=True), "sequences_max": whole(1, 1_000_000)},
)
_WORKERS = table(
    Workers,
    {
        "count": whole(0, 256),
        "memory_max_mb": whole(64, 16 * 1024 * 1024),
        "batch_limit_s": number(0, 86_400, above=True),
        "load_limit_s": number(0, 86_400, above=True),
    },
)
_GOLDEN = table(
    Golden,
    {"request": _record, "expect": _record, "tolerance": number(0)},
    request={},
    expect={},
)
_PIPELINE = table(
    functools.partial(Pipeline, steps=()),
    {
        "description": free_text,
        "outputs": list_of(short_name, count_max=1024),
        "inputs": list_of(_INPUT, count_max=256),
        "steps": list_of(_step, count_max=256),
        "rules": list_of(_RULE, count_max=256),
        "guards": list_of(GUARD, count_max=64),
        "checks": _CHECKS,
        "batch": _BATCH,
        "queue": _QUEUE,
        "workers": _WORKERS,
        "sequence": _SEQUENCES,
        "cache": CACHE,
        "task": TASK,
        "price": PRICE,
        "golden": list_of(_GOLDEN, count_max=1000),
        "files": by_name(digest, count_max=10_000),
    },
)
