"""nms and map_boxes."""

import math
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field
from forwardpass.steps.protocol import Batch, object_column

if TYPE_CHECKING:
    from tests.steps.conftest import Run

BOXES = Field("boxes", "FP32", (-1, 4), "ragged")
SCORES = Field("scores", "FP32", (-1,), "ragged")
CLASSES = Field("classes", "INT64", (-1,), "ragged")
NAMES = Field("names", "BYTES", (), "texts")
QUADS = Field("quads", "FP32", (-1, 4, 2), "ragged")
PLACE = Field("place", "FP32", (4,))
SCALE = Field("scale", "FP32", (2,))
IMAGE = Field("image", "UINT8", (-1, -1, 3), "ragged")

Array = NDArray[Any]
Row = tuple[Array, Array, Array]


def fp32(*rows: object) -> NDArray[np.float32]:
    return np.array(rows, dtype=np.float32)


def candidates(seed: int, count: int) -> Row:
    """Boxes on whole pixels that overlap much; some scores are equal."""
    chance = np.random.default_rng(seed)
    corner, size = chance.integers(0, 60, (count, 2)), chance.integers(1, 40, (count, 2))
    scores = chance.integers(1, 100, count) / 100
    boxes = np.hstack([corner, corner + size])
    return boxes.astype(np.float32), scores.astype(np.float32), chance.integers(0, 3, count)


def suppress(run: "Run", options: dict[str, Any], *rows: Row, names: list[Any] | None = None) -> Batch:
    fields = {BOXES: 0, SCORES: 1, CLASSES: 2}
    columns = {field: object_column([row[place] for row in rows]) for field, place in fields.items()}
    return run("nms", options, columns if names is None else columns | {NAMES: object_column(names)})


def plain(row: Row, iou_max: float) -> list[int]:
    """The definition, box by box."""
    boxes, scores, classes = row
    stay: list[int] = []
    for place in sorted(range(len(boxes)), key=lambda one: (-scores[one], one)):
        if all(overlap(boxes[place], boxes[one]) <= iou_max or classes[place] != classes[one] for one in stay):
            stay.append(place)
    return stay


def overlap(one: Array, other: Array) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = float(max(width, 0) * max(height, 0))
    return shared / (sum(float((box[2] - box[0]) * (box[3] - box[1])) for box in (one, other)) - shared)


@pytest.mark.parametrize("iou_max", [0.0, 0.3, 0.45, 0.7])
def test_what_stays_is_what_the_definition_says(run: "Run", iou_max: float) -> None:
    rows = [candidates(seed, count) for seed, count in enumerate([150, 0, 1, 80])]
    columns = suppress(run, {"iou_max": iou_max}, *rows).columns
    for place, row in enumerate(rows):
        stay = plain(row, iou_max)
        for name, values in zip(("boxes", "scores", "classes"), row, strict=True):
            assert columns[name][place].tolist() == values[stay].tolist()


@pytest.mark.parametrize("seed", range(5))
def test_across_classes_it_equals_opencv(run: "Run", seed: int) -> None:
    boxes, _, classes = candidates(seed, 300)
    scores = np.random.default_rng(seed).permutation(300).astype(np.float32) / 300  # OpenCV's order of ties differs
    columns = suppress(run, {"across_classes": True, "score_min": 0.101}, (boxes, scores, classes)).columns
    sized = np.hstack([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]])
    stay = cv2.dnn.NMSBoxes(sized.tolist(), scores.tolist(), 0.101, 0.45)
    assert columns["boxes"][0].tolist() == boxes[np.ravel(stay)].tolist()
    assert columns["classes"][0].tolist() == classes[np.ravel(stay)].tolist()


def pair(*scores: float, classes: tuple[int, int] = (0, 0)) -> Row:
    """Two boxes that overlap by 0.6 exactly: 6 of 10 pixels."""
    return fp32([0, 0, 8, 1], [2, 0, 10, 1]), fp32(*scores), np.array(classes)


def test_an_overlap_of_exactly_the_limit_is_allowed(run: "Run") -> None:
    columns = suppress(run, {"iou_max": 0.6}, pair(0.5, 0.9)).columns
    assert columns["scores"][0].tolist() == fp32(0.9, 0.5).tolist()
    assert len(suppress(run, {"iou_max": 0.59}, pair(0.5, 0.9)).columns["scores"][0]) == 1


def test_of_equal_scores_the_first_stays(run: "Run") -> None:
    assert suppress(run, {}, pair(0.5, 0.5)).columns["boxes"][0].tolist() == [[0, 0, 8, 1]]


def test_other_classes_do_not_suppress_unless_asked_to(run: "Run") -> None:
    row = pair(0.5, 0.9, classes=(0, 1))
    assert suppress(run, {}, row).columns["classes"][0].tolist() == [1, 0]
    assert suppress(run, {"across_classes": True}, row).columns["classes"][0].tolist() == [1]


def test_no_more_than_the_most_come_back_and_none_below_the_least(run: "Run") -> None:
    row = fp32([0, 0, 1, 1], [2, 0, 3, 1], [4, 0, 5, 1]), fp32(0.2, 0.8, 0.5), np.zeros(3, np.int64)
    assert suppress(run, {"count_max": 2}, row).columns["scores"][0].tolist() == fp32(0.8, 0.5).tolist()
    assert suppress(run, {"score_min": 0.5}, row).columns["scores"][0].tolist() == fp32(0.8, 0.5).tolist()


def test_names_come_along_by_themselves_and_other_fields_when_told(run: "Run") -> None:
    columns = suppress(run, {}, pair(0.5, 0.9), names=[["a", "b"]]).columns
    assert columns["names"].tolist() == [["b"]]
    points = Field("points", "FP32", (-1, 5, 2), "ragged")
    boxes, scores, classes = pair(0.5, 0.9)
    given = {BOXES: [boxes], SCORES: [scores], CLASSES: [classes], points: [np.arange(20.0).reshape(2, 5, 2)]}
    given_columns = {field: object_column(values) for field, values in given.items()}
    assert run("nms", {"also": ["points"]}, given_columns).columns["points"][0].shape == (1, 5, 2)


def test_a_part_of_a_better_box_is_dropped_over_the_smaller_one(run: "Run") -> None:
    row = fp32([0, 0, 10, 10], [4, 4, 6, 6], [8, 8, 12, 12]), fp32(0.9, 0.8, 0.7), np.zeros(3, np.int64)
    assert len(suppress(run, {}, row).columns["boxes"][0]) == 3
    left = suppress(run, {"share_of": "smaller", "iou_max": 0.25}, row).columns["boxes"][0]
    assert left.tolist() == [[0, 0, 10, 10], [8, 8, 12, 12]]


def test_empty_boxes_overlap_nothing(run: "Run") -> None:
    row = fp32([1, 1, 1, 1], [1, 1, 1, 1]), fp32(0.5, 0.9), np.zeros(2, np.int64)
    assert len(suppress(run, {}, row).columns["boxes"][0]) == 2


def test_a_field_of_another_length_fails_its_row_alone(run: "Run") -> None:
    batch = suppress(run, {}, pair(0.5, 0.9), pair(0.5, 0.9), names=[["a"], ["a", "b"]])
    assert batch.failures[0].code is Code.BAD_OUTPUT_SHAPE
    assert batch.failures[0].text == "names: has 1 elements where boxes has 2"
    assert batch.columns["names"].tolist() == [["b"]]


def test_json_that_is_no_list_fails_its_row(run: "Run") -> None:
    boxes, scores, classes = pair(0.5, 0.9)
    given: dict[Field, list[Any]] = {
        BOXES: [boxes],
        SCORES: [scores],
        CLASSES: [classes],
        Field("tags", "BYTES", (), "json"): [{"a": 1}],
    }
    batch = run("nms", {"also": ["tags"]}, {field: object_column(values) for field, values in given.items()})
    assert batch.failures[0].text == "tags: is no list"


@pytest.mark.parametrize(("box", "score"), [(math.nan, 0.5), (math.inf, 0.5), (0, math.nan)])
def test_what_is_no_number_fails_its_row(run: "Run", box: float, score: float) -> None:
    batch = suppress(run, {}, (fp32([box, 0, 1, 1]), fp32(score), np.zeros(1, np.int64)), pair(0.5, 0.9))
    assert batch.failures[0].code is Code.NON_FINITE_OUTPUT
    assert batch.rows == 1


def test_without_class_numbers_the_step_says_what_to_do(run: "Run") -> None:
    given = {BOXES: object_column([fp32([0, 0, 1, 1])]), SCORES: object_column([fp32(0.5)])}
    with pytest.raises(Misconfigured, match="no field is named 'classes'"):
        run("nms", {}, given)
    assert len(run("nms", {"across_classes": True}, given).columns["boxes"][0]) == 1


def test_boxes_come_back_from_a_letterbox(run: "Run") -> None:
    given = {BOXES: object_column([fp32([60, 30, 110, 80])]), PLACE: fp32([0.5, 0.25, 10, 20])}
    assert run("map_boxes", {"place": "place"}, given).columns["boxes"][0].tolist() == [[100, 40, 200, 240]]


def test_quads_are_multiplied_by_a_scale_and_clipped_to_the_original(run: "Run") -> None:
    quads = object_column([fp32([[-1, 0], [5, 0], [5, 5], [0, 5]]), np.zeros((0, 4, 2), np.float32)])
    images = object_column([np.zeros((9, 8, 3), np.uint8)] * 2)
    given = {QUADS: quads, SCALE: fp32([2, 1.5], [2, 1.5]), IMAGE: images}
    columns = run("map_boxes", {"scale": "scale", "image": "image", "output": "mapped"}, given).columns
    assert columns["mapped"][0].tolist() == [[[0, 0], [8, 0], [8, 7.5], [0, 7.5]]]
    assert columns["mapped"][1].shape == (0, 4, 2)
    assert columns["quads"][0].tolist() == quads[0].tolist()


def test_boxes_that_are_not_finite_afterwards_fail_their_row(run: "Run") -> None:
    boxes = object_column([fp32([0, 0, math.inf, 1]), fp32([0, 0, 3e38, 1]), fp32([0, 0, 1, 1])])
    places = fp32([1, 1, 0, 0], [0.1, 1, 0, 0], [1, 1, 0, 0])
    batch = run("map_boxes", {"place": "place"}, {BOXES: boxes, PLACE: places})
    assert [failure.code for failure in batch.failures.values()] == [Code.NON_FINITE_OUTPUT] * 2
    assert batch.columns["boxes"][0].tolist() == [[0, 0, 1, 1]]


@pytest.mark.parametrize(("by", "code"), [(0, Code.OUTPUT_OUT_OF_RANGE), (math.nan, Code.NON_FINITE_OUTPUT)])
def test_a_place_that_is_none_fails_its_row(run: "Run", by: float, code: Code) -> None:
    given = {BOXES: object_column([fp32([0, 0, 1, 1])] * 2), PLACE: fp32([by, 1, 0, 0], [1, 1, 0, 0])}
    batch = run("map_boxes", {"place": "place"}, given)
    assert {row: failure.code for row, failure in batch.failures.items()} == {0: code}


@pytest.mark.parametrize("options", [{}, {"place": "place", "scale": "scale"}])
def test_one_way_back_is_needed(run: "Run", options: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured, match="one of place and scale"):
        run("map_boxes", options, {BOXES: object_column([fp32([0, 0, 1, 1])]), PLACE: fp32([1, 1, 0, 0])})
