"""Rows are strangers: a row's result depends neither on its neighbours nor on its place, bit for bit."""

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forwardpass.core.pipeline import Field

if TYPE_CHECKING:
    from tests.steps.conftest import Columns, Run

LOGITS = Field("logits", "FP32", (37,))
AMOUNT = Field("amount", "FP64", (), "number")
COUNTRY = Field("country", "BYTES", (), "category")
CONTENT = Field("content", "BYTES", (), "bytes")
HIDDEN = Field("hidden", "FP32", (-1, 24))
MASK = Field("attention_mask", "INT64", (-1,))
CATEGORIES = {"country": ["NL", "DE", "FR"]}

STEPS: list[tuple[str, dict[str, Any]]] = [
    ("softmax", {}),
    ("sigmoid", {"input": "logits"}),
    ("argmax", {}),
    ("take", {"input": "logits", "index": 3, "output": "x"}),
    ("l2_norm", {"input": "logits"}),
    ("labels", {"input": "logits", "names": [str(i) for i in range(37)], "top": 3}),
    ("labels", {"input": "logits", "names": [str(i) for i in range(37)]}),
    ("threshold", {"input": "amount", "score_min": 0.0}),
    ("mean_pool", {}),
    ("fill", {"values": {"amount": 3.0, "country": "NL"}}),
    ("scale", {"mean": {"amount": 0.3}, "std": {"amount": 0.7}}),
    ("one_hot", {"categories": CATEGORIES}),
    ("ordinal", {"categories": CATEGORIES}),
    ("columns", {"names": ["amount", "logits"]}),
    ("byte_windows", {"first": 8, "last": 8}),
    ("normalize_text", {"input": "country", "lower": True}),
]


def rows_of(count: int, seed: int) -> "Columns":
    """Good and bad rows, mixed."""
    random = np.random.default_rng(seed)
    hidden = random.standard_normal((count, 9, 24)).astype(np.float32)
    return {
        HIDDEN: hidden,
        MASK: (np.arange(9) < random.integers(0, 10, count)[:, np.newaxis]).astype(np.int64),
        AMOUNT: np.where(random.random(count) < 0.3, np.nan, random.standard_normal(count)),
        COUNTRY: list(random.choice(np.array(["NL", "DE", "XX", None], dtype=object), count)),
        CONTENT: [random.bytes(int(n)) for n in random.integers(0, 30, count)],
        LOGITS: (random.standard_normal((count, 37)) * 10).astype(np.float32),
    }


def chosen(columns: "Columns", rows: list[int]) -> "Columns":
    return {
        field: [values[row] for row in rows] if isinstance(values, list) else np.asarray(values)[rows]
        for field, values in columns.items()
    }


def results(run: "Run", use: str, options: dict[str, Any], columns: "Columns") -> list[object]:
    """Per row: the bits of all its columns, or why it failed."""
    batch = run(use, options, columns)
    rows: dict[int, object] = {row: (failure.code, failure.text) for row, failure in batch.failures.items()}
    for place, row in enumerate(batch.origin):
        rows[row] = {
            name: repr(column[place]) if column.dtype == object else column[place].tobytes()
            for name, column in batch.columns.items()
        }
    return [rows[row] for row in sorted(rows)]


@pytest.mark.parametrize("step", STEPS, ids=[use for use, _ in STEPS])
@settings(max_examples=12, deadline=None)
@given(count=st.integers(1, 17), seed=st.integers(0, 2**32), shuffle=st.randoms(use_true_random=False))
def test_a_row_alone_or_anywhere_in_a_batch_gives_the_same_bits(
    run: "Run", step: tuple[str, dict[str, Any]], count: int, seed: int, shuffle: Random
) -> None:
    columns = rows_of(count, seed)
    together = results(run, *step, columns)
    order = list(range(count))
    shuffle.shuffle(order)
    assert results(run, *step, chosen(columns, order)) == [together[row] for row in order]
    assert [results(run, *step, chosen(columns, [row]))[0] for row in range(count)] == together
