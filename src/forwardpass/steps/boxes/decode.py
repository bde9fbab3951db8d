"""``decode_boxes``: a detector's raw output becomes boxes, their scores and their classes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failure
from forwardpass.core.pipeline import Field
from forwardpass.steps.boxes.fields import make_rows, pick_if
from forwardpass.steps.files import read_lines
from forwardpass.steps.kind import FLOATS, IMAGE, Fit, Kind, invalid, not_finite, pick, unfit
from forwardpass.steps.options import (
    Trouble,
    choice,
    field_name,
    file_name,
    flag,
    number,
    option,
    several,
    text,
    whole,
)
from forwardpass.steps.protocol import Batch, Column, Context, FieldMap, Prepared

CLASSES_MAX = 1_000_000
_FLOATING = ("tensor", "ragged")
_TABLE = Fit(
    "a floating tensor with two axes per row",
    lambda field: field.kind in _FLOATING and field.datatype in FLOATS and len(field.shape) == 2,
)
_BOXES = Fit("a floating tensor [boxes, 4]", lambda field: _TABLE.test(field) and field.shape[1] in (4, -1))
_SCORES = Fit(
    "a floating tensor [boxes, classes] or [boxes]",
    lambda field: field.kind in _FLOATING and field.datatype in FLOATS and len(field.shape) in (1, 2),
)

Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class DecodeBoxes:
    """Turns what a detector answers into boxes in pixels, the score of each and its class, in the detector's order.

    Layouts of ``input``: "yolov8" (also YOLO11 and alike), [4 + classes, boxes], scores after the box; "yolov5",
    [boxes, 5 + classes], objectness after the box, which multiplies the scores; "end_to_end" (YOLOv10, YOLO26),
    [boxes, 6] with x1, y1, x2, y2, score, class; "separate" (SSD, DETR), boxes [boxes, 4] in ``input`` and scores
    [boxes, classes] in ``scores_input``. A box has its best class, of equal ones the lower.

    Makes ``boxes`` ragged FP32 [-1, 4] (x1, y1, x2, y2), ``scores`` ragged FP32 [-1], ``classes`` ragged INT64 [-1];
    with ``names`` or ``file`` also ``texts``, a list of text; with ``rest`` that, ragged FP32 [-1, numbers]. NaN among
    the scores, or a kept box that is not finite, fails the row. The boxes of one thing still overlap: ``nms`` is next.
    """

    input: str | None = option(field_name(), "the output; without it the latest floating tensor with two axes", None)
    layout: Literal["yolov8", "yolov5", "end_to_end", "separate"] = option(
        choice("yolov8", "yolov5", "end_to_end", "separate"), "how the output is laid out", "yolov8"
    )
    attributes: Literal["first", "last"] | None = option(
        choice("first", "last"), 'the axis of a box\'s own numbers; without it "first" for yolov8, else "last"', None
    )
    scores_input: str | None = option(field_name(), "the scores of the separate layout", None)
    form: Literal["xyxy", "cxcywh", "xywh"] | None = option(
        choice("xyxy", "cxcywh", "xywh"),
        "how a box is written; without it cxcywh for yolov8 and yolov5, else xyxy",
        None,
    )
    scale: tuple[float, ...] | None = option(
        several(number()),
        "[width, height] that boxes are multiplied by: the picture's size when they are from 0 to 1",
        None,
    )
    image: str | None = option(field_name(), "a decoded picture whose size is taken instead of scale", None)
    score_min: float = option(number(), "the least score a box is kept with", 0.25)
    every_class: bool = option(flag(), "keep a box once for each class that reaches score_min", False)
    background: Literal["first", "last"] | None = option(
        choice("first", "last"), "the class that means nothing is there, in the separate layout; it is left out", None
    )
    file: str | None = option(file_name(), "a UTF-8 file with the classes' names, one a line", None)
    names: tuple[str, ...] | None = option(several(text()), "the classes' names, instead of a file", None)
    class_count: int | None = option(whole(1, CLASSES_MAX), "the number of classes, where no names say it", None)
    rest: str | None = option(
        field_name(), "where the numbers after the class scores go (mask coefficients, points of a body)", None
    )
    boxes: str = option(field_name(), "where the boxes go", "boxes")
    scores: str = option(field_name(), "where their scores go", "scores")
    classes: str = option(field_name(), "where their class numbers go", "classes")
    texts: str | None = option(field_name(), 'where their classes\' names go, by default "names"', None)


def _named(options: DecodeBoxes) -> bool:
    return options.names is not None or options.file is not None


def _problems(options: DecodeBoxes) -> list[Trouble]:
    troubles: list[Trouble] = []
    separate, whole_boxes = options.layout == "separate", options.layout == "end_to_end"
    if separate != (options.scores_input is not None):
        troubles.append(("scores_input", str(options.scores_input), 'needed by the "separate" layout, and only there'))
    if options.background and not separate:
        troubles.append(("background", options.background, 'only in the "separate" layout'))
    if options.attributes and separate:
        troubles.append(("attributes", options.attributes, 'not in the "separate" layout'))
    if options.every_class and whole_boxes:
        troubles.append(("every_class", "true", 'not in the "end_to_end" layout, where a box has one class'))
    if options.scale is not None and (len(options.scale) != 2 or min(options.scale) <= 0 or options.image is not None):
        troubles.append(("scale", str(list(options.scale)), "[width, height], both above 0, and no image beside it"))
    if options.names is not None and options.file is not None:
        troubles.append(("file", options.file, "one of file and names"))
    if _named(options) and options.class_count is not None:
        troubles.append(("class_count", str(options.class_count), "not beside names or file, which say it"))
    if options.rest and (separate or whole_boxes or not (_named(options) or options.class_count)):
        troubles.append(("rest", options.rest, "only with yolov8 or yolov5, and names, file or class_count"))
    if options.texts and not _named(options):
        troubles.append(("texts", options.texts, "only with names or file"))
    return troubles


def _sources(options: DecodeBoxes, known: FieldMap) -> tuple[Field, Field | None, Field | None]:
    fit = _BOXES if options.layout == "separate" else _TABLE
    source = pick(known, options.input, fit, besides=(options.scores_input,))
    scores = pick_if(known, options.scores_input, _SCORES, "scores_input")
    return source, scores, pick_if(known, options.image, IMAGE, "image")


def _fields(options: DecodeBoxes, known: FieldMap) -> list[Field]:
    _sources(options, known)
    made = [
        Field(options.boxes, "FP32", (-1, 4), "ragged"),
        Field(options.scores, "FP32", (-1,), "ragged"),
        Field(options.classes, "INT64", (-1,), "ragged"),
    ]
    if options.rest is not None:
        made.append(Field(options.rest, "FP32", (-1, -1), "ragged"))
    if _named(options):
        made.append(Field(options.texts or "names", "BYTES", (), "texts"))
    return made


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Every box a detector answered, before any is left out."""

    boxes: Floats  # [boxes, 4], in whatever form
    scores: Floats  # [boxes, classes]
    classes: Floats | None  # [boxes], where the detector chose the class itself
    rest: Floats  # [boxes, numbers]


def _decode(options: DecodeBoxes, known: FieldMap, context: Context) -> Prepared:
    source, score_source, image = _sources(options, known)
    names = list(options.names or ()) if options.file is None else read_lines(context.folder, options.file, "one name")
    count = len(names) or options.class_count
    read = _reader(options, source, score_source or source, count)
    made = [field.name for field in _fields(options, known)]
    if count is not None:
        _check_count(options, read, [source, *([score_source] if score_source else [])], count)

    def decoded(columns: dict[str, Column], row: int) -> list[Any]:
        """The row's value of each field that is made."""
        scores = None if score_source is None else columns[score_source.name][row]
        size = options.scale if image is None else columns[image.name][row].shape[1::-1]
        found = read(columns[source.name][row], scores)
        box, chosen, best = _chosen(options, found, score_source or source)
        corners = _corners(found.boxes[box], _form(options), size)
        if not np.isfinite(corners).all():
            raise not_finite(source)
        values: list[Any] = [corners, best, chosen]
        if options.rest is not None:
            values.append(np.ascontiguousarray(found.rest[box]))
        if _named(options):
            values.append(_texts(names, chosen, source))
        return values

    def run(batch: Batch) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found
            make_rows(batch, made, lambda row: decoded(batch.columns, row))

    return run


def _check_count(options: DecodeBoxes, read: "Read", sources: list[Field], count: int) -> None:
    """Find at load what every row would fail with, where the shapes say enough."""
    axis = 0 if _attributes(options) == "first" else 1
    if any(field.shape[axis] < 0 for field in sources if len(field.shape) == 2):
        return
    shapes = [[size if place == axis else 1 for place, size in enumerate(field.shape)] for field in sources]
    values = [np.zeros(shape, dtype=np.float32) for shape in shapes]
    try:
        read(values[0], values[-1])
    except Failure as failure:
        raise invalid("input", failure.text, f"an output for {count} classes") from None


def _attributes(options: DecodeBoxes) -> str:
    return options.attributes or ("first" if options.layout == "yolov8" else "last")


Read = Callable[[NDArray[Any], NDArray[Any] | None], _Candidates]


def _reader(options: DecodeBoxes, source: Field, score_source: Field, count: int | None) -> Read:
    """How a row of this layout is read: raises a Failure when its shape is another one."""
    axis = _attributes(options)

    def of_yolo(values: NDArray[Any], scores: NDArray[Any] | None) -> _Candidates:
        table = _floats(values.T if axis == "first" else values)
        ahead = 5 if options.layout == "yolov5" else 4
        numbers = table.shape[1] - ahead
        classes = numbers if count is None else count
        if numbers < max(classes, 0) or (numbers > classes and options.rest is None):
            raise _misshapen(source, f"has {table.shape[1]} numbers a box; {ahead + (count or 0)} are needed")
        found = table[:, ahead : ahead + classes]
        if ahead == 5:  # a detector of one thing may say no more than that it is there
            found = table[:, 4:5] * found if classes else table[:, 4:5]
        return _Candidates(table[:, :4], found, None, table[:, ahead + classes :])

    def of_rows(values: NDArray[Any], scores: NDArray[Any] | None) -> _Candidates:
        table = _floats(values.T if axis == "first" else values)
        if table.shape[1] != 6:
            raise _misshapen(source, f"has {table.shape[1]} numbers a box; 6 are needed")
        return _Candidates(table[:, :4], table[:, 4:5], table[:, 5], table[:, 6:])

    def of_two(values: NDArray[Any], scores: NDArray[Any] | None) -> _Candidates:
        assert scores is not None, "the separate layout has scores"
        table, found = _floats(values), _floats(scores if scores.ndim == 2 else scores[:, np.newaxis])
        if table.shape[1] != 4 or len(table) != len(found):
            raise _misshapen(source, f"has shape {list(table.shape)} for scores of shape {list(found.shape)}")
        if options.background is not None:
            found = found[:, 1:] if options.background == "first" else found[:, :-1]
        if count is not None and found.shape[1] != count:
            raise _misshapen(score_source, f"has {found.shape[1]} scores a box for {count} classes")
        return _Candidates(table, found, None, table[:, 4:])

    return {"separate": of_two, "end_to_end": of_rows}.get(options.layout, of_yolo)


def _misshapen(field: Field, what: str) -> Failure:
    return unfit(field, Code.BAD_OUTPUT_SHAPE, what)


def _chosen(
    options: DecodeBoxes, found: _Candidates, source: Field
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Which boxes are kept, with which class and score. Raises a Failure at NaN."""
    least = np.float32(options.score_min)
    if found.scores.shape[1] == 0:
        raise _misshapen(source, "has no score to choose by")
    best = found.scores.max(axis=1)
    if np.isnan(best).any():
        raise not_finite(source)
    if options.every_class:
        box, chosen = np.nonzero(found.scores >= least)
    else:
        box = np.flatnonzero(best >= least)
        chosen = found.scores[box].argmax(axis=1)
    scores = np.ascontiguousarray(found.scores[box, chosen])
    if found.classes is not None:
        written = found.classes[box]
        if not (np.abs(written) < CLASSES_MAX).all():
            raise not_finite(source)
        chosen = written.astype(np.int64)
    return box, chosen.astype(np.int64, copy=False), scores


def _form(options: DecodeBoxes) -> str:
    return options.form or ("cxcywh" if options.layout in ("yolov8", "yolov5") else "xyxy")


def _corners(boxes: Floats, form: str, size: tuple[float, ...] | None) -> Floats:
    """Boxes of any form as x1, y1, x2, y2, multiplied by a [width, height]."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if form == "cxcywh":
        half = second / np.float32(2)
        first, second = first - half, first + half
    elif form == "xywh":
        second = first + second
    corners = np.concatenate([first, second], axis=1)
    return corners if size is None else corners * np.array([*size, *size], dtype=np.float32)


def _texts(names: list[str], chosen: NDArray[np.int64], source: Field) -> list[str]:
    for place in chosen.tolist():
        if not 0 <= place < len(names):
            raise unfit(source, Code.OUTPUT_OUT_OF_RANGE, f"names class {place}; there are {len(names)}")
    return [names[place] for place in chosen.tolist()]


def _floats(values: NDArray[Any]) -> Floats:
    return values.astype(np.float32, copy=False)


DECODE_BOXES = Kind("decode_boxes", DecodeBoxes, _fields, _decode, _problems)
