"""What becomes of a batch whose worker was lost: who runs again, who is to blame, who is only remembered."""

from collections.abc import Sequence

from forwardpass.batching.executor import WorkerLost
from forwardpass.batching.probes import Probes
from forwardpass.batching.quarantine import Quarantine
from forwardpass.batching.queue import Queue
from forwardpass.batching.sequences import lost as lost_sequence
from forwardpass.batching.ticket import Item
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Failed


class Losses:
    """Each member runs again alone on a fresh worker; the one that is lost twice is the one to blame."""

    def __init__(self, queue: Queue, quarantine: Quarantine, clock: Clock) -> None:
        self._queue = queue
        self._quarantine = quarantine
        self._probes = Probes(queue, clock)

    async def settle(self, items: Sequence[Item], lost: WorkerLost, ran_s: float) -> None:
        """What one continued died too: its caller is told so. Its input runs again for nobody, as does that of a caller
        who has left, to find the one to blame.
        """
        if lost.nobodys:
            await self._quarantine.suspect_all(items, ran_s)
            return
        for item in items:
            if not lost.started:
                item.taken = False
                self._queue.put_back([item])
                continue
            if item.requests > 1:  # each runs again by itself
                item.ticket.finish(Failed(lost.code, "the model's process died while it ran these requests"))
                continue
            item.deaths += 1
            if item.deaths > 1 or item.suspect:
                self._quarantine.add(item.columns, item.shapes, item.rows)
                self._queue.discard(self._quarantine.end(item, self._queue.waiting()), probes=True)
                item.ticket.finish(Failed(lost.code, "the model's process died while it ran this request"))
                continue
            if item.held is not None and not item.held.start:
                item.ticket.finish(lost_sequence())
            self._probes.add(item)
