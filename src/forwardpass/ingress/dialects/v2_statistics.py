"""V2's statistics of a version: what its requests and its batches added up to since it was loaded.

``success`` and ``fail`` are all requests that reached it; those refused while they were read are not among them.
``inference_count`` is the rows answered, ``execution_count`` the batches of which a row was answered, to which the
counts of ``batch_stats`` add up. They hold more rows than were answered only where rows failed or their caller had left.
"""

import resource
from collections.abc import Iterable
from pathlib import Path

from forwardpass.batching.executed import Runs
from forwardpass.observe.statistics import Span
from forwardpass.rollout.variant import Variant


def statistics(variant: Variant) -> dict[str, object]:
    """As a ``ModelStatistics`` message has them. Cache counts are of rows."""
    answered, executed = variant.answered, variant.batcher.executed
    return {
        "name": variant.version.pipeline,
        "version": str(variant.version.number),
        "last_inference": round(answered.last_s * 1000),
        "inference_count": answered.rows,
        "execution_count": executed.executions,
        "inference_stats": {
            "success": _duration(answered.success),
            "fail": _duration(answered.fail),
            "queue": _duration(answered.queue),
            "compute_input": _duration(answered.preprocess),
            "compute_infer": _duration(answered.execute),
            "compute_output": _duration(answered.postprocess),
            "cache_hit": _duration(answered.cache_hit),
            "cache_miss": _duration(answered.cache_miss),
        },
        "response_stats": {},
        "batch_stats": [_batch(rows, runs) for rows, runs in sorted(executed.by_rows.items())],
        "memory_usage": [{"type": "CPU", "id": 0, "byte_size": _resident_bytes(w.pid for w in variant.workers)}],
    }


def _duration(span: Span) -> dict[str, int]:
    return {"count": span.count, "ns": round(span.seconds * 1e9)}


def _batch(rows: int, runs: Runs) -> dict[str, object]:
    return {
        "batch_size": rows,
        "compute_input": _duration(Span(runs.count, runs.preprocess_s)),
        "compute_infer": _duration(Span(runs.count, runs.execute_s)),
        "compute_output": _duration(Span(runs.count, runs.postprocess_s)),
    }


def _resident_bytes(pids: Iterable[int | None]) -> int:
    """Of the processes that still run."""
    pages = 0
    for pid in pids:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) if pid is not None else 0
        except OSError:
            continue  # it ended since
    return pages * resource.getpagesize()
