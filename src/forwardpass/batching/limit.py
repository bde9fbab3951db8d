"""How many rows a batch may have, where nobody wrote it down: learnt from what batches of each size took.

A larger batch is worth its longer wait only where it gets more done in the same time. So the limit is the smallest
power of two whose batches get nearly as much done as the best, and that callers have the time for. A neighbour that was
not seen lately is tried for a few batches. Between what makes it grow and what makes it shrink lies a gap, and after
each change of direction it rests twice as long: it follows a model that changes, and does not swing.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from statistics import median

from forwardpass.core.pipeline import ROWS_AT_FIRST, Batch

ROWS_MOST = 128
"""What a learnt limit never passes: beyond that even the cheapest rows gain next to nothing from company."""
HAND_OFF_S = 0.0001
"""What a batch costs the front and the way to the worker and back, about, besides what the worker says of it."""
GAIN_MIN = 0.08
"""So much more must a batch of twice as many rows get done in the same time for the limit to double."""
LOSS_MAX = 0.04
"""So much less than the best may batches of fewer rows get done for the limit to come down to them."""
PATIENCE_SHARE = 0.5
"""A batch takes at most so much of the time that callers give: what came just after the last one left waits for it, too."""
FULL_BATCHES = 4
KNOWN_BATCHES = 8
KEPT_BATCHES = 24
RECENT_BATCHES = 64
"""What was seen last so many batches ago says nothing of now, where the limit would change for it."""
FRESH_BATCHES = 512
"""A neighbour is looked at again after so many."""
REST_BATCHES = 8
REST_BATCHES_MAX = 4096
KEYS_MAX = 32


@dataclass(slots=True)
class _Size:
    """Batches of more than half of ``1 << n`` rows and no more than that. ``pace`` is seconds for each unit of cost."""

    batches: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))
    pace: float = 0.0
    seconds: float = 0.0
    seen: int = 0  # the number of the last of them

    def add(self, number: int, cost: float, seconds: float) -> None:
        if number - self.seen > RECENT_BATCHES:
            self.batches.clear()
        self.seen = number
        self.batches.append(((seconds + HAND_OFF_S) / cost, seconds))
        self.pace = median([pace for pace, _ in self.batches])
        self.seconds = median([seconds for _, seconds in self.batches])


class Limit:
    """Of one batch key. ``rows`` is the limit now, and ``why`` says in words why it is that one."""

    def __init__(self, rows: int = ROWS_AT_FIRST, most: int = ROWS_MOST) -> None:
        self.why = "what it begins with"
        self._settled = rows
        self._most = most
        self._sizes: dict[int, _Size] = {}
        self._batches = 0
        self._lately: deque[int] = deque(maxlen=KEPT_BATCHES)  # sizes of the last batches
        self._full = 0  # of them, in a row, that were full and left some behind
        self._tried: int | None = None
        self._tries = 0
        self._rests_until = 0
        self._rest = REST_BATCHES
        self._grew: bool | None = None
        self._patience_s = 0.0

    @property
    def rows(self) -> int:
        return self._settled if self._tried is None else 1 << self._tried

    def observe(self, rows: int, cost: float, seconds: float, *, left_rows: int, patience_s: float) -> None:
        """A batch ran in so many seconds, and ``left_rows`` waited still; its callers gave it ``patience_s``."""
        if cost <= 0.0 or seconds <= 0.0:
            return
        self._batches += 1
        number = (rows - 1).bit_length()
        self._sizes.setdefault(number, _Size()).add(self._batches, cost, seconds)
        self._lately.append(number)
        if self._tried is None:
            self._full = self._full + 1 if left_rows > 0 and 2 * rows > self._settled else 0
        self._patience_s += (patience_s - self._patience_s) * (0.1 if self._patience_s else 1.0)
        if self._tried is not None:
            self._judge_trial(self._tried)
        if self._tried is None and self._batches >= self._rests_until and len(self._lately) >= KNOWN_BATCHES:
            self._decide()

    def _judge_trial(self, number: int) -> None:
        """It ends once enough such batches were seen, or none come about."""
        self._tries += 1
        if self._recent(number):
            self._tried = None
        elif self._tries >= 2 * KNOWN_BATCHES:
            self._tried = None
            self._rests_until = self._batches + FRESH_BATCHES

    def _decide(self) -> None:
        now = (self._settled - 1).bit_length()
        used = min(now, max(self._lately))
        if not self._recent(used):
            return
        if used and self._sizes[used].seconds > PATIENCE_SHARE * self._patience_s > 0.0:
            text = f"a batch of {1 << used} takes {self._sizes[used].seconds:.2g} s of {self._patience_s:.2g} s that are given"
            self._enter(used - 1, text)
        elif used == now and self._full >= FULL_BATCHES and 1 << (now + 1) <= self._most and self._grow(now):
            return
        elif used:
            self._shrink(used)

    def _grow(self, now: int) -> bool:
        """Whether something was done."""
        above = now + 1
        if 2.0 * self._sizes[now].seconds > PATIENCE_SHARE * self._patience_s:
            self.why = (
                f"a batch of {1 << above} would take more than half of the {self._patience_s:.2g} s that are given"
            )
            return False
        if not self._fresh(above):
            self._try(above)
            return True
        gain = self._sizes[now].pace / self._sizes[above].pace - 1.0
        if gain < GAIN_MIN:
            return False
        if not self._recent(above):
            self._try(above)
            return True
        self._enter(above, f"{_percent(gain)} more done than in batches of {1 << now}")
        return True

    def _shrink(self, used: int) -> None:
        below = used - 1
        if not self._fresh(below):
            self._try(below)
            return
        best = min(size.pace for number, size in self._sizes.items() if self._fresh(number))
        loss = 1.0 - best / self._sizes[below].pace
        if loss > LOSS_MAX:
            self.why = f"{_percent(loss)} less done in batches of {1 << below}"
        elif not self._recent(below):
            self._try(below)
        else:
            while below and self._recent(below - 1) and best >= self._sizes[below - 1].pace * (1.0 - LOSS_MAX):
                below -= 1
            self._enter(below, f"at most {_percent(1.0 - best / self._sizes[below].pace)} more done in larger batches")

    def _enter(self, number: int, why: str) -> None:
        grows = 1 << number > self._settled
        if self._grew is not None and grows != self._grew:
            self._rest = min(2 * self._rest, REST_BATCHES_MAX)
        self._grew, self._settled, self.why = grows, 1 << number, why
        self._rests_until = self._batches + self._rest
        self._full = 0

    def _try(self, number: int) -> None:
        self._tried, self._tries = number, 0

    def _fresh(self, number: int, batches: int = FRESH_BATCHES) -> bool:
        size = self._sizes.get(number)
        return size is not None and len(size.batches) >= KNOWN_BATCHES and self._batches - size.seen <= batches

    def _recent(self, number: int) -> bool:
        return self._fresh(number, RECENT_BATCHES)


@dataclass(frozen=True, slots=True)
class Written:
    """The limit that the pipeline's file says."""

    rows: int
    why: str = "as written"

    def observe(self, rows: int, cost: float, seconds: float, *, left_rows: int, patience_s: float) -> None:
        """It is what it is."""


class Limits:
    """By batch key, the last KEYS_MAX that were seen; ``rows`` is the last one that somebody asked for."""

    def __init__(self, batch: Batch) -> None:
        self.rows = batch.rows_cut
        self._written = None if batch.rows_max == "auto" else Written(batch.rows_max)
        self._learnt: dict[Hashable, Limit] = {}

    def of(self, key: Hashable) -> Limit | Written:
        if self._written is not None:
            return self._written
        limit = self._learnt.pop(key, None) or Limit()
        self._learnt[key] = limit
        if len(self._learnt) > KEYS_MAX:
            del self._learnt[next(iter(self._learnt))]
        self.rows = limit.rows
        return limit


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f} %"
