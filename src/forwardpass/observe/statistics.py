"""How the requests of one version ended: exact sums of what their records say."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from forwardpass.core.clock import wall_s
from forwardpass.core.request import CacheUse
from forwardpass.observe.receipts import Record


@dataclass(slots=True)
class Span:
    """How often something happened and how long it took, all together."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        self.count += count
        self.seconds += seconds


@dataclass(slots=True)
class Answered:
    """Every request that reached the version is in ``success`` or in ``fail``, once, when it ends.

    Success is an answer with all its rows. Fail is everything else: cancelled, shed, quarantined, past its deadline, a
    row that failed, an answer that could not be encoded. ``rows`` are those that were answered, also beside one that
    failed. The stages are of the successes; a request cut into several batches has those of the batch its last rows
    were in; of one of which nothing was run only the wait counts. Rows with a kept answer are in ``cache_hit`` and not in
    ``rows``, nor are those that waited for an equal one; their time is what it took to look for them.
    """

    success: Span = field(default_factory=Span)
    fail: Span = field(default_factory=Span)
    queue: Span = field(default_factory=Span)
    preprocess: Span = field(default_factory=Span)
    execute: Span = field(default_factory=Span)
    postprocess: Span = field(default_factory=Span)
    cache_hit: Span = field(default_factory=Span)
    cache_miss: Span = field(default_factory=Span)
    rows: int = 0
    last_s: float = 0.0  # since 1970, of the last one that had an answer

    def observe(self, record: Record) -> None:
        timeline = record.timeline
        taken_s = timeline.responded - timeline.received
        if record.outcome == "ok" and record.cache is not None:
            self._looked(record, record.cache)
        if record.outcome != "ok":
            self.fail.add(taken_s)
        elif record.rows_failed:
            self.rows += record.rows - record.rows_failed
            self.last_s = wall_s()
            self.fail.add(taken_s)
        else:
            self.observe_alike(record, (taken_s,))

    def observe_alike(self, record: Record, taken_s: Sequence[float]) -> None:
        """Successes, which took so long each and have the rest in common."""
        timeline, count = record.timeline, len(taken_s)
        self.rows += record.rows * count
        self.last_s = wall_s()
        self.success.add(sum(taken_s), count)
        self.queue.add((timeline.released - timeline.queued) * count, count)
        if record.cache is not None and not record.cache.miss:
            return
        self.preprocess.add(timeline.preprocess_s * count, count)
        self.execute.add(timeline.execute_s * count, count)
        self.postprocess.add(timeline.postprocess_s * count, count)

    def _looked(self, record: Record, use: CacheUse) -> None:
        """Before its rows are counted: those that were not run for it are none of ``rows``."""
        known = use.hit + use.joined
        self.rows -= known
        looked_s = (record.timeline.queued - record.timeline.admitted) / max(1, record.rows)
        self.cache_hit.add(looked_s * known, known)
        self.cache_miss.add(looked_s * use.miss, use.miss)
