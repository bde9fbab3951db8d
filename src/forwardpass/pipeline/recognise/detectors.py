"""Detectors as ultralytics exports them: what they are stands in the model file's own metadata."""

import ast
from typing import Any

from forwardpass.core.pipeline import Input, Step
from forwardpass.pipeline.onnx_facts import Value
from forwardpass.pipeline.recognise import labels
from forwardpass.pipeline.recognise.recognised import MADE_UP, Notes, Placed, Recognised
from forwardpass.pipeline.recognise.source import Source, Unfit
from forwardpass.pipeline.recognise.tokens import model_step

SCORE_MIN = 0.25  # both as ultralytics predicts by default
IOU_MAX = 0.7
SIDE_MAX = 8192
_OF_A_BOX = 6  # x1, y1, x2, y2, score, class


def detector(source: Source) -> Recognised | None:
    """Raises Unfit for another task, or for an output that is not as the metadata says."""
    metadata = source.facts.metadata
    if not {"names", "task", "stride"} <= metadata.keys() or metadata["task"] == "classify":
        return None
    if metadata["task"] != "detect":
        raise Unfit(f"the model's metadata says task {metadata['task']}: only detect and classify are known")
    notes = Notes()
    notes.know(f"the model's metadata, task: detect, by {metadata.get('author', 'an unnamed author')}")
    names = labels.of_metadata(metadata["names"])
    if not names:
        raise Unfit("the names in the model's metadata cannot be read")
    notes.know(f"the model's metadata, names: {len(names)} classes")
    taken, answered = _picture(source), _boxes(source)
    width, height = size_of(source, taken, notes)
    layout = _layout(answered, len(names), metadata, notes)
    named, files = labels.written(names)
    notes.assume(f"boxes count from a score of {SCORE_MIN} on, and may overlap by {IOU_MAX} at most")
    notes.assume(MADE_UP)
    steps = _steps(source, taken, answered, (width, height), layout, named)
    return Recognised(
        "a detector of objects",
        tuple(notes.known),
        tuple(notes.assumed),
        (Input("picture", "image", bytes_max=20_000_000),),
        steps,
        ("objects",),
        {**source.files(), **files},
        ({"picture": b""}, {"picture": b""}),
    )


def _steps(
    source: Source, taken: Value, answered: Value, size: tuple[int, int], layout: str, named: dict[str, Any]
) -> tuple[Placed, ...]:
    width, height = size
    steps = [
        Placed(Step("decode_image")),
        Placed(
            Step(
                "letterbox_image",
                {"width": width, "height": height, "antialias": False, "output": "framed", "place": "place"},
            ),
            ("the whole picture in a grey frame, as in training; place says where in it",),
        ),
        Placed(
            Step(
                "image_tensor",
                {"input": "framed", "scale": 1 / 255, "size": [width, height], "datatype": taken.datatype},
            )
        ),
        model_step(source),
        Placed(
            Step(
                "decode_boxes",
                {"input": answered.name, "layout": layout, "score_min": SCORE_MIN, **named},
            )
        ),
    ]
    if layout != "end_to_end":
        steps.append(Placed(Step("nms", {"iou_max": IOU_MAX})))
    steps += [
        Placed(
            Step("map_boxes", {"input": "boxes", "place": "place", "image": "image"}),
            ("back to pixels of the picture that came",),
        ),
        Placed(Step("records", {"fields": {"label": "names", "score": "scores", "box": "boxes"}, "output": "objects"})),
    ]
    return tuple(steps)


def size_of(source: Source, taken: Value, notes: Notes) -> tuple[int, int]:
    """Width and height of the picture the model takes: by its shape, else by the metadata's imgsz."""
    assert taken.shape is not None, "a picture has axes"
    height, width = taken.shape[2:]
    if width < 1 or height < 1:
        try:
            height, width = ast.literal_eval(source.facts.metadata.get("imgsz", ""))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise Unfit("neither the model's input nor its metadata (imgsz) says the size of a picture") from None
        notes.know(f"the model's metadata, imgsz: {width} x {height}")
    if not all(type(side) is int and 1 <= side <= SIDE_MAX for side in (width, height)):
        raise Unfit(f"a picture of {width} x {height} pixels is no size")
    return width, height


def _picture(source: Source) -> Value:
    inputs = source.facts.inputs
    if len(inputs) != 1 or inputs[0].datatype not in ("FP32", "FP16") or len(inputs[0].shape or ()) != 4:
        raise Unfit("its input is not one picture of FP32 [rows, 3, height, width]")
    if (inputs[0].shape or ())[1] != 3:
        raise Unfit(f"its input has {(inputs[0].shape or ())[1]} channels, where 3 were expected")
    return inputs[0]


def _boxes(source: Source) -> Value:
    outputs = source.facts.outputs
    if len(outputs) != 1 or len(outputs[0].shape or ()) != 3:
        raise Unfit("its output is not one tensor [rows, numbers, boxes]")
    return outputs[0]


def _layout(answered: Value, classes: int, metadata: dict[str, str], notes: Notes) -> str:
    _, second, third = answered.shape or (0, 0, 0)
    if third == _OF_A_BOX and second != 4 + classes:
        notes.know(f"its output [rows, {second}, {third}]: whole boxes with score and class")
        return "end_to_end"
    if second == 4 + classes:
        notes.know(f"its output [rows, 4 + {classes} classes, boxes]")
        return "yolov8"
    if third == 5 + classes:
        notes.know(f"its output [rows, boxes, 5 + {classes} classes]")
        return "yolov5"
    raise Unfit(f"its output [rows, {second}, {third}] is not 4 + {classes} classes, which the metadata names")
