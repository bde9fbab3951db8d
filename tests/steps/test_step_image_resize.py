"""resize_image is Pillow's resize, the reference's sizes, and a scale that maps boxes back."""

import warnings
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from PIL import Image
from tests.steps.photos import GREY, IMAGE, PHOTO, Pixels, china, column, encoded, flower, noise

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field

if TYPE_CHECKING:
    from tests.steps.conftest import Run

METHODS = {"bilinear": "BILINEAR", "bicubic": "BICUBIC", "area": "BOX", "nearest": "NEAREST", "lanczos": "LANCZOS"}


def resized(run: "Run", picture: Any, **options: Any) -> Pixels:
    batch = run("resize_image", options, {IMAGE: column(picture)})
    assert not batch.failures
    found: Pixels = batch.columns["image"][0]
    return found


def shape(run: "Run", width: int, height: int, options: dict[str, Any]) -> tuple[int, int]:
    """(width, height) of a picture of this size, resized."""
    found = resized(run, np.zeros((height, width, 3), np.uint8), **options, method="nearest")
    return found.shape[1], found.shape[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [(224, 224), (900, 500), (640, 427), (1, 1)])
def test_every_method_is_pillows(run: "Run", method: str, size: tuple[int, int]) -> None:
    expected = china().resize(size, getattr(Image.Resampling, METHODS[method]))
    found = resized(run, china(), width=size[0], height=size[1], method=method)
    np.testing.assert_array_equal(found, np.asarray(expected))


def triangle(pixels: Pixels, axis: int, size: int) -> Any:
    """torchvision's antialiased bilinear along one axis, from its definition, in double precision."""
    length = pixels.shape[axis]
    scale = length / size
    support = max(scale, 1.0)
    centers = (np.arange(size) + 0.5) * scale
    weights = np.clip(1 - np.abs(np.arange(length) + 0.5 - centers[:, None]) / support, 0, None)
    weights /= weights.sum(axis=1, keepdims=True)
    return np.moveaxis(np.tensordot(weights, pixels.astype(np.float64), axes=(1, axis)), 0, axis)


@pytest.mark.parametrize("size", [(224, 224), (100, 300), (900, 611)])
def test_bilinear_is_the_antialiased_triangle_within_one_level(run: "Run", size: tuple[int, int]) -> None:
    expected = triangle(triangle(np.asarray(flower()), 1, size[0]), 0, size[1])
    found = resized(run, flower(), width=size[0], height=size[1])
    assert np.abs(found - expected).max() <= 1.01


def between_centers(pixels: Pixels, width: int, height: int) -> Any:
    """Bilinear between pixel centres (align_corners=False), without antialias, in double precision."""
    for axis, size in ((1, width), (0, height)):
        length = pixels.shape[axis]
        places = np.clip((np.arange(size) + 0.5) * length / size - 0.5, 0, length - 1)
        first = np.minimum(places.astype(int), length - 1)
        part = np.expand_dims(places - first, tuple(each for each in range(3) if each != axis))
        second = np.minimum(first + 1, length - 1)
        pixels = pixels.take(first, axis) * (1 - part) + pixels.take(second, axis) * part
    return pixels


@pytest.mark.parametrize("size", [(224, 224), (900, 611), (32, 1000)])
def test_without_antialias_bilinear_is_opencvs_within_one_level(run: "Run", size: tuple[int, int]) -> None:
    found = resized(run, china(), width=size[0], height=size[1], antialias=False)
    assert np.abs(found - between_centers(np.asarray(china()), *size)).max() <= 1.01


def test_grey_images_keep_their_one_channel(run: "Run") -> None:
    for antialias in (True, False):
        options = {"width": 20, "height": 10, "antialias": antialias}
        found = run("resize_image", options, {GREY: column(noise(40, 30, 1))}).columns["image"][0]
        assert found.shape == (10, 20, 1)


@pytest.mark.parametrize(
    ("width", "height", "options", "expected"),
    [  # the first five by torchvision's rule: the other side is int(size * long / short)
        (640, 427, {"short_side": 256}, (383, 256)), (427, 640, {"short_side": 256}, (256, 383)),
        (640, 427, {"short_side": 800, "long_side": 1000}, (1000, 667)), (500, 500, {"short_side": 7}, (7, 7)),
        (3000, 10, {"short_side": 256, "long_side": 512}, (512, 1)),
        (640, 427, {"long_side": 100}, (100, 66)), (427, 640, {"long_side": 100}, (66, 100)),
        (640, 427, {"long_side": 100, "rounding": "nearest"}, (100, 67)), (640, 427, {"height": 48}, (71, 48)),
        (640, 427, {"height": 48, "rounding": "up"}, (72, 48)), (640, 427, {"width": 64}, (64, 42)),
        (9000, 48, {"height": 48, "width_max": 3200}, (3200, 48)), (1000, 1, {"width": 10}, (10, 1)),
        (640, 427, {"short_side": 400, "when": "smaller"}, (640, 427)),
        (640, 427, {"short_side": 500, "when": "smaller"}, (749, 500)),
        (640, 427, {"long_side": 700, "when": "larger"}, (640, 427)),
        (640, 427, {"long_side": 600, "when": "larger"}, (600, 400)),
        (640, 427, {"multiple": 32}, (640, 416)), (640, 427, {"multiple": 32, "multiple_rounding": "up"}, (640, 448)),
        (48, 80, {"multiple": 32}, (64, 64)), (16, 5, {"multiple": 32}, (32, 32)),
        (640, 427, {"height": 64, "width_max": 100, "multiple": 32, "multiple_rounding": "up"}, (96, 64)),
    ],
)  # fmt: skip
def test_the_size_of_the_result(
    run: "Run", width: int, height: int, options: dict[str, Any], expected: tuple[int, int]
) -> None:
    assert shape(run, width, height, options) == expected


def pp_ocr(width: int, height: int, limit: int, kind: str) -> tuple[int, int]:
    """DetResizeForTest.resize_image_type0 of PaddleOCR."""
    ratio = 1.0
    if kind == "max" and max(height, width) > limit:
        ratio = float(limit) / max(height, width)
    if kind == "min" and min(height, width) < limit:
        ratio = float(limit) / min(height, width)
    sides = (int(width * ratio), int(height * ratio))
    return max(round(sides[0] / 32) * 32, 32), max(round(sides[1] / 32) * 32, 32)


@pytest.mark.parametrize(
    ("kind", "limit", "options"),
    [
        ("min", 136, {"short_side": 136, "when": "smaller", "multiple": 32}),
        ("max", 160, {"long_side": 160, "when": "larger", "multiple": 32}),
    ],
)
def test_pp_ocrs_detection_sizes_can_be_said(run: "Run", kind: str, limit: int, options: dict[str, Any]) -> None:
    sides: list[tuple[int, int]] = [(int(w), int(h)) for w, h in np.random.default_rng(0).integers(20, 400, (200, 2))]
    assert [shape(run, *side, options) for side in sides] == [pp_ocr(*side, limit, kind) for side in sides]


def test_the_scale_maps_a_box_back(run: "Run") -> None:
    batch = run("resize_image", {"width": 320, "height": 61, "scale": "back"}, {IMAGE: column(china(), china())})
    assert batch.columns["back"].dtype == np.float32
    np.testing.assert_allclose(batch.columns["back"] * (320, 61), [(640, 427)] * 2)


def test_a_result_of_too_many_pixels_fails_its_row_alone(run: "Run") -> None:
    given = column(noise(10, 5), noise(5, 10), noise(5, 5))
    batch = run("resize_image", {"height": 100, "pixels_max": 10_000, "scale": "back"}, {IMAGE: given})
    assert batch.failures[0].code is Code.INPUT_TOO_LARGE
    assert batch.failures[0].text == "image: 200 x 100 are 20000 pixels; at most 10000 are allowed"
    assert [image.shape for image in batch.columns["image"]] == [(100, 50, 3), (100, 100, 3)]
    np.testing.assert_allclose(batch.columns["back"], [(0.1, 0.1), (0.05, 0.05)])


def test_the_original_stays_where_the_result_has_a_name(run: "Run") -> None:
    columns = run("resize_image", {"long_side": 8, "output": "small"}, {IMAGE: column(china())}).columns
    assert columns["image"][0].shape == (427, 640, 3) and columns["small"][0].shape == (5, 8, 3)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "changes nothing"), ({"width": 3, "short_side": 3}, "width and height, or"),
        ({"width": 3, "height": 3, "when": "larger"}, "exactly one"), ({"multiple": 2, "when": "larger"}, "exactly one"),
        ({"short_side": 9, "long_side": 8}, "at least short_side"), ({"width": 3, "width_max": 3}, "not beside width"),
        ({"width": 3, "method": "area", "antialias": False}, "only with bilinear"), ({"width": 0}, "integer from 1"),
        ({"height": 32, "multiple": 32, "width_max": 31}, "at least multiple"),
        ({"width": 2, "scale": "a", "output": "a"}, "'a' is made twice"), ({"width": 2, "scale": "image"}, "made twice"),
        ({"width": 2, "scale": "image", "output": "a"}, r"scale: image \(ragged.* is read here and would be lost"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_found(run: "Run", options: dict[str, Any], why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        run("resize_image", options, {IMAGE: column(china())})


def test_the_settings_of_the_process_are_left_alone(run: "Run") -> None:
    before = cv2.getNumThreads(), list(warnings.filters)
    run("resize_image", {"width": 3, "antialias": False}, {IMAGE: column(china())})
    run("mask_polygons", {}, {Field("map", "FP32", (2, 2)): np.zeros((1, 2, 2), np.float32)})
    run("decode_image", {}, {PHOTO: [encoded(china(8, 8), "PNG")]})
    assert (cv2.getNumThreads(), list(warnings.filters)) == before


@pytest.mark.parametrize(
    ("library", "options", "why"), [("PIL", {}, "Pillow"), ("cv2", {"antialias": False}, r"OpenCV.*\[vision\]")]
)
def test_a_missing_library_is_named(
    run: "Run", monkeypatch: pytest.MonkeyPatch, library: str, options: dict[str, Any], why: str
) -> None:
    monkeypatch.setitem(__import__("sys").modules, library, None)
    with pytest.raises(Misconfigured, match=why):
        run("resize_image", {"width": 3, **options}, {IMAGE: column()})
