"""``from_sklearn`` and its like: a fitted estimator becomes a version's folder that answers as the estimator does.

Categories, missing and unseen values are the work of steps, numbers that of a graph; the folder appears only if it
agrees with the estimator on every row of the sample, on each column missing and on each category unseen.
"""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forwardpass.core.clock import random_id
from forwardpass.core.errors import Code, Failure, Misconfigured
from forwardpass.core.pipeline import Pipeline
from forwardpass.execution.kinds import kinds
from forwardpass.fitted import original as originals
from forwardpass.fitted import sample as samples
from forwardpass.fitted.comparison import Case, Found, compare, probes
from forwardpass.fitted.definition import MODEL, definition_of, description_of, golden_of
from forwardpass.fitted.graph import Wanted, Way, ways
from forwardpass.fitted.original import Original
from forwardpass.fitted.preparation import Preparation, prepare
from forwardpass.fitted.refusal import listed, refused
from forwardpass.pipeline.definition import export

TOLERANCE = 1e-5
ROWS_MIN = 100  # a smaller sample is worth a warning


@dataclass(frozen=True, slots=True)
class Conversion:
    """What was written. ``difference_max``: of all numbers compared, relative where the estimator's is over 1."""

    folder: Path
    how: str
    steps: tuple[str, ...]
    rows: int  # of the sample, all compared
    probes: int  # rows with one value missing or unseen, compared too
    difference_max: float
    classes: tuple[Any, ...]  # in the order of the probabilities
    warnings: tuple[str, ...]


def write(
    estimator: Any,
    sample: Any,
    folder: Path | str,
    *,
    name: str = "record",
    description: str = "",
    golden: int = 8,
    tolerance: float = TOLERANCE,
) -> Conversion:
    """Write a version of a fitted estimator: scikit-learn (also in pipelines), LightGBM, XGBoost or CatBoost.

    ``sample`` is rows as it was fitted with: a DataFrame, an array or a list of records; the more, the better proved.
    ``name`` is that of the input, a record of the sample's columns. ``golden`` rows are kept as examples. Raises
    Misconfigured for what cannot be written, and for any row, listed, on which the version would answer otherwise.
    """
    folder = Path(folder)
    rows = samples.read(sample)
    original = originals.of(estimator)
    expected = original.answers(rows.rows)
    if expected is None:
        raise refused(("sample", "the estimator refuses these rows", "rows as it was fitted with"))
    preparation = prepare(estimator, rows)
    case = Case(name, rows, expected, probes(original, rows, preparation), tolerance)
    draft = folder.parent / f".tmp-{random_id()}"
    draft.mkdir(parents=True)
    try:
        written = _first_that_agrees(preparation, original, case, draft)
        examples = replace(written.definition, description=description_of(description, original))
        examples = replace(examples, golden=golden_of(case, golden))
        export(examples, folder, {MODEL: draft / MODEL}, kinds=kinds())
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Conversion(
        folder=folder,
        how=written.how,
        steps=tuple(step.use for step in written.definition.steps),
        rows=rows.count,
        probes=len(case.probes),
        difference_max=written.found.difference_max,
        classes=original.classes,
        warnings=tuple(_warnings(preparation, case, written)),
    )


@dataclass(frozen=True, slots=True)
class Written:
    """A draft that was compared. ``refused`` names columns of which a missing one is refused, though the estimator
    takes it: its graph would answer otherwise."""

    definition: Pipeline
    how: str
    found: Found
    refused: frozenset[str] = frozenset()


def _first_that_agrees(preparation: Preparation, original: Original, case: Case, draft: Path) -> Written:
    """Raises Misconfigured with what the most exact way was wrong about."""
    sizes = {output: column.shape[1] if column.ndim > 1 else 0 for output, column in case.expected.items()}
    failure: Misconfigured | None = None
    for way in ways(preparation, Wanted(sizes, original.classes)):
        try:
            (draft / MODEL).write_bytes(way.content())
            written = _compared(way, preparation, original, case, draft)
        except Failure as error:
            failure = failure or (error if isinstance(error, Misconfigured) else refused((way.how, error.text, "")))
            continue
        if not written.found.problems:
            return written
        if failure is None or failure.code is not Code.GOLDEN_MISMATCH:
            failure = _disagreement(written)
    assert failure is not None, "there is one way at least"
    raise failure


def _compared(way: Way, preparation: Preparation, original: Original, case: Case, draft: Path) -> Written:
    definition = definition_of(preparation, original, case, way.precision)
    found = compare(definition, draft, case)
    if not found.only_missing:
        return Written(definition, way.how, found)
    stricter = case.refusing(found.only_missing)
    definition = definition_of(preparation, original, stricter, way.precision)
    return Written(definition, way.how, compare(definition, draft, stricter), found.only_missing)


def _disagreement(written: Written) -> Misconfigured:
    found = written.found
    allowed = "the estimator's answers; where only rounding differs, a fit on FP64 rows or a greater tolerance"
    summary = (written.how, f"{len(found.problems)} answers differ, by up to {found.difference_max:.2g}", allowed)
    return Misconfigured(Code.GOLDEN_MISMATCH, refused(summary, *found.problems).problems)


def _warnings(preparation: Preparation, case: Case, written: Written) -> list[str]:
    found = []
    if preparation.unused:
        found.append(f"never used, but part of the record: {listed(preparation.unused)}")
    if written.refused:
        found.append(f"a missing value is refused, though the estimator takes it: {listed(sorted(written.refused))}")
    if case.sample.count < ROWS_MIN:
        found.append(f"compared on {case.sample.count} rows only: give a larger sample")
    return found
