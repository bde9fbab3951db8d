"""How the requests of one version ended: exact sums of what their records say."""

from dataclasses import dataclass, field

from forwardpass.core.clock import wall_s
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
    were in.
    """

    success: Span = field(default_factory=Span)
    fail: Span = field(default_factory=Span)
    queue: Span = field(default_factory=Span)
    preprocess: Span = field(default_factory=Span)
    execute: Span = field(default_factory=Span)
    postprocess: Span = field(default_factory=Span)
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
        if record.rows_failed:
            self.fail.add(taken_s)
            return
        self.success.add(taken_s)
        self.queue.add(timeline.released - timeline.queued)
        self.preprocess.add(timeline.preprocess_s)
        self.execute.add(timeline.execute_s)
        self.postprocess.add(timeline.postprocess_s)
