"""The pipeline.toml of a fitted estimator: its record, its steps, its golden examples."""

from typing import Any

from forwardpass.core.pipeline import Golden, Input, Pipeline, Step
from forwardpass.fitted.comparison import Case
from forwardpass.fitted.graph import Precision
from forwardpass.fitted.nodes import ROW as GRAPH_ROW
from forwardpass.fitted.original import Original
from forwardpass.fitted.preparation import Preparation
from forwardpass.fitted.refusal import listed

MODEL = "model.onnx"
ROW = "features"


def definition_of(preparation: Preparation, original: Original, case: Case, precision: Precision) -> Pipeline:
    """A column may be missing in the joined row where the estimator was asked and took it."""
    accepted = {probe.column for probe in case.probes if probe.what == "missing" and probe.answers is not None}
    may_miss = [column for column in preparation.names if column in accepted]
    joined = {"names": preparation.names, "output": ROW, "missing": may_miss or "refuse", "datatype": precision}
    return Pipeline(
        inputs=(Input(case.name, "record", columns=dict(case.sample.kinds)),),
        steps=(
            *preparation.steps,
            Step("columns", joined),
            Step("model", {"engine": "onnxruntime", "file": MODEL, "inputs": {GRAPH_ROW: ROW}}),
        ),
        outputs=original.outputs,
    )


def description_of(given: str, original: Original) -> str:
    order = f"probabilities are of {listed(original.classes)}" if "probabilities" in original.outputs else ""
    return "; ".join(part for part in (given, order) if part)


def golden_of(case: Case, count: int) -> tuple[Golden, ...]:
    """Rows from all over the sample; one with something missing is among them, if there is one."""
    records, total = case.sample.records, case.sample.count
    rows = [place * total // count for place in range(count)] if count < total else list(range(total))
    gap = next((row for row, record in enumerate(records) if None in record.values()), None)
    if rows and gap is not None and all(None not in records[row].values() for row in rows):
        rows[-1] = gap
    return tuple(
        Golden(
            {case.name: {column: value for column, value in records[row].items() if value is not None}},
            {output: _plain(column[row]) for output, column in case.expected.items()},
            case.tolerance,
        )
        for row in rows
    )


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
