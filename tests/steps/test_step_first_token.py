"""The step first_token, by hand-made vectors."""

import numpy as np
import pytest
from tests.steps.conftest import Run

from forwardpass.core.errors import Code, Failed, Misconfigured, Refused
from forwardpass.core.pipeline import Field

MASK = Field("attention_mask", "INT64", (-1,))


def vectors(datatype: str = "FP32") -> Field:
    return Field("hidden", datatype, (-1, 2))


def test_padding_on_either_side_is_passed_over(run: Run) -> None:
    hidden = np.array([[[1, 2], [3, 4]], [[9, 9], [5, 6]]], dtype=np.float32)
    batch = run("first_token", {}, {vectors(): hidden, MASK: np.array([[1, 0], [0, 1]])})
    assert batch.columns["embedding"].tolist() == [[1, 2], [5, 6]]


def test_half_precision_becomes_full_and_what_is_not_kept_may_be_nan(run: Run) -> None:
    hidden = np.array([[[np.nan, 1], [0.5, 2]]], dtype=np.float16)
    batch = run("first_token", {"output": "v"}, {vectors("FP16"): hidden, MASK: np.array([[0, 1]])})
    assert batch.columns["v"].dtype == np.float32
    assert batch.columns["v"].tolist() == [[0.5, 2]]


def test_a_row_that_keeps_no_token_is_refused_alone(run: Run) -> None:
    hidden = np.ones((2, 2, 2), dtype=np.float32)
    batch = run("first_token", {}, {vectors(): hidden, MASK: np.array([[0, 0], [1, 1]])})
    assert batch.columns["embedding"].tolist() == [[1, 1]]
    failure = batch.failures[0]
    assert isinstance(failure, Refused) and failure.code is Code.INVALID_INPUT


def test_vectors_that_are_not_as_long_as_the_mask_are_the_models_fault(run: Run) -> None:
    batch = run("first_token", {}, {vectors(): np.ones((1, 3, 2), dtype=np.float32), MASK: np.array([[1, 1]])})
    assert isinstance(batch.failures[0], Failed)
    assert batch.failures[0].text == "hidden: has 3 tokens where attention_mask has 2"


def test_ragged_rows_are_taken_with_a_ragged_mask_only(run: Run) -> None:
    ragged, mask = Field("hidden", "FP32", (-1, 2), "ragged"), Field("attention_mask", "INT64", (-1,), "ragged")
    rows = [np.array([[1, 2], [3, 4]], np.float32), np.array([[5, 6]], np.float32)]
    batch = run("first_token", {}, {ragged: rows, mask: [np.array([0, 1]), np.array([1])]})
    assert batch.columns["embedding"].tolist() == [[3, 4], [5, 6]]
    for field, other in ((vectors(), mask), (ragged, MASK)):
        with pytest.raises(Misconfigured, match="mask"):
            run("first_token", {}, {field: rows, other: [np.array([1]), np.array([1])]})
