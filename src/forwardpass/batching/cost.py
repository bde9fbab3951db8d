"""What a batch costs in time, learnt from the batches that ran: duration = a + b · cost, in the batch's own unit of cost.

Source: the linear model of adaptive batching (Crankshaw et al., Clipper, NSDI 2017), here as exponentially weighted
least squares. A version that became slower or faster for good is not waited for: see ``observe``.
"""

import math
from dataclasses import dataclass, field

HALF_LIFE_BATCHES = 50.0
CONFIDENT_BATCHES = 2  # the first one alone may have been slow for reasons of its own
STRANGE_FACTOR = 2.0
STRANGE_BATCHES = 4
COST_FACTOR_MAX = 100.0  # times the mean: no cost counts as more, for one may be made up
LEVERAGE_MAX = 10.0  # times the mean: what is learnt from one that cost more is what it says of so much
_DECAY = 0.5 ** (1.0 / HALF_LIFE_BATCHES)


@dataclass(slots=True)
class CostModel:
    """``predict_s(cost)`` in seconds; 0.0 until a batch has been seen. Never negative, never falling with the cost.

    A cost of more than COST_FACTOR_MAX times the mean counts as that.
    """

    observed: int = 0
    _sums: list[float] = field(default_factory=lambda: [0.0] * 5)  # weights, x, y, xx, xy
    _fixed_s: float = 0.0
    _per_cost_s: float = 0.0
    _cost_max: float = math.inf
    _strange: list[tuple[float, float]] = field(default_factory=list)  # cost and seconds of the last batches that were

    @property
    def confident(self) -> bool:
        """Whether somebody may be refused on its word."""
        return self.observed >= CONFIDENT_BATCHES

    def observe(self, cost: float, seconds: float) -> None:
        """A batch ran. One that took more than twice as long, or less than half, counts as that: it may be so for once.

        So many in a row that all took less than half of the time, or all more than twice: a new pace.
        """
        most = LEVERAGE_MAX / COST_FACTOR_MAX * self._cost_max
        if cost > most:
            cost, seconds = most, seconds * most / cost
        predicted_s, counted_s = self._fixed_s + self._per_cost_s * cost, seconds
        strange = predicted_s > 0.0 and not predicted_s / STRANGE_FACTOR <= seconds <= STRANGE_FACTOR * predicted_s
        if strange and self.observed >= CONFIDENT_BATCHES:
            counted_s = predicted_s * STRANGE_FACTOR if seconds > predicted_s else predicted_s / STRANGE_FACTOR
        weight, x, y, xx, xy = self._sums
        self._sums = [
            weight * _DECAY + 1.0,
            x * _DECAY + cost,
            y * _DECAY + counted_s,
            xx * _DECAY + cost * cost,
            xy * _DECAY + cost * counted_s,
        ]
        self.observed += 1
        self._fit()
        if strange:
            self._compare(cost, seconds, predicted_s)
        elif self._strange:
            self._strange.clear()

    def predict_s(self, cost: float) -> float:
        seconds = self._fixed_s + self._per_cost_s * (cost if cost < self._cost_max else self._cost_max)
        return seconds if seconds > 0.0 else 0.0

    def _compare(self, cost: float, seconds: float, predicted_s: float) -> None:
        slower = seconds > predicted_s
        if self._strange and (self._strange[-1][1] > self.predict_s(self._strange[-1][0])) != slower:
            self._strange.clear()
        self._strange.append((cost, seconds))
        if len(self._strange) == STRANGE_BATCHES:
            took_s = sum([each[1] for each in self._strange])
            pace = took_s / sum([self.predict_s(each[0]) for each in self._strange])
            self._sums[2] *= pace  # the same line at another pace: its shape was learnt from many batches
            self._sums[4] *= pace
            self._strange.clear()
            self._fit()

    def _fit(self) -> None:
        weight, x, y, xx, xy = self._sums
        mean_x, mean_y = x / weight, y / weight
        self._cost_max = COST_FACTOR_MAX * mean_x if mean_x > 0.0 else math.inf
        spread = xx / weight - mean_x * mean_x
        if spread > 1e-9 * mean_x * mean_x:
            # noise may say that larger is faster: all sizes take as long
            self._per_cost_s = max(0.0, (xy / weight - mean_x * mean_y) / spread)
            self._fixed_s = mean_y - self._per_cost_s * mean_x
            if self._fixed_s >= 0.0:
                return
        # One size only, or noise among nearly one: time is proportional to it, by least squares.
        self._per_cost_s = xy / xx if xx > 0.0 else 0.0
        self._fixed_s = mean_y if xx == 0.0 else 0.0
