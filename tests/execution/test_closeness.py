"""How near two answers are: the largest difference and the smallest cosine of two rows, by hand."""

import math
from typing import Any

import numpy as np
import pytest

from forwardpass.execution.closeness import Closeness, closeness


def between(expected: Any, found: Any, kind: str = "float32") -> Closeness:
    return closeness({"y": np.array(expected, kind)}, {"y": np.array(found, kind)})


def test_equal_answers_differ_by_nothing() -> None:
    found = between([[1.0, 2.0], [0.0, 0.0]], [[1.0, 2.0], [0.0, 0.0]])
    assert (found.absolute, found.other) == (0.0, "")
    assert found.cosine == pytest.approx(1.0)


def test_the_worst_row_counts() -> None:
    found = between([[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 1.0]])
    assert found.absolute == 1.0
    assert found.cosine == pytest.approx(math.sqrt(0.5))


def test_rows_of_one_number_are_one_vector() -> None:
    assert between([[3.0], [1e-9]], [[3.0], [-1e-9]]).cosine == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("expected", "found", "cosine"),
    [(4.0, 3.0, 0.75), (3.0, 4.0, 0.75), (-2.0, 2.0, -1.0), (0.0, 0.0, 1.0), (0.0, 1.0, 0.0)],
)
def test_one_number_by_itself_is_as_near_as_the_smaller_is_to_the_larger(
    expected: float, found: float, cosine: float
) -> None:
    for shape in ((), (1,), (1, 1)):
        between_both = between(np.full(shape, expected), np.full(shape, found))
        assert (between_both.cosine, between_both.absolute) == (cosine, abs(expected - found))


def test_what_is_not_finite_must_be_so_in_both() -> None:
    assert between([[math.nan, 1.0]], [[math.nan, 1.0]]).within({"absolute": 0.0})
    assert not between([[math.nan, 1.0]], [[0.0, 1.0]]).within({"absolute": 9.0})
    assert not between([[math.inf, 1.0]], [[-math.inf, 1.0]]).within({"absolute": 9.0})


def test_whole_numbers_and_shapes_must_be_the_same_whatever_the_tolerance() -> None:
    assert between([1, 2], [1, 2], "int64").within({"absolute": 9.0})
    assert not between([1, 2], [1, 3], "int64").within({"absolute": 9.0})
    assert not closeness({"y": np.zeros(2)}, {"y": np.zeros(3)}).within({"absolute": 9.0})
    assert not closeness({"y": np.zeros(2)}, {}).within({"absolute": 9.0})


@pytest.mark.parametrize(
    ("tolerance", "within"),
    [({"absolute": 0.5}, True), ({"absolute": 0.49}, False), ({"cosine": 0.9}, True), ({"cosine": 0.91}, False)],
)
def test_each_bound_that_is_written_counts(tolerance: dict[str, float], within: bool) -> None:
    assert Closeness(0.5, 0.9).within(tolerance) is within
