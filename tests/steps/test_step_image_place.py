"""crop_image cuts where torchvision cuts; letterbox_image lays images where YOLO's letterbox does."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from tests.steps.photos import GREY, IMAGE, china, column, noise

from forwardpass.core.errors import Code, Misconfigured

if TYPE_CHECKING:
    from tests.steps.conftest import Run


STEPS: list[tuple[str, dict[str, Any]]] = [
    ("resize_image", {"width": 8}), ("letterbox_image", {"width": 8, "height": 8}), ("image_tensor", {}),
    ("crop_image", {"size": [1, 1], "outside": "pad"}), ("recompress_image", {}), ("image_pyramid", {"side_min": 1}),
    ("encode_image", {}),
]  # fmt: skip


@pytest.mark.parametrize(("use", "options"), STEPS)
@pytest.mark.parametrize("shape", [(0, 3, 3), (3, 0, 3), (0, 0, 3)])
def test_an_image_without_pixels_fails_its_row_alone_in_every_step(
    run: "Run", use: str, options: dict[str, Any], shape: tuple[int, int, int]
) -> None:
    batch = run(use, options, {IMAGE: column(np.zeros(shape, np.uint8), noise(4, 4))})
    assert {row: failure.code for row, failure in batch.failures.items()} == {0: Code.BAD_OUTPUT_SHAPE}
    assert batch.rows >= 1


@pytest.mark.parametrize(
    ("size", "left", "top"),
    [((224, 224), 208, 102), ((223, 224), 208, 102), ((640, 427), 0, 0), ((637, 426), 2, 0)],  # round to even
)
def test_the_middle_is_torchvisions(run: "Run", size: tuple[int, int], left: int, top: int) -> None:
    found = run("crop_image", {"size": list(size)}, {IMAGE: column(china())}).columns["image"][0]
    np.testing.assert_array_equal(found, np.asarray(china())[top : top + size[1], left : left + size[0]])


def test_a_box_is_cut_out(run: "Run") -> None:
    found = run("crop_image", {"box": [10, 20, 40, 25], "output": "piece"}, {IMAGE: column(china())}).columns["piece"]
    np.testing.assert_array_equal(found[0], np.asarray(china().crop((10, 20, 40, 25))))


def test_a_smaller_image_is_refused_alone(run: "Run") -> None:
    batch = run("crop_image", {"size": [20, 10]}, {IMAGE: column(noise(19, 10), noise(20, 10))})
    assert batch.failures[0].code is Code.OUT_OF_RANGE
    assert batch.failures[0].text == "image: is 19 x 10 pixels; the piece from (0, 0) to (20, 10) is not within it"
    assert batch.columns["image"][0].shape == (10, 20, 3)


def test_a_smaller_image_can_be_padded_as_torchvision_pads(run: "Run") -> None:
    options = {"size": [4, 3], "outside": "pad", "fill": 9}
    found = run("crop_image", options, {GREY: column([[[1]], [[2]]])}).columns["image"][0]
    assert found[..., 0].tolist() == [[9, 1, 9, 9], [9, 2, 9, 9], [9, 9, 9, 9]]


@pytest.mark.parametrize("box", [(-5, -5, 5, 5), (35, 25, 60, 31), (-1, 3, 50, 4), (50, 50, 60, 60), (-9, -9, -1, -1)])
def test_a_box_that_reaches_out_is_padded_as_by_pillow(run: "Run", box: tuple[int, int, int, int]) -> None:
    options = {"box": list(box), "outside": "pad"}
    found = run("crop_image", options, {IMAGE: column(china(40, 30))}).columns["image"][0]
    np.testing.assert_array_equal(found, np.asarray(china(40, 30).crop(box)))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "one of size and box"), ({"size": [1, 1], "box": [0, 0, 1, 1]}, "one of size and box"),
        ({"size": [1, 2, 3]}, "two numbers"), ({"box": [0, 0, 0, 1]}, "x1 below x2"), ({"box": [0, 0, 1, 1, 1]}, "four"),
        ({"size": [65535, 65535]}, "at most 178956970"), ({"size": [1, 1], "fill": [1, 2]}, "one for each channel"),
    ],
)  # fmt: skip
def test_crops_that_make_no_sense_are_found(run: "Run", options: dict[str, Any], why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        run("crop_image", options, {IMAGE: column(china())})


def ultralytics(width: int, height: int, frame: tuple[int, int], enlarge: bool) -> tuple[int, int, int, int]:
    """Its LetterBox: the resized width and height, and where left and top are."""
    ratio = min(frame[1] / height, frame[0] / width)
    if not enlarge:
        ratio = min(ratio, 1.0)
    new = round(width * ratio), round(height * ratio)
    right, down = (frame[0] - new[0]) / 2, (frame[1] - new[1]) / 2
    return *new, round(right - 0.1), round(down - 0.1)


@pytest.mark.parametrize("enlarge", [True, False])
@pytest.mark.parametrize("size", [(640, 427), (427, 640), (100, 31), (640, 640), (1, 99), (700, 701)])
def test_the_image_lies_where_ultralytics_lays_it(run: "Run", size: tuple[int, int], enlarge: bool) -> None:
    options = {"width": 320, "height": 256, "enlarge": enlarge, "place": "place"}
    columns = run("letterbox_image", options, {IMAGE: column(china(*size))}).columns
    width, height, left, top = ultralytics(*size, (320, 256), enlarge)
    expected = np.full((256, 320, 3), 114, np.uint8)
    small = china(*size).resize((width, height), Image.Resampling.BILINEAR)
    expected[top : top + height, left : left + width] = np.asarray(small)
    np.testing.assert_array_equal(columns["image"][0], expected)
    np.testing.assert_allclose(columns["place"][0], [width / size[0], height / size[1], left, top], rtol=1e-6)
    assert columns["place"].dtype == np.float32


def test_boxes_of_the_frame_map_back_to_the_original(run: "Run") -> None:
    options = {"width": 320, "height": 320, "place": "place"}
    place = run("letterbox_image", options, {IMAGE: column(china())}).columns["place"][0]
    corners = np.array([[0, 53], [320, 53 + 214]], np.float32)  # of the image in the frame: round(427 / 2) = 214
    np.testing.assert_allclose((corners - place[2:]) / place[:2], [[0, 0], [640, 427]], atol=1e-3)


def test_top_left_is_yoloxs(run: "Run") -> None:
    options = {"width": 416, "height": 416, "align": "top_left", "rounding": "down", "place": "p", "fill": [1, 2, 3]}
    columns = run("letterbox_image", options, {IMAGE: column(china())}).columns
    height = int(427 * min(416 / 427, 416 / 640))
    assert (columns["image"][0][height:] == (1, 2, 3)).all()
    np.testing.assert_array_equal(columns["image"][0][:height], np.asarray(china().resize((416, height), 2)))
    np.testing.assert_allclose(columns["p"][0], [0.65, height / 427, 0, 0], rtol=1e-6)


def test_a_grey_image_is_framed_in_grey(run: "Run") -> None:
    found = run("letterbox_image", {"width": 4, "height": 4}, {GREY: column(noise(8, 4, 1))}).columns["image"][0]
    assert found.shape == (4, 4, 1) and found[0, 0, 0] == 114


@pytest.mark.parametrize(
    ("options", "why"),
    [({"fill": [1]}, "one for each"), ({"method": "area", "antialias": False}, "bilinear"), ({"fill": 256}, "to 255")],
)
def test_frames_that_make_no_sense_are_found(run: "Run", options: dict[str, Any], why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        run("letterbox_image", {"width": 4, "height": 4, **options}, {IMAGE: column(china())})
