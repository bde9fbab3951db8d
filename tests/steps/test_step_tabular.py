"""fill, scale, one_hot, ordinal and columns."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field

if TYPE_CHECKING:
    from tests.steps.conftest import Run

AMOUNT = Field("amount", "FP64", (), "number")
AGE = Field("age", "FP64", (), "number")
COUNTRY = Field("country", "BYTES", (), "category")
BLOCK = Field("block", "FP32", (2,))
NAN = float("nan")


def test_fill_replaces_what_is_missing_only(run: "Run") -> None:
    options = {"values": {"amount": 7, "country": "none"}}
    columns = run("fill", options, {AMOUNT: np.array([1.5, NAN]), COUNTRY: ["NL", None]}).columns
    assert columns["amount"].tolist() == [1.5, 7.0]
    assert columns["country"].tolist() == ["NL", "none"]


@pytest.mark.parametrize("values", [{"amount": "x"}, {"country": 1}])
def test_fill_takes_a_value_of_the_columns_type_only(run: "Run", values: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured, match="as the column is"):
        run("fill", {"values": values}, {AMOUNT: np.array([1.0]), COUNTRY: ["NL"]})


def test_fill_names_a_column_that_is_not_there(run: "Run") -> None:
    with pytest.raises(Misconfigured, match=r"values\.amuont: no field is named 'amuont'.*did you mean 'amount'"):
        run("fill", {"values": {"amuont": 1}}, {AMOUNT: np.array([1.0])})


def test_scale_is_the_trainings_and_keeps_what_is_missing(run: "Run") -> None:
    options = {"mean": {"amount": 10, "age": 1}, "std": {"amount": 4, "age": 0.5}}
    columns = run("scale", options, {AMOUNT: np.array([12.0, NAN]), AGE: np.array([1.0, 3.0])}).columns
    assert columns["amount"].tolist() == pytest.approx([0.5, NAN], nan_ok=True)
    assert columns["age"].tolist() == [0.0, 4.0]


def test_steps_in_place_leave_the_callers_array_alone(run: "Run") -> None:
    given = np.array([1.0, NAN])
    given.flags.writeable = False
    run("fill", {"values": {"amount": 2}}, {AMOUNT: given})
    run("scale", {"mean": {"amount": 2}, "std": {"amount": 2}}, {AMOUNT: given})
    assert given[0] == 1.0


def test_one_hot_sets_the_place_of_the_category(run: "Run") -> None:
    options = {"categories": {"country": ["NL", "DE", "FR"]}, "unknown": "zeros"}
    block = run("one_hot", options, {COUNTRY: ["DE", "XX", "NL"]}).columns["country"]
    assert block.tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]
    assert block.dtype == np.float32


def test_one_hot_refuses_an_unknown_category_alone(run: "Run") -> None:
    batch = run("one_hot", {"categories": {"country": ["NL", "DE"]}}, {COUNTRY: ["DE", "X\n", None]})
    assert batch.columns["country"].tolist() == [[0, 1]]
    assert batch.failures[1].code is Code.INVALID_INPUT
    assert batch.failures[1].text == "country: X\\n is not a known category"
    assert batch.failures[2].code is Code.MISSING_FIELD


def test_one_hot_never_takes_a_missing_category_for_an_unknown_one(run: "Run") -> None:
    batch = run("one_hot", {"categories": {"country": ["NL"]}, "unknown": "zeros"}, {COUNTRY: [None]})
    assert batch.failures[0].code is Code.MISSING_FIELD


def test_ordinal_gives_places_and_keeps_what_is_missing(run: "Run") -> None:
    options = {"categories": {"country": ["NL", "DE"]}, "unknown": -1}
    places = run("ordinal", options, {COUNTRY: ["DE", "XX", None, "NL"]}).columns["country"].tolist()
    assert places == pytest.approx([1, -1, NAN, 0], nan_ok=True)


def test_ordinal_refuses_an_unknown_category_alone(run: "Run") -> None:
    batch = run("ordinal", {"categories": {"country": ["NL"]}}, {COUNTRY: ["XX", "NL"]})
    assert batch.columns["country"].tolist() == [0.0]
    assert batch.failures[0].field == "country"


def test_columns_join_in_the_order_named(run: "Run") -> None:
    options = {"names": ["age", "block", "amount"]}
    given = {AMOUNT: np.array([1.0]), AGE: np.array([2.0]), BLOCK: np.array([[3.0, 4.0]], dtype=np.float32)}
    features = run("columns", options, given).columns["features"]
    assert features.tolist() == [[2, 3, 4, 1]]
    assert features.dtype == np.float32
    assert features.flags.c_contiguous


def test_a_missing_number_fails_its_row_with_the_columns_name(run: "Run") -> None:
    given = {AMOUNT: np.array([1.0, NAN, NAN]), AGE: np.array([2.0, 2.0, NAN])}
    batch = run("columns", {"names": ["age", "amount"]}, given)
    assert batch.columns["features"].tolist() == [[2, 1]]
    assert [(failure.code, failure.field) for failure in batch.failures.values()] == [
        (Code.MISSING_FIELD, "amount"),
        (Code.MISSING_FIELD, "age"),
    ]


def test_trees_can_have_missing_numbers(run: "Run") -> None:
    batch = run("columns", {"names": ["amount"], "missing": "nan"}, {AMOUNT: np.array([NAN, 1.0])})
    assert batch.failures == {}
    assert np.isnan(batch.columns["features"][0, 0])


@pytest.mark.parametrize("missing", ["refuse", "nan"])
@pytest.mark.parametrize("value", [1e300, -np.inf])
def test_a_number_beyond_fp32_fails_its_row(run: "Run", missing: str, value: float) -> None:
    batch = run("columns", {"names": ["amount"], "missing": missing}, {AMOUNT: np.array([value, 1.0])})
    assert batch.failures[0].code is Code.OUT_OF_RANGE
    assert batch.columns["features"].tolist() == [[1.0]]


def test_a_category_must_be_encoded_before_it_is_joined(run: "Run") -> None:
    with pytest.raises(Misconfigured, match="one_hot or ordinal"):
        run("columns", {"names": ["country"]}, {COUNTRY: ["NL"]})


def test_what_is_missing_can_have_a_place_of_its_own_or_zeros(run: "Run") -> None:
    given = {COUNTRY: ["DE", None]}
    options = {"categories": {"country": ["NL", "DE"]}}
    assert run("one_hot", {**options, "missing": "own"}, given).columns["country"].tolist() == [[0, 1, 0], [0, 0, 1]]
    assert run("one_hot", {**options, "missing": "zeros"}, given).columns["country"].tolist() == [[0, 1], [0, 0]]


def test_numbers_can_name_categories(run: "Run") -> None:
    options = {"categories": {"age": [1, 2.5]}, "unknown": "zeros", "missing": "own"}
    block = run("one_hot", options, {AGE: np.array([2.5, 1.0, 7.0, NAN])}).columns["age"]
    assert block.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1]]
    places = run("ordinal", {"categories": {"age": [1, 2.5]}, "unknown": -1}, {AGE: np.array([2.5, 7.0])})
    assert places.columns["age"].tolist() == [1.0, -1.0]


def test_an_unknown_number_is_named_as_it_was_sent(run: "Run") -> None:
    batch = run("ordinal", {"categories": {"age": [1]}}, {AGE: np.array([7.5])})
    assert batch.failures[0].text == "age: 7.5 is not a known category"


@pytest.mark.parametrize("categories", [{"age": ["x"]}, {"country": [1]}])
def test_categories_are_of_the_columns_type(run: "Run", categories: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured, match="as the column is"):
        run("one_hot", {"categories": categories}, {AGE: np.array([1.0]), COUNTRY: ["NL"]})


def test_ordinal_gives_missing_and_unknown_what_it_is_told(run: "Run") -> None:
    options = {"categories": {"country": ["NL"]}, "unknown": "missing", "missing": -2}
    places = run("ordinal", options, {COUNTRY: ["NL", "XX", None]}).columns["country"]
    assert places.tolist() == pytest.approx([0.0, NAN, -2.0], nan_ok=True)
    batch = run("ordinal", {"categories": {"country": ["NL"]}, "missing": "refuse"}, {COUNTRY: ["NL", None]})
    assert [(failure.code, failure.field) for failure in batch.failures.values()] == [(Code.MISSING_FIELD, "country")]


def test_columns_may_be_missing_where_it_is_said(run: "Run") -> None:
    given = {AMOUNT: np.array([NAN, 1.0]), AGE: np.array([1.0, NAN])}
    batch = run("columns", {"names": ["amount", "age"], "missing": ["amount"]}, given)
    assert batch.columns["features"].tolist() == pytest.approx(np.array([[NAN, 1.0]]), nan_ok=True)
    assert [failure.field for failure in batch.failures.values()] == ["age"]


def test_columns_that_may_be_missing_are_among_the_names(run: "Run") -> None:
    with pytest.raises(Misconfigured, match="columns that names has"):
        run("columns", {"names": ["amount"], "missing": ["age"]}, {AMOUNT: np.array([1.0])})


def test_columns_keep_the_precision_of_numbers_if_asked(run: "Run") -> None:
    batch = run("columns", {"names": ["amount"], "datatype": "FP64"}, {AMOUNT: np.array([1e300, 0.1])})
    assert batch.columns["features"].tolist() == [[1e300], [0.1]]
