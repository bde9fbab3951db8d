"""draw_boxes and encode_image."""

import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field
from forwardpass.steps.protocol import object_column

if TYPE_CHECKING:
    from tests.steps.conftest import Run

BOXES = Field("boxes", "FP32", (-1, 4), "ragged")
QUADS = Field("quads", "FP32", (-1, 4, 2), "ragged")
NAMES = Field("names", "BYTES", (), "texts")
CLASSES = Field("classes", "INT64", (-1,), "ragged")
SCORES = Field("scores", "FP32", (-1,), "ragged")
GREY = np.full((120, 160, 1), 200, dtype=np.uint8)
BOX = [[40, 40, 120, 100]]

Pixels = NDArray[np.uint8]


def image(channels: int = 3) -> Field:
    return Field("image", "UINT8", (-1, -1, channels), "ragged")


def draw(run: "Run", options: dict[str, Any], further: dict[Field, Any], picture: Pixels = GREY) -> bytes:
    columns = {field: object_column([value]) for field, value in further.items()}
    drawn = run("draw_boxes", options, {image(picture.shape[2]): object_column([picture]), **columns})
    data: bytes = drawn.columns["drawing"][0]
    return data


def opened(data: bytes) -> Pixels:
    with Image.open(io.BytesIO(data)) as picture:
        assert picture.mode == "RGB"
        return np.asarray(picture)


def changed(data: bytes) -> NDArray[np.bool_]:
    return np.asarray((opened(data) != 200).any(axis=2))


def fp32(*rows: object) -> NDArray[np.float32]:
    return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize("outline", [{BOXES: fp32(*BOX)}, {QUADS: fp32([[40, 40], [120, 40], [120, 100], [40, 100]])}])
def test_the_outline_is_drawn_and_nothing_else(run: "Run", outline: dict[Field, Any]) -> None:
    marked = changed(draw(run, {}, outline))
    assert marked[40, 40:121].all() and marked[100, 40:121].all() and marked[40:101, 40].all()
    assert not marked[48:93, 48:113].any()
    assert not marked[:36].any() and not marked[:, 125:].any()


def test_names_and_scores_stand_above_their_box(run: "Run") -> None:
    further = {BOXES: fp32(*BOX), NAMES: ["cat"], SCORES: fp32(0.5)}
    marked = changed(draw(run, {"names": "names", "scores": "scores"}, further))
    assert marked[28:38, 44:60].any()
    assert not marked[:20].any()


POINTS = Field("points", "FP32", (-1, 2, 2), "ragged")


def test_points_are_drawn_where_they_are_and_harmless_outside(run: "Run") -> None:
    marked = changed(draw(run, {"points": "points"}, {BOXES: fp32(*BOX), POINTS: fp32([[60, 70], [1e6, -50]])}))
    assert marked[69:72, 58:63].all() and marked[68:73, 59:62].all()
    assert not marked[60:66, 48:113].any() and not marked[:36].any()


@pytest.mark.parametrize(
    ("points", "code"), [(fp32(), Code.BAD_OUTPUT_SHAPE), (fp32([[np.nan, 0], [0, 0]]), Code.NON_FINITE_OUTPUT)]
)
def test_points_that_do_not_fit_fail_their_row(run: "Run", points: Any, code: Code) -> None:
    given = {image(1): object_column([GREY]), BOXES: object_column([fp32(*BOX)]), POINTS: object_column([points])}
    assert run("draw_boxes", {"points": "points"}, given).failures[0].code is code


def test_each_class_has_a_colour_of_its_own(run: "Run") -> None:
    boxes = fp32([5, 60, 45, 110], [60, 60, 100, 110], [110, 60, 150, 110])
    pixels = opened(draw(run, {"classes": "classes"}, {BOXES: boxes, CLASSES: np.array([0, 1, 0])}))
    first, second, third = (pixels[110, x].tolist() for x in (25, 80, 130))
    assert first == third != second


def test_the_same_picture_gives_the_same_bytes_whatever_its_neighbours(run: "Run") -> None:
    further: dict[Field, Any] = {BOXES: fp32(*BOX), NAMES: ["chat\n\u00e9\U0001f600"]}
    alone = draw(run, {"names": "names"}, further)
    both = run(
        "draw_boxes",
        {"names": "names"},
        {
            image(1): object_column([np.zeros((9, 9, 1), np.uint8), GREY]),
            BOXES: object_column([np.zeros((0, 4), np.float32), fp32(*BOX)]),
            NAMES: object_column([[], further[NAMES]]),
        },
    ).columns["drawing"]
    assert both[1] == alone
    assert opened(both[0]).max() == 0


@pytest.mark.parametrize("box", [[-1e9, -5, 1e9, 1e9], [120, 100, 40, 40], [200, 200, 300, 300], [40, 40, 40, 40]])
def test_boxes_outside_or_without_an_inside_do_no_harm(run: "Run", box: list[float]) -> None:
    assert opened(draw(run, {"names": "names"}, {BOXES: fp32(box), NAMES: ["x" * 1000]})).shape == (120, 160, 3)


@pytest.mark.parametrize(
    ("boxes", "names", "code"),
    [([[0, 0, 1, math.nan]], ["a"], Code.NON_FINITE_OUTPUT), (BOX, ["a", "b"], Code.BAD_OUTPUT_SHAPE)],
)
def test_what_does_not_fit_fails_its_row(run: "Run", boxes: object, names: list[str], code: Code) -> None:
    given: dict[Field, list[Any]] = {image(1): [GREY], BOXES: [np.array(boxes, np.float32)], NAMES: [names]}
    batch = run("draw_boxes", {"names": "names"}, {field: object_column(value) for field, value in given.items()})
    assert batch.failures[0].code is code


def encode(run: "Run", options: dict[str, Any], *pictures: Pixels) -> Any:
    return run("encode_image", options, {image(pictures[0].shape[2]): object_column(pictures)})


@pytest.mark.parametrize("channels", [1, 3])
def test_png_gives_back_every_pixel(run: "Run", channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 5, channels), dtype=np.uint8)
    with Image.open(io.BytesIO(encode(run, {}, pixels).columns["encoded"][0])) as picture:
        assert (picture.format, picture.size) == ("PNG", (5, 7))
        assert np.asarray(picture).reshape(pixels.shape).tolist() == pixels.tolist()


def test_jpeg_is_smaller_at_a_lower_quality(run: "Run") -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    files = [encode(run, {"format": "jpeg", "quality": quality}, pixels).columns["encoded"][0] for quality in (20, 95)]
    assert len(files[0]) < len(files[1])
    with Image.open(io.BytesIO(files[0])) as picture:
        assert (picture.format, picture.mode) == ("JPEG", "RGB")


def test_more_boxes_than_the_most_fail_their_row(run: "Run") -> None:
    given = {
        image(1): object_column([GREY, GREY]),
        BOXES: object_column([np.ones((3, 4), np.float32), np.array(BOX, np.float32)]),
    }
    batch = run("draw_boxes", {"count_max": 2}, given)
    assert {row: failure.code for row, failure in batch.failures.items()} == {0: Code.OUTPUT_TOO_LARGE}
    assert batch.failures[0].text == "boxes: has 3 boxes; at most 2 are drawn"


def test_points_of_four_are_never_taken_for_the_quads(run: "Run") -> None:
    points = np.zeros((1, 4, 2), np.float32) + 80
    marks = Field("marks", "FP32", (-1, 4, 2), "ragged")
    assert changed(draw(run, {"points": "marks"}, {BOXES: np.array(BOX, np.float32), marks: points}))[40, 80]


@pytest.mark.parametrize(
    ("shape", "code"), [((0, 5, 1), Code.BAD_OUTPUT_SHAPE), ((1, 65_501, 1), Code.INPUT_TOO_LARGE)]
)
def test_a_picture_that_cannot_be_encoded_fails_its_row_alone(run: "Run", shape: tuple[int, ...], code: Code) -> None:
    batch = encode(run, {"format": "jpeg"}, np.zeros(shape, np.uint8), GREY)
    assert batch.failures[0].code is code
    assert batch.rows == 1


def test_a_quality_without_jpeg_is_refused(run: "Run") -> None:
    with pytest.raises(Misconfigured, match="quality"):
        encode(run, {"quality": 50}, GREY)
