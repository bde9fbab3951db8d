"""image_pyramid makes MTCNN's sizes of an image, each pixel for pixel Pillow's resize."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from tests.steps.photos import IMAGE, china, column, noise

from forwardpass.core.errors import Code, Misconfigured

if TYPE_CHECKING:
    from tests.steps.conftest import Run

OPTIONS = {"largest": 0.6, "method": "area"}


def sizes(width: int, height: int) -> list[tuple[int, int]]:
    """MTCNN's: the first shows 20 pixels with 12, each other is 0.709 times as large, the last has 12 pixels at least."""
    found, scale, shorter = [], 12 / 20, min(width, height) * 12 / 20
    while shorter >= 12:
        found.append((math.ceil(width * scale), math.ceil(height * scale)))
        scale, shorter = scale * 0.709, shorter * 0.709
    return found


@pytest.mark.parametrize(("width", "height"), [(512, 512), (451, 300), (20, 20), (33, 640)])
def test_the_copies_have_mtcnns_sizes(run: "Run", width: int, height: int) -> None:
    copies = run("image_pyramid", OPTIONS, {IMAGE: column(noise(width, height))}).columns["copy"]
    assert [copy.shape[1::-1] for copy in copies] == sizes(width, height)


def test_each_copy_is_pillows_and_says_how_to_go_back(run: "Run") -> None:
    photo = china(200, 100)
    batch = run("image_pyramid", OPTIONS, {IMAGE: column(photo)})
    for copy, scale in zip(batch.columns["copy"], batch.columns["scale"], strict=True):
        height, width = copy.shape[:2]
        np.testing.assert_array_equal(copy, np.asarray(photo.resize((width, height), Image.Resampling.BOX)))
        np.testing.assert_array_equal(scale, np.array([200 / width, 100 / height], np.float32))


def test_the_copies_of_each_image_stand_in_its_place(run: "Run") -> None:
    batch = run("image_pyramid", OPTIONS, {IMAGE: column(noise(64, 64), noise(5, 5), noise(90, 40))})
    assert batch.outer[-1].parents.tolist() == [0] * len(sizes(64, 64)) + [2] * len(sizes(90, 40))
    assert run("image_pyramid", OPTIONS, {IMAGE: column(noise(5, 5))}).columns["scale"].shape == (0, 2)


def test_an_image_whose_copy_is_too_large_fails_alone(run: "Run") -> None:
    batch = run("image_pyramid", {"pixels_max": 1000}, {IMAGE: column(noise(40, 40), noise(20, 20))})
    assert {row: failure.code for row, failure in batch.failures.items()} == {0: Code.INPUT_TOO_LARGE}
    assert batch.columns["copy"][0].shape == (20, 20, 3)
    assert set(batch.origin) == {1}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"largest": 0}, "largest"),
        ({"factor": 1}, "a number from 0.1 to 0.95"),
        ({"method": "area", "antialias": False}, "false only with bilinear"),
        ({"output": "scale"}, "'scale' is made twice"),
    ],
)
def test_options_that_make_no_pyramid_are_found(run: "Run", options: dict[str, Any], why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        run("image_pyramid", options, {IMAGE: column(noise(8, 8))})
