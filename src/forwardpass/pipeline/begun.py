"""The stages of ``handle`` for a request that waits for nothing but its batch: no task waits with it.

For variants with ``direct``. Whoever opened the books closes them, once, after ``end`` or ``leave``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from forwardpass.batching.ticket import Item, Ticket
from forwardpass.core.request import Answer, Request
from forwardpass.pipeline.books import Entry
from forwardpass.pipeline.guarding import without_shadows
from forwardpass.pipeline.handle import Handle
from forwardpass.rollout.variant import Variant


@dataclass(frozen=True, slots=True)
class Begun:
    """A request that is in the queue or beyond; ``ticket`` says when it has ended."""

    handle: Handle
    variant: Variant
    request: Request
    entry: Entry
    ticket: Ticket
    items: Sequence[Item]

    def end(self) -> Answer:
        """The answer, once the ticket is done. Raises the Failure that ended it."""
        answer: Answer | None = None
        try:
            self.handle.deadlines.settle(self.ticket)
            answer = self.handle.respond(self.variant, self.request, self.entry, self.ticket)
            if self.request.receipt:
                answer.receipt = self.entry.receipt()
            return without_shadows(answer)
        finally:
            if answer is None:
                self.variant.forget(self.items, self.ticket)

    def leave(self) -> None:
        """Its caller went away before it had ended: now it has."""
        self.handle.deadlines.forget(self.ticket)
        self.handle.leave(self.ticket, self.items, self.entry)

    def close_alike(self, ids: Sequence[str], received_s: Sequence[float], left: Sequence[bool]) -> None:
        """The books of requests that came as one and were answered so; those whose callers have ``left`` were not."""
        self.handle.books.close_alike(self.entry, ids, received_s, left)


def begin(handle: Handle, variant: Variant, request: Request, entry: Entry, requests: int = 1) -> Begun:
    """Admit, look for what is known, queue. ``requests`` that came as one, a row each. Raises Failure."""
    items: Sequence[Item] = ()
    ticket: Ticket | None = None
    try:
        deadline = handle.admit(variant, request)
        if request.sequence is not None:
            variant.sequences.limits_here()  # it keeps none
        ticket, items = variant.grouping.items(request, deadline, handle.clock())
        if requests > 1:
            for item in items:
                item.requests = item.rows
        if variant.cache is not None:
            items, entry.cache = variant.cache.enter_now(request, ticket, items)
        handle.queue(variant, request, items)
    except BaseException:
        if ticket is not None:
            variant.forget(items, ticket)
        raise
    handle.deadlines.watch(ticket)
    return Begun(handle, variant, request, entry, ticket, items)
