"""from_sklearn: the written version answers as the estimator does, row for row, also for odd rows, or is not written."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import SVC, SVR, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from tests.fitted.conftest import payments, records_of

from forwardpass import Misconfigured, from_sklearn
from forwardpass.core.errors import Code

if TYPE_CHECKING:
    from tests.fitted.conftest import Ask

NUMBERS, CATEGORIES = ["amount", "age", "hour"], ["country", "device"]
CLASSIFIERS = [
    LogisticRegression(max_iter=100), make_pipeline(StandardScaler(), PCA(5), LogisticRegression()),
    DecisionTreeClassifier(), RandomForestClassifier(50), ExtraTreesClassifier(20),
    GradientBoostingClassifier(n_estimators=30), HistGradientBoostingClassifier(max_iter=20),
]  # fmt: skip
WITHOUT_PROBABILITIES = [LinearSVC(), RidgeClassifier(), SGDClassifier(), SVC()]
REGRESSORS = [
    LinearRegression(), RandomForestRegressor(20), DecisionTreeRegressor(), GradientBoostingRegressor(n_estimators=30),
    HistGradientBoostingRegressor(max_iter=20), HistGradientBoostingRegressor(loss="poisson", max_iter=20), SVR(),
    KNeighborsRegressor(), MLPRegressor(max_iter=20),
]  # fmt: skip


def seeded(estimator: Any) -> Any:
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)
    return estimator


def name_of(estimator: Any) -> str:
    return type(estimator).__name__


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=name_of)
@pytest.mark.parametrize("data", [load_breast_cancer, load_wine])
def test_a_classifier_answers_with_its_label_and_probabilities(
    estimator: Any, data: Any, tmp_path: Path, ask: "Ask"
) -> None:
    rows, labels = data(return_X_y=True, as_frame=True)
    seeded(estimator).fit(rows, labels)
    from_sklearn(estimator, rows[::2], tmp_path / "m" / "1")
    found = ask(tmp_path / "m" / "1", records_of(rows))
    assert [each["label"] for each in found] == estimator.predict(rows).tolist()
    probabilities = np.array([each["probabilities"] for each in found])
    np.testing.assert_allclose(probabilities, estimator.predict_proba(rows), atol=1e-7)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", WITHOUT_PROBABILITIES, ids=name_of)
@pytest.mark.parametrize("data", [load_breast_cancer, load_wine])
def test_a_classifier_without_probabilities_answers_with_its_scores(
    estimator: Any, data: Any, tmp_path: Path, ask: "Ask"
) -> None:
    rows, labels = data(return_X_y=True, as_frame=True)
    seeded(estimator).fit(rows, labels)
    from_sklearn(estimator, rows, tmp_path / "m" / "1")
    found = ask(tmp_path / "m" / "1", records_of(rows))
    assert [each["label"] for each in found] == estimator.predict(rows).tolist()
    np.testing.assert_allclose(
        [each["scores"] for each in found], estimator.decision_function(rows), rtol=1e-5, atol=1e-6
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", REGRESSORS, ids=name_of)
def test_a_regressor_answers_with_one_number(estimator: Any, tmp_path: Path, ask: "Ask") -> None:
    rows, target = load_diabetes(return_X_y=True, as_frame=True)
    seeded(estimator).fit(rows, target)
    from_sklearn(estimator, rows, tmp_path / "m" / "1")
    found = [each["prediction"] for each in ask(tmp_path / "m" / "1", records_of(rows))]
    np.testing.assert_allclose(found, estimator.predict(rows), rtol=1e-6)


def test_trees_take_the_branch_of_the_original_on_their_very_thresholds(tmp_path: Path, ask: "Ask") -> None:
    rows, target = load_diabetes(return_X_y=True, as_frame=True)
    estimator = HistGradientBoostingRegressor(max_iter=20).fit(rows, target)
    nodes = np.concatenate([stage[0].nodes for stage in estimator._predictors])
    splits = nodes[nodes["is_leaf"] == 0]
    near = rows.copy()
    for row in range(len(near)):
        split = splits[row // 2 % len(splits)]
        value = split["num_threshold"] if row % 2 else np.nextafter(split["num_threshold"], np.inf)
        near.iloc[row, split["feature_idx"]] = value
    from_sklearn(estimator, rows, tmp_path / "m" / "1")
    found = [each["prediction"] for each in ask(tmp_path / "m" / "1", records_of(near))]
    np.testing.assert_allclose(found, estimator.predict(near), rtol=1e-6)


def columns(categories: Any, numbers: Any = None) -> ColumnTransformer:
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler()) if numbers is None else numbers
    return ColumnTransformer([("numbers", numbers, NUMBERS), ("categories", categories, CATEGORIES)])


IGNORE = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
FREQUENT = SimpleImputer(strategy="most_frequent")
PLACES = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2)
MIXED = {
    "one_hot": make_pipeline(columns(IGNORE), LogisticRegression()),
    "filled": make_pipeline(columns(make_pipeline(FREQUENT, IGNORE)), GradientBoostingClassifier(n_estimators=20)),
    "dropped": make_pipeline(columns(OneHotEncoder(drop="first")), LogisticRegression()),
    "ordinal": make_pipeline(columns(PLACES, "passthrough"), HistGradientBoostingClassifier(max_iter=20)),
    "polynomial": make_pipeline(
        columns(IGNORE, make_pipeline(SimpleImputer(), PolynomialFeatures(2), StandardScaler())),
        PCA(6),
        LogisticRegression(),
    ),
    "searched": GridSearchCV(make_pipeline(columns(IGNORE), LogisticRegression()), {"logisticregression__C": [0.1, 1]}),
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_columns_with_missing_values_are_answered_as_by_the_pipeline(
    name: str, tmp_path: Path, ask: "Ask"
) -> None:
    rows, labels = payments(600, seed=1)
    estimator = MIXED[name].fit(rows, labels)
    from_sklearn(estimator, rows, tmp_path / "m" / "1")
    fresh, _ = payments(400, seed=2)
    found = ask(tmp_path / "m" / "1", records_of(fresh))
    assert [each["label"] for each in found] == estimator.predict(fresh).tolist()
    probabilities = np.array([each["probabilities"] for each in found])
    np.testing.assert_allclose(probabilities, estimator.predict_proba(fresh), atol=1e-6)


def test_columns_may_come_in_any_order_and_be_left_out_where_missing_is_known(tmp_path: Path, ask: "Ask") -> None:
    rows, labels = payments(300, seed=1)
    estimator = MIXED["one_hot"].fit(rows, labels)
    from_sklearn(estimator, rows, tmp_path / "m" / "1")
    record = {"age": 40, "hour": 3, "device": "web", "amount": 900.5, "country": "US"}
    turned = dict(reversed(record.items()))
    without = {name: value for name, value in record.items() if name not in ("amount", "country")}
    first, second, third = ask(tmp_path / "m" / "1", [record, turned, without])
    assert first == second
    frame = pd.DataFrame([{**record, "amount": np.nan, "country": None}])[rows.columns].astype(rows.dtypes)
    np.testing.assert_allclose(third["probabilities"], estimator.predict_proba(frame)[0], atol=1e-7)


def test_a_missing_value_of_an_integer_column_is_the_originals_missing_value(tmp_path: Path, ask: "Ask") -> None:
    rows, labels = payments(300, seed=1)
    estimator = MIXED["filled"].fit(rows, labels)
    from_sklearn(estimator, rows, tmp_path / "m" / "1")
    record = records_of(rows)[0] | {"age": None}
    (found,) = ask(tmp_path / "m" / "1", [record])
    wanted = estimator.predict_proba(pd.DataFrame([rows.iloc[0].to_dict() | {"age": np.nan}]))
    np.testing.assert_allclose(found["probabilities"], wanted[0], atol=1e-7)


def test_what_the_original_refuses_is_refused_by_name(tmp_path: Path, ask: "Ask") -> None:
    rows, labels = payments(300, seed=1)
    estimator = make_pipeline(columns(OneHotEncoder(), "passthrough"), LogisticRegression(max_iter=5000))
    whole = rows.fillna({"amount": 1.0, "country": "DE"})
    from_sklearn(estimator.fit(whole, labels), whole, tmp_path / "m" / "1")
    record = records_of(whole)[0]
    odd = [record | {"country": "XX"}, record | {"country": None}, record | {"age": None}]
    *found, right = ask(tmp_path / "m" / "1", [*odd, record])
    assert right["label"] == estimator.predict(whole[:1])[0]
    assert found[0] == ("invalid_input", "country: XX is not a known category")
    assert [each[0] for each in found] == ["invalid_input", "missing_field", "missing_field"]
    assert "country" in found[1][1]
    assert "age" in found[2][1]


def test_a_value_of_the_wrong_type_is_refused_by_name(tmp_path: Path, ask: "Ask") -> None:
    rows, labels = payments(300, seed=1)
    from_sklearn(MIXED["one_hot"].fit(rows, labels), rows, tmp_path / "m" / "1")
    with pytest.raises(Exception, match="amount: expected a number, got a string"):
        ask(tmp_path / "m" / "1", [records_of(rows)[0] | {"amount": "12"}])


def test_an_array_becomes_a_record_of_numbered_columns(tmp_path: Path, ask: "Ask") -> None:
    rows, labels = load_wine(return_X_y=True)
    estimator = RandomForestClassifier(10, random_state=0).fit(rows, labels == 1)
    from_sklearn(estimator, rows, tmp_path / "m" / "1")
    (found,) = ask(tmp_path / "m" / "1", [{f"x{place}": value for place, value in enumerate(rows[60])}])
    assert found["label"] == 1
    assert found["probabilities"] == pytest.approx(estimator.predict_proba(rows[60:61])[0].tolist())


def test_a_list_of_records_is_a_sample(tmp_path: Path) -> None:
    rows, labels = payments(200, seed=1)
    done = from_sklearn(MIXED["one_hot"].fit(rows, labels), records_of(rows), tmp_path / "m" / "1")
    assert (done.rows, done.classes, done.warnings) == (200, ("fine", "fraud"), ())
    assert done.steps == ("fill", "scale", "one_hot", "one_hot", "columns", "model")


def test_a_clusterer_answers_with_its_label(tmp_path: Path, ask: "Ask") -> None:
    rows, _ = load_wine(return_X_y=True, as_frame=True)
    estimator = KMeans(3, random_state=0, n_init=1).fit(rows)
    from_sklearn(estimator, rows, tmp_path / "m" / "1")
    found = [each["label"] for each in ask(tmp_path / "m" / "1", records_of(rows))]
    assert found == estimator.predict(rows).tolist()


def test_a_missing_value_that_a_graph_would_answer_otherwise_is_refused_and_said(tmp_path: Path, ask: "Ask") -> None:
    rows, labels = load_wine(return_X_y=True, as_frame=True)
    estimator = BaggingClassifier(random_state=0).fit(rows, labels)
    done = from_sklearn(estimator, rows, tmp_path / "m" / "1")
    assert any("a missing value is refused" in warning and "proline" in warning for warning in done.warnings)
    record = records_of(rows)[0]
    found, right = ask(tmp_path / "m" / "1", [record | {"proline": None}, record])
    assert found[0] == "missing_field"
    assert right["label"] == 0


def test_a_conversion_that_disagrees_is_not_written(tmp_path: Path) -> None:
    rows, labels = load_breast_cancer(return_X_y=True, as_frame=True)
    estimator = LinearDiscriminantAnalysis().fit(rows, labels)
    with pytest.raises(Misconfigured, match=r"sample\[0\]: probabilities") as refused:
        from_sklearn(estimator, rows, tmp_path / "m" / "1")
    assert refused.value.code is Code.GOLDEN_MISMATCH
    assert list((tmp_path / "m").iterdir()) == []


LOGARITHM = FunctionTransformer(np.log1p)
REFUSED = {
    "TargetEncoder": (
        make_pipeline(columns(TargetEncoder()), LogisticRegression()),
        "country, device: .*TargetEncoder",
    ),
    "function": (make_pipeline(columns(IGNORE, LOGARITHM), HistGradientBoostingClassifier()), "FunctionTransformer"),
    "infrequent": (
        make_pipeline(columns(OneHotEncoder(min_frequency=0.28)), LogisticRegression()),
        "groups infrequent categories",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_equal_is_refused_with_its_columns(name: str, tmp_path: Path) -> None:
    rows, labels = payments(300, seed=1)
    estimator, text = REFUSED[name]
    with pytest.raises(Misconfigured, match=text):
        from_sklearn(estimator.fit(rows, labels), rows, tmp_path / "m" / "1")
    assert not (tmp_path / "m").exists()


def test_an_estimator_that_does_not_predict_is_refused(tmp_path: Path) -> None:
    rows, _ = load_wine(return_X_y=True, as_frame=True)
    with pytest.raises(Misconfigured, match="PCA does not predict"):
        from_sklearn(PCA(2).fit(rows), rows, tmp_path / "m" / "1")


@pytest.mark.parametrize("sample", [[], "rows", np.zeros(3), pd.DataFrame({"a": []})])
def test_a_sample_that_is_none_is_refused(sample: Any, tmp_path: Path) -> None:
    estimator = LinearRegression().fit([[1.0], [2.0]], [1.0, 2.0])
    with pytest.raises(Misconfigured, match="sample"):
        from_sklearn(estimator, sample, tmp_path / "m" / "1")


def test_a_sample_that_the_estimator_refuses_is_refused(tmp_path: Path) -> None:
    estimator = LinearRegression().fit([[1.0], [2.0]], [1.0, 2.0])
    with pytest.raises(Misconfigured, match="the estimator refuses these rows"):
        from_sklearn(estimator, np.array([[np.nan]]), tmp_path / "m" / "1")


def test_a_nullable_integer_column_may_be_missing(tmp_path: Path, ask: "Ask") -> None:
    chance = np.random.default_rng(0)
    rows = pd.DataFrame({"a": chance.normal(size=120), "b": pd.array(chance.integers(0, 5, 120), dtype="Int64")})
    rows.loc[3, "b"] = pd.NA
    estimator = make_pipeline(SimpleImputer(), LinearRegression()).fit(rows, chance.normal(size=120))
    from_sklearn(estimator, rows, tmp_path / "m" / "1")
    found = [each["prediction"] for each in ask(tmp_path / "m" / "1", records_of(rows))]
    np.testing.assert_allclose(found, estimator.predict(rows), atol=1e-12)
