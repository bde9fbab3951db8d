"""What the server says of itself: the status for people and the gauges of the metrics, read from its parts when asked."""

import resource
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forwardpass.ingress.http_server import HttpServer
from forwardpass.ingress.inference import Inference
from forwardpass.observe import log
from forwardpass.observe.metrics import Metrics, Samples
from forwardpass.observe.vitals import Vitals
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import Variant

if TYPE_CHECKING:
    from forwardpass.ingress.grpc.server import GrpcServer


@dataclass(frozen=True, slots=True)
class Overview:
    """Reads only; nothing reports to it."""

    routes: Routes
    metrics: Metrics
    http: HttpServer
    grpc: "GrpcServer | None"
    inference: Inference
    vitals: Vitals
    admin: HttpServer
    admin_books: Inference

    def status(self) -> dict[str, Any]:
        http = self.http.statistics()
        return {
            "connections": http.connections,
            "fronts": [asdict(front) for front in self.http.fronts()],
            "requests": http.requests,
            "running": http.running,
            "cancelled": http.cancelled,
            "refused": {code.value: count for code, count in http.refused.items()},
            "grpc": asdict(self.grpc.statistics()) if self.grpc is not None else None,
            "other_requests": dict(self.inference.outside),
            "admin": {"connections": len(self.admin.connections), "requests": dict(self._asked())},
            "memory": self._memory(),
            "loop": {"blocked": self.vitals.watchdog.blocked, "blocked_s": round(self.vitals.watchdog.blocked_s, 3)},
            "versions": [self._variant_status(variant) for variant in self.routes.variants()],
        }

    def samples(self) -> Samples:
        """The gauges of this moment, by metric name."""
        variants = self.routes.variants()
        names = [(("pipeline", v.version.pipeline), ("version", str(v.version.number))) for v in variants]
        pairs = list(zip(names, variants, strict=True))
        caches = [(name, v.cache) for name, v in pairs if v.cache is not None]
        http = self.http.statistics()
        fronts = [((("front", str(number)),), front) for number, front in enumerate(self.http.fronts(), start=1)]
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return {
            "forwardpass_rows_total": [(name, v.batcher.executed.rows) for name, v in pairs],
            "forwardpass_batch_rows_limit": [(name, v.forecast.limits.rows) for name, v in pairs],
            "forwardpass_elements_total": [(name, v.batcher.executed.elements) for name, v in pairs],
            "forwardpass_padding_total": [(name, v.batcher.executed.padding) for name, v in pairs],
            "forwardpass_executions_total": [(name, v.batcher.executed.executions) for name, v in pairs],
            "forwardpass_queue_rows": [(name, v.queue.rows) for name, v in pairs],
            "forwardpass_requests_running": [(name, v.running) for name, v in pairs],
            "forwardpass_sequences": [(name, v.sequences.live()) for name, v in pairs],
            "forwardpass_worker_deaths_total": [(name, sum(w.deaths for w in v.workers)) for name, v in pairs],
            "forwardpass_workers_abandoned_total": [(name, sum(w.abandoned for w in v.workers)) for name, v in pairs],
            "forwardpass_ready": [(name, float(v.ready)) for name, v in pairs],
            "forwardpass_connections": [((), http.connections)],
            "forwardpass_front_connections": [(name, front.connections) for name, front in fronts],
            "forwardpass_front_deaths_total": [(name, front.deaths) for name, front in fronts],
            "forwardpass_http_requests_total": [((), http.requests)],
            "forwardpass_http_cancelled_total": [((), http.cancelled)],
            "forwardpass_http_refused_total": [
                ((("code", code.value),), n) for code, n in sorted(http.refused.items())
            ],
            "forwardpass_other_requests_total": [
                ((("outcome", str(outcome)),), n) for outcome, n in sorted(self.inference.outside.items())
            ],
            "forwardpass_admin_requests_total": [
                ((("outcome", str(outcome)),), n) for outcome, n in sorted(self._asked().items())
            ],
            "forwardpass_cache_rows_total": [
                ((*name, ("found", found)), count)
                for name, cache in caches
                for found, count in (("hit", cache.hits), ("joined", cache.joined), ("miss", cache.misses))
            ],
            "forwardpass_cache_entries": [(name, len(cache.shelf)) for name, cache in caches],
            "forwardpass_cache_bytes": [(name, cache.shelf.bytes) for name, cache in caches],
            "forwardpass_cache_evictions_total": [(name, cache.shelf.evicted) for name, cache in caches],
            "forwardpass_overdue_total": [(name, v.batcher.executed.overdue) for name, v in pairs],
            "forwardpass_loop_blocked_total": [((), self.vitals.watchdog.blocked)],
            "forwardpass_loop_blocked_seconds_total": [((), self.vitals.watchdog.blocked_s)],
            "forwardpass_memory_pressure": [((), self.vitals.pressure.level)],
            "forwardpass_log_lines_dropped_total": [((), log.dropped())],
            "forwardpass_resident_bytes": [((), pages * resource.getpagesize())],
        }

    def _memory(self) -> dict[str, Any]:
        memory, level = self.vitals.pressure.memory, self.vitals.pressure.level
        known = {"used": memory.used, "limit": memory.limit} if memory is not None else {}
        return {"level": level.name.lower(), **known}

    def _asked(self) -> Counter[str]:
        """What the operator asked, by how it ended; what HTTP refused too."""
        return self.admin_books.outside + Counter[str](self.admin.refused)

    def _variant_status(self, variant: Variant) -> dict[str, Any]:
        loaded = variant.loaded
        return {
            "pipeline": variant.version.pipeline,
            "version": variant.version.number,
            "digest": variant.version.digest,
            "signers": list(variant.version.signers),
            "stage": variant.stage.value,
            "ready": variant.ready,
            "batching": variant.batching_reason,
            "cache": variant.cache_reason,
            "warnings": loaded.warnings if loaded else [],
            "models": loaded.settings if loaded else [],
            "load_s": round(loaded.load_s, 3) if loaded else None,
            "queue": {"rows": variant.queue.rows, "items": variant.queue.items, "bytes": variant.queue.bytes},
            "waiting_by_class": variant.queue.by_class(),
            "predicted_wait_s": round(variant.queue.predicted_wait_s(), 3),
            "running": variant.running,
            "overdue": variant.batcher.executed.overdue,
            "sequences": variant.sequences.live(),
            "quarantined": len(variant.quarantine),
            "outcomes": self.metrics.outcomes(variant.version.pipeline, variant.version.number),
            "workers": [
                {"state": w.state.value, "pid": w.pid, "deaths": w.deaths, "abandoned": w.abandoned}
                for w in variant.workers
            ],
        }
