"""What a batch costs in time, learnt from the batches that ran: duration = a + b · rows.

Source: the linear model of adaptive batching (Crankshaw et al., Clipper, NSDI 2017), here as exponentially weighted least squares.
"""

from dataclasses import dataclass, field

HALF_LIFE_BATCHES = 50.0
_DECAY = 0.5 ** (1.0 / HALF_LIFE_BATCHES)


@dataclass(slots=True)
class CostModel:
    """``predict_s(rows)`` in seconds; 0.0 until a batch has been seen. Never negative, never falling with rows."""

    rows_max: int
    observed: int = 0
    _sums: list[float] = field(default_factory=lambda: [0.0] * 5)  # weights, x, y, xx, xy
    _fixed_s: float = 0.0
    _per_row_s: float = 0.0

    def observe(self, rows: int, seconds: float) -> None:
        terms = (1.0, float(rows), seconds, float(rows * rows), rows * seconds)
        self._sums = [total * _DECAY + term for total, term in zip(self._sums, terms, strict=True)]
        self.observed += 1
        self._fit()

    def predict_s(self, rows: float) -> float:
        return max(0.0, self._fixed_s + self._per_row_s * rows, self._per_row_s * rows)

    def _fit(self) -> None:
        weight, x, y, xx, xy = self._sums
        mean_x, mean_y = x / weight, y / weight
        spread = xx / weight - mean_x * mean_x
        # one batch size only, or noise that says larger is faster: take time as proportional to rows
        slope = (xy / weight - mean_x * mean_y) / spread if spread > 1e-9 else mean_y / mean_x
        self._per_row_s = max(0.0, slope)
        self._fixed_s = mean_y - self._per_row_s * mean_x


def predicted_wait_s(waiting_rows: int, waiting_items: int, model: CostModel, parallel: int) -> float:
    """Seconds until everything that waits has been started, with ``parallel`` workers taking full batches."""
    if waiting_items == 0:
        return 0.0
    full, rest = divmod(waiting_rows, model.rows_max)
    total_s = full * model.predict_s(model.rows_max) + (model.predict_s(rest) if rest else 0.0)
    return total_s / parallel
