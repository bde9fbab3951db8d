"""When a batch leaves and when the next one is sent ahead: pure decisions, tested as tables."""

import math
from collections.abc import Hashable, Sequence

import msgspec

from forwardpass.core.pipeline import Batch

LINGER_SHARE = 0.03
LINGER_ROWS_MIN = 4
LINGER_S_MIN = 0.001
LINGER_S_MAX = 0.02
PREFETCH_SHARE_MIN = 0.05
PREFETCH_S_MIN = 0.001  # less than this is not worth a timer
PREFETCH_LEAD_MARGIN = 1.3
SHARED_GAIN_MIN = 0.15


class Waiting(msgspec.Struct, frozen=True):
    """The most urgent group as the queue sees it."""

    key: Hashable
    rows: int
    cost: float
    oldest_age_s: float
    alone: bool
    spare_s: float = math.inf  # so long it may wait for company without missing a deadline
    pinned: bool = False  # only the worker that asks may run it


class Release(msgspec.Struct, frozen=True):
    """Send now; ``reason`` is what the batch report says."""

    reason: str


class Wait(msgspec.Struct, frozen=True):
    """Look again after ``seconds`` or when something arrives."""

    seconds: float


def release(waiting: Waiting, batch: Batch, rows_max: int) -> Release | Wait:
    """A worker is free and ``waiting`` is not empty: send it, or wait for company?"""
    if waiting.alone:
        return Release("rerun_alone")
    if not batch.enabled:
        return Release("batching_off")
    if waiting.rows >= rows_max:
        return Release("rows_max")
    if batch.cost_max is not None and waiting.cost >= batch.cost_max:
        return Release("cost_max")
    wait_s = batch.wait_ms / 1000.0
    if wait_s == 0.0:
        return Release("worker_free")
    if waiting.oldest_age_s >= wait_s:
        return Release("wait_over")
    left_s = min(wait_s - waiting.oldest_age_s, waiting.spare_s)
    return Wait(left_s) if left_s > 0.0 else Release("deadline_near")


def linger_s(waiting_rows: int, last_rows: int, last_s: float) -> float:
    """How long a worker that has just answered ``last_rows`` rows in ``last_s`` waits for those clients to come back.

    Sending the first of them alone would make all others wait for a batch of one. At most LINGER_SHARE of the batch
    that ran, and not at all after a small one, when enough is there, or when it would be too short to matter.
    """
    if last_rows < LINGER_ROWS_MIN or 2 * waiting_rows >= last_rows:
        return 0.0
    seconds = min(LINGER_S_MAX, LINGER_SHARE * last_s)
    return seconds if seconds >= LINGER_S_MIN else 0.0


def shared_rows(rows: int, free_in_s: Sequence[float], fixed_s: float, per_row_s: float) -> int:
    """How many of the rows that wait the first of these workers takes; the others are free in so many seconds, in order.

    All of them, unless all would be done sooner by SHARED_GAIN_MIN if others took the rest: a batch of everything keeps
    the next worker idle, one of half of it costs its fixed time twice.
    """
    own_s, others = free_in_s[0], free_in_s[1:]
    alone_s = own_s + fixed_s + per_row_s * rows
    if per_row_s <= 0.0:
        return rows
    workers, level_s = 1, alone_s
    for count, free_s in enumerate(others, 2):
        if free_s + fixed_s >= level_s:
            break
        workers = count
        level_s = fixed_s + (per_row_s * rows + own_s + sum(others[: count - 1])) / count
    if workers == 1 or alone_s - level_s < SHARED_GAIN_MIN * alone_s:
        return rows
    return min(rows, max(1, math.ceil((level_s - fixed_s - own_s) / per_row_s - 1e-9)))


def prefetch_at(submitted_s: float, whole_s: float, preprocess_s: float) -> float | None:
    """When to send the next batch ahead so that its preprocessing overlaps the execution of this one.

    As late as it can still be hidden, because a batch sent early is a batch that nobody else can join. None when
    preprocessing is too small a share of the whole to be worth it.
    """
    if preprocess_s < PREFETCH_S_MIN or preprocess_s < PREFETCH_SHARE_MIN * whole_s:
        return None
    return submitted_s + max(0.0, whole_s - PREFETCH_LEAD_MARGIN * preprocess_s)
