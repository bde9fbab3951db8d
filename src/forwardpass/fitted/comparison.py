"""The written version, run on the sample and on odd rows, beside the estimator itself."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Failure, Refused, show
from forwardpass.core.pipeline import Pipeline, Version
from forwardpass.core.tensor import NUMPY_NAMES, unpack_bytes
from forwardpass.execution.plan import Plan, build
from forwardpass.fitted.original import Answers, Original
from forwardpass.fitted.preparation import Preparation
from forwardpass.fitted.sample import Sample
from forwardpass.pipeline import fields
from forwardpass.steps.protocol import Batch, Column, text_column

ROWS_AT_ONCE = 256
UNSEEN = "a category never seen"


@dataclass(frozen=True)
class Probe:
    """One row of the sample with one value changed, and what the estimator says of it (None: it refuses it)."""

    column: str
    what: str  # "missing" | "unseen"
    record: dict[str, Any]
    answers: Answers | None


@dataclass(frozen=True)
class Case:
    """What a version is judged by: the sample as records under the input ``name``, and what the estimator says."""

    name: str
    sample: Sample
    expected: Answers
    probes: tuple[Probe, ...]
    tolerance: float

    def refusing(self, columns: frozenset[str]) -> "Case":
        """The same, but a missing one of these is to be refused."""
        probes = [
            replace(probe, answers=None) if probe.what == "missing" and probe.column in columns else probe
            for probe in self.probes
        ]
        return replace(self, probes=tuple(probes))


@dataclass(frozen=True)
class Found:
    """``problems`` is empty when the version answers as the estimator does.

    ``only_missing`` names the columns of which a missing one is answered otherwise, if that is all that is wrong.
    """

    problems: tuple[tuple[str, str, str], ...]
    only_missing: frozenset[str]
    difference_max: float


def probes(original: Original, sample: Sample, preparation: Preparation) -> tuple[Probe, ...]:
    """Each column missing once, and each encoded one with a value that the training did not have."""
    row = sample.complete_row()
    made: list[Probe] = []
    for place, column in enumerate(sample.columns):
        if column.name in preparation.unused:
            continue
        values: dict[str, Any] = {"missing": None}
        if column.name in preparation.encoded:
            numbers = [value for value in column.values if isinstance(value, int | float)]
            values["unseen"] = UNSEEN if column.kind == "category" else max(numbers, default=0) + 7.5
        for what, value in values.items():
            rows, record = sample.changed(row, place, value)
            made.append(Probe(column.name, what, record, original.answers(rows)))
    return tuple(made)


def compare(definition: Pipeline, folder: Path, case: Case) -> Found:
    """Every row of the sample and every probe. Raises Misconfigured when the version cannot be loaded."""
    plan = build(Version("fitted", 1, "0" * 64, str(folder), definition), threads=1)
    try:
        rows: list[tuple[str, Any, Any]] = [
            (f"sample[{row}]", {output: column[row] for output, column in case.expected.items()}, found)
            for row, found in enumerate(_answers(plan, case.name, case.sample.records))
        ]
        odd = _answers(plan, case.name, [probe.record for probe in case.probes])
        asked = [
            (probe, probe.answers and {output: column[0] for output, column in probe.answers.items()}, found)
            for probe, found in zip(case.probes, odd, strict=True)
        ]
    finally:
        plan.close()
    wrong_rows = [each for row in rows for each in _differ(*row, case.tolerance)]
    wrong = {
        (probe.column, probe.what): found
        for probe, wanted, came in asked
        if (found := list(_differ(f"{probe.column} {probe.what}", wanted, came, case.tolerance)))
    }
    only_missing = not wrong_rows and all(what == "missing" for _, what in wrong)
    return Found(
        problems=(*wrong_rows, *(each for found in wrong.values() for each in found)),
        only_missing=frozenset(column for column, _ in wrong) if only_missing else frozenset(),
        difference_max=max((_largest(wanted, came) for _, wanted, came in [*rows, *asked]), default=0.0),
    )


def _answers(plan: Plan, name: str, records: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any] | Failure]:
    """What the version answers to each record, by output, or why it does not."""
    for start in range(0, len(records), ROWS_AT_ONCE):
        part = records[start : start + ROWS_AT_ONCE]
        tensors, rows = fields.encode(plan.signature, [{name: record} for record in part])
        columns: dict[str, Column] = {}
        for field, tensor in zip(plan.signature.columns, tensors, strict=True):
            if tensor.datatype == "BYTES":
                texts = [None if each is None else each.decode() for each in unpack_bytes(tensor.data, rows)]
                columns[field.name] = text_column(texts)
            else:
                columns[field.name] = np.frombuffer(tensor.data, dtype=NUMPY_NAMES[tensor.datatype])
        batch = Batch(columns, rows, list(range(rows)))
        plan.preprocess(batch)
        plan.execute(batch)
        plan.postprocess(batch)
        outputs = plan.outputs(batch)
        alive = {origin: place for place, origin in enumerate(batch.origin)}
        for row in range(rows):
            if row in batch.failures:
                yield batch.failures[row]
            else:
                yield {output: column[alive[row]] for output, column in outputs.items()}


def _differ(
    where: str, wanted: Mapping[str, Any] | None, found: Mapping[str, Any] | Failure, tolerance: float
) -> Iterator[tuple[str, str, str]]:
    if wanted is None:
        if not isinstance(found, Refused):
            came = found.text if isinstance(found, Failure) else f"answered {show(_shown(found))}"
            yield where, came, "refused, as the estimator does"
    elif isinstance(found, Failure):
        yield where, f"failed: {found.text}", f"answered {show(_shown(wanted))}, as the estimator does"
    else:
        for output, value in wanted.items():
            if _apart(value, found[output]) > tolerance:
                yield f"{where}: {output}", show(_shown(found[output])), f"{show(_shown(value))}, the estimator's"


def _largest(wanted: Mapping[str, Any] | None, found: Mapping[str, Any] | Failure) -> float:
    """The greatest difference of two numbers that were both answered."""
    if wanted is None or isinstance(found, Failure):
        return 0.0
    numbers = [_apart(value, found[output]) for output, value in wanted.items() if output != "label"]
    return max(numbers, default=0.0)


def _apart(wanted: Any, found: Any) -> float:
    """Of labels 0 or infinity; of numbers the largest difference, relative where what was wanted is over 1."""
    if isinstance(wanted, str | int | np.integer):
        return 0.0 if wanted == found else float("inf")
    one, other = np.asarray(wanted, dtype=np.float64), np.asarray(found, dtype=np.float64)
    if one.shape != other.shape:
        return float("inf")
    apart: NDArray[np.float64] = np.abs(one - other) / np.maximum(1.0, np.abs(one))
    return float("inf") if np.isnan(apart).any() else float(apart.max(initial=0.0))


def _shown(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _shown(each) for name, each in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
