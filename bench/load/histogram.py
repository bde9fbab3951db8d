"""Latencies counted in buckets never wider than 0.8 % of their value: small to keep, exact enough to compare."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

STEPS_BITS = 7
STEPS = 1 << STEPS_BITS  # in each doubling
EXACT_BELOW = STEPS * 2  # microseconds


def bucket_of(micros: int) -> int:
    shift = max(0, micros.bit_length() - STEPS_BITS - 1)
    return (shift << STEPS_BITS) + (micros >> shift)


def highest_in(bucket: int) -> int:
    """The largest number of microseconds that falls into it."""
    if bucket < EXACT_BELOW:
        return bucket
    shift = (bucket >> STEPS_BITS) - 1
    return ((bucket - (shift << STEPS_BITS) + 1) << shift) - 1


@dataclass(slots=True)
class Histogram:
    """How many latencies fell into each bucket; quantiles are the upper end of their bucket, so never too low."""

    counts: Counter[int] = field(default_factory=Counter)

    @classmethod
    def of(cls, seconds: Iterable[float]) -> "Histogram":
        return cls(Counter(bucket_of(round(each * 1e6)) for each in seconds))

    @classmethod
    def read(cls, stored: Mapping[str, int]) -> "Histogram":
        return cls(Counter({int(bucket): count for bucket, count in stored.items()}))

    def stored(self) -> dict[str, int]:
        """For JSON, whose keys are text."""
        return {str(bucket): self.counts[bucket] for bucket in sorted(self.counts)}

    def merge(self, other: "Histogram") -> None:
        self.counts.update(other.counts)

    @property
    def total(self) -> int:
        return self.counts.total()

    def quantile_s(self, share: float) -> float:
        """The least latency that ``share`` of all do not pass; infinite where nothing was counted."""
        left = math.ceil(self.total * share)
        for bucket in sorted(self.counts):
            left -= self.counts[bucket]
            if left <= 0:
                return highest_in(bucket) / 1e6
        return math.inf
