"""When a batch leaves and when the next one is sent ahead: pure decisions, tested as tables."""

from collections.abc import Hashable
from dataclasses import dataclass

from forwardpass.core.pipeline import Batch

PREFETCH_SHARE_MIN = 0.05
PREFETCH_S_MIN = 0.001  # less than this is not worth a timer
PREFETCH_LEAD_MARGIN = 1.3


@dataclass(frozen=True, slots=True)
class Waiting:
    """The most urgent group as the queue sees it."""

    key: Hashable
    rows: int
    cost: float
    oldest_age_s: float
    alone: bool


@dataclass(frozen=True, slots=True)
class Release:
    """Send now; ``reason`` is what the batch report says."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Look again after ``seconds`` or when something arrives."""

    seconds: float


def release(waiting: Waiting, batch: Batch) -> Release | Wait:
    """A worker is free and ``waiting`` is not empty: send it, or wait for company?"""
    if waiting.alone:
        return Release("rerun_alone")
    if not batch.enabled:
        return Release("batching_off")
    if waiting.rows >= batch.rows_max:
        return Release("rows_max")
    if batch.cost_max is not None and waiting.cost >= batch.cost_max:
        return Release("cost_max")
    wait_s = batch.wait_ms / 1000.0
    if wait_s == 0.0:
        return Release("worker_free")
    if waiting.oldest_age_s >= wait_s:
        return Release("wait_over")
    return Wait(wait_s - waiting.oldest_age_s)


def prefetch_at(submitted_s: float, whole_s: float, preprocess_s: float) -> float | None:
    """When to send the next batch ahead so that its preprocessing overlaps the execution of this one.

    As late as it can still be hidden, because a batch sent early is a batch that nobody else can join. None when
    preprocessing is too small a share of the whole to be worth it.
    """
    if preprocess_s < PREFETCH_S_MIN or preprocess_s < PREFETCH_SHARE_MIN * whole_s:
        return None
    return submitted_s + max(0.0, whole_s - PREFETCH_LEAD_MARGIN * preprocess_s)
