"""Steps on the elements of a picture: ``crop_boxes`` cuts one out, ``turn_image`` turns it upright."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.image.pixels import Pixels, each_image, image_field, load_opencv, resizer, source_image
from forwardpass.steps.kind import NUMBER, Fit, Kind, fail_nan, invalid, missing, not_finite, pick, unfit
from forwardpass.steps.options import (
    Rule,
    Trouble,
    Wrong,
    choice,
    field_name,
    flag,
    number,
    option,
    several,
    table,
    whole,
)
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, object_column

CROP_SIDE_MAX = 32_766  # of what OpenCV warps
MARGIN_MAX = 10.0
PAD_MAX = 4
"""How many times the picture's longer side a padded box's side may be: how large it is, a model chose."""
TALL = 1.5
_BOX = Fit(
    "one box or quad per row (FP32 [4] or [4, 2])",
    lambda field: field.kind == "tensor" and field.datatype == "FP32" and field.shape in ((4,), (4, 2)),
)
_LABEL = Fit(
    "one label or class number per row",
    lambda field: (
        not field.shape and (field.kind in ("text", "category") or (field.kind == "tensor" and "INT" in field.datatype))
    ),
)


@dataclass(frozen=True, kw_only=True)
class CropBoxes:
    """Cuts one box or quad out of each row's picture: ragged UINT8 [-1, -1, channels] ``output``.

    A box (FP32 [4]: x1, y1, x2, y2) is cut out with every pixel it touches, as far as it lies in the picture or, with
    ``outside = "pad"``, black where it does not; with ``margin`` it is widened first. A quad (FP32 [4, 2], clockwise
    from top left) is warped to an upright rectangle, as wide as its longer horizontal edge and as high as its longer
    vertical one (bicubic, the picture's edge goes on outside), and a quarter to the left when it is a column of text;
    so do PaddleOCR and RapidOCR. A box without any pixel of the picture and a quad without an inside fail the row, as
    do numbers that are not finite, and a padded box whose side is over 4 times the picture's longer one.
    """

    image: str | None = option(field_name(), "the picture; without it the latest decoded one", None)
    input: str | None = option(field_name(), "the box or quad; without it the latest such field", None)
    margin: float = option(number(), "what a box is widened by on each side, as a share of its width and height", 0.0)
    outside: Literal["cut", "pad"] = option(
        choice("cut", "pad"), "what becomes of the part of a box that lies outside of the picture", "cut"
    )
    turn_tall: bool = option(
        flag(), "turn the crop of a quad a quarter to the left when it is 1.5 as high as wide", True
    )
    size: tuple[int, ...] | None = option(
        several(whole(1, CROP_SIDE_MAX)),
        "[width, height] every crop is resized to (bilinear); without it none is",
        None,
    )
    output: str = option(field_name(), "where the crop goes", "crop")


def _crop_problems(options: CropBoxes) -> list[Trouble]:
    troubles: list[Trouble] = []
    if not 0 <= options.margin <= MARGIN_MAX:
        troubles.append(("margin", str(options.margin), f"a number from 0 to {MARGIN_MAX:g}"))
    if options.size is not None and len(options.size) != 2:
        troubles.append(("size", str(list(options.size)), "[width, height]"))
    return troubles


def _crop_fields(options: CropBoxes, known: FieldMap) -> list[Field]:
    image, place = source_image(known, options.image), pick(known, options.input, _BOX)
    if options.margin and place.shape != (4,):
        raise invalid("margin", f"{options.margin:g}", f"only with a box; {place.name} is a quad")
    if options.outside == "pad" and place.shape != (4,):
        raise invalid("outside", "pad", f"only with a box; {place.name} is a quad")
    if not options.turn_tall and place.shape == (4,):
        raise invalid("turn_tall", "false", f"only with a quad; {place.name} is a box")
    width, height = options.size or (-1, -1)
    return [Field(options.output, "UINT8", (height, width, image.shape[2]), "ragged")]


def _crop_boxes(options: CropBoxes, known: FieldMap, context: Context) -> Prepared:
    image, source = source_image(known, options.image), pick(known, options.input, _BOX)
    is_quad = source.shape == (4, 2)
    cv2 = load_opencv("crop_boxes") if is_quad else None
    width, height = options.size or (0, 0)
    resize = resizer("crop_boxes", "bilinear", False) if options.size else None

    def crop(picture: Pixels, box: NDArray[np.float32]) -> Pixels:
        if not np.isfinite(box).all():
            raise not_finite(source)
        if is_quad:
            cut = _warped(cv2, _small_enough(picture, image.name), box, source, options)
        else:
            cut = _sliced(picture, box, source, options)
        cut = np.ascontiguousarray(cut)
        return cut if resize is None else resize(_small_enough(cut, image.name), width, height)

    def run(batch: Batch) -> None:
        boxes = batch.columns[source.name]
        batch.columns[options.output] = each_image(batch, image, lambda row, picture: crop(picture, boxes[row]))

    return run


def _sliced(picture: Pixels, box: NDArray[np.float32], field: Field, options: CropBoxes) -> Pixels:
    first, second = box[:2].astype(np.float64), box[2:].astype(np.float64)
    wider = options.margin * (second - first)
    size = np.array(picture.shape[1::-1])
    outer = np.array([np.floor(first - wider), np.ceil(second + wider)])
    left, top = outer[0].clip(0, size).astype(int)
    right, bottom = outer[1].clip(0, size).astype(int)
    if left >= right or top >= bottom or (second <= first).any():
        raise unfit(field, Code.OUTPUT_OUT_OF_RANGE, "the box has no pixel of the picture in it")
    inside = picture[top:bottom, left:right]
    if options.outside == "cut":
        return inside
    width, height = outer[1] - outer[0]
    if max(width, height) > (1 + 2 * options.margin) * PAD_MAX * max(size):
        raise unfit(field, Code.OUTPUT_OUT_OF_RANGE, f"the box is {width:g} by {height:g} pixels large")
    frame = np.zeros((int(height), int(width), picture.shape[2]), dtype=np.uint8)
    x, y = ((left, top) - outer[0]).astype(int)
    frame[y : y + bottom - top, x : x + right - left] = inside
    return frame


def _warped(cv2: Any, picture: Pixels, quad: NDArray[np.float32], field: Field, options: CropBoxes) -> Pixels:
    if not _has_inside(quad.astype(np.float64)):
        raise unfit(field, Code.OUTPUT_OUT_OF_RANGE, "the quad has no inside that could be cut out")
    width = int(max(np.linalg.norm(quad[0] - quad[1]), np.linalg.norm(quad[2] - quad[3])))
    height = int(max(np.linalg.norm(quad[0] - quad[3]), np.linalg.norm(quad[1] - quad[2])))
    most = int(1.5 * np.hypot(*picture.shape[:2]))  # one of a thing in the picture is hardly longer than its diagonal
    if not (0 < width <= most and 0 < height <= most) or max(width, height) > CROP_SIDE_MAX:
        raise unfit(field, Code.OUTPUT_OUT_OF_RANGE, f"the quad is {width} by {height} pixels large")
    upright = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=np.float32)
    matrix = cv2.getPerspectiveTransform(np.ascontiguousarray(quad), upright)
    warped: Pixels = cv2.warpPerspective(
        picture, matrix, (width, height), borderMode=cv2.BORDER_REPLICATE, flags=cv2.INTER_CUBIC
    )
    warped = warped.reshape(height, width, -1)  # OpenCV leaves out an axis of one channel
    return np.rot90(warped) if options.turn_tall and height / width >= TALL else warped


def _has_inside(quad: NDArray[np.float64]) -> bool:
    """Whether every corner turns the same way."""
    edges = np.roll(quad, -1, axis=0) - quad
    after = np.roll(edges, -1, axis=0)
    turns = edges[:, 0] * after[:, 1] - edges[:, 1] * after[:, 0]
    return bool((turns > 0).all() or (turns < 0).all())


def _small_enough(picture: Pixels, name: str) -> Pixels:
    height, width = picture.shape[:2]
    if max(height, width) > CROP_SIDE_MAX:
        text = f"{name}: is {width} by {height} pixels large; each side may be 1 to {CROP_SIDE_MAX} here"
        raise Refused(Code.INPUT_TOO_LARGE, text, field=name)
    return np.ascontiguousarray(picture)


def _quarters() -> Rule:
    def read_value(value: object) -> int:
        if type(value) is not int or value not in (90, 180, 270):
            raise Wrong(repr(value), "90, 180 or 270")
        return value

    return Rule("90, 180 or 270", read_value)


@dataclass(frozen=True, kw_only=True)
class TurnImage:
    """Turns the pictures whose label asks for it, clockwise; the others stay as they are.

    ``turns`` says by how many degrees each label turns: by default {"180" = 180}, as the orientation models of
    PaddleOCR need it. ``label`` is a text or a class number (written "1" in ``turns``). With ``score_min`` only a label
    whose score reaches it turns. A missing label or a NaN score fails the row.
    """

    input: str | None = option(field_name(), "the picture; without it the latest decoded one", None)
    label: str = option(field_name(), "the label or class number", "label")
    turns: Mapping[str, int] | None = option(table(_quarters()), "label = 90, 180 or 270 degrees clockwise", None)
    score: str | None = option(field_name(), 'the label\'s score, by default "score"', None)
    score_min: float | None = option(number(), "the least score a label turns with; without it each does", None)
    output: str | None = option(field_name(), "where the result goes; without it, in place", None)


def _turn_problems(options: TurnImage) -> list[Trouble]:
    if options.score is not None and options.score_min is None:
        return [("score", options.score, "only with score_min")]
    return []


def _turn_sources(options: TurnImage, known: FieldMap) -> tuple[Field, Field, Field | None]:
    image, label = source_image(known, options.input), pick(known, options.label, _LABEL, "label")
    score = None if options.score_min is None else pick(known, options.score or "score", NUMBER, "score")
    return image, label, score


def _turn_fields(options: TurnImage, known: FieldMap) -> list[Field]:
    image, _, _ = _turn_sources(options, known)
    return [image_field(options.output or image.name, image.shape[2])]


def _turn_image(options: TurnImage, known: FieldMap, context: Context) -> Prepared:
    image, label, score = _turn_sources(options, known)
    turns = options.turns or {"180": 180}
    written: Callable[[Any], str] = str if label.kind == "tensor" and label.datatype != "BYTES" else lambda value: value

    def run(batch: Batch) -> None:
        pictures = list(batch.columns[image.name])
        reached = np.ones(batch.rows, dtype=bool)
        if score is not None:
            scores = batch.columns[score.name]
            fail_nan(batch, score, scores)
            reached = scores >= scores.dtype.type(options.score_min)
        for row, value in enumerate(batch.columns[label.name]):
            if value is None:
                none = unfit(label, Code.OUTPUT_OUT_OF_RANGE, "there is no label")
                batch.fail(row, missing(label.name) if label.given else none)
                continue
            degrees = turns.get(written(value), 0) if reached[row] else 0
            if degrees:
                pictures[row] = np.ascontiguousarray(np.rot90(pictures[row], -degrees // 90))
        batch.columns[options.output or image.name] = object_column(pictures)

    return run


CROP_BOXES = Kind("crop_boxes", CropBoxes, _crop_fields, _crop_boxes, _crop_problems)
TURN_IMAGE = Kind("turn_image", TurnImage, _turn_fields, _turn_image, _turn_problems)
