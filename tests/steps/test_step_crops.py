"""crop_boxes and turn_image."""

import math
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Misconfigured, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.protocol import Batch, object_column

if TYPE_CHECKING:
    from tests.steps.conftest import Run

IMAGE = Field("image", "UINT8", (-1, -1, 3), "ragged")
BOX = Field("box", "FP32", (4,))
QUAD = Field("quad", "FP32", (4, 2))
LABEL = Field("label", "BYTES", (), "text")
SCORE = Field("score", "FP32")

Pixels = NDArray[np.uint8]


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


PICTURE = noise(40, 60)


def crop(
    run: "Run", field: Field, place: object, options: dict[str, Any] | None = None, picture: Pixels = PICTURE
) -> Batch:
    image = Field("image", "UINT8", (-1, -1, picture.shape[2]), "ragged")
    given = {image: object_column([picture]), field: np.array([place], dtype=np.float32)}
    return run("crop_boxes", options or {}, given)


@pytest.mark.parametrize(
    ("box", "options", "rows", "columns"),
    [
        ([10, 5, 20, 25], {}, slice(5, 25), slice(10, 20)),
        ([10.2, 5.9, 20.1, 24.8], {}, slice(5, 25), slice(10, 21)),
        ([-10, 30, 20, 90], {}, slice(30, 40), slice(0, 20)),
        ([10, 5, 20, 25], {"margin": 0.5}, slice(0, 35), slice(5, 25)),
    ],
)
def test_a_box_is_cut_out_with_every_pixel_it_touches(
    run: "Run", box: list[float], options: dict[str, Any], rows: slice, columns: slice
) -> None:
    assert crop(run, BOX, box, options).columns["crop"][0].tolist() == PICTURE[rows, columns].tolist()


@pytest.mark.parametrize(
    ("box", "options", "rows", "columns"),
    [
        ([-10, 30, 20.5, 50], {}, slice(50, 70), slice(10, 41)),
        ([50, -5, 70, 10], {}, slice(15, 30), slice(70, 90)),
        ([10, 5, 20, 25], {}, slice(25, 45), slice(30, 40)),
        ([4, 4, 8, 8], {"margin": 2}, slice(16, 36), slice(16, 36)),
    ],
)
def test_a_box_can_keep_its_size_and_is_black_outside(
    run: "Run", box: list[float], options: dict[str, Any], rows: slice, columns: slice
) -> None:
    around = np.pad(PICTURE, ((20, 20), (20, 20), (0, 0)))
    cut = crop(run, BOX, box, {"outside": "pad", **options}).columns["crop"][0]
    assert cut.tolist() == around[rows, columns].tolist()


@pytest.mark.parametrize("box", [[-1e6, -1e6, 1e6, 1e6], [60, 0, 70, 10]])
def test_a_padded_box_is_not_larger_than_what_could_be_seen(run: "Run", box: list[float]) -> None:
    assert crop(run, BOX, box, {"outside": "pad"}).failures[0].code is Code.OUTPUT_OUT_OF_RANGE


def test_a_level_quad_is_the_box_around_it(run: "Run") -> None:
    cut = crop(run, QUAD, [[10, 5], [30, 5], [30, 15], [10, 15]]).columns["crop"][0]
    assert cut.tolist() == PICTURE[5:15, 10:30].tolist()


def test_a_column_of_text_is_turned_to_the_left_unless_told(run: "Run") -> None:
    quad = [[10, 5], [20, 5], [20, 20], [10, 20]]
    upright = PICTURE[5:20, 10:20]
    assert crop(run, QUAD, quad).columns["crop"][0].tolist() == np.rot90(upright).tolist()
    assert crop(run, QUAD, quad, {"turn_tall": False}).columns["crop"][0].tolist() == upright.tolist()


def test_a_turned_quad_is_warped_upright(run: "Run") -> None:
    quad = np.array([[12, 8], [40, 16], [37, 27], [9, 19]], dtype=np.float32)
    width, height = int(math.hypot(28, 8)), int(math.hypot(3, 11))
    matrix = cv2.getPerspectiveTransform(
        quad, np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=np.float32)
    )
    expected = cv2.warpPerspective(
        PICTURE, matrix, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    assert crop(run, QUAD, quad).columns["crop"][0].tolist() == expected.tolist()


@pytest.mark.parametrize(("field", "place"), [(BOX, [0, 0, 30, 20]), (QUAD, [[0, 0], [30, 0], [30, 20], [0, 20]])])
def test_a_grey_crop_of_a_given_size_keeps_its_channel(run: "Run", field: Field, place: object) -> None:
    cut = crop(run, field, place, {"size": [15, 10]}, noise(40, 60, 1)).columns["crop"][0]
    assert cut.shape == (10, 15, 1)


@pytest.mark.parametrize("box", [[20, 5, 20, 25], [20, 5, 10, 25], [60, 5, 90, 25], [-20, 5, 0, 25], [20, 30, 40, 10]])
def test_a_box_without_a_pixel_fails_its_row(run: "Run", box: list[float]) -> None:
    failure = crop(run, BOX, box).failures[0]
    assert (failure.code, failure.field) == (Code.OUTPUT_OUT_OF_RANGE, "box")


@pytest.mark.parametrize(
    "quad",
    [
        [[5, 5], [5, 5], [5, 5], [5, 5]],
        [[5, 5], [15, 5], [25, 5], [5, 15]],
        [[5, 5], [25, 15], [25, 5], [5, 15]],
        [[5, 5], [5.5, 5], [5.5, 5.5], [5, 5.5]],
        [[0, 0], [1e6, 0], [1e6, 10], [0, 10]],
    ],
)
def test_a_quad_that_cannot_be_cut_out_fails_its_row(run: "Run", quad: object) -> None:
    failure = crop(run, QUAD, quad).failures[0]
    assert (failure.code, failure.field) == (Code.OUTPUT_OUT_OF_RANGE, "quad")


@pytest.mark.parametrize(("field", "place"), [(BOX, [0, 0, math.nan, 1]), (QUAD, [[math.inf, 0]] * 4)])
def test_what_is_no_number_fails_its_row(run: "Run", field: Field, place: object) -> None:
    assert crop(run, field, place).failures[0].code is Code.NON_FINITE_OUTPUT


def test_rows_do_not_see_each_other(run: "Run") -> None:
    boxes = np.array([[0, 0, 0, 0], [1, 2, 11, 12]], dtype=np.float32)
    batch = run("crop_boxes", {}, {IMAGE: object_column([PICTURE, noise(20, 20, seed=1)]), BOX: boxes})
    assert list(batch.failures) == [0]
    assert batch.columns["crop"][0].tolist() == noise(20, 20, seed=1)[2:12, 1:11].tolist()


@pytest.mark.parametrize("options", [{"margin": -1}, {"size": [1]}, {"turn_tall": False}])
def test_options_that_a_box_cannot_have_are_refused(run: "Run", options: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured):
        crop(run, BOX, [0, 0, 1, 1], options)


def test_a_quad_is_not_padded(run: "Run") -> None:
    with pytest.raises(Misconfigured, match="only with a box"):
        crop(run, QUAD, [[10, 5], [30, 5], [30, 15], [10, 15]], {"outside": "pad"})


def test_a_quad_has_no_margin(run: "Run") -> None:
    with pytest.raises(Misconfigured, match="only with a box; quad is a quad"):
        crop(run, QUAD, [[0, 0], [1, 0], [1, 1], [0, 1]], {"margin": 0.1})


def turn(run: "Run", options: dict[str, Any], labels: list[str | None], scores: list[float] | None = None) -> Batch:
    given: dict[Field, Any] = {IMAGE: object_column([PICTURE] * len(labels)), LABEL: labels}
    if scores is not None:
        given[SCORE] = np.array(scores, dtype=np.float32)
    return run("turn_image", options, given)


def test_pictures_upside_down_are_turned_when_that_is_sure_enough(run: "Run") -> None:
    images = turn(run, {"score_min": 0.9}, ["180", "0", "180"], [0.95, 0.95, 0.6]).columns["image"]
    assert images[0].tolist() == PICTURE[::-1, ::-1].tolist()
    assert images[1].tolist() == images[2].tolist() == PICTURE.tolist()


@pytest.mark.parametrize(
    ("degrees", "how"), [(90, cv2.ROTATE_90_CLOCKWISE), (180, cv2.ROTATE_180), (270, cv2.ROTATE_90_COUNTERCLOCKWISE)]
)
def test_turns_are_clockwise(run: "Run", degrees: int, how: int) -> None:
    image = turn(run, {"turns": {"lying": degrees}}, ["lying"]).columns["image"][0]
    assert image.tolist() == cv2.rotate(PICTURE, how).tolist()


def test_a_class_number_can_ask_for_a_turn(run: "Run") -> None:
    given = {IMAGE: object_column([PICTURE, PICTURE]), Field("index", "INT64"): np.array([0, 1])}
    images = run("turn_image", {"label": "index", "turns": {"1": 180}, "output": "upright"}, given).columns["upright"]
    assert images[0].tolist() == PICTURE.tolist()
    assert images[1].tolist() == PICTURE[::-1, ::-1].tolist()


def test_a_missing_label_or_score_fails_its_row_alone(run: "Run") -> None:
    batch = turn(run, {"score_min": 0.5}, [None, "180", "0"], [1, math.nan, 1])
    assert {row: failure.code for row, failure in batch.failures.items()} == {
        0: Code.OUTPUT_OUT_OF_RANGE, 1: Code.NON_FINITE_OUTPUT,
    }  # fmt: skip
    assert batch.rows == 1


def test_a_label_or_a_box_that_the_caller_sent_wrong_is_refused(run: "Run") -> None:
    sent: dict[Field, Any] = {
        IMAGE: object_column([PICTURE]),
        Field("label", "BYTES", (), "text", given=True): [None],
    }
    assert run("turn_image", {}, sent).failures[0].code is Code.MISSING_FIELD
    for box, code in (([0, 0, math.nan, 9], Code.OUT_OF_RANGE), ([90, 0, 99, 9], Code.OUT_OF_RANGE)):
        failure = crop(run, Field("box", "FP32", (4,), given=True), box).failures[0]
        assert isinstance(failure, Refused) and failure.code is code


@pytest.mark.parametrize("options", [{"turns": {"x": 45}}, {"score": "score"}])
def test_turns_that_cannot_be_are_refused(run: "Run", options: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured):
        turn(run, options, ["180"], [1])
