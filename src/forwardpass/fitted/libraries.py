"""One function for each library. All do the same: what an estimator is made of decides how it is written."""

from pathlib import Path
from typing import Any, TypedDict, Unpack

from forwardpass.fitted.preparation import flattened
from forwardpass.fitted.refusal import refused
from forwardpass.fitted.write import Conversion, write


class Options(TypedDict, total=False):
    """As ``write`` describes them."""

    name: str
    description: str
    golden: int
    tolerance: float


def from_sklearn(estimator: Any, sample: Any, folder: Path | str, **options: Unpack[Options]) -> Conversion:
    """``write`` for an estimator of scikit-learn, or for a Pipeline, whatever library its last step is of."""
    return _written("sklearn", estimator, sample, folder, options)


def from_lightgbm(estimator: Any, sample: Any, folder: Path | str, **options: Unpack[Options]) -> Conversion:
    """``write`` for LGBMClassifier, LGBMRegressor, LGBMRanker or a Booster, alone or last in a Pipeline."""
    return _written("lightgbm", estimator, sample, folder, options)


def from_xgboost(estimator: Any, sample: Any, folder: Path | str, **options: Unpack[Options]) -> Conversion:
    """``write`` for XGBClassifier, XGBRegressor, their forests or a Booster, alone or last in a Pipeline."""
    return _written("xgboost", estimator, sample, folder, options)


def from_catboost(estimator: Any, sample: Any, folder: Path | str, **options: Unpack[Options]) -> Conversion:
    """``write`` for CatBoostClassifier or CatBoostRegressor on numbers, alone or last in a Pipeline."""
    return _written("catboost", estimator, sample, folder, options)


def _written(library: str, estimator: Any, sample: Any, folder: Path | str, options: Options) -> Conversion:
    parts = [estimator, *flattened(estimator)[-1:]]
    if library not in {type(part).__module__.split(".")[0] for part in parts}:
        raise refused(("estimator", f"{type(estimator).__name__} is not of {library}", f"an estimator of {library}"))
    return write(estimator, sample, folder, **options)
