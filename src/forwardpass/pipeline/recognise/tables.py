"""Classical models: what skl2onnx and onnxmltools write, with operators of ai.onnx.ml."""

from forwardpass.core.pipeline import Input, Step
from forwardpass.pipeline.onnx_facts import Value
from forwardpass.pipeline.recognise.recognised import Notes, Placed, Recognised, Record
from forwardpass.pipeline.recognise.source import Source, Unfit
from forwardpass.pipeline.recognise.tokens import model_step

_DOMAIN = "ai.onnx.ml"
_COLUMNS = ("FP32", "FP64", "INT64", "BYTES", "BOOL")


def table_model(source: Source) -> Recognised | None:
    """A classifier or regressor of a row of numbers, or of named columns. Raises Unfit."""
    facts = source.facts
    if _DOMAIN not in facts.domains:
        return None
    for value in facts.outputs:
        if not value.datatype:
            raise Unfit(
                f"its output {value.name} is no tensor; export it without zipmap "
                "(skl2onnx and onnxmltools: options={'zipmap': False})"
            )
    notes = Notes()
    notes.know(f"the model's operators are of {_DOMAIN}" + (f", written by {facts.producer}" if facts.producer else ""))
    if facts.class_labels is not None:
        notes.know(f"the model's classes, in the order of their probabilities: {', '.join(facts.class_labels[:20])}")
    one_row = len(facts.inputs) == 1 and _is_row(facts.inputs[0])
    if not one_row and not all(_is_column(value) for value in facts.inputs):
        return None
    made = _row(facts.inputs[0]) if one_row else _columns(facts.inputs, notes)
    inputs, steps, examples = made
    return Recognised(
        "a model of a row of numbers" if one_row else "a model of named columns",
        tuple(notes.known),
        tuple(notes.assumed),
        inputs,
        (*steps, model_step(source)),
        tuple(value.name for value in facts.outputs),
        source.files(),
        examples,
    )


Made = tuple[tuple[Input, ...], tuple[Placed, ...], tuple[Record, ...]]


def _is_row(value: Value) -> bool:
    return value.shape is not None and len(value.shape) == 2 and value.shape[1] != 1 and value.datatype != "BYTES"


def _is_column(value: Value) -> bool:
    return value.datatype in _COLUMNS and value.shape is not None and value.shape[1:] == (1,)


def _row(value: Value) -> Made:
    assert value.shape is not None, "it was looked at before"
    return (Input(value.name, "tensor", datatype=value.datatype, shape=value.shape[1:]),), (), ()


def _columns(values: tuple[Value, ...], notes: Notes) -> Made:
    """Numbers and categories by their names. What a model takes as FP32 or FP64 may not be missing."""
    inputs: list[Input] = []
    steps: list[Placed] = []
    one: Record = {}
    other: Record = {}
    for place, value in enumerate(values):
        match value.datatype:
            case "FP32" | "FP64":
                inputs.append(Input(value.name, "number"))
                one[value.name], other[value.name] = 1.5 + place, 0.25 * place
                if value.datatype == "FP32":
                    steps.append(Placed(Step("columns", {"names": [value.name], "output": value.name})))
            case "BYTES":
                inputs.append(Input(value.name, "category", bytes_max=1000))
                one[value.name], other[value.name] = "a", "b"
            case "BOOL":
                inputs.append(Input(value.name, "tensor", datatype="BOOL"))
                one[value.name], other[value.name] = True, False
            case _:
                inputs.append(Input(value.name, "tensor", datatype="INT64"))
                one[value.name], other[value.name] = 1 + place, 2 + place
    if any(value.datatype == "BYTES" for value in values):
        notes.assume("the examples' categories are made up: put real ones in their place")
    return tuple(inputs), tuple(steps), (one, other)
