"""What a batch that was sent is expected to take, and what is learnt from it once it was answered."""

import asyncio
from collections.abc import Hashable

import msgspec

from forwardpass.batching.cost import CostModel
from forwardpass.batching.executor import Outcome
from forwardpass.batching.forecast import Forecast, Underway
from forwardpass.batching.policy import PREFETCH_S_MIN, prefetch_at
from forwardpass.batching.spent import Spent, with_way_s
from forwardpass.batching.ticket import Item
from forwardpass.core.clock import Clock
from forwardpass.core.timeline import BatchReport


class Flight(msgspec.Struct, eq=False):
    """A batch between being sent and being settled. ``ahead_at``: from when on the next may be sent behind it, or None."""

    items: list[Item]
    future: "asyncio.Future[Outcome]"
    report: BatchReport
    underway: Underway
    cost: float
    key: Hashable
    together: bool
    ahead_at: float | None
    ended_s: float = 0.0  # when the event loop saw its end, and for how long until then
    busy_s: float = 0.0  # its worker was at it and at nothing else, as that saw it


class Learning:
    """Of one version: into its ``forecast`` and the limits there."""

    def __init__(self, forecast: Forecast, clock: Clock) -> None:
        self._forecast = forecast
        self._clock = clock
        self._preprocess = CostModel()
        self._spent = Spent()

    def sent(
        self, items: list[Item], future: "asyncio.Future[Outcome]", report: BatchReport, *, together: bool
    ) -> Flight:
        """It is about to be run, behind what its worker is at."""
        forecast, worker, now = self._forecast, report.worker, report.released_s
        cost = 0.0
        for item in items:
            cost += item.cost
        report.predicted_s = whole_s = forecast.model.predict_s(cost)
        ahead_at = None
        if self._preprocess.observed and not items[0].alone and not items[0].suspect:
            starts_s = now + forecast.workers.left_s(worker, now)
            ahead_at = prefetch_at(starts_s, whole_s, self._preprocess.predict_s(cost))
        underway = forecast.workers.begin(worker, now, whole_s)
        return Flight(items, future, report, underway, cost, items[0].key, together, ahead_at)

    def ended(self, flight: Flight) -> None:
        """Its worker is at it no more."""
        flight.ended_s = now = self._clock()
        flight.busy_s = self._forecast.workers.end(flight.underway, now)

    def lost_for_nobody(self, flight: Flight) -> None:
        """It ran until its worker was ended, as nobody waited for it."""
        self._forecast.model.observe(flight.cost, flight.busy_s)

    def answered(self, flight: Flight, outcome: Outcome) -> bool:
        """Whether a row of it was: then it counts as executed, and what it took is learnt."""
        report, items, underway = flight.report, flight.items, flight.underway
        report.preprocess_s = before_s = outcome.preprocess_s
        report.execute_s = outcome.execute_s
        report.postprocess_s = outcome.postprocess_s
        report.elements, report.padding = outcome.elements, outcome.padding
        begun, seen_s = outcome.begun, flight.busy_s
        ended_s = begun + outcome.execute_s + outcome.postprocess_s
        own_s = self._spent.own_s(underway.worker, begun, ended_s, before_s, sent_s=underway.sent_s, now=flight.ended_s)
        spent_s = with_way_s(own_s, seen_s) if own_s > 0.0 else seen_s
        report.took_s = own_s or seen_s
        cost, rows, ran = flight.cost, report.rows, False
        for item, part in zip(items, outcome.parts, strict=True):
            if part.rows:
                ran = True
            if part.failure is not None:
                cost -= item.cost
                rows -= item.rows
        if not ran:  # one that failed says little of one that does not
            return False
        self._forecast.model.observe(cost, spent_s)
        if before_s >= PREFETCH_S_MIN or self._preprocess.observed:  # of less than that nothing follows
            self._preprocess.observe(cost, before_s)
        if flight.together:
            ticket = items[0].ticket
            self._forecast.limits.observe(
                flight.key, rows, cost, report.took_s, left_rows=report.waiting_rows,
                patience_s=ticket.deadline - items[0].queued_s,
            )  # fmt: skip
        return True
