"""The fraud example against scikit-learn's own answers, which the build leaves beside the pipeline."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forwardpass.steps.protocol import Batch

Ask = Callable[[str, Sequence[Mapping[str, object]]], Batch]

PAYMENT = {"amount": 240.22, "hour": 23, "age_days": 8, "n_prev": 0, "country": "br", "channel": "web"}


@pytest.fixture(scope="module")
def reference(folder_of: Callable[[str], Path]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((folder_of("fraud") / "reference.json").read_text())
    return entries


def test_serving_equals_training(ask: Ask, reference: list[dict[str, Any]]) -> None:
    batch = ask("fraud", [{"payment": entry["payment"]} for entry in reference])
    native = [entry["fraud_probability"] for entry in reference]
    assert batch.rows == 200
    np.testing.assert_allclose(batch.columns["fraud_probability"], native, atol=1e-5)


def test_the_reference_has_missing_values_of_every_column_and_both_answers(reference: list[dict[str, Any]]) -> None:
    missing = {name for entry in reference for name, value in entry["payment"].items() if value is None}
    assert missing == set(reference[0]["payment"])
    assert min(entry["fraud_probability"] for entry in reference) < 0.01
    assert max(entry["fraud_probability"] for entry in reference) > 0.9


def test_a_missing_column_counts_as_the_trainings_most_frequent_value(ask: Ask) -> None:
    batch = ask("fraud", [{"payment": PAYMENT}, {"payment": {**PAYMENT, "card_type": "debit"}}])
    left_out, most_frequent = batch.columns["fraud_probability"]
    assert left_out == most_frequent
    assert batch.columns["fraud"].tolist() == [True, True]


def test_a_country_that_training_never_saw_gets_an_answer(ask: Ask) -> None:
    batch = ask("fraud", [{"payment": {**PAYMENT, "country": "zz"}}])
    assert 0.0 <= batch.columns["fraud_probability"][0] <= 1.0
