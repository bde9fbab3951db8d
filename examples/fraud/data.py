"""A made-up history of card payments: mixed columns, missing values, a few frauds. The same numbers every time."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBERS = ("amount", "hour", "age_days", "n_prev")
CATEGORIES = {
    "country": ("de", "fr", "gb", "us", "br", "ng"),
    "channel": ("web", "app", "store", "phone"),
    "card_type": ("debit", "credit", "prepaid"),
}
COLUMNS = (*NUMBERS, *CATEGORIES)
SHARES = {
    "country": (0.3, 0.2, 0.2, 0.2, 0.06, 0.04),
    "channel": (0.4, 0.3, 0.25, 0.05),
    "card_type": (0.5, 0.4, 0.1),
}
RISK = {"br": 1.0, "ng": 1.6, "web": 0.6, "phone": 1.2, "store": -1.2, "prepaid": 1.4}
MISSING_SHARE = 0.04


@dataclass(frozen=True, slots=True)
class Payments:
    """``rows`` is an object table with one column each of COLUMNS; NaN and None mark missing values."""

    rows: NDArray[Any]
    fraud: NDArray[np.bool_]


def payments(count: int, seed: int) -> Payments:
    random = np.random.default_rng(seed)
    amount = np.round(random.lognormal(3.5, 1.1, count), 2)
    hour = random.integers(0, 24, count).astype(float)
    age_days = np.round(random.exponential(700, count))
    n_prev = random.poisson(np.minimum(age_days / 30, 40)).astype(float)
    categories = {name: random.choice(CATEGORIES[name], count, p=SHARES[name]) for name in CATEGORIES}

    night, young = (hour < 6), (age_days < 60)
    risk = -7.0 + 1.1 * np.maximum(np.log(amount) - 3.5, 0) + 1.3 * night + 1.5 * young - 0.05 * n_prev
    risk += 2.0 * night * (amount > 150) + 1.5 * young * (categories["channel"] == "web")
    for values in categories.values():
        risk += np.array([RISK.get(value, 0.0) for value in values])
    fraud = random.random(count) < 1 / (1 + np.exp(-1.6 * (risk + 2.2)))

    columns = [amount, hour, age_days, n_prev, *categories.values()]
    rows = np.empty((count, len(COLUMNS)), dtype=object)
    for place, column in enumerate(columns):
        rows[:, place] = column.tolist()
        rows[random.random(count) < MISSING_SHARE, place] = np.nan if COLUMNS[place] in NUMBERS else None
    return Payments(rows, fraud)
