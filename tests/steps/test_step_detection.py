"""decode_boxes reads the outputs of the usual detectors."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field
from forwardpass.steps.protocol import object_column

if TYPE_CHECKING:
    from tests.steps.conftest import Run

ROWS = [[10, 20, 4, 8, 0.9, 0.2], [50, 40, 20, 10, 0.1, 0.2], [30, 30, 10, 10, 0.5, 0.5]]  # cx, cy, w, h, two classes
FIRST = Field("output", "FP32", (6, -1))
LAST = Field("output", "FP32", (-1, 6))


def fp32(*rows: object) -> NDArray[np.float32]:
    return np.array(rows, dtype=np.float32)


def lists(columns: dict[str, Any], *names: str) -> list[Any]:
    """What row 0 holds under these names, numbers rounded as FP32 prints them."""
    values = [columns[name][0] for name in names]
    return [np.round(v.astype(float), 4).tolist() if isinstance(v, np.ndarray) else v for v in values]


def test_yolov8_boxes_come_with_their_best_class_and_of_equal_ones_the_lower(run: "Run") -> None:
    columns = run("decode_boxes", {"names": ["cat", "dog"]}, {FIRST: fp32(np.transpose(ROWS))}).columns
    assert lists(columns, "boxes", "scores", "classes", "names") == [
        [[8, 16, 12, 24], [25, 25, 35, 35]], [0.9, 0.5], [0, 0], ["cat", "cat"],
    ]  # fmt: skip
    assert [columns[name][0].dtype for name in ("boxes", "scores", "classes")] == [np.float32, np.float32, np.int64]


def test_a_name_is_free_when_nothing_else_takes_it(run: "Run") -> None:
    assert "names" in run("decode_boxes", {"boxes": "names"}, {FIRST: fp32(np.transpose(ROWS))}).columns
    with pytest.raises(Misconfigured, match="boxes: 'names' is made twice"):
        run("decode_boxes", {"boxes": "names", "names": ["cat", "dog"]}, {FIRST: fp32(np.transpose(ROWS))})


def test_scores_of_four_classes_are_never_taken_for_the_boxes(run: "Run") -> None:
    table = Field("corners", "FP32", (-1, 4)), Field("confidence", "FP32", (-1, 4))
    given = {table[0]: fp32([[1, 2, 3, 4]]), table[1]: fp32([[0, 0, 0.9, 0]])}
    columns = run("decode_boxes", {"layout": "separate", "scores_input": "confidence"}, given).columns
    assert lists(columns, "boxes", "classes") == [[[1, 2, 3, 4]], [2]]


def test_a_box_can_stand_in_a_line_of_its_own(run: "Run") -> None:
    turned = run("decode_boxes", {"attributes": "last"}, {LAST: fp32(ROWS)}).columns
    assert lists(turned, "boxes", "classes") == [[[8, 16, 12, 24], [25, 25, 35, 35]], [0, 0]]


def test_yolov5_scores_are_multiplied_by_the_objectness(run: "Run") -> None:
    given = fp32([[10, 20, 4, 8, 0.5, 0.1, 0.8], [10, 20, 4, 8, 0.1, 0.9, 0.8]])
    columns = run("decode_boxes", {"layout": "yolov5"}, {Field("output", "FP32", (-1, 7)): given}).columns
    assert lists(columns, "boxes", "scores", "classes") == [[[8, 16, 12, 24]], [0.4], [1]]


def test_a_detector_of_one_thing_may_give_its_objectness_alone(run: "Run") -> None:
    given = fp32([[10, 20, 4, 8, 0.5]])
    columns = run("decode_boxes", {"layout": "yolov5"}, {Field("output", "FP32", (-1, 5)): given}).columns
    assert lists(columns, "scores", "classes") == [[0.5], [0]]


def test_an_end_to_end_detector_has_chosen_itself(run: "Run") -> None:
    given = fp32([[1, 2, 3, 4, 0.9, 1], [1, 2, 3, 4, 0.2, 0], [0, 0, 0, 0, 0, -1]])
    options = {"layout": "end_to_end", "names": ["cat", "dog"]}
    columns = run("decode_boxes", options, {LAST: given}).columns
    assert lists(columns, "boxes", "classes", "names") == [[[1, 2, 3, 4]], [1], ["dog"]]


@pytest.mark.parametrize(
    ("form", "box"), [("xyxy", [20, 40, 80, 80]), ("xywh", [20, 40, 100, 120]), ("cxcywh", [-20, 0, 60, 80])]
)
def test_separate_boxes_from_0_to_1_become_pixels(run: "Run", form: str, box: list[int]) -> None:
    options = {"layout": "separate", "input": "boxes", "scores_input": "logits", "form": form, "scale": [100, 200]}
    options |= {"background": "first"}
    given = {
        Field("logits", "FP32", (2, 3)): fp32([[0.1, 0.2, 0.7], [0.9, 0.1, 0.1]]),
        Field("boxes", "FP32", (2, 4)): fp32([[0.2, 0.2, 0.8, 0.4], [0, 0, 1, 1]]),
    }
    assert lists(run("decode_boxes", options, given).columns, "boxes", "scores", "classes") == [[box], [0.7], [1]]


def test_each_row_can_be_scaled_by_its_own_picture(run: "Run") -> None:
    pictures = object_column([np.zeros((10, 20, 3), np.uint8), np.zeros((40, 30, 3), np.uint8)])
    given = {
        Field("image", "UINT8", (-1, -1, 3), "ragged"): pictures,
        LAST: fp32([[0, 0, 1, 1, 1, 0]], [[0, 0, 1, 0.5, 1, 0]]),
    }
    columns = run("decode_boxes", {"layout": "end_to_end", "image": "image", "input": "output"}, given).columns
    assert [box.tolist() for box in columns["boxes"]] == [[[0, 0, 20, 10]], [[0, 0, 30, 20]]]


def test_a_box_can_count_for_every_class_that_is_sure_enough(run: "Run") -> None:
    columns = run("decode_boxes", {"every_class": True, "score_min": 0.2}, {FIRST: fp32(np.transpose(ROWS))}).columns
    assert lists(columns, "scores", "classes") == [[0.9, 0.2, 0.2, 0.5, 0.5], [0, 1, 1, 0, 1]]


def test_what_follows_the_scores_is_kept_with_its_box(run: "Run") -> None:
    given = fp32(np.transpose(ROWS))
    columns = run("decode_boxes", {"class_count": 1, "rest": "coefficients"}, {FIRST: given}).columns
    assert lists(columns, "scores", "coefficients") == [[0.9, 0.5], [[0.2], [0.5]]]


def test_a_picture_with_nothing_on_it_has_no_boxes(run: "Run", tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    given = fp32(np.transpose(ROWS))
    columns = run("decode_boxes", {"file": "names.txt", "score_min": 1}, {FIRST: given}, tmp_path).columns
    assert lists(columns, "boxes", "scores", "classes", "names") == [[], [], [], []]
    assert columns["boxes"][0].shape == (0, 4)


def test_rows_may_have_different_numbers_of_candidates(run: "Run") -> None:
    ragged = object_column([fp32(*np.transpose(ROWS)), np.zeros((6, 0), np.float32)])
    columns = run("decode_boxes", {}, {Field("output", "FP32", (6, -1), "ragged"): ragged}).columns
    assert [len(scores) for scores in columns["scores"]] == [2, 0]


@pytest.mark.parametrize(("place", "value"), [((4, 1), math.nan), ((2, 0), math.inf)])
def test_what_is_no_number_fails_its_row_alone(run: "Run", place: tuple[int, int], value: float) -> None:
    bad = np.transpose(ROWS).copy()
    bad[place] = value
    batch = run("decode_boxes", {}, {FIRST: fp32(bad, np.transpose(ROWS))})
    assert batch.failures[0].code is Code.NON_FINITE_OUTPUT
    assert [len(scores) for scores in batch.columns["scores"]] == [2]


@pytest.mark.parametrize("number", [2, -1])
def test_a_class_without_a_name_fails_its_row(run: "Run", number: float) -> None:
    options = {"layout": "end_to_end", "names": ["cat", "dog"]}
    batch = run("decode_boxes", options, {LAST: fp32([[1, 2, 3, 4, 0.9, number]])})
    assert batch.failures[0].code is Code.OUTPUT_OUT_OF_RANGE


def test_another_number_of_names_than_classes_is_found_at_load(run: "Run") -> None:
    with pytest.raises(Misconfigured, match="6 numbers a box; 7 are needed"):
        run("decode_boxes", {"names": ["a", "b", "c"]}, {FIRST: fp32(np.transpose(ROWS))})


def test_another_number_of_classes_than_the_model_said_fails_its_row(run: "Run") -> None:
    given = {Field("output", "FP32", (-1, -1)): fp32(np.transpose(ROWS))}
    batch = run("decode_boxes", {"names": ["a", "b", "c"]}, given)
    assert batch.failures[0].code is Code.BAD_OUTPUT_SHAPE


@pytest.mark.parametrize(
    "options",
    [
        {"layout": "separate"},
        {"scores_input": "output"},
        {"background": "last"},
        {"scale": [0, 1]},
        {"rest": "points"},
        {"texts": "labels"},
        {"names": ["a", "b"], "class_count": 2},
        {"boxes": "scores"},
    ],
)
def test_options_that_do_not_go_together_are_refused(run: "Run", options: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured):
        run("decode_boxes", options, {FIRST: fp32(np.transpose(ROWS))})
