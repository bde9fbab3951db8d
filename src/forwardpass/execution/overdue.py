"""What a worker does not begin: items whose deadline has passed, or whose caller has left, while their batch waited.

Looked at before a batch is preprocessed and again before the model gets it. The rows of its other items stay as they
are, so their answers are what they would have been.
"""

from collections.abc import Collection
from itertools import accumulate

from forwardpass.core.errors import Code, Failed
from forwardpass.execution.board import ITEMS_MAX, Marks
from forwardpass.execution.replies import Reply
from forwardpass.execution.wire import PartMeta, Run
from forwardpass.steps.protocol import Batch


def late() -> Failed:
    """What an item that is left out fails with: a new one each time, as who raises one gives it their frames to hold."""
    return Failed(Code.DEADLINE_EXCEEDED, "the deadline passed before the request was run")


class Overdue:
    """Says of a batch's items which nobody waits for at that moment; without ``marks`` only deadlines count."""

    def __init__(self, marks: Marks | None = None) -> None:
        self._marks = marks

    def items(self, run: Run, now: float) -> set[int]:
        """Their numbers in the batch."""
        over: set[int] = set()
        if run.until and min(run.until) <= now:
            over = {item for item, until in enumerate(run.until) if until <= now}
        if self._marks is not None and self._marks.any(run.batch):
            marks = self._marks.of(run.batch)
            over |= {item for item in range(min(len(run.rows), ITEMS_MAX)) if marks[item]}
        return over

    def leave_out(self, run: Run, batch: Batch, now: float) -> set[int]:
        """Take their rows out of the batch, which has all items of ``run``; returns what ``items`` said."""
        over = self.items(run, now)
        if over:
            starts = list(accumulate(run.rows, initial=0))
            batch.leave_out({place for item in over for place in range(starts[item], starts[item + 1])}, late())
        return over


def told(reply: Reply, left_out: Collection[int]) -> Reply:
    """The reply in which these items failed as a whole, and not row by row; it has no outputs of theirs."""
    if not left_out:
        return reply
    why = late()
    for item in left_out:
        reply.parts[item] = PartMeta(0, [], [], (why.code.value, why.text, "", ""))
    return reply
