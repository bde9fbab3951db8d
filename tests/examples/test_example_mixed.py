"""The mixed example against the scikit-learn pipeline it was written from, whose answers the build leaves beside it."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples.mixed.build import FLAT, ODD
from tests.examples.ways import outputs_by_every_way
from tests.serving import Server

from forwardpass.core.errors import Code, Refused
from forwardpass.steps.protocol import Batch

Ask = Callable[[str, Sequence[Mapping[str, object]]], Batch]


@pytest.fixture(scope="module")
def reference(folder_of: Callable[[str], Path]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((folder_of("mixed") / "reference.json").read_text())
    return entries


def rents(ask: Ask, flats: Sequence[Mapping[str, object]]) -> list[float]:
    found: list[float] = ask("mixed", [{"flat": flat} for flat in flats]).columns["prediction"].tolist()
    return found


def test_serving_equals_training(ask: Ask, reference: list[dict[str, Any]]) -> None:
    usual = [entry for entry in reference if entry["what"] == "usual"]
    missing = {name for entry in usual for name, value in entry["flat"].items() if value is None}
    assert missing == set(FLAT)  # in some row each
    np.testing.assert_allclose(rents(ask, [entry["flat"] for entry in usual]), [each["rent"] for each in usual], 1e-7)


@pytest.mark.parametrize("what", ODD)
def test_odd_flats_get_what_the_original_says(ask: Ask, reference: list[dict[str, Any]], what: str) -> None:
    (entry,) = (entry for entry in reference if entry["what"] == what)
    assert rents(ask, [entry["flat"]]) == pytest.approx([entry["rent"]], rel=1e-7)


def test_the_order_of_the_columns_plays_no_part(ask: Ask) -> None:
    assert rents(ask, [dict(reversed(FLAT.items()))]) == rents(ask, [FLAT])


def test_a_column_left_out_is_a_missing_one(ask: Ask) -> None:
    assert rents(ask, [{"city": "Graz", "rooms": 2}]) == rents(
        ask, [dict.fromkeys(FLAT) | {"city": "Graz", "rooms": 2}]
    )


def test_a_flat_has_the_same_rent_alone_and_among_others(ask: Ask, reference: list[dict[str, Any]]) -> None:
    flats = [entry["flat"] for entry in reference]
    assert rents(ask, flats) == [rents(ask, [flat])[0] for flat in flats]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [({"area_m2": "large"}, Code.WRONG_TYPE), ({"city": 5}, Code.WRONG_TYPE), ({"floor": 2}, Code.UNKNOWN_FIELD)],
    ids=["text as a number", "number as a text", "a column there is not"],
)
def test_what_does_not_fit_a_column_is_refused_by_its_name(ask: Ask, wrong: dict[str, object], code: Code) -> None:
    with pytest.raises(Refused) as refusal:
        ask("mixed", [{"flat": FLAT | wrong}])
    assert refusal.value.code is code
    assert next(iter(wrong)) in refusal.value.text


def test_every_way_in_gives_the_same_bytes(
    served: Callable[[str], Server], folder_of: Callable[[str], Path], data: Path
) -> None:
    answers = outputs_by_every_way(served("mixed"), folder_of("mixed"), {"flat": FLAT | ODD["no area"]}, data)
    assert len(set(answers.values())) == 1, answers
