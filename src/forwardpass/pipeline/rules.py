"""What must hold in a pipeline beyond each key on its own: combinations, options without effect, files, steps.

Each rule yields (key, found, allowed). ``document`` is the form the pipeline was read from: an option written there
that can have no effect is a problem even when its value equals the default.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from forwardpass.core.errors import Misconfigured, show
from forwardpass.core.pipeline import Input, Pipeline, Rule, Step
from forwardpass.pipeline import cache_section, golden_files, guards_section, price_section, task_section
from forwardpass.pipeline.files import file_problem
from forwardpass.pipeline.onnx_file import SUFFIX, is_onnx
from forwardpass.pipeline.toml_lines import join
from forwardpass.pipeline.toml_values import closest
from forwardpass.steps.catalogue import OWN_PREFIX, kind_of
from forwardpass.steps.catalogue import kinds as built_in
from forwardpass.steps.options import file_options
from forwardpass.steps.own import FILE as OWN_FILE
from forwardpass.steps.protocol import StepKind
from forwardpass.steps.rules.ready import mistakes

Finding = tuple[str, str, str]

_KEYS_OF_TYPE = {
    "text": {"bytes_max", "bytes_min"},
    "texts": {"bytes_max", "bytes_min", "count_max"},
    "bytes": {"bytes_max", "bytes_min"},
    "image": {"bytes_max", "bytes_min"},
    "audio": {"bytes_max", "bytes_min"},
    "number": {"min", "max", "missing"},
    "category": {"bytes_max", "bytes_min", "missing"},
    "record": {"columns"},
    "tensor": {"datatype", "shape"},
}
KEEPING = ("frames", "voice_events")
"""Kinds of step that keep something of a sequence; a model does with ``state``."""

_WITHOUT_BATCHING = ("cost", "cost_max", "buckets_bytes", "tolerance")
"""Not rows_max, which then bounds one request, nor wait_ms: users try batching on and off with it left as it is."""


ONNX_ENGINES = ("auto", "onnxruntime", "openvino")


def findings(
    pipeline: Pipeline, document: Mapping[str, Any], folder: Path, kinds: Mapping[str, StepKind]
) -> Iterator[Finding]:
    """Every broken rule of a pipeline whose keys were read by ``document.read``."""
    yield from _inputs(pipeline.inputs, document)
    yield from _steps(pipeline, folder, kinds)
    yield from _outputs_and_checks(pipeline)
    yield from _verdicts(pipeline, document)
    yield from guards_section.findings(pipeline, folder)
    yield from _batch(pipeline, _table(document, "batch"))
    yield from _padding(pipeline)
    yield from _sequence(pipeline, kinds)
    yield from cache_section.findings(pipeline, folder, _table(document, "cache"))
    yield from task_section.findings(pipeline, folder)
    yield from price_section.findings(pipeline, document)
    yield from _golden(pipeline)
    yield from golden_files.problems(pipeline, folder)
    for name in pipeline.files:
        problem = file_problem(folder, name)
        if problem:
            yield join("files", name), problem, "a plain relative name of a file in the folder"


def has_own_code(pipeline: Pipeline) -> bool:
    """Whether loading this pipeline runs Python that came with it, and so needs the operator's trust."""
    return any(
        step.use.startswith(OWN_PREFIX) or (step.use == "model" and step.options.get("engine") == "python")
        for step in pipeline.steps
    )


def _inputs(inputs: tuple[Input, ...], document: Mapping[str, Any]) -> Iterator[Finding]:
    seen: set[str] = set()
    for place, given in enumerate(inputs):
        key = f"inputs[{place}]"
        for name, where in [(given.name, f"{key}.name"), *((column, f"{key}.columns") for column in given.columns)]:
            if name in seen:
                yield where, f'the name "{name}" is there twice', "inputs and columns need names of their own"
            seen.add(name)
        yield from _one_input(given, key, _table(document, "inputs", place))
    records = [place for place, given in enumerate(inputs) if given.type == "record"]
    for place in records[1:]:
        yield f"inputs[{place}].type", "a second record", "at most one input of type record"


def _one_input(given: Input, key: str, written: Mapping[str, Any]) -> Iterator[Finding]:
    fitting = _KEYS_OF_TYPE[given.type]
    for name in written:
        if (
            name not in fitting
            and name not in ("name", "type")
            and any(name in keys for keys in _KEYS_OF_TYPE.values())
        ):
            allowed = ", ".join(sorted(fitting))
            yield f"{key}.{name}", f"has no effect on an input of type {given.type}", f"allowed with it: {allowed}"
    if given.bytes_min is not None and given.longest is not None and given.bytes_min > given.longest:
        yield f"{key}.bytes_min", f"{given.bytes_min} is more than bytes_max", f"0 to {given.longest}"
    if given.min is not None and given.max is not None and given.min > given.max:
        yield f"{key}.min", f"{given.min:g} is more than max", f"at most {given.max:g}"
    if given.type == "record" and not given.columns:
        yield f"{key}.columns", "missing", 'a record needs columns, as in columns = { age = "number" }'
    if given.type == "tensor" and not given.datatype:
        yield f"{key}.datatype", "missing", 'a tensor needs its datatype, as in datatype = "FP32"'


def _steps(pipeline: Pipeline, folder: Path, kinds: Mapping[str, StepKind]) -> Iterator[Finding]:
    if not pipeline.steps:
        yield "steps", "no steps", 'a pipeline needs at least one, as in [[steps]] with use = "model"'
    for place, step in enumerate(pipeline.steps):
        key = f"steps[{place}]"
        own = step.use.startswith(OWN_PREFIX)
        kind = _kind(step.use, kinds)
        if kind is None and own:
            yield (
                f"{key}.use",
                f"{show(step.use)} names no function",
                f"{OWN_PREFIX}NAME, a public function of {OWN_FILE}",
            )
        elif kind is None:
            allowed = closest(step.use, dict.fromkeys([*sorted(kinds), f"{OWN_PREFIX}NAME"]))
            yield f"{key}.use", f'"{show(step.use)}" is no kind of step', allowed
        elif own and file_problem(folder, OWN_FILE):
            yield f"{key}.use", f"there is no {OWN_FILE} in the folder", f"{show(step.use)} is a function of that file"
        if kind is not None:
            yield from _options(step, kind, key, folder)


def _kind(use: str, kinds: Mapping[str, StepKind]) -> StepKind | None:
    try:
        return kind_of(use, kinds)
    except Misconfigured:
        return None


def _options(step: Step, kind: StepKind, key: str, folder: Path) -> Iterator[Finding]:
    misplaced = dict(_misplaced_files(step, kind, folder))
    for option, found in misplaced.items():
        yield f"{key}.{option}", found, "a plain relative name of a file in the folder"
    engine, file = step.options.get("engine"), step.options.get("file")
    if step.use == "model" and engine in ONNX_ENGINES and isinstance(file, str) and not is_onnx(file):
        yield f"{key}.file", show(file), f"engine {engine} reads files named *{SUFFIX}"
    for option, found, allowed in kind.check(step.options, folder):
        if option not in misplaced:
            yield join(key, option) if option in step.options else f"{key}.{option}".rstrip("."), found, allowed


def _misplaced_files(step: Step, kind: StepKind, folder: Path) -> Iterator[tuple[str, str]]:
    for option in file_options(kind):
        name = step.options.get(option)
        problem = file_problem(folder, name) if isinstance(name, str) else ""
        if problem:
            yield option, f"{show(name)}: {problem}"


def _outputs_and_checks(pipeline: Pipeline) -> Iterator[Finding]:
    for place, name in enumerate(pipeline.outputs):
        if name in pipeline.outputs[:place]:
            yield f"outputs[{place}]", f'"{name}" is there twice', "each output once"
    if pipeline.outputs:
        for name in pipeline.checks.range:
            if name not in pipeline.outputs:
                yield join("checks.range", name), "no such output", closest(name, dict.fromkeys(pipeline.outputs))


def _verdicts(pipeline: Pipeline, document: Mapping[str, Any]) -> Iterator[Finding]:
    seen: set[str] = set()
    for place, rule in enumerate(pipeline.rules):
        key = f"rules[{place}]"
        written = _table(document, "rules", place)
        misread = any(written.get(action) not in (None, {}, []) for action in ("set", "drop", "flag", "refuse"))
        if rule.name in seen:
            yield f"{key}.name", f'"{rule.name}" is there twice', "rules need names of their own"
        seen.add(rule.name)
        for inside, found, allowed in mistakes(rule):
            if inside or not misread:  # else what it does is wrong, and told
                yield f"{key}.{inside}".rstrip("."), found, allowed
        if pipeline.outputs:
            yield from _targets(rule, key, pipeline.outputs)


def _targets(rule: Rule, key: str, outputs: tuple[str, ...]) -> Iterator[Finding]:
    named = [("each", rule.each)] if rule.each else [(join("set", name), name) for name in rule.set]
    if not isinstance(rule.drop, bool):
        named += [(f"drop[{place}]", name) for place, name in enumerate(rule.drop)]
    for inside, name in named:
        if name not in outputs:
            yield f"{key}.{inside}", "no such output", closest(name, dict.fromkeys(outputs))


def _batch(pipeline: Pipeline, written: Mapping[str, Any]) -> Iterator[Finding]:
    batch = pipeline.batch
    if not batch.enabled:
        for name in _WITHOUT_BATCHING:
            if name in written:
                yield f"batch.{name}", "has no effect while batch.enabled is false", "leave it out or enable batching"
        return
    if batch.rows_max != "auto" and batch.rows_max > pipeline.queue.rows_max:
        yield "batch.rows_max", "is more than queue.rows_max, so no such batch forms", f"1 to {pipeline.queue.rows_max}"
    if "cost_max" in written and "cost" not in written:
        yield "batch.cost_max", "has no effect without batch.cost", "set both"
    if "cost" in written and "cost_max" not in written:
        yield "batch.cost", "has no effect without batch.cost_max", "set both"
    numbers = [given.name for given in pipeline.inputs if given.type == "number"]
    if batch.cost not in ("rows", "bytes", "tokens", *numbers):
        allowed = closest(batch.cost, dict.fromkeys(["rows", "bytes", "tokens", *numbers]))
        yield "batch.cost", f'"{batch.cost}" is neither a unit nor a number input', allowed
    if not _ascending(batch.buckets_bytes):
        yield "batch.buckets_bytes", "not ascending", "each bucket larger than the one before"
    if batch.buckets_bytes and not any(given.type in ("text", "texts", "bytes") for given in pipeline.inputs):
        yield "batch.buckets_bytes", "has no effect without an input of type text, texts or bytes", "leave it out"


def _sequence(pipeline: Pipeline, kinds: Mapping[str, StepKind]) -> Iterator[Finding]:
    if pipeline.sequence is None:
        return
    known = {*built_in(), "model"}  # of a kind that a package or a program brings nobody knows here
    for step in pipeline.steps:
        keeps = step.use in KEEPING or (step.use == "model" and "state" in step.options)
        if keeps or (step.use in kinds and step.use not in known):
            return
    allowed = f"a model with state, or a step of {', '.join(KEEPING)}"
    yield "sequence", "has no effect, as no step keeps anything from one request to the next", allowed


def _padding(pipeline: Pipeline) -> Iterator[Finding]:
    padding = pipeline.batch.padding
    if padding is None:
        return
    if not padding.fields:
        yield "batch.padding.fields", "empty", "an input and its padding value, as in fields = { input_ids = 0 }"
    if not _ascending(padding.buckets):
        yield "batch.padding.buckets", "not ascending", "each bucket larger than the one before"
    growing = [given.name for given in pipeline.inputs if given.type == "tensor" and given.shape[:1] == (-1,)]
    for name in padding.fields:
        if pipeline.inputs and name not in growing:
            allowed = ", ".join(growing) or "none here"
            yield (
                join("batch.padding.fields", name),
                "no input that can be padded",
                f"tensor inputs whose shape starts with -1: {allowed}",
            )


def _golden(pipeline: Pipeline) -> Iterator[Finding]:
    names = dict.fromkeys(given.name for given in pipeline.inputs)
    for place, golden in enumerate(pipeline.golden):
        key = f"golden[{place}]"
        if not golden.expect:
            yield f"{key}.expect", "empty", "what must come back, by output"
        for name in golden.request:
            if names and name not in names:
                yield join(f"{key}.request", name), "no such input", closest(name, names)
        for name in golden.expect:
            if pipeline.outputs and name not in pipeline.outputs:
                yield join(f"{key}.expect", name), "no such output", closest(name, dict.fromkeys(pipeline.outputs))


def _ascending(values: tuple[int, ...]) -> bool:
    return all(low < high for low, high in pairwise(values))


def _table(document: Mapping[str, Any], section: str, place: int | None = None) -> Mapping[str, Any]:
    """A table of the document, or an empty one where the document has something else."""
    found = document.get(section)
    if place is not None:
        found = found[place] if isinstance(found, list) and place < len(found) else None
    return found if isinstance(found, dict) else {}
