"""Steps that decide how much to say: ``label_set``, every label that is likely enough, and ``abstain``, no label."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Field
from forwardpass.steps.decide.label_files import read_table
from forwardpass.steps.decide.labels import LABEL, LABELS_MAX, same_number
from forwardpass.steps.files import read_lines
from forwardpass.steps.kind import SCORES, Fit, Kind, describe, fail_nan, invalid, is_float, pick, unfit
from forwardpass.steps.options import (
    Trouble,
    did_you_mean,
    field_name,
    file_name,
    flag,
    number,
    option,
    several,
    text,
    whole,
)
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, object_column

_ONE_AXIS = Fit("a floating tensor [labels]", lambda field: is_float(field) and len(field.shape) == 1)


@dataclass(frozen=True, kw_only=True)
class LabelSet:
    """Every label whose score reaches its own least score, best first; of equal ones the lower place. It may be none.

    ``output`` is a list of texts, ``score`` ragged FP32 [-1] of the same length. Scores are compared in their own
    precision. In ``score_min_file`` a label not listed takes ``score_min``. A NaN among the scores fails the row.
    """

    input: str | None = option(field_name(), "the scores; without it the latest floating tensor [labels]", None)
    file: str | None = option(file_name(), "a UTF-8 file with one label a line", None)
    names: tuple[str, ...] | None = option(several(text()), "the labels, instead of a file", None)
    score_min: float = option(number(), "the least score", 0.5)
    score_min_file: str | None = option(file_name(), "a JSON file {label: least score}", None)
    top: int | None = option(whole(1, LABELS_MAX), "how many labels come back at most", None)
    output: str = option(field_name(), "where the labels go", "labels")
    score: str = option(field_name(), "where their scores go", "scores")


def _set_problems(options: LabelSet) -> list[Trouble]:
    troubles: list[Trouble] = []
    if (options.file is None) == (options.names is None):
        troubles.append(("file", "none or both of file and names", "one of file and names"))
    if options.output == options.score:
        troubles.append(("score", options.score, "another name than output"))
    return troubles


def _set_fields(options: LabelSet, known: FieldMap) -> list[Field]:
    source = pick(known, options.input, _ONE_AXIS)
    if options.names is not None and source.shape[-1] >= 0:
        same_number(len(options.names), source, "names")
    return [Field(options.output, "BYTES", (), "texts"), Field(options.score, "FP32", (-1,), "ragged")]


def _set_load(options: LabelSet, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, _ONE_AXIS)
    names = list(options.names or ()) if options.file is None else read_lines(context.folder, options.file, "one label")
    if source.shape[-1] >= 0:
        same_number(len(names), source, "file" if options.names is None else "names")
    minima = read_table(context.folder, options.score_min_file, number())
    for name in minima.keys() - set(names):
        found = f"no label is named {name!r}"
        raise invalid("", found, f"labels of this step{did_you_mean(name, names)}", file=options.score_min_file or "")
    least = np.array([minima.get(name, options.score_min) for name in names], dtype=np.float64)

    def run(batch: Batch) -> None:
        scores = batch.columns[source.name]
        if scores.shape[-1] != len(names):
            raise unfit(source, Code.BAD_OUTPUT_SHAPE, f"has {scores.shape[-1]} scores for {len(names)} labels")
        fail_nan(batch, source, scores)
        with np.errstate(over="ignore"):
            reached = scores >= least.astype(scores.dtype)
        best = [_best_first(each, own, options.top) for each, own in zip(scores, reached, strict=True)]
        batch.columns[options.output] = object_column([[names[place] for place in places] for places in best])
        batch.columns[options.score] = object_column(
            [each[places].astype(np.float32) for each, places in zip(scores, best, strict=True)]
        )

    return run


def _best_first(scores: NDArray[Any], reached: NDArray[np.bool_], top: int | None) -> NDArray[np.int64]:
    places = np.flatnonzero(reached)
    order: NDArray[np.int64] = places[np.argsort(-scores[places], kind="stable")]
    return order[:top]


@dataclass(frozen=True, kw_only=True)
class Abstain:
    """Takes the label back where the model is not sure: behind ``labels``, over the scores that it chose from.

    It abstains when the best score is below ``score_min``, the best is less than ``margin_min`` ahead of the second, or
    the entropy of the probabilities, divided by its most, log(classes), is over ``entropy_max``; each as far as given.
    Then the label becomes ``otherwise`` and a note "abstained" says why. BOOL ``output`` says whether it did. A NaN among
    the scores fails the row, as does with entropy_max a score that is no probability.
    """

    input: str | None = option(field_name(), "the scores; without it the latest floating tensor with an axis", None)
    label: str = option(field_name(), "the label, one text per row", "label")
    score_min: float | None = option(number(), "the least best score", None)
    margin_min: float | None = option(number(), "the least difference between the best two", None)
    entropy_max: float | None = option(number(), "the most entropy, from 0 (one is certain) to 1 (all alike)", None)
    otherwise: str = option(text(), "the label of a row that is not sure", "unknown")
    null: bool = option(flag(), "the label of such a row is null instead", False)
    output: str = option(field_name(), "where it is said whether the label was taken back", "abstained")


def _abstain_problems(options: Abstain) -> list[Trouble]:
    troubles: list[Trouble] = []
    if options.score_min is None and options.margin_min is None and options.entropy_max is None:
        troubles.append(("score_min", "missing", "score_min, margin_min or entropy_max"))
    if options.margin_min is not None and options.margin_min < 0:
        troubles.append(("margin_min", f"{options.margin_min:g}", "0 or more"))
    if options.entropy_max is not None and not 0 <= options.entropy_max <= 1:
        troubles.append(("entropy_max", f"{options.entropy_max:g}", "0 to 1"))
    if options.null and options.otherwise != "unknown":
        troubles.append(("otherwise", options.otherwise, "not beside null"))
    if options.output == options.label:
        troubles.append(("output", options.output, "another name than label"))
    return troubles


def _abstain_sources(options: Abstain, known: FieldMap) -> tuple[Field, Field]:
    label = pick(known, options.label, LABEL, "label")
    source = pick(known, options.input, SCORES)
    alone = options.margin_min is None and options.entropy_max is None
    if len(source.shape) > 1 or (source.shape[-1] == 1 and not alone):
        raise invalid("input", describe(source), "scores of two classes or more, in one axis")
    return source, label


def _abstain_fields(options: Abstain, known: FieldMap) -> list[Field]:
    _, label = _abstain_sources(options, known)
    return [label, Field(options.output, "BOOL")]


def _abstain_load(options: Abstain, known: FieldMap, context: Context) -> Prepared:
    source, label = _abstain_sources(options, known)
    otherwise = None if options.null else options.otherwise
    least_classes = 1 if options.margin_min is None and options.entropy_max is None else 2
    limits = [
        (name, limit, measure)
        for name, limit, measure in (
            ("score", options.score_min, _score),
            ("margin", options.margin_min, _margin),
            ("entropy", options.entropy_max, _entropy),
        )
        if limit is not None
    ]

    def run(batch: Batch) -> None:
        scores = batch.columns[source.name]
        if scores.shape[-1] < least_classes:
            raise unfit(source, Code.BAD_OUTPUT_SHAPE, f"has fewer than {least_classes} scores")
        fail_nan(batch, source, scores)
        if options.entropy_max is not None:
            _fail_no_probabilities(batch, source, scores)
        abstained = np.zeros(batch.rows, dtype=bool)
        for name, limit, measure in limits:
            found = measure(scores)
            with np.errstate(over="ignore"):
                bound = np.asarray(limit).astype(found.dtype)
            unsure = found > bound if name == "entropy" else found < bound
            for row in map(int, np.flatnonzero(unsure & ~abstained)):
                if row not in batch.failing:
                    batch.note(row, "abstained", {"why": name, "found": float(found[row]), "limit": limit})
            abstained |= unsure
        labels = batch.columns[label.name].copy()
        labels[abstained] = otherwise
        batch.columns[label.name] = labels
        batch.columns[options.output] = abstained

    return run


def _score(scores: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(scores.max(axis=-1))


def _margin(scores: NDArray[Any]) -> NDArray[Any]:
    best = np.sort(scores, axis=-1)[..., -2:].astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.asarray(best[..., 1] - best[..., 0])


def _entropy(scores: NDArray[Any]) -> NDArray[Any]:
    """From 0 to 1; what is certain adds nothing."""
    shares = scores.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(shares > 0, shares * np.log(shares), 0.0)
    return np.asarray(-parts.sum(axis=-1) / np.log(scores.shape[-1]))


def _fail_no_probabilities(batch: Batch, source: Field, scores: NDArray[Any]) -> None:
    why = "entropy needs probabilities, from 0 to 1 and one in all"
    wrong = (scores < 0).any(axis=-1) | (abs(scores.astype(np.float64).sum(axis=-1) - 1) > 0.01)
    for row in np.flatnonzero(wrong):
        batch.fail(int(row), unfit(source, Code.OUTPUT_OUT_OF_RANGE, why))


LABEL_SET = Kind("label_set", LabelSet, _set_fields, _set_load, _set_problems)
ABSTAIN = Kind("abstain", Abstain, _abstain_fields, _abstain_load, _abstain_problems)
