"""Mixed columns: a scikit-learn pipeline of text and number columns, written as a version by ``from_sklearn``."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from examples.mixed.data import COLUMNS, CONDITIONS, flats
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.metrics import r2_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from forwardpass import from_sklearn

R2_MIN = 0.85
NOTICE = "Trained by examples/mixed/build.py on made-up flats. Licence: Apache-2.0, as the rest of this project.\n"
FLAT: dict[str, Any] = {
    "city": "Munich",
    "heating": "gas",
    "condition": "good",
    "area_m2": 71.5,
    "rooms": 3,
    "built": 1978,
}
ODD: dict[str, dict[str, Any]] = {
    "unseen city": {"city": "Atlantis"},
    "unseen heating and condition": {"heating": "hope", "condition": "haunted"},
    "no area": {"area_m2": None},
    "no city": {"city": None},
    "nothing": dict.fromkeys(COLUMNS),
}


def build(folder: Path, downloads: Path) -> str:
    del downloads  # nothing is downloaded
    (rows, rents), (new_rows, new_rents) = flats(4000, seed=1), flats(1000, seed=2)
    model = estimator().fit(rows, rents)
    r2 = r2_score(new_rents, model.predict(new_rows))
    if r2 < R2_MIN:
        raise RuntimeError(f"the training went wrong: R2 {r2:.4f}, not {R2_MIN} or more")
    folder.rmdir()  # it is made by the next call
    written = from_sklearn(model, new_rows, folder, name="flat", description="monthly rent of a flat", golden=4)
    (folder / "reference.json").write_text(json.dumps(reference(model, new_rows), indent=0))
    (folder / "NOTICE.txt").write_text(NOTICE)
    return (
        f"R2 {r2:.3f} on {written.rows} new rows, on which it equals scikit-learn within {written.difference_max:.0e}"
    )


def estimator() -> Pipeline:
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    names = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    order = OrdinalEncoder(categories=[CONDITIONS], handle_unknown="use_encoded_value", unknown_value=-1)
    columns = ColumnTransformer(
        [
            ("numbers", numbers, ["area_m2", "rooms", "built"]),
            ("names", names, ["city", "heating"]),
            ("order", make_pipeline(SimpleImputer(strategy="most_frequent"), order), ["condition"]),
        ]
    )
    return Pipeline([("columns", columns), ("model", GradientBoostingRegressor(n_estimators=200, random_state=0))])


def reference(model: Pipeline, rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Flats, usual and odd, and what scikit-learn itself says of each."""
    usual: list[dict[str, Any]] = json.loads(rows.head(100).to_json(orient="records"))
    flats_asked = [("usual", flat) for flat in usual] + [(what, FLAT | change) for what, change in ODD.items()]
    rents = answers(model, [flat for _, flat in flats_asked])
    return [{"what": what, "flat": flat, "rent": rent} for (what, flat), rent in zip(flats_asked, rents, strict=True)]


def answers(model: Pipeline, records: Sequence[Mapping[str, Any]]) -> list[float]:
    """As the estimator sees them: a column of numbers stays one when a value is missing."""
    table = pd.DataFrame(records, columns=COLUMNS)
    typed = dict.fromkeys(("area_m2", "rooms", "built"), "float64")
    return [float(rent) for rent in model.predict(table.astype(typed))]
