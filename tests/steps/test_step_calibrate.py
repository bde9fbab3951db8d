"""calibrate, against scikit-learn and the formulas."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field

if TYPE_CHECKING:
    from tests.steps.conftest import Run

LOGITS = Field("logits", "FP32", (3,))
TWO = Field("logits", "FP32", (2,))
ONE = Field("logit", "FP32")


def logits(rows: int = 40, classes: int = 3) -> NDArray[np.float32]:
    return np.random.default_rng(5).normal(0, 3, (rows, classes)).astype(np.float32)


def softmax(scores: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    powers = np.exp(scores.astype(np.float64))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def calibrated(classes: int, method: str) -> tuple[Any, NDArray[np.float64]]:
    """A classifier of scikit-learn calibrated by it, and points to ask it about."""
    random = np.random.default_rng(7)
    points = random.normal(0, 1, (400, 4))
    answers = (points @ random.normal(0, 1, (4, classes)) + random.normal(0, 1, (400, classes))).argmax(axis=1)
    model = LogisticRegression(max_iter=500).fit(points[:200], answers[:200])
    wrapped = CalibratedClassifierCV(FrozenEstimator(model), method=method).fit(points[200:], answers[200:])
    return wrapped.calibrated_classifiers_[0], random.normal(0, 2, (100, 4))


def test_temperature_divides_the_logits(run: "Run") -> None:
    scores = logits()
    found = run("calibrate", {"temperature": 2.5}, {LOGITS: scores}).columns["probabilities"]
    np.testing.assert_allclose(found, softmax(scores / 2.5), atol=1e-6)
    assert found.dtype == np.float32


def test_temperature_of_probabilities_takes_their_logarithm(run: "Run") -> None:
    scores = logits()
    given = {LOGITS: softmax(scores).astype(np.float32)}
    found = run("calibrate", {"temperature": 2.5, "of": "probabilities"}, given).columns["probabilities"]
    np.testing.assert_allclose(found, softmax(scores / 2.5), atol=1e-5)


def test_certain_probabilities_stay_certain(run: "Run") -> None:
    options = {"temperature": 2, "of": "probabilities"}
    found = run("calibrate", options, {LOGITS: np.array([[0, 1, 0]], np.float32)}).columns["probabilities"]
    assert found.tolist() == [[0, 1, 0]]
    alone = run("calibrate", options, {ONE: np.array([0, 1, 0.5], np.float32)}).columns["probabilities"]
    assert alone.tolist() == [0, 1, 0.5]


def test_temperature_of_one_number_is_a_sigmoid(run: "Run") -> None:
    scores = np.array([-1000, -2, 0, 2, 1000], np.float32)
    found = run("calibrate", {"temperature": 2}, {ONE: scores}).columns["probabilities"]
    np.testing.assert_allclose(found, [0, 1 / (1 + math.e), 0.5, math.e / (1 + math.e), 1], atol=1e-7)


def test_independent_labels_are_calibrated_each_for_itself(run: "Run") -> None:
    scores = logits()
    found = run("calibrate", {"temperature": 2, "form": "sigmoid"}, {LOGITS: scores}).columns["probabilities"]
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-scores.astype(np.float64) / 2)), atol=1e-6)


def test_platt_of_two_classes_is_what_scikit_learn_says(run: "Run") -> None:
    model, points = calibrated(2, "sigmoid")
    (fit,) = model.calibrators
    second = model.estimator.decision_function(points)
    scores = np.stack([-second, second], axis=1).astype(np.float32)
    found = run("calibrate", {"a": float(fit.a_), "b": float(fit.b_)}, {TWO: scores}).columns["probabilities"]
    np.testing.assert_allclose(found, model.predict_proba(points), atol=1e-6)


def test_platt_of_each_class_is_what_scikit_learn_says(run: "Run") -> None:
    model, points = calibrated(3, "sigmoid")
    options = {"a": [float(fit.a_) for fit in model.calibrators], "b": [float(fit.b_) for fit in model.calibrators]}
    scores = model.estimator.decision_function(points).astype(np.float32)
    found = run("calibrate", options, {LOGITS: scores}).columns["probabilities"]
    np.testing.assert_allclose(found, model.predict_proba(points), atol=1e-6)


def table(fit: Any) -> dict[str, list[float]]:
    return {"x": fit.X_thresholds_.tolist(), "y": fit.y_thresholds_.tolist()}


@pytest.mark.parametrize("classes", [2, 3])
def test_isotonic_tables_are_what_scikit_learn_says(run: "Run", tmp_path: Path, classes: int) -> None:
    model, points = calibrated(classes, "isotonic")
    tables = [table(fit) for fit in model.calibrators]
    (tmp_path / "curve.json").write_text(json.dumps(tables if classes > 2 else tables[0]))
    scores = model.estimator.decision_function(points).reshape(len(points), -1)
    scores = np.concatenate([-scores, scores], axis=1) if classes == 2 else scores
    given = {Field("scores", "FP64", (classes,)): scores}
    found = run("calibrate", {"isotonic_file": "curve.json"}, given, tmp_path).columns["probabilities"]
    np.testing.assert_allclose(found, model.predict_proba(points), atol=1e-6)


def test_an_isotonic_table_is_linear_inside_and_constant_outside(run: "Run", tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    x = random.normal(0, 1, 200)
    fit = IsotonicRegression(out_of_bounds="clip", y_min=0, y_max=1).fit(x, (x + random.normal(0, 1, 200) > 0) * 1.0)
    (tmp_path / "curve.json").write_text(json.dumps(table(fit)))
    asked = np.linspace(-6, 6, 301)
    found = run("calibrate", {"isotonic_file": "curve.json"}, {Field("s", "FP64"): asked}, tmp_path)
    np.testing.assert_allclose(found.columns["probabilities"], fit.predict(asked), atol=1e-6)


def test_where_every_class_is_impossible_all_are_alike(run: "Run", tmp_path: Path) -> None:
    (tmp_path / "curve.json").write_text('{"x": [0, 1], "y": [0, 1]}')
    given = {LOGITS: np.array([[-1, -1, -1], [0.5, 0.5, 0]], np.float32)}
    found = run("calibrate", {"isotonic_file": "curve.json"}, given, tmp_path).columns["probabilities"]
    np.testing.assert_allclose(found, [[1 / 3] * 3, [0.5, 0.5, 0]], atol=1e-7)


def test_a_score_that_is_no_number_never_becomes_a_probability(run: "Run", tmp_path: Path) -> None:
    (tmp_path / "curve.json").write_text('{"x": [0, 1], "y": [0, 1]}')
    for options in ({"temperature": 2}, {"a": -1, "b": 0}, {"isotonic_file": "curve.json"}):
        batch = run("calibrate", options, {ONE: np.array([math.nan, 0], np.float32)}, tmp_path)
        assert batch.failures[0].code is Code.NON_FINITE_OUTPUT
        assert batch.rows == 1


@pytest.mark.parametrize(
    ("options", "field", "problem"),
    [
        ({}, LOGITS, "none or more than one way"),
        ({"temperature": 2, "a": 1, "b": 1}, LOGITS, "none or more than one way"),
        ({"temperature": 0}, LOGITS, "above 0"),
        ({"a": 1}, LOGITS, "a and b belong together"),
        ({"a": [1, 2], "b": 1}, LOGITS, "2, as many as in a"),
        ({"a": [1, 2], "b": [1, 2]}, LOGITS, "2 for 3 classes"),
        ({"a": 1, "b": 1, "of": "probabilities"}, LOGITS, "only with temperature"),
        ({"temperature": 2, "form": "softmax"}, ONE, "one number per row"),
        ({"temperature": 2}, Field("logits", "FP32", (1,)), "has one class"),
    ],
)
def test_what_cannot_calibrate_is_found_at_load(
    run: "Run", options: dict[str, Any], field: Field, problem: str
) -> None:
    with pytest.raises(Misconfigured, match=problem):
        run("calibrate", options, {field: np.zeros((1, *field.shape), np.float32)})


@pytest.mark.parametrize(
    "data",
    [
        "[", "[]", "1", "{}", '{"x": [0, 1]}', '{"x": [0], "y": [0, 1]}', '{"x": [0, 0], "y": [0, 1]}',
        '{"x": [0, 1], "y": [1, 0]}', '{"x": [0, 1], "y": [0, 2]}', '{"x": [0, 1], "y": [-1, 1]}',
        '{"x": [0, 1], "y": [0, NaN]}', '[{"x": [0], "y": [0]}, {"x": [0], "y": [0]}]',
    ],
)  # fmt: skip
def test_a_bad_table_is_the_operators_fault(run: "Run", tmp_path: Path, data: str) -> None:
    (tmp_path / "curve.json").write_text(data)
    with pytest.raises(Misconfigured, match=r"curve\.json"):
        run("calibrate", {"isotonic_file": "curve.json"}, {LOGITS: logits(1)}, tmp_path)
