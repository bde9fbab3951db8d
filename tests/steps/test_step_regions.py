"""text_regions finds what RapidOCR finds."""

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field
from forwardpass.steps.protocol import Batch, object_column

if TYPE_CHECKING:
    from tests.steps.conftest import Run

MAP = Field("map", "FP32", (1, -1, -1))
IMAGE = Field("image", "UINT8", (-1, -1, 3), "ragged")
SCALE = Field("scale", "FP32", (2,))
# Middle, width, height, degrees and probability of each area: lines level and turned, a column, one too weak, one small.
AREAS = [
    (60, 20, 80, 9, 0, 0.9), (170, 23, 70, 8, 0, 0.8), (70, 60, 90, 10, 7, 0.95), (180, 70, 60, 12, -12, 0.7),
    (120, 130, 14, 40, 0, 0.9), (40, 120, 30, 8, 0, 0.45), (200, 140, 2, 2, 0, 0.9), (220, 10, 30, 10, 30, 0.85),
]  # fmt: skip
# Both made with DBPostProcess and TextDetector.sorted_boxes of rapidocr 3.10.0, for a page of 360 x 320 pixels.
QUADS = [
    [[310, 0], [359, 22], [349, 58], [294, 16]], [[21, 20], [159, 20], [159, 60], [21, 60]],
    [[194, 26], [316, 26], [316, 66], [194, 66]], [[29, 82], [184, 108], [180, 156], [24, 130]],
    [[208, 128], [321, 94], [330, 150], [217, 184]], [[158, 204], [202, 204], [202, 316], [158, 316]],
]  # fmt: skip
PROBABILITIES = [0.8296, 0.9, 0.8, 0.843, 0.6227, 0.9]
DILATED = [
    [[310, 0], [359, 21], [350, 64], [292, 21]], [[21, 20], [160, 20], [160, 62], [21, 62]],
    [[194, 26], [318, 26], [318, 68], [194, 68]], [[27, 80], [187, 106], [183, 160], [23, 134]],
    [[207, 128], [324, 94], [333, 152], [216, 186]], [[156, 202], [206, 202], [206, 319], [156, 319]],
    [[297, 276], [304, 276], [304, 286], [297, 286]],
]  # fmt: skip


def page(*areas: tuple[float, ...]) -> NDArray[np.float32]:
    y, x = np.mgrid[0:160, 0:240].astype(np.float64)
    scores = np.zeros((160, 240))
    for across, down, width, height, degrees, peak in areas:
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        along, beside = (x - across) * cos + (y - down) * sin, (y - down) * cos - (x - across) * sin
        scores = np.maximum(scores, peak * ((abs(along) <= width / 2) & (abs(beside) <= height / 2)))
    return scores.astype(np.float32)[np.newaxis]


def regions(run: "Run", options: dict[str, Any], *pages: NDArray[np.float32]) -> Batch:
    images = object_column([np.zeros((320, 360, 3), np.uint8)] * len(pages))
    return run("text_regions", {"image": "image"} | options, {MAP: np.stack(pages), IMAGE: images})


@pytest.mark.parametrize(("dilate", "quads"), [(False, QUADS), (True, DILATED)])
def test_quads_equal_rapidocrs(run: "Run", dilate: bool, quads: list[Any]) -> None:
    found = regions(run, {"dilate": dilate}, page(*AREAS)).columns["quads"][0]
    assert found.shape == (len(quads), 4, 2)
    assert found.dtype == np.float32
    assert abs(found - np.array(quads)).max() <= 1  # half a pixel is rounded up or down by the last bit


def test_scores_go_with_their_quads(run: "Run") -> None:
    scores = regions(run, {}, page(*AREAS)).columns["scores"][0]
    assert scores.tolist() == pytest.approx(PROBABILITIES, abs=1e-4)


def test_a_scale_leads_to_the_original_as_well_as_the_original(run: "Run") -> None:
    given = {MAP: page(*AREAS)[np.newaxis], SCALE: np.array([[1.5, 2]], np.float32)}
    assert run("text_regions", {"scale": "scale"}, given).columns["quads"][0].tolist() == QUADS


def test_a_rectangle_grows_by_area_times_unclip_by_perimeter(run: "Run") -> None:
    scores = np.zeros((160, 240), np.float32)
    scores[50:71, 20:121] = 1  # 100 x 20 between the centres of its pixels: 1.2 x 2000 / 240 = 10 on every side
    quads = run("text_regions", {"unclip": 1.2}, {MAP: scores[np.newaxis, np.newaxis]}).columns["quads"][0]
    assert quads.tolist() == [[[10, 40], [130, 40], [130, 80], [10, 80]]]


def test_weak_and_small_regions_are_left_out(run: "Run") -> None:
    assert len(regions(run, {"score_min": 0.85}, page(*AREAS)).columns["quads"][0]) == 2
    assert len(regions(run, {"size_min": 9}, page(*AREAS)).columns["quads"][0]) < len(QUADS)
    assert len(regions(run, {"count_max": 2}, page(*AREAS)).columns["quads"][0]) <= 2


def test_an_empty_page_has_no_regions_and_changes_no_other(run: "Run") -> None:
    columns = regions(run, {}, page(), page(*AREAS)).columns
    assert columns["quads"][0].shape == (0, 4, 2)
    assert columns["scores"][0].shape == (0,)
    assert columns["quads"][1].tolist() == QUADS


@pytest.mark.parametrize("unclip", [0, 0.001, 1.6])
def test_even_areas_of_one_pixel_can_be_asked_for(run: "Run", unclip: float) -> None:
    scores = np.zeros((1, 1, 9, 9), np.float32)
    scores[0, 0, 4, 4] = scores[0, 0, 1, 1:4] = 1
    assert len(run("text_regions", {"size_min": 0, "unclip": unclip}, {MAP: scores}).columns["quads"][0]) == 0


def test_a_map_that_is_no_number_fails_its_row_alone(run: "Run") -> None:
    batch = regions(run, {}, np.full((1, 160, 240), math.nan, np.float32), page(*AREAS))
    assert batch.failures[0].code is Code.NON_FINITE_OUTPUT
    assert batch.columns["quads"][0].tolist() == QUADS


@pytest.mark.parametrize("lit", [0, 1])
def test_a_map_of_very_many_areas_or_holes_fails_its_row_alone_and_soon(run: "Run", lit: float) -> None:
    dots = np.full((1, 2048, 2048), 1 - lit, np.float32)
    dots[:, 1::2, 1::2] = lit
    started = time.process_time()
    batch = regions(run, {}, dots)
    assert time.process_time() - started < 1
    assert batch.failures[0].code is Code.OUTPUT_TOO_LARGE


@pytest.mark.parametrize(
    ("by", "code"), [([math.nan, 1], Code.NON_FINITE_OUTPUT), ([1e6, 1], Code.OUTPUT_OUT_OF_RANGE)]
)
def test_a_scale_that_makes_no_size_fails_its_row_alone(run: "Run", by: list[float], code: Code) -> None:
    given = {MAP: np.stack([page(*AREAS)] * 2), SCALE: np.array([by, [1.5, 2]], np.float32)}
    batch = run("text_regions", {"scale": "scale"}, given)
    assert {row: failure.code for row, failure in batch.failures.items()} == {0: code}


@pytest.mark.parametrize("options", [{"unclip": -1}, {"scale": "scale"}, {"quads": "scores"}])
def test_options_that_do_not_go_together_are_refused(run: "Run", options: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured):
        regions(run, options, page())
