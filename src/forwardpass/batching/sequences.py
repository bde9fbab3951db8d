"""Whose turn it is in each sequence, and which worker holds what is kept of it.

Requests of one sequence run one at a time, in the order they came, in the worker that has its state. A request that
fails changes nothing; one that ran and whose end nobody knows loses the sequence, because its state is unknown then.
The table is bounded; what is idle for too long is forgotten when somebody next looks.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from forwardpass.batching.ticket import Held, Item, Part
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed, Failure, Refused, show
from forwardpass.core.pipeline import Sequences
from forwardpass.core.request import Request, Turn

WAITING_MAX = 16
"""Requests of one sequence that wait for their turn."""

RETRY_MIN_S = 0.1

Key = tuple[str, str]
"""(tenant, the id it chose): nobody meets another's sequence by guessing."""


class Holder(Protocol):
    """A worker as the table sees it; what it held is gone when it has died once more."""

    index: int
    deaths: int
    given_up: list[int]
    """Numbers of sequences that it need not keep any longer; it is told with its next batch."""

    @property
    def ready(self) -> bool: ...


@dataclass(slots=True)
class _Sequence:
    number: int = 0  # by which the worker knows it; another one whenever what the worker may hold must not count
    worker: int | None = None
    deaths: int = 0  # of its worker, when the state was left there
    kept: bool = False  # the worker has its state
    lost: bool = False  # there was a state, and it is gone
    busy: bool = False
    starting: bool = False  # the request that is in starts it
    begun: int = 0  # its last start that counts, of all in the table
    used_s: float = 0.0
    waiting: "deque[asyncio.Future[None]]" = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class Visit:
    """One request's turn, from ``SequenceTable.enter`` to ``leave``."""

    key: Key
    turn: Turn
    sequence: _Sequence
    item: Item


class SequenceTable:
    """The sequences of one variant; without ``limits`` it keeps none and refuses every request that names one."""

    def __init__(self, limits: Sequences | None, holders: Sequence[Holder], clock: Clock) -> None:
        self._limits = limits
        self._holders = holders
        self._clock = clock
        self._table: OrderedDict[Key, _Sequence] = OrderedDict()  # the least lately used first
        self._numbers = count(1)
        self._starts = count(1)
        self._held = [0] * len(holders)  # in the table, by worker
        self._lost = False  # one or more in the table are
        self._deaths = sum(holder.deaths for holder in holders)

    def __len__(self) -> int:
        return len(self._table)

    def live(self) -> int:
        """How many go on: of those in the table none that is lost, nor one that was idle for too long."""
        if self._limits is None:
            return 0
        self._forget_idle(self._clock(), self._limits.idle_s)
        if not self._some_lost():
            return len(self._table)
        return sum(not (each.lost or (each.kept and self._died(each))) for each in self._table.values())

    async def enter(self, request: Request, turn: Turn, items: Sequence[Item]) -> Visit:
        """Wait for the request's turn and pin its only item to the worker that holds the sequence; ``leave`` it then.

        Raises Refused unknown_field, batch_too_large, sequence_not_found; Failed sequences_full, sequence_lost,
        queue_full, deadline_exceeded.
        """
        limits = self.limits_here()
        if request.rows != 1:
            text = f"sequence_id: a request of a sequence has 1 row; {request.rows} were sent"
            raise Refused(Code.BATCH_TOO_LARGE, text, field="sequence_id")
        (item,) = items
        key = (request.tenant, turn.id)
        sequence = self._find(key, turn, limits)
        await self._own(key, sequence, item.ticket.deadline)
        try:
            item.held = self._begin(turn, sequence, limits)
        except Failure:
            self._pass_on(key, sequence)
            raise
        item.key = (item.held.worker, item.key)
        item.queued_s = self._use(key, sequence)
        return Visit(key, turn, sequence, item)

    def leave(self, visit: Visit, *, answered: bool) -> int:
        """The request has ended, and the caller has been ``answered`` or not; the next of its sequence has its turn.

        Returns which start of its sequence it counts for (``Request.begun``).

        What ran for nobody's answer (a deadline, a caller who left) loses the sequence: whoever goes on would not know
        whether it counted.
        """
        sequence, item, part = visit.sequence, visit.item, visit.item.result
        if item.taken:
            succeeded = part is not None and part.failure is None and not part.failures
            if part is None or _says_lost(part) or (succeeded and not answered):
                self._lose(sequence)
            elif succeeded:
                assert sequence.worker is not None, "it has run somewhere"
                if visit.turn.start:
                    sequence.begun, sequence.lost = next(self._starts), False
                sequence.kept = not visit.turn.end and not sequence.lost
                sequence.deaths = self._holders[sequence.worker].deaths
        if sequence.kept and sequence.lost:  # the one before was untold, and this one did not start it anew
            self._lose(sequence)
        self._use(visit.key, sequence)
        self._pass_on(visit.key, sequence)
        return sequence.begun

    def untold(self, request: Request) -> None:
        """The answer of a request that has left could not be told, so it failed: its sequence is lost.

        One that was started anew meanwhile goes on: nothing of that answer is in it.
        """
        turn = request.sequence
        sequence = None if turn is None else self._table.get((request.tenant, turn.id))
        if sequence is None or not sequence.kept or sequence.begun != request.begun:
            return
        if sequence.busy and sequence.starting:
            sequence.lost = True  # unless the start that runs now has an answer
        else:
            self._lose(sequence)

    async def end(self, request: Request, deadline: float) -> None:
        """Give up the request's sequence, whether it goes on or is lost, after those of its requests that are here.

        Raises Refused unknown_field, sequence_not_found; Failed queue_full, deadline_exceeded.
        """
        limits, turn = self.limits_here(), request.sequence
        assert turn is not None, "it names a sequence"
        key = (request.tenant, turn.id)
        sequence = self._find(key, Turn(turn.id), limits)
        await self._own(key, sequence, deadline)
        there = sequence.kept or sequence.lost
        if sequence.kept:
            self._give_up(sequence)
        sequence.kept = sequence.lost = False
        self._pass_on(key, sequence)
        if not there:  # the one before was its last
            raise _not_found(turn, limits)

    def limits_here(self) -> Sequences:
        """Raises Refused unknown_field where no sequences are kept."""
        if self._limits is None:
            text = "sequence_id: this pipeline keeps nothing from one request to the next (it has no [sequence])"
            raise Refused(Code.UNKNOWN_FIELD, text, field="sequence_id")
        return self._limits

    def _find(self, key: Key, turn: Turn, limits: Sequences) -> _Sequence:
        """The sequence as it stands in the table; a request that starts one gets it a place there."""
        now = self._clock()
        self._forget_idle(now, limits.idle_s)
        sequence = self._table.get(key)
        if sequence is not None:
            return sequence
        if not turn.start:
            raise _not_found(turn, limits)
        if len(self._table) >= limits.sequences_max:
            self._forget_lost()
        if len(self._table) >= limits.sequences_max:
            text = f"sequence.sequences_max: {limits.sequences_max} sequences are kept already, and no more are allowed"
            oldest = next(iter(self._table.values()))
            left_s = max(RETRY_MIN_S, limits.idle_s - (now - oldest.used_s))
            raise Failed(Code.SEQUENCES_FULL, text, retry_after_s=left_s)
        sequence = self._table[key] = _Sequence(used_s=now)
        return sequence

    async def _own(self, key: Key, sequence: _Sequence, deadline: float) -> None:
        """Until no other request of the sequence is in; whoever owns it must pass it on."""
        if not sequence.busy:
            sequence.busy = True
            return
        if len(sequence.waiting) >= WAITING_MAX:
            text = f"{WAITING_MAX} requests of this sequence wait for their turn, and no more are allowed"
            raise Failed(Code.QUEUE_FULL, text, field="sequence_id", retry_after_s=RETRY_MIN_S)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sequence.waiting.append(waiter)
        owned = False
        try:
            await asyncio.wait((waiter,), timeout=max(0.0, deadline - self._clock()))
            owned = waiter.done()
        finally:
            if not waiter.done():
                sequence.waiting.remove(waiter)
            elif not owned:  # its turn came while it was being cancelled
                self._pass_on(key, sequence)
        if not owned:
            text = "the deadline passed while requests before it in its sequence ran"
            raise Failed(Code.DEADLINE_EXCEEDED, text)

    def _begin(self, turn: Turn, sequence: _Sequence, limits: Sequences) -> Held:
        """Where this turn runs. Raises when there is nothing that it could continue."""
        if sequence.kept and self._died(sequence):
            self._lose(sequence)
        if turn.start:
            sequence.lost = False
            if not sequence.kept:
                sequence.number = next(self._numbers)
                self._place(sequence, self._freest())
        elif sequence.lost:
            raise lost()
        elif not sequence.kept:
            raise _not_found(turn, limits)
        assert sequence.worker is not None, "it was started"
        sequence.starting = turn.start
        return Held(sequence.worker, sequence.number, turn.start, turn.end)

    def _pass_on(self, key: Key, sequence: _Sequence) -> None:
        assert sequence.busy, "only its owner passes it on"
        if sequence.waiting:
            sequence.waiting.popleft().set_result(None)
            return
        sequence.busy = False
        if not sequence.kept and not sequence.lost:
            self._drop(key)

    def _use(self, key: Key, sequence: _Sequence) -> float:
        sequence.used_s = self._clock()
        self._table.move_to_end(key)
        return sequence.used_s

    def _died(self, sequence: _Sequence) -> bool:
        return sequence.worker is not None and self._holders[sequence.worker].deaths != sequence.deaths

    def _lose(self, sequence: _Sequence) -> None:
        self._give_up(sequence)
        sequence.kept, sequence.lost = False, True
        self._lost = True

    def _give_up(self, sequence: _Sequence) -> None:
        """Its worker may have it, or get it from the request that it runs now; nobody will ask for this number again."""
        assert sequence.worker is not None, "it was started"
        self._holders[sequence.worker].given_up.append(sequence.number)

    def _freest(self) -> int:
        """The worker that holds the fewest, of those that are up."""
        return min(self._holders, key=lambda each: (not each.ready, self._held[each.index], each.index)).index

    def _place(self, sequence: _Sequence, worker: int | None) -> None:
        if sequence.worker is not None:
            self._held[sequence.worker] -= 1
        sequence.worker = worker
        if worker is not None:
            self._held[worker] += 1

    def _drop(self, key: Key) -> None:
        sequence = self._table.pop(key)
        if sequence.kept:
            self._give_up(sequence)
        self._place(sequence, None)

    def _forget_idle(self, now: float, idle_s: float) -> None:
        idle: list[Key] = []
        for key, sequence in self._table.items():
            if now - sequence.used_s <= idle_s:
                break
            if not sequence.busy:
                idle.append(key)
        for key in idle:
            self._drop(key)

    def _forget_lost(self) -> None:
        """Looks at all of them, so only when there can be one."""
        if self._some_lost():
            self._lost, self._deaths = False, sum(holder.deaths for holder in self._holders)
            gone = [key for key, each in self._table.items() if not each.busy and (each.lost or self._died(each))]
            for key in gone:
                self._drop(key)

    def _some_lost(self) -> bool:
        """Whether one may be, since the lost were last forgotten."""
        return self._lost or self._deaths != sum(holder.deaths for holder in self._holders)


def lost() -> Failed:
    """The failure of a request whose sequence is no more."""
    text = "what was kept of this sequence is lost; start it again with sequence_start"
    return Failed(Code.SEQUENCE_LOST, text, field="sequence_id")


def _not_found(turn: Turn, limits: Sequences) -> Refused:
    text = (
        f'sequence_id: no sequence "{show(turn.id)}" is kept: it ended, was idle for more than {limits.idle_s:g} s, '
        "or was never started; begin with sequence_start"
    )
    return Refused(Code.SEQUENCE_NOT_FOUND, text, field="sequence_id")


def _says_lost(part: Part) -> bool:
    """Whether the worker answered that it has no such sequence."""
    return any(failure.code is Code.SEQUENCE_LOST for failure in part.failures.values())
