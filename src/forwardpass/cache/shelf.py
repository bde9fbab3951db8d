"""Where answers are kept in memory: one shelf for each version, bounded in bytes and in time, and one bound for all."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import islice
from math import inf

from forwardpass.cache.kept import Kept
from forwardpass.cache.tier import SharedTier

BYTES_MAX = 256 * 1024 * 1024
"""Of all versions together, where nobody says otherwise."""
LOOKED_AT = 10_000
SWEPT = 2
"""Entries that nobody asked for the longest, looked at whenever one is added: whether their time is over."""


class Shelf:
    """The answers of one version, the one last asked for at the end. Made and removed by ``Shelves``."""

    def __init__(self, shelves: "Shelves", pipeline: str, number: int, bytes_max: int, ttl_s: float) -> None:
        self.pipeline = pipeline
        self.number = number
        self.bytes = 0
        self.evicted = 0  # for want of room
        self.expired = 0
        self.purges = 0
        self._shelves = shelves
        self._bytes_max = bytes_max
        self._entry_bytes_max = min(bytes_max, shelves.bytes_max)
        self.ttl_s = ttl_s
        self._entries: OrderedDict[bytes, Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries

    def find(self, key: bytes, now: float, age_s_max: float = inf) -> Kept | None:
        """What is kept, unless its time is over or it is older than the caller wants; the age itself is still allowed."""
        found = self._entries.get(key)
        if found is None:
            return None
        age_s = now - found.made_s
        if age_s >= self.ttl_s:
            self.expired += 1
            self._drop(key)
            return None
        if age_s > age_s_max:
            return None
        self._entries.move_to_end(key)
        return found

    def keep(self, key: bytes, kept: Kept, now: float) -> None:
        """Keep it; others go for it. One that alone is too large, or too old, is not kept."""
        entries, size = self._entries, kept.bytes_total
        if key in entries:
            self._drop(key)
        if size > self._entry_bytes_max or now - kept.made_s >= self.ttl_s:
            return
        for _ in range(min(SWEPT, len(entries))):
            oldest = next(iter(entries))
            if now - entries[oldest].made_s < self.ttl_s:
                break
            self.expired += 1
            self._drop(oldest)
        while self.bytes + size > self._bytes_max:
            self.evict()
        entries[key] = kept
        self.bytes += size
        self._shelves.took(size)

    def evict(self) -> None:
        """The one that nobody asked for the longest goes."""
        self.evicted += 1
        _, gone = self._entries.popitem(last=False)
        self.bytes -= gone.bytes_total
        self._shelves.bytes -= gone.bytes_total

    def clear(self) -> int:
        """All go, and what is being computed now is not kept either; returns how many those were."""
        count = len(self._entries)
        self._entries.clear()
        self._shelves.bytes -= self.bytes
        self.bytes = 0
        self.purges += 1
        return count

    def close(self) -> None:
        """Nothing is kept from now on."""
        self._entry_bytes_max = -1
        self.clear()

    def oldest_s(self) -> float | None:
        """When the oldest was made, of those LOOKED_AT that nobody asked for the longest."""
        return min([kept.made_s for kept in islice(self._entries.values(), LOOKED_AT)], default=None)

    def _drop(self, key: bytes) -> None:
        size = self._entries.pop(key).bytes_total
        self.bytes -= size
        self._shelves.bytes -= size


class Shelves:
    """All of a server's, with one bound on their bytes; past it the largest shelf gives way. 0 bytes: nothing is kept.

    ``tier`` is what servers share, if they do.
    """

    def __init__(self, bytes_max: int = BYTES_MAX, tier: SharedTier | None = None) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.tier = tier
        self._shelves: list[Shelf] = []

    def __iter__(self) -> Iterator[Shelf]:
        return iter(self._shelves)

    def opened(self) -> AbstractAsyncContextManager[None]:
        """What servers share is reached in here only."""
        return nullcontext() if self.tier is None else self.tier.opened()

    def add(self, pipeline: str, number: int, bytes_max: int, ttl_s: float) -> Shelf:
        """An empty one, until it is removed."""
        shelf = Shelf(self, pipeline, number, bytes_max, ttl_s)
        self._shelves.append(shelf)
        return shelf

    def remove(self, shelf: Shelf) -> None:
        """Its version is gone, and its answers with it."""
        shelf.close()
        self._shelves.remove(shelf)

    def took(self, size: int) -> None:
        """A shelf has so many bytes more than before."""
        self.bytes += size
        while self.bytes > self.bytes_max:
            max(self._shelves, key=lambda shelf: shelf.bytes).evict()

    def shrink(self) -> int:
        """Of each shelf the half goes that nobody asked for the longest; returns how many entries those were."""
        dropped = 0
        for shelf in self._shelves:
            half = (len(shelf) + 1) // 2
            dropped += half
            for _ in range(half):
                shelf.evict()
        return dropped
