"""The section ``[price]``: what its keys may be, and what must hold of them beside the steps."""

from collections.abc import Iterator, Mapping
from typing import Any

from forwardpass.core.pipeline import Pipeline, Price
from forwardpass.pipeline.charge import COUNTING
from forwardpass.pipeline.toml_values import number, table

Finding = tuple[str, str, str]
UNITS_MAX = 1e9
_units = number(0, UNITS_MAX)

PRICE = table(Price, {"request": _units, "row": _units, "token": _units})


def findings(pipeline: Pipeline, document: Mapping[str, Any]) -> Iterator[Finding]:
    """Every broken rule of the section, as (key, found, allowed)."""
    given = document.get("price")
    if isinstance(given, dict) and "token" in given and not any(step.use in COUNTING for step in pipeline.steps):
        yield "price.token", "has no effect: no step counts tokens", f"beside a step of kind {' or '.join(COUNTING)}"
