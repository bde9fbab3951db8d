"""Items, tickets and a scripted executor for tests of batching: no processes, no real time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from forwardpass.batching.executor import Outcome, WorkerLost
from forwardpass.batching.ticket import Item, Part, Ticket
from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code
from forwardpass.core.tensor import Tensor

FAR = 10_000.0


def item(
    rows: int = 1,
    *,
    key: object = None,
    priority: int = 5,
    deadline: float = FAR,
    cost: float | None = None,
    data: bytes = b"x",
    queued_s: float = 1000.0,
    tenant: str = "",
) -> Item:
    ticket = Ticket(1, deadline)
    price = float(rows) if cost is None else cost
    return Item(ticket, 0, [data], [()], rows, price, len(data), key, priority, queued_s, tenant=tenant)


@dataclass(slots=True)
class ScriptedExecutor:
    """Echoes every item's bytes. ``kill`` names inputs that end the process; ``hold`` keeps batches until released."""

    clock: FakeClock
    index: int = 0
    kill: frozenset[bytes] = frozenset()
    hold: bool = False
    preprocess_s: float = 0.0
    batches: list[list[bytes]] = field(default_factory=list)
    held: list[tuple[Sequence[Item], "asyncio.Future[Outcome]"]] = field(default_factory=list)
    vacancy: asyncio.Event = field(default_factory=asyncio.Event)
    asked: int = 0

    def __post_init__(self) -> None:
        self.vacancy.set()

    @property
    def idle(self) -> bool:
        return self.vacancy.is_set()

    async def vacant(self, ahead_at: float | None) -> None:
        self.asked += 1
        assert self.asked < 10_000, "it is asked for ever"
        await self.vacancy.wait()

    def submit(self, items: Sequence[Item]) -> "asyncio.Future[Outcome]":
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.batches.append([bytes(item.columns[0]) for item in items])
        if self.hold:
            self.vacancy.clear()
            self.held.append((items, future))
        else:
            self._answer(items, future)
        return future

    def release(self) -> None:
        """Let the oldest held batch end."""
        items, future = self.held.pop(0)
        self._answer(items, future)
        self.vacancy.set()

    def _answer(self, items: Sequence[Item], future: "asyncio.Future[Outcome]") -> None:
        if any(bytes(item.columns[0]) in self.kill for item in items):
            future.set_exception(WorkerLost(Code.WORKER_CRASHED, started=True))
            return
        parts = [Part(item.rows, [Tensor("BYTES", (item.rows,), item.columns[0])], {}, []) for item in items]
        future.set_result(Outcome(parts, self.preprocess_s, 0.001, 0.0))
