"""Inputs that killed a worker twice: refused for a time, by digest, before they can do it again."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from forwardpass.batching.ticket import Item
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Refused
from forwardpass.core.tensor import Buffer

ENTRIES_MAX = 10_000


def digest(columns: Sequence[Buffer], shapes: Sequence[tuple[int, ...]], rows: int) -> bytes:
    """sha256 over what the worker would see, lengths framed so that no two inputs share one."""
    hashed = hashlib.sha256(rows.to_bytes(8, "little"))
    for column, shape in zip(columns, shapes, strict=True):
        hashed.update(repr((len(column), shape)).encode())
        hashed.update(column)
    return hashed.digest()


class Quarantine:
    """Bounded in entries and time; ``check`` costs nothing while it is empty."""

    def __init__(self, period_s: float, clock: Clock) -> None:
        self._period_s = period_s
        self._clock = clock
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        self._expire()
        return len(self._until)

    def add(self, columns: Sequence[Buffer], shapes: Sequence[tuple[int, ...]], rows: int) -> None:
        key = digest(columns, shapes, rows)
        self._until[key] = self._clock() + self._period_s
        self._until.move_to_end(key)
        if len(self._until) > ENTRIES_MAX:
            self._until.popitem(last=False)

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
        """All stay equally long, so whoever is over is in front."""
        if not self._until:
            return
        now = self._clock()
        while self._until and next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)


def _same(item: Item, other: Item) -> bool:
    """The same input, found without a digest: most differ in their sizes or first bytes, and the event loop waits."""
    if (item.rows, item.shapes, len(item.columns)) != (other.rows, other.shapes, len(other.columns)):
        return False
    return all(len(a) == len(b) and a == b for a, b in zip(item.columns, other.columns, strict=True))


def _refusal() -> Refused:
    return Refused(Code.QUARANTINED, "this input ended two workers and is refused for a time")
