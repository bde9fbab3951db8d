"""The admin plane: status, metrics, receipts, load and unload, on a listener of its own.

The data plane's protocol and border serve it, each with limits and books of its own, so that no load there keeps the
operator out. Errors are problem details (RFC 9457). What it shows it reads from the parts at that moment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import orjson

from forwardpass.core.errors import Code, Failed, Refused
from forwardpass.ingress.cors import OWN_HOSTS
from forwardpass.ingress.data_plane import DataPlane
from forwardpass.ingress.dialect import Call, Endpoint
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.message import HttpAnswer, HttpLimits
from forwardpass.ingress.route_table import routes_of
from forwardpass.ingress.routes import SMALL_BODY_BYTES_MAX, version_number
from forwardpass.observe.metrics import Metrics, Samples
from forwardpass.observe.receipts import Receipts, receipt

CONNECTIONS_MAX = 384
"""Of the admin plane, besides those of the data plane."""
ADDRESSES_MIN = 4
"""That must join to fill it, where it is listened to on a network: one has a part of so many."""
IDLE_TIME_S = 10.0
"""On a network; probes and scrapers come back more seldom, and connect anew."""
METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class Operations(Protocol):
    """What the server lets its operator do; the admin plane's only way in."""

    def why_not_ready(self) -> str:
        """ "" when every pipeline answers."""

    def status(self) -> dict[str, Any]: ...

    def config(self) -> dict[str, Any]: ...

    def samples(self) -> Samples: ...

    async def load(self, pipeline: str, number: int) -> None: ...

    async def unload(self, pipeline: str, number: int) -> None: ...


def admin_limits(limits: HttpLimits, *, local: bool) -> HttpLimits:
    """The data plane's, but for what is larger than an operator needs; ``local``: only this machine is listened to, and
    whoever asks has one address. On a network no one address may fill the lane.

    A page that somebody has open here must not reach it by a host name that was rebound to this machine.
    """
    own = tuple(sorted(name.decode() for name in OWN_HOSTS))
    return replace(
        limits,
        body_bytes_max=SMALL_BODY_BYTES_MAX,
        connections_max=CONNECTIONS_MAX,
        connections_per_address_max=CONNECTIONS_MAX if local else CONNECTIONS_MAX // ADDRESSES_MIN,
        idle_time_s=limits.idle_time_s if local else min(limits.idle_time_s, IDLE_TIME_S),
        bytes_in_flight_max=CONNECTIONS_MAX * SMALL_BODY_BYTES_MAX,
        hosts=own if local else limits.hosts,
    )


def admin_plane(
    operations: Operations,
    receipts: Receipts,
    metrics: Metrics,
    control: Mapping[str, Endpoint],
    books: Inference,
    edge: Edge,
) -> DataPlane:
    """Answers the admin routes of the table. ``control`` is what the data plane may have too; ``books`` counts."""
    endpoints = {**control, **_Operator(operations, receipts, metrics).endpoints()}
    return DataPlane(books, routes_of("admin"), {}, endpoints, edge=edge, border="problem")


@dataclass(frozen=True, slots=True)
class _Operator:
    operations: Operations
    receipts: Receipts
    metrics: Metrics

    def endpoints(self) -> dict[str, Endpoint]:
        return {
            "live": self._live,
            "ready": self._ready,
            "status": self._status,
            "config": self._config,
            "metrics": self._metrics,
            "receipt": self._receipt,
            "load": self._load,
            "unload": self._unload,
        }

    async def _live(self, call: Call) -> HttpAnswer:
        return _json({"live": True})

    async def _ready(self, call: Call) -> HttpAnswer:
        why = self.operations.why_not_ready()
        if why:
            raise Failed(Code.NOT_READY, why, retry_after_s=1.0)
        return _json({"ready": True})

    async def _status(self, call: Call) -> HttpAnswer:
        return _json(self.operations.status())

    async def _config(self, call: Call) -> HttpAnswer:
        return _json(self.operations.config())

    async def _metrics(self, call: Call) -> HttpAnswer:
        return HttpAnswer(200, self.metrics.exposition(self.operations.samples()).encode(), METRICS_TYPE)

    async def _receipt(self, call: Call) -> HttpAnswer:
        record = self.receipts.find(call.match.values["id"], call.caller)
        if record is None:
            raise Refused(Code.RECEIPT_NOT_FOUND, "no receipt of this id is kept")
        return _json(receipt(record))

    async def _load(self, call: Call) -> HttpAnswer:
        pipeline, number = _named(call)
        await self.operations.load(pipeline, number)
        return _json({"pipeline": pipeline, "version": number, "stage": "ready"})

    async def _unload(self, call: Call) -> HttpAnswer:
        pipeline, number = _named(call)
        await self.operations.unload(pipeline, number)
        return _json({"pipeline": pipeline, "version": number, "stage": "unloaded"})


def _json(document: object) -> HttpAnswer:
    return HttpAnswer(200, orjson.dumps(document, option=orjson.OPT_NON_STR_KEYS))


def _named(call: Call) -> tuple[str, int]:
    return call.match.pipeline, version_number(call.match.values["version"])
