"""Who may come into the queue: where there is room, or others make room, and the answer is predicted to be in time."""

from collections.abc import Sequence

from forwardpass.batching.contents import Contents, rank_in
from forwardpass.batching.forecast import HEADROOM, Forecast, Work, retry_after_s
from forwardpass.batching.room import Amount, amount_of
from forwardpass.batching.ticket import Item
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Queue as Limits


class Admission:
    """``admit`` decides; it takes in nothing itself."""

    def __init__(self, limits: Limits, forecast: Forecast, contents: Contents, clock: Clock) -> None:
        self._limits = limits
        self._forecast = forecast
        self._contents = contents
        self._clock = clock

    def admit(self, items: Sequence[Item]) -> None:
        """A request may come: there is room, for which others may have had to leave, if it had none.

        Raises Failed queue_full, queue_bytes_full, queue_wait_too_long, and then nobody has left. An empty queue has
        room for any.
        """
        rows, size = amount_of(items)
        own = Work(rows, sum([item.cost for item in items]), len(items))
        wait_s, run_s = self.predict_s(self._contents.ahead_of(items[0]), own)
        over = self._over(rows, size)
        if over != (0, 0) and not self._contents.room.can_make(over, items):
            raise self._full(rows, size, wait_s)
        left_s = items[0].ticket.deadline - self._clock()
        if wait_s > self._limits.wait_max_s:
            most_s = self._limits.wait_max_s
            raise _too_long(
                f"queue.wait_max_s: the predicted wait is {wait_s:.3f} s; at most {most_s:g} s are allowed", wait_s
            )
        if (wait_s + run_s) * HEADROOM > left_s:
            text = f"deadline: the answer is predicted in {wait_s + run_s:.3f} s; {max(0.0, left_s):.3f} s are left"
            raise _too_long(text, wait_s)
        while over != (0, 0):
            self._shed(over, items, wait_s)
            over = self._over(rows, size)

    def predict_s(self, ahead: Work, own: Work) -> tuple[float, float]:
        """How long ``own`` would wait behind ``ahead``, and how long its batch would run."""
        return self._forecast.wait_and_run_s(self._clock(), ahead, own, len(self._contents.groups))

    def _over(self, rows: int, size: int) -> Amount:
        """By how much the queue would be too full with so much more."""
        if not self._contents.items:
            return 0, 0
        rows += self._contents.rows - self._limits.rows_max
        size += self._contents.bytes - self._limits.bytes_max
        return max(0, rows), max(0, size)

    def _shed(self, over: Amount, items: Sequence[Item], wait_s: float) -> None:
        leaving = self._contents.room.next_to_leave(over, items).items
        lower = rank_in(leaving[0]) > rank_in(items[0])
        whom = "more urgent work" if lower else "a tenant that holds less of it"
        text = f"queue: it is full, and this request made room for {whom}"
        leaving[0].ticket.finish(Failed(Code.SHED, text, retry_after_s=retry_after_s(wait_s)))
        for item in leaving:
            self._contents.leave(item)

    def _full(self, rows: int, size: int, wait_s: float) -> Failed:
        rows, size = self._contents.rows + rows, self._contents.bytes + size
        code, bound, value, most = Code.QUEUE_FULL, "rows_max", rows, self._limits.rows_max
        if rows <= most:
            code, bound, value, most = Code.QUEUE_BYTES_FULL, "bytes_max", size, self._limits.bytes_max
        text = f"queue.{bound}: the queue would hold {value}; at most {most} are allowed"
        return Failed(code, text, retry_after_s=retry_after_s(wait_s))


def _too_long(text: str, wait_s: float) -> Failed:
    return Failed(Code.QUEUE_WAIT_TOO_LONG, text, retry_after_s=retry_after_s(wait_s))
