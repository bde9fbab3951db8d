"""Detectors in stages: decode_grid, refine_boxes and place_points."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failed, Misconfigured, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.catalogue import kind_of, kinds
from forwardpass.steps.protocol import Batch, object_column

if TYPE_CHECKING:
    from tests.steps.conftest import Run

GRID = Field("grid", "FP32", (-1, -1, 2), "ragged")
MOVES = Field("moves", "FP32", (-1, -1, 4), "ragged")
BOXES = Field("boxes", "FP32", (-1, 4), "ragged")
OFFSETS = Field("offsets", "FP32", (-1, 4), "ragged")
MARKS = Field("marks", "FP32", (-1, 10), "ragged")
JOINTS = Field("joints", "FP32", (-1, 3, 2), "ragged")
IMAGE = Field("image", "UINT8", (-1, -1, 3), "ragged")
CELLS: dict[str, Any] = {"layout": "hwc", "stride": 2, "cell": 12, "score_min": 0.6}

Array = NDArray[np.float32]


def fp32(*rows: object) -> Array:
    return np.array(rows, dtype=np.float32)


def column(*rows: Any) -> Any:
    return object_column([np.asarray(row, dtype=np.float32) for row in rows])


def noise(*shape: int) -> Array:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def problem(use: str, options: dict[str, Any], *fields: Field) -> str:
    with pytest.raises(Misconfigured) as caught:
        kind_of(use, kinds()).fields(options, {field.name: field for field in fields})
    return str(caught.value)


# decode_grid


def cells(scores: Array, offsets: Array) -> list[tuple[list[float], float, list[float]]]:
    """The definition, cell by cell."""
    found = []
    for y in range(scores.shape[0]):
        for x in range(scores.shape[1]):
            if scores[y, x, 1] >= np.float32(0.6):
                box = [2.0 * x, 2.0 * y, 2.0 * x + 12, 2.0 * y + 12]
                found.append((box, float(scores[y, x, 1]), offsets[y, x].tolist()))
    return found


@pytest.mark.parametrize("layout", ["hwc", "chw", "whc", "cwh"])
def test_each_cell_that_reaches_the_score_is_a_box(run: "Run", layout: str) -> None:
    scores, moves = noise(5, 7, 2), noise(5, 7, 4)
    order = ["hwc".index(axis) for axis in layout]
    shapes = [tuple((-1, -1, count)[axis] for axis in order) for count in (2, 4)]
    grid, by = Field("grid", "FP32", shapes[0], "ragged"), Field("moves", "FP32", shapes[1], "ragged")
    given = {grid: column(scores.transpose(order)), by: column(moves.transpose(order))}
    made = run("decode_grid", {**CELLS, "layout": layout, "input": "grid", "offsets_input": "moves"}, given).columns
    rows = [made[name][0].tolist() for name in ("boxes", "scores", "offsets")]
    assert list(zip(*rows, strict=True)) == cells(scores, moves)


def test_a_grid_without_a_box_makes_an_empty_list(run: "Run") -> None:
    made = run("decode_grid", CELLS, {GRID: column(np.zeros((3, 3, 2)), noise(4, 4, 2) + 1)}).columns
    assert [boxes.shape for boxes in made["boxes"]] == [(0, 4), (16, 4)]


@pytest.mark.parametrize(
    ("grid", "moves", "code"),
    [
        (np.full((2, 2, 2), np.nan), noise(2, 2, 4), Code.NON_FINITE_OUTPUT),
        (np.ones((2, 2, 2)), np.full((2, 2, 4), np.inf), Code.NON_FINITE_OUTPUT),
        (np.ones((2, 2, 2)), noise(2, 3, 4), Code.BAD_OUTPUT_SHAPE),
        (np.ones((9, 2, 2)), noise(9, 2, 4), Code.OUTPUT_TOO_LARGE),
    ],
)
def test_a_grid_that_makes_no_boxes_fails_its_row_alone(run: "Run", grid: Array, moves: Array, code: Code) -> None:
    options = {**CELLS, "input": "grid", "offsets_input": "moves", "count_max": 17}
    batch = run("decode_grid", options, {GRID: column(grid, np.ones((1, 1, 2))), MOVES: column(moves, noise(1, 1, 4))})
    assert {row: failure.code for row, failure in batch.failures.items()} == {0: code}
    assert batch.columns["boxes"][0].tolist() == [[0, 0, 12, 12]]


def test_a_grid_must_have_the_channels_that_are_read() -> None:
    assert "channel: 2" in problem("decode_grid", {**CELLS, "channel": 2}, GRID)
    assert "a grid with 4 channels" in problem("decode_grid", {**CELLS, "input": "grid", "offsets_input": "grid"}, GRID)
    assert "only with offsets_input" in problem("decode_grid", {**CELLS, "offsets": "moved"}, GRID)


def test_the_grid_of_offsets_is_never_taken_for_the_scores(run: "Run") -> None:
    batch = run(
        "decode_grid",
        {**CELLS, "offsets_input": "moves"},
        {GRID: column(noise(2, 3, 2)), MOVES: column(noise(2, 3, 4))},
    )
    assert batch.columns["scores"][0].tolist() == [score for _, score, _ in cells(noise(2, 3, 2), noise(2, 3, 4))]


@pytest.mark.parametrize("given", [True, False])
def test_a_grid_of_nothing_is_the_fault_of_whoever_made_it(run: "Run", given: bool) -> None:
    sent = Field("grid", "FP32", (1, 1, 2), given=given)
    failure = run("decode_grid", CELLS, {sent: np.full((1, 1, 1, 2), np.nan, np.float32)}).failures[0]
    assert isinstance(failure, Refused if given else Failed)
    assert failure.code is (Code.OUT_OF_RANGE if given else Code.NON_FINITE_OUTPUT)


# refine_boxes


def refine(run: "Run", options: dict[str, Any], boxes: Any, offsets: Any) -> Batch:
    return run("refine_boxes", options, {BOXES: column(boxes), OFFSETS: column(offsets)})


def test_sides_move_by_shares_of_the_box(run: "Run") -> None:
    made = refine(run, {"offsets": "offsets"}, [[10, 20, 20, 40]], [[0.1, -0.1, 0.2, 0.5]]).columns["boxes"][0]
    np.testing.assert_allclose(made, [[11, 18, 22, 50]], rtol=1e-6)


def test_a_centre_and_a_size_are_corrected_as_r_cnn_does(run: "Run") -> None:
    # Girshick et al. 2014, appendix C: x = w d_x + p_x, w = p_w exp(d_w); here p = (15, 30), 10 by 20.
    options = {"offsets": "offsets", "form": "center", "std": [0.1, 0.1, 0.2, 0.2]}
    moves = [[1, -1, 5 * np.log(2), 0]]
    made = refine(run, options, [[10, 20, 20, 40]], moves).columns["boxes"][0]
    np.testing.assert_allclose(made, [[6, 18, 26, 38]], rtol=1e-6)


def test_a_square_has_the_longer_side_and_the_same_centre(run: "Run") -> None:
    given = {BOXES: column([[0, 0, 4, 10], [0, 0, 6, 2]], np.empty((0, 4)))}
    made = run("refine_boxes", {"square": True, "output": "squares"}, given)
    assert made.columns["squares"][0].tolist() == [[-3, 0, 7, 10], [0, -2, 6, 4]]
    assert made.columns["boxes"][0].tolist() == [[0, 0, 4, 10], [0, 0, 6, 2]]


@pytest.mark.parametrize(
    ("offsets", "code"),
    [([], Code.BAD_OUTPUT_SHAPE), ([[np.nan] * 4], Code.NON_FINITE_OUTPUT), ([[0, 0, 1e4, 0]], Code.NON_FINITE_OUTPUT)],
)
def test_offsets_that_make_no_box_fail_their_row(run: "Run", offsets: Any, code: Code) -> None:
    moves = np.reshape(np.array(offsets, np.float32), (-1, 4))
    batch = refine(run, {"offsets": "offsets", "form": "center"}, [[0, 0, 1, 1]], moves)
    assert batch.failures[0].code is code


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "this step changes nothing"),
        ({"square": True, "form": "center"}, "form: without offsets"),
        ({"offsets": "offsets", "std": [1, 1]}, "four numbers"),
        ({"offsets": "grid"}, "grid (ragged[-1, -1, 2]) is not boxes"),
    ],
)
def test_refinements_that_cannot_be_are_refused(options: dict[str, Any], why: str) -> None:
    assert why in problem("refine_boxes", options, BOXES, OFFSETS, GRID)


# place_points


def test_the_boxes_are_never_taken_for_the_points(run: "Run") -> None:
    given = {MARKS: column([[0, 0] * 5]), BOXES: column([[100, 50, 140, 150]])}
    assert run("place_points", {}, given).columns["points"][0].tolist() == [[[100, 50]] * 5]


def test_shares_of_a_crop_are_points_of_the_picture(run: "Run") -> None:
    marks = [[0, 0.25, 0.5, 0.75, 1, 0, 0, 0.5, 1, 1]]
    given = {MARKS: column(marks), BOXES: column([[100, 50, 140, 150]])}
    made = run("place_points", {"input": "marks", "order": "xxyy"}, given).columns["points"][0]
    assert made.tolist() == [[[100, 50], [110, 50], [120, 100], [130, 150], [140, 150]]]


def test_pixels_of_a_crop_are_points_of_the_picture_within_it(run: "Run") -> None:
    picture = object_column([np.zeros((60, 100, 3), np.uint8)])
    given = {JOINTS: column([[[0, 0], [96, 128], [192, 256]]]), BOXES: column([[-10, 20, 90, 70]]), IMAGE: picture}
    options = {"input": "joints", "size": [192, 256], "image": "image"}
    assert run("place_points", options, given).columns["points"][0].tolist() == [[[0, 20], [40, 45], [90, 60]]]


@pytest.mark.parametrize("order", ["xy", "xxyy"])
def test_a_picture_without_boxes_has_no_points(run: "Run", order: str) -> None:
    given = {MARKS: column(np.empty((0, 10))), BOXES: column(np.empty((0, 4)))}
    assert run("place_points", {"input": "marks", "order": order}, given).columns["points"][0].shape == (0, 5, 2)


@pytest.mark.parametrize(
    ("marks", "code"), [(noise(2, 10), Code.BAD_OUTPUT_SHAPE), (np.full((1, 10), np.inf), Code.NON_FINITE_OUTPUT)]
)
def test_points_that_are_nowhere_fail_their_row_alone(run: "Run", marks: Array, code: Code) -> None:
    box = [[0, 0, 1, 1]]
    batch = run("place_points", {"input": "marks"}, {MARKS: column(marks, noise(1, 10)), BOXES: column(box, box)})
    assert {row: failure.code for row, failure in batch.failures.items()} == {0: code}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"input": "joints", "order": "xxyy"}, "only with points in one row"),
        ({"input": "odd"}, "an even number of numbers"),
        ({"input": "marks", "size": [0, 1]}, "both above 0"),
    ],
)
def test_points_that_cannot_be_are_refused(options: dict[str, Any], why: str) -> None:
    odd = Field("odd", "FP32", (-1, 7), "ragged")
    assert why in problem("place_points", options, MARKS, JOINTS, BOXES, odd)
