"""Inputs that killed a worker twice: refused for a time, by digest, before they can do it again.

With those that may have: of a batch that ran for ever nobody knows which of its members did. Each of them runs by itself
when it comes again; one that is lost then is the one to blame, one that is answered is cleared. How long one ran by itself
is remembered, and it is refused where there is far less time.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import count

from forwardpass.batching.forecast import retry_after_s
from forwardpass.batching.ticket import Item
from forwardpass.core.clock import Clock, random_bytes
from forwardpass.core.errors import Code, Failed, Refused
from forwardpass.core.tensor import Buffer

ENTRIES_MAX = 10_000
SLOW_MIN_S = 1.0
SLOW_KEPT_S = 60.0
SLOW_SHARE = 0.5  # of the time that an input took: with less than that left, it is not begun again
HASHED_BYTES_MAX = (
    1024 * 1024
)  # of an input of a size that nothing kept has; a digest of more would hold the event loop up
_KEY = random_bytes(32)  # so that a digest in a log tells nobody what was sent, not even of a yes or a no


def digest(columns: Sequence[Buffer], shapes: Sequence[tuple[int, ...]], rows: int) -> bytes:
    """sha256 over what the worker would see, lengths framed so that no two inputs share one; with a key of this process."""
    hashed = hashlib.sha256(_KEY + rows.to_bytes(8, "little"))
    for column, shape in zip(columns, shapes, strict=True):
        hashed.update(repr((len(column), shape)).encode())
        hashed.update(column)
    return hashed.digest()


_Kept = OrderedDict[bytes, tuple[float, float]]  # until when, and how long it took


class Quarantine:
    """Bounded in entries and time; ``check`` and ``look`` cost nothing while it is empty. Its length is what is refused."""

    def __init__(self, period_s: float, clock: Clock) -> None:
        self._period_s = period_s
        self._clock = clock
        self._until: _Kept = OrderedDict()
        self._suspects: _Kept = OrderedDict()
        self._slow: _Kept = OrderedDict()
        self._large: dict[int, None] = {}  # sizes over HASHED_BYTES_MAX of what is kept, or was
        self._ids = count(1)

    def __len__(self) -> int:
        self._expire()
        return len(self._until)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to look for."""
        return not (self._until or self._suspects or self._slow)

    def add(self, columns: Sequence[Buffer], shapes: Sequence[tuple[int, ...]], rows: int) -> None:
        self._note_size(sum([len(column) for column in columns]))
        self._keep(self._until, digest(columns, shapes, rows))

    def suspect(self, digests: Iterable[bytes]) -> None:
        """Of the members of a batch that was ended for nobody: one of them may never end."""
        for each in digests:
            self._keep(self._suspects, each)

    def suspect_rows(self, items: Sequence[Item]) -> None:
        """Of requests that came as one, when a worker died with them."""
        self.suspect([digest(*each) for item in items for each in _inputs(item)])

    async def suspect_all(self, items: Sequence[Item], ran_s: float) -> None:
        """These ran for so long in a batch that was ended for nobody: nobody is blamed, but they are remembered."""
        inputs = [each for item in items for each in _inputs(item)]
        digests = await asyncio.to_thread(lambda: [digest(*each) for each in inputs])
        for item in items:
            self._note_size(item.bytes_total)
        self.suspect(digests)
        if len(digests) == 1:
            self.slow(digests[0], ran_s)

    def clear(self, item: Item, took_s: float) -> None:
        """It was answered, when it ran by itself."""
        key = digest(item.columns, item.shapes, item.rows)
        self._note_size(item.bytes_total)
        self._suspects.pop(key, None)
        self.slow(key, took_s)

    def slow(self, key: bytes, took_s: float) -> None:
        """An input ran by itself for so long, answered or not."""
        if took_s >= SLOW_MIN_S:
            self._keep(self._slow, key, took_s, min(SLOW_KEPT_S, self._period_s))
        else:
            self._slow.pop(key, None)

    def look(self, item: Item) -> None:
        """Before it queues; one that is suspect is marked so.

        Raises Refused quarantined for an input that is in, Failed queue_wait_too_long for one that took far longer alone
        than its caller waits.
        """
        self._expire()
        if self.empty:
            return
        if item.bytes_total > HASHED_BYTES_MAX and item.bytes_total not in self._large:
            return
        key = digest(item.columns, item.shapes, item.rows)
        if key in self._until:
            raise _refusal()
        _, took_s = self._slow.get(key, (0.0, 0.0))
        left_s = item.ticket.deadline - self._clock()
        if left_s < SLOW_SHARE * took_s:
            text = f"deadline: this input took {took_s:.3f} s by itself; {max(0.0, left_s):.3f} s are left"
            raise Failed(Code.QUEUE_WAIT_TOO_LONG, text, retry_after_s=retry_after_s(took_s))
        if key in self._suspects:
            item.suspect = True
            item.key = ("suspect", next(self._ids))

    def check(self, columns: Sequence[Buffer], shapes: Sequence[tuple[int, ...]], rows: int) -> None:
        """Raises Refused quarantined for an input that is in."""
        self._expire()
        if self._until and digest(columns, shapes, rows) in self._until:
            raise _refusal()

    def end(self, killer: Item, items: Iterable[Item]) -> list[Item]:
        """Refuse those of these that are as the killer, and say which: they came before its input was known."""
        refused = [item for item in items if _same(item, killer)]
        for item in refused:
            item.ticket.finish(_refusal())
        return refused

    def _expire(self) -> None:
        """All of one kind stay equally long, so whoever is over is in front."""
        if self.empty:
            return
        now = self._clock()
        for kept in (self._until, self._suspects, self._slow):
            while kept and next(iter(kept.values()))[0] <= now:
                kept.popitem(last=False)

    def _note_size(self, size: int) -> None:
        if size > HASHED_BYTES_MAX:
            self._large[size] = None
            if len(self._large) > ENTRIES_MAX:
                del self._large[next(iter(self._large))]

    def _keep(self, kept: "_Kept", key: bytes, took_s: float = 0.0, period_s: float | None = None) -> None:
        kept[key] = self._clock() + (self._period_s if period_s is None else period_s), took_s
        kept.move_to_end(key)
        if len(kept) > ENTRIES_MAX:
            kept.popitem(last=False)


def _inputs(item: Item) -> list[tuple[Sequence[Buffer], Sequence[tuple[int, ...]], int]]:
    """What each request sent."""
    if item.requests == 1:
        return [(item.columns, item.shapes, item.rows)]
    views = [memoryview(column) for column in item.columns]
    sizes = [len(view) // item.rows for view in views]
    return [
        ([view[row * size : (row + 1) * size] for view, size in zip(views, sizes, strict=True)], item.shapes, 1)
        for row in range(item.rows)
    ]


def _same(item: Item, other: Item) -> bool:
    """The same input, found without a digest: most differ in their sizes or first bytes, and the event loop waits."""
    if (item.rows, item.shapes, len(item.columns)) != (other.rows, other.shapes, len(other.columns)):
        return False
    return all(len(a) == len(b) and a == b for a, b in zip(item.columns, other.columns, strict=True))


def _refusal() -> Refused:
    return Refused(Code.QUARANTINED, "this input ended two workers and is refused for a time")
