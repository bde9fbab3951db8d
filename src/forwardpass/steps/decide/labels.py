"""Steps that turn scores into answers: ``labels`` and ``threshold``."""

import math
from dataclasses import dataclass

import numpy as np

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Field
from forwardpass.steps.decide.label_files import read_table
from forwardpass.steps.files import read_lines
from forwardpass.steps.kind import NUMBER, SCORES, Fit, Kind, describe, fail_nan, invalid, pick, unfit
from forwardpass.steps.options import (
    Trouble,
    field_name,
    file_name,
    number,
    option,
    several,
    text,
    whole,
)
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, text_column

LABELS_MAX = 1_000_000
LABEL = Fit("one text per row", lambda field: field.datatype == "BYTES" and field.kind == "text" and not field.shape)


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The names and scores of the greatest scores of the last axis, best first; of equal ones the lower place.

    ``top = 1`` gives one label and one FP32 score, a greater ``top`` lists of that length. There must be as many
    labels as scores. A NaN among the scores fails the row.
    """

    input: str | None = option(field_name(), "the scores; without it the latest floating tensor", None)
    file: str | None = option(file_name(), "a UTF-8 file with one label a line", None)
    names: tuple[str, ...] | None = option(several(text()), "the labels, instead of a file", None)
    top: int = option(whole(1, LABELS_MAX), "how many labels come back", 1)
    output: str = option(field_name(), "where the labels go", "label")
    score: str = option(field_name(), "where their scores go", "score")


def _label_problems(options: Labels) -> list[Trouble]:
    troubles: list[Trouble] = []
    if (options.file is None) == (options.names is None):
        troubles.append(("file", "none or both of file and names", "one of file and names"))
    if options.names is not None and options.top > len(options.names):
        troubles.append(("top", str(options.top), f"at most {len(options.names)}, the number of names"))
    if options.output == options.score:
        troubles.append(("score", options.score, "another name than output"))
    return troubles


def _label_fields(options: Labels, known: FieldMap) -> list[Field]:
    source = pick(known, options.input, SCORES)
    size = source.shape[-1]
    if options.names is not None and size >= 0:
        same_number(len(options.names), source, "names")
    if 0 <= size < options.top:
        raise invalid("top", str(options.top), f"at most {size}, the size of {describe(source)}")
    shape = source.shape[:-1] + ((options.top,) if options.top > 1 else ())
    return [Field(options.output, "BYTES", shape, "text"), Field(options.score, "FP32", shape)]


def _labels(options: Labels, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, SCORES)
    names = list(options.names or ()) if options.file is None else read_lines(context.folder, options.file, "one label")
    if source.shape[-1] >= 0:
        same_number(len(names), source, "file" if options.names is None else "names")
    if options.top > len(names):
        raise invalid("top", str(options.top), f"at most {len(names)}, the number of labels")
    texts = text_column(names)

    def run(batch: Batch) -> None:
        scores = batch.columns[source.name]
        if scores.shape[-1] != len(names):
            raise unfit(source, Code.BAD_OUTPUT_SHAPE, f"has {scores.shape[-1]} scores for {len(names)} labels")
        fail_nan(batch, source, scores)
        if options.top == 1:
            best = scores.argmax(axis=-1, keepdims=True)
        else:
            best = np.argsort(-scores, axis=-1, kind="stable")[..., : options.top]
        found = np.take_along_axis(scores, best, axis=-1).astype(np.float32, copy=False)
        if options.top == 1:
            best, found = best[..., 0], found[..., 0]
        batch.columns[options.output] = texts[best]
        batch.columns[options.score] = found

    return run


def same_number(count: int, source: Field, key: str) -> None:
    if count != source.shape[-1]:
        raise invalid(key, f"{count} labels", f"{source.shape[-1]}, the size of {describe(source)}")


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Compares a score with the least it must be, in the score's own precision. A NaN score fails its row.

    With ``otherwise`` or ``otherwise_file`` the label of a row below is replaced; without, BOOL ``output`` says
    whether it is reached. In the files, a label not listed takes ``score_min`` (without it: passes) and ``otherwise``
    (without it: stays).
    """

    input: str = option(field_name(), "the score, one number per row", "score")
    label: str | None = option(field_name(), 'the label, by default "label"', None)
    score_min: float | None = option(number(), "the least score", None)
    score_min_file: str | None = option(file_name(), "a JSON file {label: least score}", None)
    otherwise: str | None = option(text(), "the label of a row below", None)
    otherwise_file: str | None = option(file_name(), "a JSON file {label: label of a row below}", None)
    output: str | None = option(field_name(), 'where the decision goes, by default "decision"', None)


def _replaces(options: Threshold) -> bool:
    return options.otherwise is not None or options.otherwise_file is not None


def _threshold_problems(options: Threshold) -> list[Trouble]:
    troubles: list[Trouble] = []
    if options.score_min is None and options.score_min_file is None:
        troubles.append(("score_min", "missing", "score_min or score_min_file"))
    if _replaces(options) and options.output is not None:
        troubles.append(("output", options.output, "not beside otherwise or otherwise_file: they change the label"))
    if not _replaces(options) and options.score_min_file is None and options.label is not None:
        troubles.append(("label", options.label, "only with otherwise, otherwise_file or score_min_file"))
    return troubles


def _threshold_sources(options: Threshold, known: FieldMap) -> tuple[Field, Field | None]:
    score = pick(known, options.input, NUMBER)
    if _replaces(options) or options.score_min_file is not None:
        return score, pick(known, options.label or "label", LABEL, "label")
    return score, None


def _threshold_fields(options: Threshold, known: FieldMap) -> list[Field]:
    _, label = _threshold_sources(options, known)
    if label is not None and _replaces(options):
        return [label]
    return [Field(options.output or "decision", "BOOL")]


def _threshold(options: Threshold, known: FieldMap, context: Context) -> Prepared:
    score, label = _threshold_sources(options, known)
    minima = read_table(context.folder, options.score_min_file, number())
    replacements = read_table(context.folder, options.otherwise_file, text())
    default = -math.inf if options.score_min is None else options.score_min

    def run(batch: Batch) -> None:
        scores = batch.columns[score.name]
        fail_nan(batch, score, scores)
        texts = batch.columns[label.name] if label is not None else [""] * batch.rows
        least = np.array([minima.get(text, default) for text in texts], dtype=np.float64)
        with np.errstate(over="ignore"):
            reached = scores >= least.astype(scores.dtype)
        if label is None or not _replaces(options):
            batch.columns[options.output or "decision"] = reached
            return
        others = [replacements.get(text, text if options.otherwise is None else options.otherwise) for text in texts]
        batch.columns[label.name] = np.where(reached, texts, text_column(others))

    return run


LABELS = Kind("labels", Labels, _label_fields, _labels, _label_problems, exportable=True)
THRESHOLD = Kind("threshold", Threshold, _threshold_fields, _threshold, _threshold_problems, exportable=True)
