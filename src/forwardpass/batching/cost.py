"""What a batch costs in time, learnt from the batches that ran: duration = a + b · cost, in the batch's own unit of cost.

Source: the linear model of adaptive batching (Crankshaw et al., Clipper, NSDI 2017), here as exponentially weighted
least squares. A version that became slower or faster for good is not waited for: see ``observe``.
"""

from dataclasses import dataclass, field

HALF_LIFE_BATCHES = 50.0
CONFIDENT_BATCHES = 2  # the first one alone may have been slow for reasons of its own
STRANGE_FACTOR = 2.0
STRANGE_BATCHES = 4
_DECAY = 0.5 ** (1.0 / HALF_LIFE_BATCHES)


@dataclass(slots=True)
class CostModel:
    """``predict_s(cost)`` in seconds; 0.0 until a batch has been seen. Never negative, never falling with the cost."""

    observed: int = 0
    _sums: list[float] = field(default_factory=lambda: [0.0] * 5)  # weights, x, y, xx, xy
    _fixed_s: float = 0.0
    _per_cost_s: float = 0.0
    _strange: list[float] = field(default_factory=list)  # what the last batches took as a share of the prediction

    @property
    def confident(self) -> bool:
        """Whether somebody may be refused on its word."""
        return self.observed >= CONFIDENT_BATCHES

    def observe(self, cost: float, seconds: float) -> None:
        """A batch ran. So many in a row that all took less than half of the time, or all more than twice: a new pace."""
        predicted_s = self.predict_s(cost)
        terms = (1.0, cost, seconds, cost * cost, cost * seconds)
        self._sums = [total * _DECAY + term for total, term in zip(self._sums, terms, strict=True)]
        self.observed += 1
        if predicted_s > 0.0:
            self._compare(seconds / predicted_s)
        self._fit()

    def predict_s(self, cost: float) -> float:
        return max(0.0, self._fixed_s + self._per_cost_s * cost, self._per_cost_s * cost)

    def _compare(self, ratio: float) -> None:
        if 1.0 / STRANGE_FACTOR <= ratio <= STRANGE_FACTOR:
            self._strange.clear()
            return
        if self._strange and (self._strange[-1] > 1.0) != (ratio > 1.0):
            self._strange.clear()
        self._strange.append(ratio)
        if len(self._strange) == STRANGE_BATCHES:
            pace = sum(self._strange) / STRANGE_BATCHES
            self._sums[2] *= pace  # the same line at another pace: its shape was learnt from many batches
            self._sums[4] *= pace
            self._strange.clear()

    def _fit(self) -> None:
        weight, x, y, xx, xy = self._sums
        mean_x, mean_y = x / weight, y / weight
        spread = xx / weight - mean_x * mean_x
        if spread > 1e-9 * mean_x * mean_x:
            slope = (xy / weight - mean_x * mean_y) / spread
        else:  # one size only: take time as proportional to it
            slope = mean_y / mean_x if mean_x > 0.0 else 0.0
        # noise that says larger is faster: all sizes take as long
        self._per_cost_s = max(0.0, slope)
        self._fixed_s = mean_y - self._per_cost_s * mean_x
