"""The estimator itself, asked: its answers are what the written version must give."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.fitted.refusal import refused
from forwardpass.fitted.sample import Rows

Answers = dict[str, NDArray[Any]]
"""By output, one row each: ``label``, ``probabilities``, ``scores``, ``prediction``."""


@dataclass(frozen=True)
class Original:
    """A fitted estimator. ``classes`` is empty when it answers with numbers."""

    estimator: Any
    outputs: tuple[str, ...]
    classes: tuple[Any, ...]

    def answers(self, rows: Rows) -> Answers | None:
        """None when the estimator refuses the rows: any exception is a refusal."""
        asked = self.estimator
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return {name: _asked(asked, name, rows, self.classes) for name in self.outputs}
        except Exception:  # what an estimator raises for a row that it does not take is its own
            return None


def of(estimator: Any) -> Original:
    """Raises Misconfigured for what answers with neither labels nor numbers, or is not fitted."""
    if not hasattr(estimator, "predict"):
        allowed = "an estimator that predicts; a transformer alone has no answer"
        raise refused(("estimator", f"{type(estimator).__name__} does not predict", allowed))
    if getattr(estimator, "_estimator_type", None) == "outlier_detector" or hasattr(estimator, "offset_"):
        return Original(estimator, ("label", "scores"), ())
    found = getattr(estimator, "classes_", None)
    if found is None or len(found) == 0:
        clusters = hasattr(estimator, "cluster_centers_") and not hasattr(estimator, "coef_")
        return Original(estimator, ("label",) if clusters else ("prediction",), ())
    if isinstance(found, list) or np.ndim(found) != 1:
        raise refused(("estimator", "a classifier with several outputs", "one label for each row"))
    classes = tuple(_plain(each) for each in found)
    if not (all(isinstance(each, str) for each in classes) or all(isinstance(each, int) for each in classes)):
        raise refused(("classes_", repr(classes)[:80], "labels that are text, whole numbers or true/false"))
    if hasattr(estimator, "predict_proba"):
        return Original(estimator, ("label", "probabilities"), classes)
    more = ("scores",) if hasattr(estimator, "decision_function") else ()
    return Original(estimator, ("label", *more), classes)


def _plain(label: Any) -> Any:
    """A label as it is answered: text, or a whole number (false and true are 0 and 1)."""
    if isinstance(label, str):
        return str(label)
    number = float(label)
    return int(number) if number.is_integer() else number


def _asked(estimator: Any, name: str, rows: Rows, classes: tuple[Any, ...]) -> NDArray[Any]:
    match name:
        case "label":
            found = np.asarray(estimator.predict(rows)).ravel()
            if classes and found.dtype.kind in "OU" and not isinstance(classes[0], str):
                return np.array([int(each in (True, "True")) for each in found])  # CatBoost's words for true and false
            return np.array([_plain(each) for each in found], dtype=object if _is_text(classes) else np.int64)
        case "probabilities":
            return np.asarray(estimator.predict_proba(rows), dtype=np.float64)
        case "scores":
            return np.asarray(estimator.decision_function(rows), dtype=np.float64)
        case _:
            return np.asarray(_predicted(estimator, rows), dtype=np.float64)


def _predicted(estimator: Any, rows: Rows) -> Any:
    if type(estimator).__module__.startswith("xgboost.") and type(estimator).__name__ == "Booster":
        import xgboost

        names = None if hasattr(rows, "iloc") else estimator.feature_names
        return estimator.predict(xgboost.DMatrix(rows, feature_names=names))
    found = np.asarray(estimator.predict(rows))
    return found[:, 0] if found.ndim == 2 and found.shape[1] == 1 else found


def _is_text(classes: tuple[Any, ...]) -> bool:
    return bool(classes) and isinstance(classes[0], str)
