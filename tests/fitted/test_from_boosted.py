"""from_lightgbm, from_xgboost, from_catboost: the written trees answer as the library's own."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import catboost
import lightgbm
import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from tests.fitted.conftest import payments, records_of

from forwardpass import Misconfigured, from_catboost, from_lightgbm, from_sklearn, from_xgboost

if TYPE_CHECKING:
    from tests.fitted.conftest import Ask

ROUNDS = 30


def lgbm(kind: str = "Classifier", **options: Any) -> Any:
    return getattr(lightgbm, f"LGBM{kind}")(n_estimators=ROUNDS, verbose=-1, n_jobs=1, random_state=0, **options)


def xgb(kind: str = "Classifier", **options: Any) -> Any:
    return getattr(xgboost, f"XGB{kind}")(n_estimators=ROUNDS, n_jobs=1, random_state=0, **options)


def cat(kind: str = "Classifier", **options: Any) -> Any:
    made = getattr(catboost, f"CatBoost{kind}")
    return made(iterations=ROUNDS, verbose=0, allow_writing_files=False, thread_count=1, random_seed=0, **options)


WRITE = {"lightgbm": from_lightgbm, "xgboost": from_xgboost, "catboost": from_catboost}


def write(estimator: Any, rows: Any, folder: Path) -> Any:
    return WRITE[type(estimator).__module__.split(".")[0]](estimator, rows, folder)


def holed(rows: pd.DataFrame) -> pd.DataFrame:
    """A tenth of the values missing."""
    return rows.mask(np.random.default_rng(0).random(rows.shape) < 0.1)


def named(made: Any) -> str:
    return type(made).__name__


CLASSIFIERS = [lgbm(), lgbm(objective="multiclassova"), xgb(), cat(), cat(loss_function="MultiClassOneVsAll")]


@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=named)
def test_a_classifier_with_missing_values_answers_as_the_library(estimator: Any, tmp_path: Path, ask: "Ask") -> None:
    rows, labels = load_wine(return_X_y=True, as_frame=True)
    rows = holed(rows)
    estimator.fit(rows, labels)
    write(estimator, rows, tmp_path / "m" / "1")
    found = ask(tmp_path / "m" / "1", records_of(rows))
    assert [each["label"] for each in found] == np.ravel(estimator.predict(rows)).tolist()
    np.testing.assert_allclose([each["probabilities"] for each in found], estimator.predict_proba(rows), atol=1e-6)


@pytest.mark.parametrize(
    "estimator", [lgbm(), lgbm(boosting_type="dart"), xgb(), xgb("RFClassifier"), cat()], ids=named
)
def test_two_classes_answer_as_the_library(estimator: Any, tmp_path: Path, ask: "Ask") -> None:
    rows, labels = load_breast_cancer(return_X_y=True, as_frame=True)
    estimator.fit(rows, labels)
    write(estimator, rows, tmp_path / "m" / "1")
    found = ask(tmp_path / "m" / "1", records_of(rows))
    assert [each["label"] for each in found] == estimator.predict(rows).tolist()
    np.testing.assert_allclose([each["probabilities"] for each in found], estimator.predict_proba(rows), atol=1e-6)


REGRESSORS = [
    *(lgbm("Regressor", objective=name) for name in ("regression", "poisson", "quantile", "gamma", "tweedie", "mape")),
    *(xgb("Regressor", objective=name) for name in ("reg:squarederror", "count:poisson", "reg:gamma", "reg:tweedie")),
    *(cat("Regressor", loss_function=name) for name in ("RMSE", "Poisson", "MAE", "LogLinQuantile")),
    lgbm("Regressor", reg_sqrt=True), cat("Regressor", nan_mode="Max"),
]  # fmt: skip


@pytest.mark.parametrize("estimator", REGRESSORS, ids=named)
def test_a_regressor_of_each_objective_answers_as_the_library(estimator: Any, tmp_path: Path, ask: "Ask") -> None:
    rows, target = load_diabetes(return_X_y=True, as_frame=True)
    rows = holed(rows)
    estimator.fit(rows, target)
    write(estimator, rows, tmp_path / "m" / "1")
    found = [each["prediction"] for each in ask(tmp_path / "m" / "1", records_of(rows))]
    np.testing.assert_allclose(found, estimator.predict(rows), rtol=1e-5)


def thresholds(tree: dict[str, Any]) -> list[tuple[int, float]]:
    if "split_feature" not in tree:
        return []
    below = thresholds(tree["left_child"]) + thresholds(tree["right_child"])
    return [(tree["split_feature"], tree["threshold"]), *below]


def test_lightgbm_takes_its_branch_on_its_very_thresholds(tmp_path: Path, ask: "Ask") -> None:
    rows, target = load_diabetes(return_X_y=True, as_frame=True)
    estimator = lgbm("Regressor").fit(rows, target)
    found = [
        each for tree in estimator.booster_.dump_model()["tree_info"] for each in thresholds(tree["tree_structure"])
    ]
    near = rows.copy()
    for row in range(len(near)):
        feature, value = found[row // 2 % len(found)]
        near.iloc[row, feature] = value if row % 2 else np.nextafter(value, np.inf)
    write(estimator, rows, tmp_path / "m" / "1")
    answers = [each["prediction"] for each in ask(tmp_path / "m" / "1", records_of(near))]
    np.testing.assert_allclose(answers, estimator.predict(near), rtol=1e-6)


def test_pandas_categories_of_lightgbm_are_known_by_name_and_unseen_ones_are_missing(
    tmp_path: Path, ask: "Ask"
) -> None:
    rows, labels = payments(600, seed=1)
    rows = rows.astype({"country": "category", "device": "category"})
    estimator = lgbm(min_child_samples=5, cat_smooth=1.0, min_data_per_group=5).fit(rows, labels)
    write(estimator, rows, tmp_path / "m" / "1")
    fresh = payments(300, seed=2)[0].replace({"country": {"JP": "XX"}})
    found = ask(tmp_path / "m" / "1", records_of(fresh))
    known = fresh.assign(country=fresh["country"].mask(fresh["country"] == "XX")).astype(rows.dtypes)
    np.testing.assert_allclose([each["probabilities"] for each in found], estimator.predict_proba(known), atol=1e-6)


@pytest.mark.parametrize("estimator", [lgbm(), xgb("Regressor"), cat()], ids=named)
def test_a_library_may_be_the_last_step_of_a_pipeline(estimator: Any, tmp_path: Path, ask: "Ask") -> None:
    rows, labels = payments(400, seed=1)
    encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = ColumnTransformer(
        [("numbers", "passthrough", ["amount", "age"]), ("categories", encoder, ["country", "device"])]
    ).set_output(transform="pandas")
    whole = make_pipeline(columns, estimator).fit(rows, labels == "fraud")
    from_sklearn(whole, rows, tmp_path / "m" / "1")
    fresh, _ = payments(200, seed=2)
    output = "prediction" if "Regressor" in named(estimator) else "probabilities"
    found = [each[output] for each in ask(tmp_path / "m" / "1", records_of(fresh))]
    wanted = whole.predict(fresh) if output == "prediction" else whole.predict_proba(fresh)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_booster_answers_with_what_its_predict_says(tmp_path: Path, ask: "Ask") -> None:
    rows, labels = load_breast_cancer(return_X_y=True, as_frame=True)
    light = lightgbm.train({"objective": "binary", "verbose": -1}, lightgbm.Dataset(rows, labels), 5)
    extreme = xgboost.train({"objective": "binary:logistic"}, xgboost.DMatrix(rows, labels), 5)
    from_lightgbm(light, rows, tmp_path / "light" / "1")
    from_xgboost(extreme, rows, tmp_path / "extreme" / "1")
    found = [each["prediction"] for each in ask(tmp_path / "light" / "1", records_of(rows))]
    np.testing.assert_allclose(found, light.predict(rows), atol=1e-6)
    found = [each["prediction"] for each in ask(tmp_path / "extreme" / "1", records_of(rows))]
    np.testing.assert_allclose(found, extreme.predict(xgboost.DMatrix(rows)), atol=1e-6)


def test_early_stopping_is_kept(tmp_path: Path, ask: "Ask") -> None:
    rows, labels = load_breast_cancer(return_X_y=True, as_frame=True)
    estimator = xgboost.XGBClassifier(early_stopping_rounds=2, n_estimators=200, n_jobs=1)
    estimator.fit(rows[:400], labels[:400], eval_set=[(rows[400:], labels[400:])], verbose=False)
    assert estimator.best_iteration + 1 < estimator.get_booster().num_boosted_rounds()
    from_xgboost(estimator, rows, tmp_path / "m" / "1")
    found = [each["probabilities"] for each in ask(tmp_path / "m" / "1", records_of(rows))]
    np.testing.assert_allclose(found, estimator.predict_proba(rows), atol=1e-6)


REFUSED = {
    "zero_as_missing": lgbm("Regressor", zero_as_missing=True),
    "linear_tree": lgbm("Regressor", linear_tree=True),
    "booster: dart": xgb("Regressor", booster="dart"),
    "missing: -1": xgb("Regressor", missing=-1),
    "not symmetric": cat("Regressor", grow_policy="Lossguide"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_has_no_equal_is_refused(text: str, tmp_path: Path) -> None:
    rows, target = load_diabetes(return_X_y=True, as_frame=True)
    estimator = REFUSED[text].fit(rows.where(rows > 0.01, 0.0), target)
    with pytest.raises(Misconfigured, match=text):
        write(estimator, rows, tmp_path / "m" / "1")


def test_categories_of_catboost_and_xgboost_are_refused_by_name(tmp_path: Path) -> None:
    rows, labels = payments(200, seed=1)
    rows = rows.fillna({"country": "none"})
    classifier = cat(cat_features=["country", "hour"]).fit(rows.drop(columns="device"), labels)
    with pytest.raises(Misconfigured, match="country: a category that goes to CatBoostClassifier"):
        from_catboost(classifier, rows.drop(columns="device"), tmp_path / "m" / "1")
    numbers = rows[["amount", "age", "hour"]]
    with pytest.raises(Misconfigured, match="cat_features: hour"):
        from_catboost(cat(cat_features=["hour"]).fit(numbers, labels), numbers, tmp_path / "m" / "1")
    typed = numbers.astype({"hour": "category"})
    with pytest.raises(Misconfigured, match="enable_categorical: hour"):
        from_xgboost(xgb(enable_categorical=True).fit(typed, labels == "fraud"), typed, tmp_path / "m" / "1")


def test_an_estimator_of_another_library_is_refused(tmp_path: Path) -> None:
    rows, target = load_diabetes(return_X_y=True, as_frame=True)
    with pytest.raises(Misconfigured, match="CatBoostRegressor is not of xgboost"):
        from_xgboost(cat("Regressor").fit(rows, target), rows, tmp_path / "m" / "1")
