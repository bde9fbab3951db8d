"""The cache between cut and queue, of one version: per item, a kept answer, or that of an equal item that runs, or neither.

Single flight: who comes first with an input runs it, and equal items follow. When the one that leads is not answered
(failed, cancelled, shed, too late) the first that still waits runs in its place; nobody fails because somebody else did.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Protocol

from forwardpass.batching.quarantine import Quarantine
from forwardpass.batching.queue import Queue
from forwardpass.batching.ticket import Item, Part, Ticket
from forwardpass.cache.kept import Kept
from forwardpass.cache.key import Keys
from forwardpass.cache.shelf import Shelf, Shelves
from forwardpass.cache.tier import SharedTier
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.off_loop import off_loop
from forwardpass.core.pipeline import Field, Pipeline, Version
from forwardpass.core.request import CacheUse, Request
from forwardpass.core.tensor import Tensor
from forwardpass.execution.exchange import NO_FAILURES
from forwardpass.execution.first_load import machine
from forwardpass.execution.wire import Loaded

LEADERS_MAX = 2
"""That may fail one after the other by what they ran; then whoever follows fails as they did."""
NOT_OF_WHAT_RAN = frozenset((Code.DEADLINE_EXCEEDED, Code.CANCELLED))
"""What a worker says of an item that was late, or that nobody waited for: whoever follows may have more time."""
_NOTHING: Mapping[bytes, Kept] = {}
_Followers = dict[tuple["_Visit", int], Item]


class _Flight:
    """An item that runs, or will, and who waits for it."""

    __slots__ = ("failed", "followers", "item", "key", "purges")

    def __init__(self, key: bytes, item: Item, purges: int, failed: int = 0) -> None:
        self.key = key
        self.item = item
        self.purges = purges  # of the shelf, when it began
        self.failed = failed  # leaders so far, by what they ran
        self.followers: _Followers | None = None  # of most there are none


class _Visit:
    """One request here: which of its items lead, and whom it follows. Its ticket tells it what becomes of them."""

    __slots__ = ("_cache", "follows", "leads", "stores", "succeeded", "ticket")

    def __init__(self, cache: "ItemCache", ticket: Ticket, *, stores: bool) -> None:
        self._cache = cache
        self.ticket = ticket
        self.stores = stores
        self.leads: dict[int, _Flight] = {}
        self.follows: list[tuple[_Followers, int]] | None = None
        self.succeeded: Sequence[Item] = ()  # that run in the place of a leader that it followed

    def landed(self, part: int, result: Part) -> None:
        """A part of it was answered, whether or not anybody waits for it still."""
        flight = self.leads.pop(part, None)
        if flight is not None:
            self._cache.land(flight, result, stores=self.stores)

    def left(self) -> Sequence[Item]:
        """It ended without an answer; returns what has come to run for it in others' place."""
        leads, self.leads = self.leads, {}
        for flight in leads.values():
            self._cache.leave(flight)
        for followers, part in self.follows or ():
            followers.pop((self, part), None)
        return self.succeeded


class Served(Protocol):
    """What the cache needs of the version that it stands before."""

    version: Version
    loaded: Loaded | None
    queue: Queue
    quarantine: Quarantine

    @property
    def ended(self) -> bool: ...


class ItemCache:
    """``enter`` is asked for each request that has been cut, before it queues. ``remove`` ends it.

    ``hits``, ``joined`` and ``misses`` count rows. ``ended`` says that nobody takes from the queue any more.
    """

    def __init__(
        self,
        keys: Keys,
        outputs: Sequence[Field],
        shelf: Shelf,
        tier: SharedTier | None,
        queue: Queue,
        quarantine: Quarantine,
        clock: Clock,
        ended: Callable[[], bool],
    ) -> None:
        self.shelf = shelf
        self.hits = 0
        self.joined = 0
        self.misses = 0
        self._keys = keys
        self._outputs = outputs
        self._tier = tier
        self._queue = queue
        self._quarantine = quarantine
        self._clock = clock
        self._ended = ended
        self._flights: dict[bytes, _Flight] = {}

    async def enter(self, request: Request, ticket: Ticket, items: Sequence[Item]) -> tuple[Sequence[Item], CacheUse]:
        """Those of a request's items that are to run; the others have their answers, or will have somebody else's."""
        if not request.stores and request.age_s_max < 0:
            return self._left_alone(request, items)
        size = sum([item.bytes_total for item in items])
        keys = await off_loop(size, self._keys_of, request.tenant, items)
        found = _NOTHING
        tier = self._tier
        if tier is not None and not tier.away and request.age_s_max >= 0:
            unknown = [key for key in dict.fromkeys(keys) if key not in self.shelf and key not in self._flights]
            if unknown:
                purges = self.shelf.purges
                found = await tier.find(self.shelf.pipeline, unknown, self._clock())
                if purges != self.shelf.purges:  # it may be what was there before
                    found = _NOTHING
        return self._placed(request, ticket, items, keys, found)

    def enter_now(self, request: Request, ticket: Ticket, items: Sequence[Item]) -> tuple[Sequence[Item], CacheUse]:
        """The same of a small request, without what servers share."""
        if not request.stores and request.age_s_max < 0:
            return self._left_alone(request, items)
        return self._placed(request, ticket, items, self._keys_of(request.tenant, items), _NOTHING)

    def land(self, flight: _Flight, result: Part, *, stores: bool) -> None:
        """An item that led was answered: its answer is kept if it is whole, and given to whoever follows."""
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
        if stores and not result.failures and flight.purges == self.shelf.purges:
            self._keep(flight.key, result)
        if flight.followers:
            self._tell(flight, result)

    def leave(self, flight: _Flight) -> None:
        """An item that led is not answered: it failed as a whole, or its request ended for another reason."""
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
        if flight.followers:
            result = flight.item.result
            self._tell(flight, None if result is None or result.failure is None else result)

    def purge(self) -> int:
        """What is kept here goes, and what runs now is not kept; returns how many answers went."""
        return self.shelf.clear()

    def status(self) -> dict[str, float | None]:
        """For the operator; ``oldest_s`` is the age of the oldest answer."""
        shelf, oldest_s = self.shelf, self.shelf.oldest_s()
        return {
            "entries": len(shelf),
            "bytes": shelf.bytes,
            "hits": self.hits,
            "joined": self.joined,
            "misses": self.misses,
            "evicted": shelf.evicted,
            "expired": shelf.expired,
            "ttl_s": shelf.ttl_s,
            "oldest_s": None if oldest_s is None else round(self._clock() - oldest_s, 3),
        }

    def _keys_of(self, tenant: str, items: Sequence[Item]) -> list[bytes]:
        of = self._keys.of
        return [of(tenant, item.columns, item.shapes, item.rows) for item in items]

    def _left_alone(self, request: Request, items: Sequence[Item]) -> tuple[Sequence[Item], CacheUse]:
        self.misses += request.rows
        return items, CacheUse(miss=request.rows)

    def _placed(
        self,
        request: Request,
        ticket: Ticket,
        items: Sequence[Item],
        keys: Sequence[bytes],
        found: Mapping[bytes, Kept],
    ) -> tuple[Sequence[Item], CacheUse]:
        """Nothing is awaited here: who leads and who follows is decided for all items at once."""
        use, running, known = CacheUse(), [], []
        visit = _Visit(self, ticket, stores=request.stores)
        now, shelf, age_s_max = self._clock(), self.shelf, request.age_s_max
        for item, key in zip(items, keys, strict=True):
            kept = shelf.find(key, now, age_s_max) or (
                self._found(key, item.rows, found, now, age_s_max) if found else None
            )
            if kept is not None:
                use.hit += item.rows
                use.age_s_max = max(use.age_s_max, now - kept.made_s)
                known.append((item.part, kept))
            elif age_s_max >= 0 and key in self._flights and self._follows(visit, item, self._flights[key]):
                use.joined += item.rows
            else:
                visit.leads[item.part] = led = _Flight(key, item, shelf.purges)
                if request.stores:
                    self._flights[key] = led
                use.miss += item.rows
                running.append(item)
        self.hits += use.hit
        self.joined += use.joined
        self.misses += use.miss
        if running or visit.follows is not None:
            ticket.sharing = visit
        for part, kept in known:
            ticket.deliver(part, Part(kept.rows, kept.outputs, NO_FAILURES, kept.notes, tokens=kept.tokens))
        return running, use

    def _found(self, key: bytes, rows: int, found: Mapping[bytes, Kept], now: float, age_s_max: float) -> Kept | None:
        """What servers share, if it is young enough; from here on it is kept here too."""
        kept = found.get(key)
        age_s = inf if kept is None else now - kept.made_s
        if kept is None or age_s > age_s_max or age_s >= self.shelf.ttl_s or not self._fits(kept, rows):
            return None
        self.shelf.keep(key, kept, now)
        return kept

    def _fits(self, kept: Kept, rows: int) -> bool:
        """What others wrote is looked at: so many rows of the outputs of this version."""
        fields = self._outputs
        return kept.rows == rows and len(kept.outputs) == len(fields) and all(map(_is_of, kept.outputs, fields))

    def _follows(self, visit: _Visit, item: Item, flight: _Flight) -> bool:
        if not visit.stores or not _may_follow(item, flight.item):
            return False
        if flight.followers is None:
            flight.followers = {}
        flight.followers[visit, item.part] = item
        if visit.follows is None:
            visit.follows = []
        visit.follows.append((flight.followers, item.part))
        return True

    def _keep(self, key: bytes, result: Part) -> None:
        now = self._clock()
        outputs = [Tensor(each.datatype, each.shape, bytes(each.data), each.shapes) for each in result.outputs]
        kept = Kept(result.rows, outputs, result.notes, result.tokens, now)
        self.shelf.keep(key, kept, now)
        if self._tier is not None:
            self._tier.keep(self.shelf.pipeline, key, kept, now, self.shelf.ttl_s)

    def _tell(self, flight: _Flight, result: Part | None) -> None:
        """Those who follow have the leader's result, where it would be theirs too; else one of them runs."""
        followers = flight.followers or {}
        if result is None or not _holds(flight, result):
            # Not at once: what ended the leader may be about to take it out of the queue.
            asyncio.get_running_loop().call_soon(self._succeed, flight)
            return
        flight.followers = None
        for (visit, part), item in list(followers.items()):  # who is told may leave, and takes itself out
            if result.failure is None:
                visit.ticket.deliver(part, result)
            elif visit.ticket.several:  # rows of a request that was cut do not depend on each other
                visit.ticket.deliver(part, Part(0, result.outputs, dict.fromkeys(range(item.rows), result.failure), ()))
            else:
                visit.ticket.finish(result.failure)

    def _succeed(self, flight: _Flight) -> None:
        followers = flight.followers or {}
        while followers:
            (visit, part), item = next(iter(followers.items()))
            del followers[visit, part]
            if visit.ticket.done:
                continue
            successor = _Flight(flight.key, item, self.shelf.purges, flight.failed)
            successor.followers = followers
            try:
                if self._ended():
                    raise Failed(Code.SHUTTING_DOWN, "the version was unloaded", retry_after_s=1.0)
                item.queued_s = self._clock()
                self._quarantine.look(item)
                self._queue.put([item])
            except Failure as failure:  # its own: the next one is looked at by itself
                visit.ticket.finish(failure)
                continue
            visit.leads[part] = successor
            visit.succeeded = [*visit.succeeded, item]
            self._flights.setdefault(flight.key, successor)
            return


def why_not_kept(definition: Pipeline, loaded: Loaded, shelves: Shelves) -> str:
    """ "on", or "off" and why: only what answers the same again is kept."""
    cache = definition.cache
    if cache is None or not cache.enabled:
        return "off"
    if not shelves.bytes_max:
        return "off: cache.bytes_max of the server is 0"
    if loaded.signature.batched and definition.batch.enabled:
        if not loaded.independent:
            return f"off: {loaded.reason}"
        if not loaded.bitwise and not cache.approximate:
            apart = f"batching changes the last bits of an answer (by {loaded.max_difference:.2g})"
            return f"off: {apart}; cache.approximate = true keeps answers all the same"
    return "on"


def item_cache(of: "Served", shelves: Shelves, clock: Clock) -> ItemCache:
    """That of a version which is loaded and whose cache is on."""
    version, cache, loaded = of.version, of.version.definition.cache, of.loaded
    assert cache is not None and loaded is not None, "its cache is on"
    around = tuple(machine()) if shelves.tier is not None else ()
    keys = Keys(version, loaded.signature, loaded.settings, together=cache.shared, machine=around)
    shelf = shelves.add(version.pipeline, version.number, cache.bytes_max, cache.ttl_s)
    return ItemCache(
        keys, loaded.signature.outputs, shelf, shelves.tier, of.queue, of.quarantine, clock, lambda: of.ended
    )


def _holds(flight: _Flight, result: Part) -> bool:
    """Whether it is what every equal item has: an answer, a refusal, or the failure of one leader too many."""
    failures = result.failures.values() if result.failure is None else (result.failure,)
    ours = [each.code for each in failures if not isinstance(each, Refused)]
    if not NOT_OF_WHAT_RAN.isdisjoint(ours):
        return False
    flight.failed += bool(ours)
    return not ours or flight.failed >= LEADERS_MAX


def _is_of(tensor: Tensor, field: Field) -> bool:
    """Whether it has the datatype and the shape of an output."""
    row = tensor.shape[1:]
    return (
        tensor.datatype == field.datatype
        and len(row) == len(field.shape)
        and all(size in (found, -1) for size, found in zip(field.shape, row, strict=True))
    )


def _may_follow(item: Item, leader: Item) -> bool:
    """Whether it loses nothing by that: one that waits behind what it would be before runs by itself."""
    if leader.ticket.done:
        return False
    if leader.taken:
        return True
    urgent = (item.priority, item.ticket.deadline) < (leader.priority, leader.ticket.deadline)
    return leader.tenant == item.tenant and not urgent
