"""How many rows a batch may have, where nobody wrote it down: learnt from what batches of each size took.

A larger batch is worth its longer wait only where it gets more done in the same time. A line through what two sizes took,
one about four times the other, says how much more that is (a + b · cost). The limit doubles where batches of twice as
many rows get GAIN_MIN more done, and halves where those of half as many get at most LOSS_MAX less done, or where a batch
takes too much of the time that callers give. What is not known for that is tried for a few batches. Between the two lies
a gap, and after each change of direction it rests four times as long: it follows a model that changes, and does not swing.
"""

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from forwardpass.core.pipeline import ROWS_AT_FIRST, Batch

ROWS_MOST = 128
"""What a learnt limit never passes: beyond that even the cheapest rows gain next to nothing from company."""
HAND_OFF_S = 0.0001
"""What a batch costs the front and the way to the worker and back, about, besides what the worker says of it."""
GAIN_MIN = 0.08
LOSS_MAX = 0.04
CONTRADICTED = 1.1
"""No step to a size that was seen to take so many times as long for the same work: times need not lie on a line."""
PATIENCE_SHARE = 0.5
"""A batch takes at most so much of the time that callers give: what came just after the last one left waits for it, too."""
FULL_BATCHES = 4
"""In a row that were full and left some behind, before the limit grows."""
KNOWN_BATCHES = 8
KEPT_BATCHES = 24
MEDIANS_EVERY = 4
"""Of one size, once KNOWN_BATCHES are known: to sort and to decide after each costs more than it tells."""
RECENT_BATCHES = 64
"""What was seen last so many batches ago is no reason for a change: it is tried again before."""
ANOTHER_PACE = 1.5
"""So many times as fast or as slow as just before, by the median, a model is another one."""
VAIN_BATCHES = 200
"""So long it does not grow again to a size that had hardly got more done."""
FRESH_BATCHES = 512
"""What was seen last so many batches ago is tried again in any case."""
REST_BATCHES = 8
REST_BATCHES_MAX = 4096
KEYS_MAX = 32


@dataclass(slots=True)
class _Size:
    """Batches of more than half of ``1 << n`` rows and no more than that: what they cost and took, by their medians."""

    batches: deque[tuple[float, float, float]] = field(default_factory=lambda: deque(maxlen=KEPT_BATCHES))
    cost: float = 0.0
    pace: float = 0.0  # seconds for each unit of cost
    seconds: float = 0.0
    seen: int = 0  # the number of the last of them
    _unsorted: int = 0

    def add(self, number: int, cost: float, seconds: float) -> bool:
        """Whether the medians are new."""
        if number - self.seen > RECENT_BATCHES:
            self.batches.clear()
        self.seen = number
        self.batches.append((cost, seconds / cost, seconds))
        self._unsorted += 1
        if self._unsorted < MEDIANS_EVERY and len(self.batches) > KNOWN_BATCHES:
            return False
        self._unsorted, middle = 0, len(self.batches) // 2
        costs, paces, times = zip(*self.batches, strict=True)
        self.cost, self.pace, self.seconds = sorted(costs)[middle], sorted(paces)[middle], sorted(times)[middle]
        return True


@dataclass(frozen=True, slots=True)
class Line:
    """A batch takes ``fixed_s`` for itself and ``per_cost_s`` for each unit of what its rows cost."""

    fixed_s: float
    per_cost_s: float

    def pace(self, cost: float) -> float:
        return max(self.fixed_s, 0.0) / cost + max(self.per_cost_s, 0.0)


class Limit:
    """Of one batch key. ``rows`` is the limit now, and ``why`` says in words why it is that one."""

    def __init__(self, rows: int = ROWS_AT_FIRST, most: int = ROWS_MOST) -> None:
        self.why = "what it begins with"
        self.rows = rows
        self._settled_why = self.why
        self._size = (rows - 1).bit_length()
        self._size_most = (most - 1).bit_length()
        self._sizes: dict[int, _Size] = {}
        self._batches = 0
        self._lately: deque[int] = deque(maxlen=KEPT_BATCHES)  # sizes of the last batches
        self._full = 0
        self._tried: int | None = None
        self._tries = 0
        self._rests_until = 0
        self._rest = REST_BATCHES
        self._grew: bool | None = None
        self._patience_s = 0.0
        self._none_smaller_until = 0  # requests have so many rows that a smaller batch does not come about

    @property
    def settled(self) -> int:
        """What it is when no other size is tried."""
        return 1 << self._size

    def observe(self, rows: int, cost: float, seconds: float, *, left_rows: int, patience_s: float) -> None:
        """A batch ran in so many seconds, and ``left_rows`` waited still; its callers gave it ``patience_s``."""
        if cost <= 0.0 or seconds <= 0.0:
            return
        self._batches += 1
        size = (rows - 1).bit_length()
        seen = self._sizes.get(size)
        if seen is None:
            seen = self._sizes[size] = _Size()
        before = seen.pace if len(seen.batches) >= KNOWN_BATCHES else 0.0
        news = seen.add(self._batches, cost, seconds + HAND_OFF_S)
        if before and not before / ANOTHER_PACE < seen.pace < before * ANOTHER_PACE:
            self._begin_anew(size, seen)
        self._patience_s += (patience_s - self._patience_s) * (0.1 if self._patience_s else 1.0)
        if self._tried is not None:
            self._judge_trial(self._tried)
            return
        self._lately.append(size)
        self._full = self._full + 1 if left_rows > 0 and size >= self._size else 0
        if news and self._batches >= self._rests_until:
            used = max(self._lately)  # one that is larger than the limit is a request that is
            self._decide(used if used <= self._size else max(self._size, min(self._lately)))

    def _begin_anew(self, size: int, seen: _Size) -> None:
        """The model is another one now, or its machine: what was seen of other sizes says nothing any more."""
        self._sizes = {size: seen}
        self._rest, self._rests_until = REST_BATCHES, self._batches

    def _judge_trial(self, size: int) -> None:
        """It ends once enough such batches were seen, or none come about."""
        self._tries += 1
        if self._tries >= KNOWN_BATCHES and self._recent(size):
            self._end_trial()
        elif self._tries >= 2 * KNOWN_BATCHES:
            self._end_trial()
            if size < max(self._lately):
                self._none_smaller_until = self._batches + FRESH_BATCHES
            else:
                self._rests_until = self._batches + FRESH_BATCHES

    def _decide(self, used: int) -> None:
        """``used`` is the largest size that came about lately, or the limit; more than that where each request is."""
        if not self._recent(used):
            return
        if 0 < used <= self._size and self._share_of_time(used) > 1.0:
            self._enter(
                used - 1, f"a batch of {1 << used} takes over half of the {self._patience_s:.2g} s that callers give"
            )
            return
        full = self._size <= used < self._size_most and self._full >= FULL_BATCHES
        if not used and not full:
            return
        lever = self._lever(used, full=full)
        if lever is None:
            return
        if not self._fresh(lever):
            self._try(lever)
            return
        found = self._better(used, self._line(lever, used), full=full)
        if found is None:
            return
        size, why = found
        if not self._recent(lever):
            self._try(lever)
        else:
            self._enter(size, why)

    def _lever(self, used: int, *, full: bool) -> int | None:
        """The other size, to draw a line through both: about a quarter, or what is next to it where none is so small."""
        if self._batches >= self._none_smaller_until:
            return max(0, used - 2) if used else 1
        seen = [size for size in (used - 1, used + 1) if self._fresh(size)]
        if seen:
            return seen[0]
        return used + 1 if full and 2.0 * self._share_of_time(used) <= 1.0 else None

    def _better(self, used: int, line: Line, *, full: bool) -> tuple[int, str] | None:
        """A better size, and why. Where there is none, ``why`` says it of this one."""
        cost = self._sizes[used].cost
        pace = line.pace(cost)
        gain = pace / line.pace(2.0 * cost) - 1.0
        loss = 1.0 - pace / line.pace(cost / 2.0)
        if full and gain >= GAIN_MIN and not self._grew_in_vain(used):
            if 2.0 * self._share_of_time(used) <= 1.0:
                return used + 1, f"{_percent(gain)} more done than in batches of {1 << used}"
            self.why = f"a batch of {2 << used} would take over half of the {self._patience_s:.2g} s that callers give"
            return None
        if 0 < used <= self._size and loss <= LOSS_MAX and not self._contradicted(used, used - 1):
            return used - 1, f"at most {_percent(2.0 * loss)} more done in larger batches"
        if used < self._size:
            self.why = (
                f"no more than {1 << used} wait, and {_percent(loss)} less would be done in batches of half as many"
            )
        elif used:
            self.why = f"{_percent(loss)} less done in batches of half as many"
        else:
            self.why = f"only {_percent(gain)} more done in batches of 2"
        return None

    def _line(self, lever: int, used: int) -> Line:
        low, high = self._sizes[lever], self._sizes[used]
        if low.cost == high.cost:  # costs need not follow rows
            return Line(0.0, high.pace)
        per_cost_s = (high.pace * high.cost - low.pace * low.cost) / (high.cost - low.cost)
        return Line(high.cost * (high.pace - per_cost_s), per_cost_s)

    def _grew_in_vain(self, used: int) -> bool:
        """Whether batches of twice as many were seen to get hardly more done, whatever the line says."""
        above = self._sizes.get(used + 1)
        return (
            above is not None
            and self._fresh(used + 1, VAIN_BATCHES)
            and above.pace * (1.0 + GAIN_MIN) > self._sizes[used].pace
        )

    def _contradicted(self, used: int, other: int) -> bool:
        return self._recent(other) and self._sizes[other].pace > CONTRADICTED * self._sizes[used].pace

    def _share_of_time(self, size: int) -> float:
        """Of what a batch may take of the time that callers give."""
        return self._sizes[size].seconds / (PATIENCE_SHARE * self._patience_s) if self._patience_s > 0.0 else 0.0

    def _enter(self, size: int, why: str) -> None:
        grows = size > self._size
        if self._batches > self._rests_until + REST_BATCHES_MAX:
            self._rest = REST_BATCHES
        elif self._grew is not None and grows != self._grew:
            self._rest = min(4 * self._rest, REST_BATCHES_MAX)
        self._grew, self._size, self.why, self.rows = grows, size, why, 1 << size
        self._rests_until = self._batches + self._rest
        self._full = 0
        self._lately.clear()

    def _try(self, size: int) -> None:
        self._tried, self._tries, self._full, self.rows = size, 0, 0, 1 << size
        self._settled_why, self.why = self.why, f"tried, to compare it with {self.settled}"

    def _end_trial(self) -> None:
        self._tried, self.rows, self.why = None, self.settled, self._settled_why

    def _fresh(self, size: int, batches: int = FRESH_BATCHES) -> bool:
        found = self._sizes.get(size)
        return found is not None and len(found.batches) >= KNOWN_BATCHES and self._batches - found.seen <= batches

    def _recent(self, size: int) -> bool:
        return self._fresh(size, RECENT_BATCHES)


@dataclass(frozen=True, slots=True)
class Written:
    """The limit that the pipeline's file says."""

    rows: int
    why: str = "as written"


class Limits:
    """By batch key, the last KEYS_MAX that were seen; ``rows`` is the last one that somebody asked for."""

    def __init__(self, batch: Batch) -> None:
        self.rows = batch.rows_cut
        self._written = None if batch.rows_max == "auto" else Written(batch.rows_max)
        self._learnt: dict[Hashable, Limit] = {}
        self._last: Limit | None = None  # that somebody asked for, and by which key: most often the next one, too
        self._last_key: Hashable = None

    def observe(
        self, key: Hashable, rows: int, cost: float, seconds: float, *, left_rows: int, patience_s: float
    ) -> None:
        """See ``Limit.observe``."""
        if self._written is None:
            limit = self._learnt.get(key) or self._learn(key)
            limit.observe(rows, cost, seconds, left_rows=left_rows, patience_s=patience_s)

    def of(self, key: Hashable) -> Limit | Written:
        if self._written is not None:
            return self._written
        limit = self._last if self._last is not None and key == self._last_key else self._learn(key)
        self.rows = limit.rows
        return limit

    def _learn(self, key: Hashable) -> Limit:
        limit = self._learnt.pop(key, None) or Limit()
        self._learnt[key] = self._last = limit
        self._last_key = key
        if len(self._learnt) > KEYS_MAX:
            del self._learnt[next(iter(self._learnt))]
        return limit


def _percent(share: float) -> str:
    return f"{100.0 * max(share, 0.0):.0f} %"
