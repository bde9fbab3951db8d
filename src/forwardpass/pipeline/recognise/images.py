"""Classifiers of pictures: one picture in, a score for each class out."""

from dataclasses import dataclass
from typing import Any

from forwardpass.core.pipeline import Input, Step
from forwardpass.pipeline.onnx_facts import Value
from forwardpass.pipeline.recognise import labels
from forwardpass.pipeline.recognise.preparation import Preparation, preparation
from forwardpass.pipeline.recognise.recognised import MADE_UP, Notes, Placed, Recognised
from forwardpass.pipeline.recognise.source import Source, Unfit
from forwardpass.pipeline.recognise.tokens import architecture, model_step

TOP = 5
_NO_SCORES = ("embed", "feature", "hidden", "pool", "vector")
_DATATYPES = ("FP32", "FP16", "UINT8")


@dataclass(frozen=True, slots=True)
class Taken:
    """The picture a model takes; 0 for a side that its graph leaves open."""

    layout: str  # chw or hwc
    color: str  # rgb or gray
    width: int
    height: int
    datatype: str


def image_classifier(source: Source) -> Recognised | None:
    """Raises Unfit when a size or the classes do not add up."""
    inputs, outputs = source.facts.inputs, source.facts.outputs
    taken = _taken(inputs[0]) if len(inputs) == 1 else None
    if taken is None or len(outputs) != 1 or outputs[0].datatype not in ("FP32", "FP16"):
        return None
    shape = outputs[0].shape or ()
    if len(shape) != 2 or shape[1] == 1:
        return None
    _check_task(source, outputs[0])
    notes = Notes()
    notes.know(f"the model takes a picture, {taken.datatype} {list(inputs[0].shape or ())}")
    if shape[1] < 2:
        raise Unfit(f"its output {outputs[0].name} {list(shape)} does not say how many classes there are")
    notes.know(f"the model answers with {shape[1]} scores")
    prepared = preparation(source, taken.width, taken.height, taken.color, notes)
    named, files = labels.written(labels.class_names(source, shape[1], notes))
    notes.assume(MADE_UP)
    answer = outputs[0].name
    scored = _scored(source, answer, notes)
    steps = (
        Placed(Step("decode_image", {"color": taken.color} if taken.color == "gray" else {})),
        *_placed(prepared),
        Placed(Step("image_tensor", _numbers(prepared, taken))),
        model_step(source),
        *scored,
        Placed(Step("labels", {"input": "probabilities" if scored else answer, **named, "top": min(TOP, shape[1])})),
    )
    return Recognised(
        "a classifier of pictures",
        tuple(notes.known),
        tuple(notes.assumed),
        (Input("picture", "image", bytes_max=20_000_000),),
        steps,
        ("label", "score"),
        {**source.files(), **files},
        ({"picture": b""}, {"picture": b""}),
    )


def _check_task(source: Source, answer: Value) -> None:
    """Raises Unfit where something says that the numbers of this shape are no scores of classes."""
    kind = architecture(source.table("config.json"))
    if kind and not kind.endswith("ForImageClassification") and "pretrained_cfg" not in source.table("config.json"):
        raise Unfit(f"config.json says {kind}: of pictures only classifiers and detectors are known")
    if any(word in answer.name.lower() for word in _NO_SCORES):
        raise Unfit(f"its output {answer.name} looks like a vector, not like scores of classes")


def _taken(value: Value) -> Taken | None:
    shape = value.shape or ()
    if len(shape) != 4 or value.datatype not in _DATATYPES:
        return None
    colors = {3: "rgb", 1: "gray"}
    if shape[1] in colors and shape[3] not in colors:
        return Taken("chw", colors[shape[1]], max(shape[3], 0), max(shape[2], 0), value.datatype)
    if shape[3] in colors and shape[1] not in colors:
        return Taken("hwc", colors[shape[3]], max(shape[2], 0), max(shape[1], 0), value.datatype)
    return None


def _placed(prepared: Preparation) -> list[Placed]:
    method = {} if prepared.method == "bilinear" else {"method": prepared.method}
    steps = [Placed(Step("resize_image", {**prepared.resize, **method}))]
    if prepared.cropped:
        steps.append(Placed(Step("crop_image", {"size": [prepared.width, prepared.height], "outside": "pad"})))
    return steps


def _numbers(prepared: Preparation, taken: Taken) -> dict[str, Any]:
    options: dict[str, Any] = {"size": [prepared.width, prepared.height]}
    if taken.color == "gray":
        options["color"] = "gray"
    if taken.layout == "hwc":
        options["layout"] = "hwc"
    if taken.datatype != "FP32":
        options["datatype"] = taken.datatype
    if taken.datatype != "UINT8":  # levels as they are
        options |= {"scale": prepared.scale, "mean": list(prepared.mean), "std": list(prepared.std)}
    return options


def _scored(source: Source, answer: str, notes: Notes) -> list[Placed]:
    maker = source.facts.makers.get(answer, "")
    if maker in ("Softmax", "Sigmoid"):
        notes.know(f"the model's last operator is {maker}: its scores are probabilities")
        return []
    if source.facts.metadata.get("task") == "classify":
        notes.know("the model's metadata, task: classify: its scores are probabilities")
        return []
    notes.assume("the model's scores are logits: its last operator is no Softmax")
    return [Placed(Step("softmax", {"input": answer}))]
