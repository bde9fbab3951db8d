"""What a loaded pipeline is to clients that know tasks: by its section ``[task]``, or told by its steps where these leave
no doubt. Whether inputs and outputs fit is known only now, when every field is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from forwardpass.core.errors import Code, Misconfigured, Problem, show
from forwardpass.core.pipeline import Field, Input, Pipeline, Step, Task
from forwardpass.steps.files import read_lines
from forwardpass.steps.kind import FILE, FLOATS, describe

LABELS_MAX = 10_000
_POOLING = ("mean_pool", "first_token", "l2_norm")
_LABELLING = {"labels": ("label", "score"), "label_set": ("labels", "scores")}
"""Steps that name what they found, with the default names of the labels and of their scores."""


@dataclass(frozen=True, slots=True)
class Walked:
    """What is known of a pipeline once its steps were gone through; ``makers`` has who wrote each field last."""

    definition: Pipeline
    inputs: tuple[Input, ...]
    outputs: tuple[Field, ...]
    makers: Mapping[str, Step]
    folder: Path

    def only_output(self, fits: Callable[[Field], bool]) -> str:
        """The one output that fits, or "" for none or several."""
        names = [output.name for output in self.outputs if fits(output)]
        return names[0] if len(names) == 1 else ""


def task_of(walked: Walked) -> Task | None:
    """The task with every name in it. Raises Misconfigured for a written one that does not fit the pipeline."""
    written = walked.definition.task
    task = _recognised(walked) if written is None else _completed(written, walked)
    if task is not None:
        _check(task, walked)
    return task


def _recognised(walked: Walked) -> Task | None:
    types = sorted(given.type for given in walked.inputs)
    if types == ["text"]:
        return _recognised_embedder(walked) or _recognised_classifier(walked)
    if types in (["text", "texts"], ["text", "text"]):
        return _recognised_ranker(walked)
    return None


def _recognised_embedder(walked: Walked) -> Task | None:
    vector = walked.only_output(_is_vector)
    if len(walked.outputs) != 1 or not vector or _use(walked, vector) not in _POOLING:
        return None
    return Task("embed", walked.inputs[0].name, output=vector)


def _recognised_classifier(walked: Walked) -> Task | None:
    found = _labelled(walked)
    return None if found is None else replace(found, input=walked.inputs[0].name)


def _labelled(walked: Walked) -> Task | None:
    """A classifier by the only step that names labels: with the scores of all of them, where these are an output."""
    steps = [step for step in walked.definition.steps if step.use in _LABELLING]
    if len(steps) != 1:
        return None
    options, names = steps[0].options, _LABELLING[steps[0].use]
    outputs = {output.name: output for output in walked.outputs}
    source = outputs.get(str(options.get("input")))
    if source is not None and _is_vector(source):
        labels = _labels(tuple(options.get("names", ())), str(options.get("file", "")), walked)
        if len(labels) <= LABELS_MAX:
            return Task("classify", output=source.name, labels=labels)
    label, score = (str(options.get(key, name)) for key, name in zip(("output", "score"), names, strict=True))
    if {label, score} <= outputs.keys() and walked.makers[label] is steps[0] is walked.makers[score]:
        return Task("classify", output=score, label=label)
    return None


def _recognised_ranker(walked: Walked) -> Task | None:
    if len(walked.outputs) != 1:
        return None
    name = walked.outputs[0].name
    lists = [given.name for given in walked.inputs if given.type == "texts"]
    texts = [given.name for given in walked.inputs if given.type == "text"]
    if lists and _use(walked, name) in ("rank", "similarity"):
        return Task("rank", texts[0], lists[0], name, scale="cosine" if _is_cosine(walked.definition) else "as_is")
    paired = any(step.options.get("pair") == texts[-1] for step in walked.definition.steps if step.use == "tokenize")
    if not lists and paired and _is_number(walked.outputs[0]):
        return Task("rank", texts[0], texts[1], name, scale="logit" if _is_raw(walked, name) else "as_is")
    return None


def _is_raw(walked: Walked, name: str) -> bool:
    """Whether a number stands as a model gave it, by itself or as the element of a list."""
    steps = walked.definition.steps
    maker = walked.makers.get(name)
    while maker is not None and maker.use == "take":
        place = steps.index(maker)
        source = maker.options.get("input")
        before = walked.makers.get(str(source)) if source else steps[place - 1] if place else None
        maker = before if before is not None and steps.index(before) < place else None
    return maker is not None and maker.use == "model"


def _is_cosine(definition: Pipeline) -> bool:
    """Whether the scores are those of one comparison, of the cosine, or of the dot product of vectors of length 1."""
    compared = [step for step in definition.steps if step.use == "similarity"]
    if len(compared) != 1:
        return False
    metric = compared[0].options.get("metric", "cosine")
    unit = sum(step.use == "l2_norm" for step in definition.steps) == 2
    return metric == "cosine" or (metric == "dot" and unit)


def _completed(task: Task, walked: Walked) -> Task:
    """What the section leaves out, where there is only one thing it can be."""
    if task.kind == "rank":
        lists = [given.name for given in walked.inputs if given.type == "texts"]
        texts = [given.name for given in walked.inputs if given.type == "text"]
        documents = task.documents or (lists[0] if len(lists) == 1 else "")
        query = task.input or next(iter(name for name in texts if name != documents), "")
        documents = documents or next(iter(name for name in texts if name != query), "")
        output = task.output or walked.only_output(_fits_rank(documents in lists))
        return replace(task, input=query, documents=documents, output=output)
    types = ("text",) if task.kind == "embed" else ("text", "image")
    asked = [given.name for given in walked.inputs if given.type in types]
    task = replace(task, input=task.input or (asked[0] if len(asked) == 1 else ""))
    if task.kind == "embed":
        return replace(task, output=task.output or walked.only_output(_is_vector))
    if not (task.labels or task.labels_file or task.label):
        found = _labelled(walked)
        if found is None:
            _wrong("labels", "missing", "label, labels or labels_file, as no step labels or label_set names them")
        return replace(task, output=task.output or found.output, label=found.label, labels=found.labels)
    labels = _labels(task.labels, task.labels_file, walked)
    return replace(task, labels=labels, output=task.output or walked.only_output(_has_scores))


def _labels(names: Sequence[str], file: str, walked: Walked) -> tuple[str, ...]:
    return tuple(read_lines(walked.folder, file, "one label")) if file else tuple(names)


def _check(task: Task, walked: Walked) -> None:
    """Raises Misconfigured for a name that is missing or stands for something else."""
    inputs = {given.name: given for given in walked.inputs}
    outputs = {output.name: output for output in walked.outputs}
    used = [("input", task.input), *([("documents", task.documents)] if task.kind == "rank" else [])]
    for key, name in used:
        if name not in inputs:
            _wrong(key, "missing", f"one of the inputs: {', '.join(inputs)}")
    for given in walked.inputs:
        if not given.missing and given.name not in (task.input, task.documents):
            _wrong("kind", f'clients of a task do not send "{show(given.name)}"', "an input with missing = true")
    there = ", ".join(map(describe, walked.outputs))
    for key, name in (("output", task.output), *([("label", task.label)] if task.label else [])):
        if name not in outputs:
            _wrong(key, f'"{show(name)}" is no output' if name else "missing", f"one of the outputs: {there}")
    output = outputs[task.output]
    match task.kind:
        case "embed":
            fits, wanted = _is_vector(output), "a vector of floating numbers"
        case "rank":
            fits = _fits_rank(inputs[task.documents].type == "texts")(output)
            wanted = "a score of each document: a ranking, a list of scores, or one number where it is one document"
        case "classify":
            fits, wanted = _has_scores(output), "a score, or one of each label"
            _check_labels(task, outputs)
    if not fits:
        _wrong("output", f"is {describe(output)}", wanted)
    for place, length in enumerate(task.dimensions):
        if 0 <= output.shape[0] < length:
            _wrong(f"dimensions[{place}]", str(length), f"at most {output.shape[0]}, the length of the vector")


def _check_labels(task: Task, outputs: Mapping[str, Field]) -> None:
    score = outputs[task.output]
    if task.label:
        label = outputs[task.label]
        several = label.kind == "texts" or bool(label.shape)
        if label.kind not in ("text", "texts") or several != bool(score.shape):
            _wrong("label", f"is {describe(label)}", f"a text, or as many as there are scores in {describe(score)}")
    elif len(task.labels) > LABELS_MAX or (score.shape != (-1,) and len(task.labels) != (*score.shape, 1)[0]):
        _wrong("labels", f"{len(task.labels)} labels", f"one of each score in {describe(score)}, at most {LABELS_MAX}")


def _is_vector(field: Field) -> bool:
    return field.kind == "tensor" and field.datatype in FLOATS and len(field.shape) == 1


def _is_number(field: Field) -> bool:
    return field.kind == "tensor" and field.datatype in FLOATS and not field.shape


def _has_scores(field: Field) -> bool:
    return field.kind in ("tensor", "ragged") and field.datatype in FLOATS and len(field.shape) < 2


def _fits_rank(lists: bool) -> Callable[[Field], bool]:
    """Of a list of documents a ranking or as many scores; of one document a number."""
    return lambda field: (
        (field.kind == "json" or (_has_scores(field) and bool(field.shape))) if lists else _is_number(field)
    )


def _use(walked: Walked, name: str) -> str:
    maker = walked.makers.get(name)
    return maker.use if maker is not None else ""


def _wrong(key: str, found: str, allowed: str) -> NoReturn:
    raise Misconfigured(Code.DEFINITION_INVALID, (Problem(FILE, f"task.{key}", found, allowed),))
