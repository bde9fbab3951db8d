"""Fraud: a classifier trained here and now, and the pipeline that repeats its training's preprocessing to the digit."""

import json
import math
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from examples.fraud.data import CATEGORIES, COLUMNS, NUMBERS, Payments, payments
from numpy.typing import NDArray
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.metrics import precision_recall_curve, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

ROC_AUC_MIN = 0.9
REFERENCE_ROWS = 200
NOTICE = "Trained by examples/fraud/build.py on made-up payments. Licence: Apache-2.0, as the rest of this project.\n"


def build(folder: Path, downloads: Path) -> str:
    del downloads  # nothing is downloaded
    train, test = payments(20_000, seed=1), payments(5_000, seed=2)
    preprocessing = preprocessor()
    features = preprocessing.fit_transform(train.rows).astype(np.float32)
    classifier = GradientBoostingClassifier(n_estimators=80, max_depth=4, subsample=0.5, random_state=0)
    classifier.fit(features, train.fraud)

    chances = classifier.predict_proba(preprocessing.transform(test.rows).astype(np.float32))[:, 1]
    roc_auc = roc_auc_score(test.fraud, chances)
    if roc_auc < ROC_AUC_MIN:
        raise RuntimeError(f"the training went wrong: ROC-AUC {roc_auc:.4f}, not {ROC_AUC_MIN} or more")

    (folder / "model.onnx").write_bytes(as_onnx(classifier, features.shape[1]))
    (folder / "reference.json").write_text(json.dumps(reference(test, chances), indent=0))
    template = Template((Path(__file__).parent / "pipeline.template.toml").read_text())
    score_min = best_threshold(test, chances)
    values = exported(preprocessing) | {"score_min": repr(score_min), "golden": golden(test, chances, score_min)}
    (folder / "pipeline.toml").write_text(template.substitute(values))
    (folder / "NOTICE.txt").write_text(NOTICE)
    return f"trained on {len(train.rows)} rows, ROC-AUC {roc_auc:.4f} on {len(test.rows)} new ones"


def preprocessor() -> ColumnTransformer:
    """Numbers: median for missing, then standard scale. Categories: the most frequent for missing, then one-hot."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    categories = make_pipeline(
        SimpleImputer(strategy="most_frequent", missing_values=None),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    first = len(NUMBERS)
    parts = [("numbers", numbers, range(first)), ("categories", categories, range(first, len(COLUMNS)))]
    return ColumnTransformer([(name, part, list(places)) for name, part, places in parts])


def as_onnx(classifier: GradientBoostingClassifier, width: int) -> bytes:
    """Probabilities as one table, not as a list of maps (zipmap), which no server can batch."""
    given = [("features", FloatTensorType([None, width]))]
    model = convert_sklearn(classifier, initial_types=given, options={"zipmap": False}, target_opset=17)
    content: bytes = model.SerializeToString()
    return content


def exported(preprocessing: ColumnTransformer) -> dict[str, str]:
    """What the fit learned, as TOML values by their name in the template."""
    numbers, categories = (preprocessing.named_transformers_[part] for part in ("numbers", "categories"))
    fill = [*numbers["simpleimputer"].statistics_, *categories["simpleimputer"].statistics_]
    one_hot = [list(found) for found in categories["onehotencoder"].categories_]
    return {
        "fill": table(COLUMNS, fill),
        "mean": table(NUMBERS, numbers["standardscaler"].mean_),
        "std": table(NUMBERS, numbers["standardscaler"].scale_),
        "categories": table(tuple(CATEGORIES), one_hot),
        "columns": json.dumps(COLUMNS),
    }


def table(names: tuple[str, ...], values: "list[Any] | NDArray[np.float64]") -> str:
    """A TOML inline table; every digit of a number is kept."""
    written = (json.dumps(value if isinstance(value, str | list | bool) else float(value)) for value in values)
    return "{ " + ", ".join(f"{name} = {value}" for name, value in zip(names, written, strict=True)) + " }"


def best_threshold(test: Payments, chances: NDArray[np.float64]) -> float:
    """The probability from which calling it fraud gives the best F1."""
    precision, recall, thresholds = precision_recall_curve(test.fraud, chances)
    f1 = 2 * precision[:-1] * recall[:-1] / np.maximum(precision[:-1] + recall[:-1], 1e-12)
    return round(float(thresholds[f1.argmax()]), 3)


def reference(test: Payments, chances: NDArray[np.float64]) -> list[dict[str, Any]]:
    """The first rows and what scikit-learn itself says of them."""
    return [
        {"payment": payment(test.rows[row]), "fraud_probability": float(chances[row])} for row in range(REFERENCE_ROWS)
    ]


def payment(row: NDArray[Any]) -> dict[str, float | str | None]:
    missing = [value is None or (isinstance(value, float) and math.isnan(value)) for value in row]
    return {name: None if gone else value for name, value, gone in zip(COLUMNS, row, missing, strict=True)}


def golden(test: Payments, chances: NDArray[np.float64], score_min: float) -> str:
    """Two of the reference rows as golden examples: the most suspicious one, and one with a missing value."""
    gap = next(row for row in range(REFERENCE_ROWS) if None in payment(test.rows[row]).values())
    entries = []
    for row in (int(chances[:REFERENCE_ROWS].argmax()), gap):
        known = {name: value for name, value in payment(test.rows[row]).items() if value is not None}
        request = table(tuple(known), list(known.values()))
        expect = table(("fraud_probability", "fraud"), [chances[row], bool(chances[row] >= score_min)])
        entries.append(f"[[golden]]\nrequest = {{ payment = {request} }}\nexpect = {expect}\ntolerance = 1e-5")
    return "\n".join(entries)
