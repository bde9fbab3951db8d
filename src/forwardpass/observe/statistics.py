"""How the requests of one version ended: exact sums of what their records say."""

from dataclasses import dataclass, field

from forwardpass.core.clock import wall_s
from forwardpass.core.request import CacheUse
from forwardpass.observe.receipts import Record


@dataclass(slots=True)
class Span:
    """How often something happened and how long it took, all together."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
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
        if record.outcome != "ok":
            self.fail.add(taken_s)
            return
        self.rows += record.rows - record.rows_failed
        self.last_s = wall_s()
        if record.cache is not None:
            self._looked(record, record.cache)
        if record.rows_failed:
            self.fail.add(taken_s)
            return
        success, queue, execute = self.success, self.queue, self.execute
        preprocess, postprocess = self.preprocess, self.postprocess
        success.count += 1
        success.seconds += taken_s
        queue.count += 1
        queue.seconds += timeline.released - timeline.queued
        if record.cache is not None and not record.cache.miss:
            return
        preprocess.count += 1
        preprocess.seconds += timeline.preprocess_s
        execute.count += 1
        execute.seconds += timeline.execute_s
        postprocess.count += 1
        postprocess.seconds += timeline.postprocess_s

    def _looked(self, record: Record, use: CacheUse) -> None:
        known = use.hit + use.joined
        self.rows = max(0, self.rows - known)
        looked_s = (record.timeline.queued - record.timeline.admitted) / max(1, record.rows)
        self.cache_hit.count += known
        self.cache_hit.seconds += looked_s * known
        self.cache_miss.count += use.miss
        self.cache_miss.seconds += looked_s * use.miss
