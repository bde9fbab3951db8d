"""What the data plane does around a request's way through a pipeline."""

import asyncio

import pytest
from msgspec.structs import replace

from forwardpass.core.clock import monotonic_s
from forwardpass.core.off_loop import OFF_LOOP_BYTES_MIN
from forwardpass.core.pipeline import Pipeline, Signature, Step, Version
from forwardpass.core.request import Answer
from forwardpass.core.tensor import Tensor
from forwardpass.ingress.data_plane import DataPlane
from forwardpass.ingress.dialects.table import DIALECTS
from forwardpass.ingress.endpoints.description import Description
from forwardpass.ingress.inference import Inference, work_of
from forwardpass.ingress.message import HttpRequest
from forwardpass.ingress.route_table import routes_of
from forwardpass.observe.metrics import Metrics
from forwardpass.observe.receipts import Receipts
from forwardpass.pipeline.handle import Handle
from forwardpass.rollout.lifecycle import Stage
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import Variant

VERSION = Version("p", 1, "digest", "/folder", Pipeline((Step("model"),)))


def post(path: str, body: bytes) -> HttpRequest:
    return HttpRequest(b"POST", path, "", {b"content-type": b"application/json"}, body, monotonic_s())


def test_a_version_is_in_use_while_a_body_for_it_is_decoded_in_a_thread() -> None:
    async def run() -> None:
        plane, variant, _ = serving()
        asking = asyncio.create_task(plane.respond(post("/predict/p", b" " * OFF_LOOP_BYTES_MIN)))
        await asyncio.sleep(0)
        assert variant.running == 1
        assert (await asking).status == 400
        assert variant.running == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "kind", "size", "waits"),
    [
        ("/predict/p", "application/json", OFF_LOOP_BYTES_MIN // 16, True), ("/predict/p", "application/json", 4096, False),
        ("/predict/p", "image/png", OFF_LOOP_BYTES_MIN // 16, False), ("/predict/p", "image/png", OFF_LOOP_BYTES_MIN, True),
        ("/v2/models/p/infer", "application/json", OFF_LOOP_BYTES_MIN // 16, False),
    ],
)  # fmt: skip
def test_a_body_that_may_be_many_small_rows_is_read_in_a_thread_sooner(
    path: str, kind: str, size: int, waits: bool
) -> None:
    async def run() -> None:
        plane, variant, _ = serving()
        http = post(path, b" " * size)
        asking = asyncio.create_task(plane.respond(replace(http, headers={b"content-type": kind.encode()})))
        await asyncio.sleep(0)
        assert variant.running == waits
        assert (await asking).status in (400, 415)

    asyncio.run(run())


def test_an_answer_of_many_rows_is_much_work_be_they_ever_so_small() -> None:
    numbers = Tensor("FP32", (256,), bytes(1024))
    assert work_of(Answer(VERSION, Signature((), ()), {"x": numbers}, 256, {}, ())) >= OFF_LOOP_BYTES_MIN
    assert work_of(Answer(VERSION, Signature((), ()), {"x": numbers}, 1, {}, ())) < OFF_LOOP_BYTES_MIN


def test_requests_that_reach_no_pipeline_are_counted_by_how_they_ended() -> None:
    async def run() -> None:
        plane, _, inference = serving()
        for path in ("/predict/p", "/predict/other", "/nowhere", "/v2/health/live"):
            await plane.respond(post(path, b"{"))
        live = post("/v2/health/live", b"")
        live.method = b"GET"
        await plane.respond(live)
        assert inference.outside == {
            "json_invalid": 1, "pipeline_not_found": 1, "route_not_found": 1, "method_not_allowed": 1, "ok": 1,
        }  # fmt: skip

    asyncio.run(run())


def serving() -> tuple[DataPlane, Variant, Inference]:
    """A version that is routed; what its workers would answer is never asked."""
    routes = Routes()
    variant = Variant(VERSION, threads=1, clock=monotonic_s)
    routes.add(variant)
    variant.stage = Stage.READY
    routes.refresh("p")
    handle = Handle(routes, 30.0, monotonic_s, receipts=Receipts(), metrics=Metrics())
    inference = Inference(handle, monotonic_s)
    endpoints = Description(inference, lambda: "", "0").endpoints()
    served = [route for route in routes_of("data") if route.endpoint in endpoints.keys() | DIALECTS.keys()]
    return DataPlane(inference, served, DIALECTS, endpoints), variant, inference
