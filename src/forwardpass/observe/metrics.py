"""Every metric, in one table, computed from the records and from ``statistics`` of the parts when somebody scrapes.

Names and units follow the Prometheus conventions; label values come from configuration only, never from a request.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from forwardpass.observe.receipts import Record

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

TABLE: dict[str, tuple[str, str]] = {
    "forwardpass_requests_total": (
        "counter", "Requests that reached a pipeline (golden examples too), by how they ended.",
    ),
    "forwardpass_other_requests_total": (
        "counter", "Requests that reached no pipeline (health, metadata, no route, not readable, replayed), by how they ended.",
    ),
    "forwardpass_admin_requests_total": ("counter", "Requests of the admin plane, by how they ended."),
    "forwardpass_http_requests_total": ("counter", "Requests of the data plane that were begun to be answered."),
    "forwardpass_http_cancelled_total": ("counter", "Of these, given up because the client went away."),
    "forwardpass_http_refused_total": ("counter", "What HTTP itself refused, by error code."),
    "forwardpass_request_seconds": ("histogram", "From the last byte of a request to its answer, successes only."),
    "forwardpass_rows_total": ("counter", "Rows of the batches executed."),
    "forwardpass_executions_total": ("counter", "Batches executed, of which at least one row was answered."),
    "forwardpass_batch_rows_limit": ("gauge", "Rows that a batch may have now, as written or as learnt."),
    "forwardpass_elements_total": ("counter", "Elements (tokens) of rows of different length that shared a batch."),
    "forwardpass_padding_total": ("counter", "What these rows were filled up with, to the longest of their batch."),
    "forwardpass_queue_rows": ("gauge", "Rows waiting for a worker."),
    "forwardpass_requests_running": ("gauge", "Requests between being routed and being answered."),
    "forwardpass_sequences": ("gauge", "Sequences that go on: begun, and neither ended, lost nor idle for too long."),
    "forwardpass_worker_deaths_total": ("counter", "Worker processes that ended unasked."),
    "forwardpass_workers_abandoned_total": ("counter", "Worker processes ended because nobody waited for what they ran."),
    "forwardpass_overdue_total": (
        "counter", "Items begun though their deadline had passed or their caller had left before: none ever should be.",
    ),
    "forwardpass_loop_blocked_total": ("counter", "Times that the front stood still for more than a second."),
    "forwardpass_loop_blocked_seconds_total": ("counter", "How long it did together."),
    "forwardpass_memory_pressure": ("gauge", "0 calm, 1 kept answers go, 2 new requests are refused, 3 loads are too."),
    "forwardpass_guard_verdicts_total": (
        "counter", "Values on which a guard fired, by what it did; failed: its judge gave no answer.",
    ),
    "forwardpass_cache_rows_total": (
        "counter", "Rows that came to a cache: hit, joined to an equal row that ran, or miss, by version.",
    ),
    "forwardpass_cache_entries": ("gauge", "Answers that are kept."),
    "forwardpass_cache_bytes": ("gauge", "What they take of the memory."),
    "forwardpass_cache_evictions_total": ("counter", "Kept answers that went for want of room."),
    "forwardpass_ready": ("gauge", "1 when the version answers."),
    "forwardpass_connections": ("gauge", "Open connections of the data plane."),
    "forwardpass_front_connections": ("gauge", "Of these, by the front (run.fronts) that has them."),
    "forwardpass_front_deaths_total": ("counter", "Fronts that ended unasked."),
    "forwardpass_log_lines_dropped_total": ("counter", "Log lines that found no room, or nowhere to go."),
    "forwardpass_resident_bytes": ("gauge", "Resident memory of the front."),
}  # fmt: skip
"""name -> (type, help)"""

Labels = tuple[tuple[str, str], ...]
Samples = Mapping[str, Iterable[tuple[Labels, float]]]


@dataclass(slots=True)
class _Series:
    outcomes: dict[str, int] = field(default_factory=dict)
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    seconds: float = 0.0
    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)


class Metrics:
    """Counts what records say, per pipeline and version."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, int], _Series] = {}

    def observe_alike(self, record: Record, taken_s: Sequence[float]) -> None:
        """Requests that were answered as one, which took so long each; ``record`` is what they have in common."""
        series = self._of(record)
        series.outcomes[record.outcome] = series.outcomes.get(record.outcome, 0) + len(taken_s)
        buckets = series.buckets
        for seconds in taken_s:
            buckets[bisect_left(BUCKETS_S, seconds)] += 1
        series.seconds += sum(taken_s)

    def _of(self, record: Record) -> _Series:
        key = (record.version.pipeline, record.version.number)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series()
        return series

    def observe(self, record: Record) -> None:
        series = self._of(record)
        series.outcomes[record.outcome] = series.outcomes.get(record.outcome, 0) + 1
        if record.verdicts:
            series.verdicts.update(record.verdicts)
        if record.outcome == "ok":
            seconds = record.timeline.responded - record.timeline.received
            series.buckets[bisect_left(BUCKETS_S, seconds)] += 1
            series.seconds += seconds

    def outcomes(self, pipeline: str, number: int) -> Mapping[str, int]:
        """How many requests of a version ended how."""
        series = self._series.get((pipeline, number))
        return {} if series is None else dict(series.outcomes)

    def exposition(self, gauges: Samples) -> str:
        """Prometheus text format 0.0.4; ``gauges`` are the samples read from the parts at this moment."""
        lines: list[str] = []
        for name, (kind, text) in TABLE.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            if name == "forwardpass_requests_total":
                lines += self._requests()
            elif name == "forwardpass_guard_verdicts_total":
                lines += self._verdicts()
            elif name == "forwardpass_request_seconds":
                lines += self._seconds()
            else:
                lines += [f"{name}{_labels(labels)} {value:g}" for labels, value in gauges.get(name, ())]
        return "\n".join(lines) + "\n"

    def _requests(self) -> list[str]:
        return [
            f"forwardpass_requests_total{_labels((*_version(key), ('outcome', outcome)))} {count}"
            for key, series in sorted(self._series.items())
            for outcome, count in sorted(series.outcomes.items())
        ]

    def _verdicts(self) -> list[str]:
        return [
            f"forwardpass_guard_verdicts_total{_labels((*_version(key), ('guard', guard), ('verdict', did)))} {count}"
            for key, series in sorted(self._series.items())
            for (guard, did), count in sorted(series.verdicts.items())
        ]

    def _seconds(self) -> list[str]:
        lines: list[str] = []
        for key, series in sorted(self._series.items()):
            total = 0
            for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), series.buckets, strict=True):
                total += count
                labels = _labels((*_version(key), ("le", bound)))
                lines.append(f"forwardpass_request_seconds_bucket{labels} {total}")
            lines.append(f"forwardpass_request_seconds_sum{_labels(_version(key))} {series.seconds:.9g}")
            lines.append(f"forwardpass_request_seconds_count{_labels(_version(key))} {total}")
        return lines


def _version(key: tuple[str, int]) -> Labels:
    return (("pipeline", key[0]), ("version", str(key[1])))


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""
