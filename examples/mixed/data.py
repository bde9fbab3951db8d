"""Made-up flats and their monthly rents: columns of text and of numbers, some of them missing. The same every time."""

from typing import Any

import numpy as np
import pandas as pd

CITIES = {"Bern": 1.25, "Graz": 0.85, "Hamburg": 1.1, "Leipzig": 0.75, "Munich": 1.4, "Vienna": 1.0}
HEATINGS = {"district": 40.0, "gas": 0.0, "heat pump": 90.0, "oil": -30.0}
CONDITIONS = ("poor", "fair", "good", "new")
COLUMNS = ("city", "heating", "condition", "area_m2", "rooms", "built")
MISSING_SHARE = 0.05


def flats(count: int, seed: int) -> tuple[pd.DataFrame, Any]:
    """The flats, and what each costs."""
    random = np.random.default_rng(seed)
    area = np.round(random.gamma(9.0, 8.0, count) + 15, 1)
    rooms = np.clip(np.round(area / 27 + random.normal(0, 0.6, count)), 1, 8)
    built = random.integers(1890, 2025, count).astype(float)
    city, heating = random.choice(list(CITIES), count), random.choice(list(HEATINGS), count)
    condition = random.choice(CONDITIONS, count, p=[0.1, 0.3, 0.4, 0.2])
    level = np.array([CONDITIONS.index(each) for each in condition])
    rent = 60 + area * 11 * np.array([CITIES[each] for each in city]) * (0.85 + 0.1 * level)
    rent += np.array([HEATINGS[each] for each in heating]) + 25 * rooms + 0.8 * (built - 1950)
    rent = np.round(rent * random.lognormal(0.0, 0.06, count))
    rows = pd.DataFrame(dict(zip(COLUMNS, (city, heating, condition, area, rooms, built), strict=True)))
    return rows.mask(random.random(rows.shape) < MISSING_SHARE), rent
