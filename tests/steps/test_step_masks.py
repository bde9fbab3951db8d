"""mask_polygons."""

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Field
from forwardpass.steps.protocol import object_column

if TYPE_CHECKING:
    from tests.steps.conftest import Run

DENSE = Field("mask", "FP32", (12, 16))
RAGGED = Field("mask", "FP32", (1, -1, -1), "ragged")


def mask(*areas: tuple[int, int, int, int], size: tuple[int, int] = (12, 16)) -> NDArray[np.float32]:
    """0.9 within each area of left, top, right, bottom (these included), 0.1 elsewhere."""
    scores = np.full(size, 0.1, dtype=np.float32)
    for left, top, right, bottom in areas:
        scores[top : bottom + 1, left : right + 1] = 0.9
    return scores


SMALL, LARGE = (1, 1, 3, 3), (6, 2, 12, 9)


def polygons(run: "Run", options: dict[str, Any], scores: NDArray[np.float32]) -> Any:
    found = run("mask_polygons", options, {DENSE: scores[np.newaxis]}).columns["polygons"][0]
    return [sorted(polygon) for polygon in found]


def corners(area: tuple[int, int, int, int]) -> list[list[int]]:
    left, top, right, bottom = area
    return sorted([[left, top], [left, bottom], [right, bottom], [right, top]])


def test_areas_come_as_their_corners_the_largest_first(run: "Run") -> None:
    assert polygons(run, {}, mask(SMALL, LARGE)) == [corners(LARGE), corners(SMALL)]


def test_the_threshold_itself_is_outside(run: "Run") -> None:
    assert polygons(run, {"threshold": 0.9}, mask(SMALL)) == []


def test_small_areas_and_more_than_the_most_are_left_out(run: "Run") -> None:
    assert polygons(run, {"area_min": 5}, mask(SMALL, LARGE)) == [corners(LARGE)]
    assert polygons(run, {"count_max": 1}, mask(SMALL, LARGE)) == [corners(LARGE)]


def test_points_and_lines_have_no_area(run: "Run") -> None:
    assert polygons(run, {}, mask((0, 0, 0, 0), (5, 5, 9, 5))) == []


def test_a_hole_is_not_followed(run: "Run") -> None:
    scores = mask(LARGE)
    scores[4:6, 8:10] = 0
    assert polygons(run, {}, scores) == [corners(LARGE)]


def test_an_outline_can_be_made_simpler(run: "Run") -> None:
    scores = mask(LARGE, (8, 1, 9, 1))  # a bump of one pixel
    assert len(polygons(run, {}, scores)[0]) > 4
    assert polygons(run, {"epsilon": 1.5}, scores) == [corners(LARGE)]


def test_outlines_are_scaled_to_the_original(run: "Run") -> None:
    image = Field("image", "UINT8", (-1, -1, 3), "ragged")
    given = {DENSE: mask(SMALL)[np.newaxis], image: object_column([np.zeros((24, 40, 3), np.uint8)])}
    found = run("mask_polygons", {"image": "image"}, given).columns["polygons"][0]
    assert [sorted(polygon) for polygon in found] == [[[2.5, 2], [2.5, 6], [7.5, 2], [7.5, 6]]]
    by = {DENSE: mask(SMALL)[np.newaxis], Field("scale", "FP32", (2,)): np.array([[2.5, 2]], np.float32)}
    assert run("mask_polygons", {"scale": "scale"}, by).columns["polygons"][0] == found


def test_rows_have_maps_of_their_own_size(run: "Run") -> None:
    maps = object_column([mask(SMALL)[np.newaxis], mask(size=(5, 5))[np.newaxis]])
    assert [len(found) for found in run("mask_polygons", {}, {RAGGED: maps}).columns["polygons"]] == [1, 0]


@pytest.mark.parametrize(
    ("by", "code"),
    [
        ([math.nan, 1], Code.NON_FINITE_OUTPUT), ([1, math.inf], Code.NON_FINITE_OUTPUT),
        ([-1, 1], Code.OUTPUT_OUT_OF_RANGE), ([0, 1], Code.OUTPUT_OUT_OF_RANGE),
    ],
)  # fmt: skip
def test_a_scale_that_is_none_fails_its_row_alone(run: "Run", by: list[float], code: Code) -> None:
    maps = {DENSE: np.stack([mask(SMALL)] * 2), Field("scale", "FP32", (2,)): np.array([by, [1, 1]], np.float32)}
    batch = run("mask_polygons", {"scale": "scale"}, maps)
    assert {row: failure.code for row, failure in batch.failures.items()} == {0: code}


def test_a_map_of_very_many_areas_fails_its_row_alone_and_soon(run: "Run") -> None:
    dots = np.zeros((1, 2048, 2048), np.float32)
    dots[:, ::2, ::2] = 1
    started = time.process_time()
    batch = run("mask_polygons", {}, {RAGGED: object_column([dots, mask(SMALL)[np.newaxis]])})
    assert time.process_time() - started < 1
    assert batch.failures[0].text == "mask: marks 1048576 areas; at most 100000 are followed"
    assert batch.rows == 1


@pytest.mark.parametrize(
    ("scores", "code"),
    [
        (np.full((1, 3, 3), math.nan), Code.NON_FINITE_OUTPUT),
        (np.zeros((1, 0, 3)), Code.BAD_OUTPUT_SHAPE),
        (np.zeros((2, 3, 3)), Code.BAD_OUTPUT_SHAPE),
    ],
)
def test_a_map_that_is_none_fails_its_row_alone(run: "Run", scores: NDArray[np.float32], code: Code) -> None:
    maps = object_column([scores.astype(np.float32), mask(SMALL)[np.newaxis]])
    batch = run("mask_polygons", {}, {RAGGED: maps})
    assert batch.failures[0].code is code
    assert batch.rows == 1
