"""image_tensor is (level * scale - mean) / std in the order and type that a model takes."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from tests.steps.photos import GREY, IMAGE, china, column, noise

from forwardpass.core.errors import Code, Misconfigured

if TYPE_CHECKING:
    from tests.steps.conftest import Run

IMAGENET: dict[str, Any] = {"scale": 1 / 255, "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
LEVELS = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, axis=-1)


def expected(pixels: Any, scale: float, mean: Any, std: Any) -> Any:
    return (pixels.astype(np.float64) * scale - np.array(mean)) / np.array(std)


@pytest.mark.parametrize("layout", ["chw", "cwh", "whc"])
@pytest.mark.parametrize("more", [{}, {"size": [5, 7]}, {"sides_multiple": 4}])
def test_the_order_of_the_axes_is_that_of_the_layout(run: "Run", layout: str, more: dict[str, Any]) -> None:
    given = {IMAGE: column(noise(5, 7))}
    rows = run("image_tensor", {**IMAGENET, **more, "layout": "hwc"}, given).columns["tensor"][0]
    found = run("image_tensor", {**IMAGENET, **more, "layout": layout}, given).columns["tensor"][0]
    np.testing.assert_array_equal(found, rows.transpose(["hwc".index(axis) for axis in layout]))
    assert found.flags.c_contiguous


@pytest.mark.parametrize("layout", ["chw", "hwc"])
@pytest.mark.parametrize("size", [{}, {"size": [16, 16]}])
def test_every_level_is_normalised_in_single_precision(run: "Run", layout: str, size: dict[str, Any]) -> None:
    found = run("image_tensor", {**IMAGENET, "layout": layout, **size}, {IMAGE: column(LEVELS)}).columns["tensor"][0]
    assert found.dtype == np.float32 and found.flags.c_contiguous
    wanted = expected(LEVELS, **IMAGENET)
    np.testing.assert_allclose(found if layout == "hwc" else found.transpose(1, 2, 0), wanted, rtol=0, atol=4.4 * 3e-7)


def test_bgr_takes_mean_and_std_in_its_own_order(run: "Run") -> None:
    pixels = noise(5, 4)
    options = {"color": "bgr", "mean": [103.5, 116.25, 123.75], "std": [2, 4, 8]}
    found = run("image_tensor", options, {IMAGE: column(pixels)}).columns["tensor"][0]
    np.testing.assert_array_equal(
        found, expected(pixels[..., ::-1], 1, [103.5, 116.25, 123.75], [2, 4, 8]).transpose(2, 0, 1)
    )


def test_gray_is_pillows_luma(run: "Run") -> None:
    found = run("image_tensor", {"color": "gray", "datatype": "UINT8"}, {IMAGE: column(china())}).columns["tensor"][0]
    np.testing.assert_array_equal(found, np.asarray(china().convert("L"))[np.newaxis])


def test_a_grey_image_stays_as_it_is(run: "Run") -> None:
    pixels = noise(6, 5, 1)
    found = run("image_tensor", {"color": "gray", "scale": 0.5}, {GREY: column(pixels)}).columns["tensor"][0]
    np.testing.assert_array_equal(found[0], pixels[..., 0] / 2)


def test_half_precision_is_rounded_once(run: "Run") -> None:
    found = run("image_tensor", {**IMAGENET, "datatype": "FP16"}, {IMAGE: column(LEVELS)}).columns["tensor"][0]
    assert found.dtype == np.float16
    single = run("image_tensor", IMAGENET, {IMAGE: column(LEVELS)}).columns["tensor"][0]
    np.testing.assert_array_equal(found, single.astype(np.float16))


def test_bytes_are_only_put_in_order(run: "Run") -> None:
    pixels = noise(7, 3)
    found = run("image_tensor", {"color": "bgr", "datatype": "UINT8"}, {IMAGE: column(pixels)}).columns["tensor"][0]
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, pixels[..., ::-1].transpose(2, 0, 1))


def test_an_image_of_another_size_fails_alone(run: "Run") -> None:
    given = column(noise(4, 3), noise(3, 4), noise(4, 3, seed=1))
    batch = run("image_tensor", {"size": [4, 3]}, {IMAGE: given})
    assert batch.failures[1].code is Code.SHAPE_MISMATCH
    assert batch.failures[1].text == "image: is 3 x 4 pixels; 4 x 3 are needed"
    np.testing.assert_array_equal(batch.columns["tensor"], np.stack([given[0], given[2]]).transpose(0, 3, 1, 2))


def test_widths_are_padded_to_the_next_bucket_after_normalisation(run: "Run") -> None:
    options = {"mean": [127.5], "std": [127.5], "width_buckets": [8, 12]}
    batch = run("image_tensor", options, {IMAGE: column(noise(5, 4), noise(8, 4), noise(9, 4), noise(13, 4))})
    assert [tensor.shape for tensor in batch.columns["tensor"]] == [(3, 4, 8), (3, 4, 8), (3, 4, 12)]
    assert (batch.columns["tensor"][0][:, :, 5:] == 0).all()
    np.testing.assert_allclose(
        batch.columns["tensor"][0][:, :, :5], expected(noise(5, 4), 1, 127.5, 127.5).transpose(2, 0, 1), atol=3e-7
    )
    assert batch.failures[3].code is Code.INPUT_TOO_LARGE
    assert batch.failures[3].text == "image: is 13 pixels wide; at most 12 are taken"


@pytest.mark.parametrize(("layout", "shape"), [("chw", (3, 32, 64)), ("hwc", (32, 64, 3))])
def test_both_sides_are_padded_to_a_multiple(run: "Run", layout: str, shape: tuple[int, ...]) -> None:
    options = {"sides_multiple": 32, "pad": -1.5, "layout": layout}
    found = run("image_tensor", options, {IMAGE: column(noise(33, 32))}).columns["tensor"][0]
    assert found.shape == shape
    padded = found[:, :, 33:] if layout == "chw" else found[:, 33:]
    assert (padded == -1.5).all()


def test_a_row_is_the_same_alone_and_among_others(run: "Run") -> None:
    images = [noise(30, 20, seed=seed) for seed in range(5)]
    together = run("image_tensor", {**IMAGENET, "size": [30, 20]}, {IMAGE: column(*images)}).columns["tensor"]
    for image, row in zip(images, together, strict=True):
        alone = run("image_tensor", {**IMAGENET, "size": [30, 20]}, {IMAGE: column(image)}).columns["tensor"]
        np.testing.assert_array_equal(alone[0], row)


def test_no_images_are_a_tensor_without_rows(run: "Run") -> None:
    found = run("image_tensor", {"size": [30, 20]}, {IMAGE: column()}).columns["tensor"]
    assert found.shape == (0, 3, 20, 30)


def test_a_read_only_image_is_taken(run: "Run") -> None:
    pixels = np.asarray(Image.fromarray(noise(4, 3)))
    pixels.flags.writeable = False
    assert run("image_tensor", {}, {IMAGE: column(pixels)}).columns["tensor"][0].shape == (3, 3, 4)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mean": [1, 2]}, "one, or 3"), ({"color": "gray", "std": [1, 2, 3]}, "one"), ({"std": [1, 0, 1]}, "other than 0"),
        ({"datatype": "UINT8", "scale": 2.0}, "FP32 or FP16"), ({"size": [1, 2, 3]}, "two numbers"),
        ({"datatype": "UINT8", "pad": 0.5}, "whole number"), ({"width_buckets": [3, 3]}, "ascending"),
        ({"size": [1, 2], "sides_multiple": 2}, "one of size"), ({"datatype": "FP16", "scale": 1000.0}, "too large for FP16"),
        ({"scale": 1e300}, "too large for FP32"), ({"std": [1e-300]}, "too large for FP32"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_found(run: "Run", options: dict[str, Any], why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        run("image_tensor", options, {IMAGE: column(noise(4, 3))})


def test_colours_of_a_grey_image_are_refused_at_load(run: "Run") -> None:
    with pytest.raises(Misconfigured, match='or color = "gray"'):
        run("image_tensor", {}, {GREY: column(noise(4, 3, 1))})
