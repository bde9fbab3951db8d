"""``decode_grid``: boxes of a fully convolutional network, which looks at a picture cell by cell."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Field
from forwardpass.steps.boxes.fields import make_rows, pick_if
from forwardpass.steps.image.pixels import LAYOUT, Layout, by_rows
from forwardpass.steps.kind import FLOATS, Fit, Kind, describe, invalid, not_finite, pick, unfit
from forwardpass.steps.options import Trouble, field_name, number, option, whole
from forwardpass.steps.protocol import Batch, Column, Context, FieldMap, Prepared

CELL_MAX = 65_535
BOXES_MAX = 1_000_000
CHANNELS_MAX = 1_000_000
_GRID = Fit(
    "a grid (floating, with three axes per row)",
    lambda field: field.kind in ("tensor", "ragged") and field.datatype in FLOATS and len(field.shape) == 3,
)

Floats = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class DecodeGrid:
    """Makes boxes of the cells of a grid whose score reaches ``score_min``, row by row from the top left.

    The cell in column x and row y of the grid is the box from (x * ``stride``, y * ``stride``), ``cell`` pixels wide
    and high, of the picture that the network saw. Its score is the ``channel`` of ``input``. ``offsets_input``, a grid
    of the same size with 4 channels, says how the sides of each box are to be moved, which ``refine_boxes`` does.
    MTCNN's P-Net: ``stride = 2, cell = 12, score_min = 0.6``.

    Makes ``boxes`` ragged FP32 [-1, 4] (x1, y1, x2, y2), ``scores`` ragged FP32 [-1] and, with ``offsets_input``,
    ``offsets`` ragged FP32 [-1, 4]. A NaN among the scores, or an offset of a box that is not finite, fails the
    row, and so do more boxes than ``count_max``. Boxes of one thing still overlap: ``nms`` is next.
    """

    input: str | None = option(field_name(), "the grid of scores; without it the latest grid", None)
    offsets_input: str | None = option(field_name(), "the grid of offsets", None)
    layout: Layout = option(LAYOUT, "the order of the axes: channels, height, width", "chw")
    channel: int = option(whole(-1, CHANNELS_MAX), "which channel of scores counts; -1 is the last", -1)
    stride: int = option(whole(1, CELL_MAX), "pixels from one cell to the next")
    cell: int = option(whole(1, CELL_MAX), "pixels that a cell sees in each direction")
    score_min: float = option(number(), "the least score", 0.5)
    count_max: int = option(whole(1, BOXES_MAX), "the most boxes of one row", 100_000)
    boxes: str = option(field_name(), "where the boxes go", "boxes")
    scores: str = option(field_name(), "where their scores go", "scores")
    offsets: str | None = option(field_name(), 'where their offsets go, by default "offsets"', None)


def _grid_problems(options: DecodeGrid) -> list[Trouble]:
    if options.offsets_input is None and options.offsets is not None:
        return [("offsets", options.offsets, "only with offsets_input")]
    return []


def _names(options: DecodeGrid) -> list[str]:
    moved = [] if options.offsets_input is None else [options.offsets or "offsets"]
    return [options.boxes, options.scores, *moved]


def _grid_sources(options: DecodeGrid, known: FieldMap) -> tuple[Field, Field | None]:
    scores = pick(known, options.input, _GRID, besides=(options.offsets_input,))
    offsets = pick_if(known, options.offsets_input, _GRID, "offsets_input")
    place = options.layout.index("c")
    if 0 <= scores.shape[place] <= options.channel or scores.shape[place] == 0:
        raise invalid("channel", str(options.channel), f"a channel of {describe(scores)}")
    if offsets is not None and offsets.shape[place] not in (4, -1):
        raise invalid("offsets_input", describe(offsets), "a grid with 4 channels")
    return scores, offsets


def _grid_fields(options: DecodeGrid, known: FieldMap) -> list[Field]:
    _grid_sources(options, known)
    shapes = ((-1, 4), (-1,), (-1, 4))
    return [Field(name, "FP32", shape, "ragged") for name, shape in zip(_names(options), shapes, strict=False)]


def _grid(options: DecodeGrid, known: FieldMap, context: Context) -> Prepared:
    source, moved = _grid_sources(options, known)

    def run(batch: Batch) -> None:
        make_rows(batch, _names(options), lambda row: decoded(batch.columns, row))

    def decoded(columns: dict[str, Column], row: int) -> list[Floats]:
        grid = by_rows(columns[source.name][row], options.layout)
        if not -1 <= options.channel < grid.shape[2] or grid.shape[2] == 0:
            text = f"has {grid.shape[2]} channels; channel {options.channel} is needed"
            raise unfit(source, Code.BAD_OUTPUT_SHAPE, text)
        scores = grid[..., options.channel]
        if np.isnan(scores).any():
            raise not_finite(source)
        y, x = np.nonzero(scores >= scores.dtype.type(options.score_min))
        if len(y) > options.count_max:
            text = f"{len(y)} boxes reach the least score; at most {options.count_max} are taken"
            raise unfit(source, Code.OUTPUT_TOO_LARGE, text)
        corner = np.stack([x, y], axis=1) * options.stride
        boxes = np.concatenate([corner, corner + options.cell], axis=1).astype(np.float32)
        values: list[Floats] = [boxes, scores[y, x].astype(np.float32)]
        if moved is not None:
            values.append(_offsets(by_rows(columns[moved.name][row], options.layout), grid, (y, x), moved))
        return values

    return run


def _offsets(grid: NDArray[Any], scores: NDArray[Any], cells: Any, field: Field) -> Floats:
    if grid.shape != (*scores.shape[:2], 4):
        text = f"has shape {list(grid.shape)} for {list(scores.shape[:2])} cells; 4 a cell are needed"
        raise unfit(field, Code.BAD_OUTPUT_SHAPE, text)
    offsets: Floats = grid[cells].astype(np.float32)
    if not np.isfinite(offsets).all():
        raise not_finite(field)
    return offsets


DECODE_GRID = Kind("decode_grid", DecodeGrid, _grid_fields, _grid, _grid_problems)
