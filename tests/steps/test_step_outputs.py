"""softmax, sigmoid, argmax, take, mean_pool and l2_norm."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from forwardpass.core.errors import Code, Failed, Misconfigured
from forwardpass.core.pipeline import Field
from forwardpass.steps.catalogue import kind_of, kinds
from forwardpass.steps.protocol import object_column

if TYPE_CHECKING:
    from tests.steps.conftest import Run

LOGITS = Field("logits", "FP32", (3,))
HIDDEN = Field("last_hidden_state", "FP32", (-1, 2))
MASK = Field("attention_mask", "INT64", (-1,))


def fp32(*rows: object) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    return np.array(rows, dtype=np.float32)


def test_softmax_is_right_for_small_and_for_huge_scores(run: "Run") -> None:
    batch = run("softmax", {}, {LOGITS: fp32([0, math.log(2), math.log(5)], [1000, 1000, -1000])})
    assert batch.columns["probabilities"].ravel().tolist() == pytest.approx([0.125, 0.25, 0.625, 0.5, 0.5, 0])
    assert batch.columns["probabilities"].dtype == np.float32


@pytest.mark.parametrize("datatype", ["FP16", "FP64"])
def test_softmax_of_any_float_is_fp32(run: "Run", datatype: str) -> None:
    scores = np.array([[1.0, 1.0]], dtype={"FP16": np.float16, "FP64": np.float64}[datatype])
    probabilities = run("softmax", {}, {Field("logits", datatype, (2,)): scores}).columns["probabilities"]
    assert probabilities.tolist() == [[0.5, 0.5]]
    assert probabilities.dtype == np.float32


def test_what_is_no_number_goes_through_for_the_checks_to_find(run: "Run") -> None:
    scores = fp32([math.nan, 0, 0], [math.inf, 0, 0])
    assert np.isnan(run("softmax", {}, {LOGITS: scores}).columns["probabilities"][:, 0]).all()
    assert np.isnan(run("sigmoid", {}, {LOGITS: scores}).columns["probabilities"][0, 0])
    assert np.isnan(run("l2_norm", {}, {LOGITS: scores}).columns["logits"][:, 0]).all()


def test_sigmoid_is_right_at_both_ends(run: "Run") -> None:
    batch = run("sigmoid", {}, {LOGITS: fp32([-1e4, 0, 1e4], [math.log(3), -math.log(3), math.inf])})
    assert batch.columns["probabilities"].ravel().tolist() == pytest.approx([0, 0.5, 1, 0.75, 0.25, 1])


def test_argmax_takes_the_first_of_equal_ones(run: "Run") -> None:
    batch = run("argmax", {"output": "class"}, {LOGITS: fp32([1, 3, 3], [0, 0, 0], [-3, -2, -1])})
    assert batch.columns["class"].tolist() == [1, 0, 2]
    assert batch.columns["class"].dtype == np.int64


def test_argmax_of_no_number_fails_alone(run: "Run") -> None:
    batch = run("argmax", {}, {LOGITS: fp32([1, math.nan, 3], [0, 1, 0])})
    assert batch.failures[0].code is Code.NON_FINITE_OUTPUT
    assert batch.columns["index"].tolist() == [1]


def test_take_gives_one_element(run: "Run") -> None:
    batch = run("take", {"index": 2, "output": "fraud"}, {LOGITS: fp32([1, 2, 3], [4, 5, 6])})
    assert batch.columns["fraud"].tolist() == [3, 6]


def test_take_beyond_the_end_is_found_at_load(run: "Run") -> None:
    with pytest.raises(Misconfigured, match=r"index: 3; below 3, the size of logits \(FP32\[3\]\)"):
        run("take", {"index": 3, "output": "fraud"}, {LOGITS: fp32([1, 2, 3])})


def test_take_beyond_a_free_axis_fails_the_batch(run: "Run") -> None:
    with pytest.raises(Failed) as failure:
        run("take", {"index": 3, "output": "fraud"}, {Field("logits", "FP32", (-1,)): fp32([1, 2, 3])})
    assert failure.value.code is Code.BAD_OUTPUT_SHAPE


def test_the_mean_leaves_out_what_the_mask_does(run: "Run") -> None:
    hidden = fp32([[1, 2], [3, 6], [math.nan, math.inf]], [[5, 7], [9, 9], [9, 9]])
    batch = run("mean_pool", {}, {HIDDEN: hidden, MASK: np.array([[1, 1, 0], [1, 0, 0]])})
    assert batch.columns["embedding"].tolist() == [[2, 4], [5, 7]]
    assert batch.columns["embedding"].dtype == np.float32


def test_ragged_rows_have_the_means_that_they_have_as_tensors(run: "Run") -> None:
    hidden = [np.array([[1, 2], [3, 6], [9, 9]], np.float32), np.array([[5, 7]], np.float32)]
    fields = Field("hidden", "FP32", (-1, 2), "ragged"), Field("attention_mask", "INT64", (-1,), "ragged")
    masks = [np.array([1, 1, 0]), np.array([1])]
    batch = run("mean_pool", {}, {fields[0]: hidden, fields[1]: masks})
    assert batch.columns["embedding"].tolist() == [[2, 4], [5, 7]]
    emptied = run("mean_pool", {}, {fields[0]: hidden, fields[1]: [masks[0], np.array([0])]})
    assert (list(emptied.failures), emptied.columns["embedding"].tolist()) == ([1], [[2, 4]])


def test_a_mask_is_ragged_exactly_where_the_vectors_are(run: "Run") -> None:
    ragged = Field("hidden", "FP32", (-1, 2), "ragged")
    with pytest.raises(Misconfigured, match="mask"):
        run("mean_pool", {}, {ragged: [np.array([[1, 2]], np.float32)], MASK: np.array([[1]])})


def test_a_row_whose_mask_keeps_nothing_fails_alone(run: "Run") -> None:
    batch = run("mean_pool", {}, {HIDDEN: fp32([[1, 2]], [[3, 4]]), MASK: np.array([[0], [1]])})
    assert batch.failures[0].field == "attention_mask"
    assert batch.columns["embedding"].tolist() == [[3, 4]]


@pytest.mark.parametrize("given", [False, True])
def test_a_mask_of_another_length_fails_the_row(run: "Run", given: bool) -> None:
    hidden = Field("hidden", "FP32", (-1, 2), given=given)
    (failure,) = run("mean_pool", {}, {hidden: fp32([[1, 2]]), MASK: np.array([[1, 1]])}).failures.values()
    assert failure.text == "hidden: has 1 tokens where attention_mask has 2"
    assert failure.code is (Code.SHAPE_MISMATCH if given else Code.BAD_OUTPUT_SHAPE)


def test_of_ragged_rows_one_of_another_shape_fails_alone(run: "Run") -> None:
    hidden, mask = Field("hidden", "FP32", (-1, -1), "ragged"), Field("attention_mask", "INT64", (-1,), "ragged")
    vectors = [fp32([1, 2], [3, 4]), fp32([1, 2, 3]), fp32([5, 6])]
    batch = run("mean_pool", {}, {hidden: vectors, mask: [np.array([1, 1]), np.array([1]), np.array([1, 1])]})
    assert batch.columns["embedding"].tolist() == [[2, 3]]
    assert batch.failures[1].text == "hidden: has shape [1, 3]; [tokens, 2] is needed"
    assert batch.failures[2].code is Code.BAD_OUTPUT_SHAPE


@pytest.mark.parametrize("hidden", [1, 2, 7])
def test_a_mean_does_not_depend_on_how_long_the_neighbours_are(run: "Run", hidden: int) -> None:
    field = Field("hidden", "FP32", (-1, hidden))
    vectors = np.random.default_rng(3).standard_normal((1, 100, hidden)).astype(np.float32)
    alone = run("mean_pool", {}, {field: vectors, MASK: np.ones((1, 100), np.int64)}).columns["embedding"]
    for longest in range(101, 400, 13):
        padded = np.zeros((1, longest, hidden), np.float32)
        padded[:, :100] = vectors
        mask = (np.arange(longest) < 100)[np.newaxis].astype(np.int64)
        assert np.array_equal(run("mean_pool", {}, {field: padded, MASK: mask}).columns["embedding"], alone)


@pytest.mark.parametrize("use", ["softmax", "sigmoid"])
def test_ragged_scores_are_done_row_by_row(run: "Run", use: str) -> None:
    rows = [fp32([0, 1], [3, 1], [1, 1]), fp32([2, 0])]
    field = Field("logits", "FP32", (-1, 2), "ragged")
    ragged = run(use, {}, {field: rows}).columns["probabilities"]
    for own, row in zip(rows, ragged, strict=True):
        dense = run(use, {}, {Field("logits", "FP32", (-1, 2)): own[np.newaxis]}).columns["probabilities"][0]
        assert np.array_equal(row, dense)


def test_a_tensor_is_taken_before_a_later_ragged_field(run: "Run") -> None:
    boxes = Field("boxes", "FP32", (-1, 4), "ragged")
    batch = run("softmax", {}, {LOGITS: fp32([0, 0, 0]), boxes: object_column([np.zeros((1, 4), np.float32)])})
    assert batch.columns["probabilities"].shape == (1, 3)


def test_vectors_become_of_length_one_in_place_and_zero_stays_zero(run: "Run") -> None:
    vectors = fp32([3, 4, 0], [0, 0, 0], [3e30, 0, 4e30], [3e-30, 0, 4e-30])
    normed = run("l2_norm", {}, {LOGITS: vectors}).columns["logits"]
    assert normed.ravel().tolist() == pytest.approx([0.6, 0.8, 0, 0, 0, 0, 0.6, 0, 0.8, 0.6, 0, 0.8])
    assert normed.dtype == np.float32


@pytest.mark.parametrize("use", ["softmax", "sigmoid", "l2_norm", "take"])
def test_what_the_caller_sent_stays_the_callers(use: str) -> None:
    options = {"index": 0, "output": "first"} if use == "take" else {}
    for given in (True, False):
        (made,) = kind_of(use, kinds()).fields(options, {"logits": replace(LOGITS, given=given)})
        assert made.given is given
