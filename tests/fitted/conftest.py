"""Written versions asked as a program asks them, and made-up payments with columns of every kind."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import forwardpass

Ask = Callable[[Path, Sequence[dict[str, Any]]], list[Any]]
"""One row's outputs, or the code and text it was refused with."""


def _ask(folder: Path, records: Sequence[dict[str, Any]]) -> list[Any]:
    with forwardpass.Pipeline.open(folder) as pipeline:
        found = pipeline.predict([{"record": record} for record in records])
    return [each.outputs if isinstance(each, forwardpass.Prediction) else (each.code, each.message) for each in found]


@pytest.fixture(scope="session")
def ask() -> Ask:
    return _ask


def records_of(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """As JSON: what is missing is null."""
    return [
        {name: None if pd.isna(value) else value for name, value in row.items()}
        for row in rows.astype(object).to_dict("records")
    ]


def payments(count: int, seed: int) -> tuple[pd.DataFrame, NDArray[Any]]:
    """Amounts and countries are missing in a tenth of the rows; the label is text."""
    chance = np.random.default_rng(seed)
    rows = pd.DataFrame(
        {
            "amount": np.exp(chance.normal(4, 2, count)),
            "age": chance.integers(18, 90, count),
            "hour": chance.integers(0, 24, count),
            "country": chance.choice(["DE", "FR", "US", "JP"], count),
            "device": chance.choice(["web", "ios", "android"], count),
        }
    )
    suspicious = np.log(rows["amount"]) + 2 * (rows["country"] == "US") + chance.normal(0, 1, count) > 6
    rows.loc[chance.random(count) < 0.1, "amount"] = np.nan
    rows.loc[chance.random(count) < 0.1, "country"] = np.nan
    return rows, np.where(suspicious, "fraud", "fine")
