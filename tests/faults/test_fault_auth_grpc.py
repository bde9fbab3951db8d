"""Who may ask over gRPC (the catalogue's A): every method, streams that say nothing, keys that are taken back."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tests.faults.door import LESS, REVOKED_WITHIN_S, RIGHT, Door, opened
from tests.faults.h2_wire import DATA, END_STREAM, REQUEST, frame, message
from tests.faults.h2_wire import field as header
from tests.grpc_calls import SERVICE, channel, infer_request
from tests.serving import wait_until

from forwardpass.ingress.grpc.messages import classes
from forwardpass.ingress.route_table import ROUTES
from forwardpass.ingress.routes import Route

GRPC_ROUTES = [route for route in ROUTES if route.protocol == "grpc"]
STREAM = f"/{SERVICE}/ModelStreamInfer"
UNAUTHENTICATED = header(b"grpc-status", b"16")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with opened(tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("data")) as door:
        yield door


def grpc_code(door: Door, route: Route, key: str = "", **members: Any) -> str:
    name = route.pattern.rpartition("/")[2]
    metadata = (("authorization", f"Bearer {door.keys.get(key, key)}"),) if key else ()
    with channel(door.server.grpc_port) as client:
        try:
            if name == "ModelStreamInfer":
                list(client.stream([infer_request("nothing", "x", "FP32", [1, 4], bytes(16))], metadata=metadata))
            else:
                request = {"Check": "HealthCheckRequest"}.get(name, f"{name}Request")
                method = "grpc.health.v1.Health/Check" if name == "Check" else name
                client.ask(method, classes()[request](**members), metadata=metadata)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


@pytest.mark.parametrize("route", GRPC_ROUTES, ids=lambda route: str(route.pattern))
def test_a1_every_method_of_grpc_wants_a_key_with_its_scope(door: Door, route: Route) -> None:
    if route.scope == "open":
        assert grpc_code(door, route) == "OK"
        return
    assert grpc_code(door, route) == "UNAUTHENTICATED"
    for key in ("wrong", "expired", "revoked"):
        with door.wire(route.pattern, key) as wire:
            wire.say(frame(DATA, END_STREAM, 1, message(b"")))
            assert UNAUTHENTICATED in wire.trailers(1)
    assert grpc_code(door, route, RIGHT[route.scope]) not in {"UNAUTHENTICATED", "PERMISSION_DENIED"}
    if route.scope in LESS and not route.pattern.endswith("ModelStreamInfer"):
        assert grpc_code(door, route, LESS[route.scope]) == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    "metadata",
    [(("authorization", "Bearer a"), ("authorization", "Bearer b")), (("authorization", "Bearer a"), ("api-key", "b"))],
)
def test_a2_two_keys_of_one_call_are_refused(door: Door, metadata: Any) -> None:
    with channel(door.server.grpc_port) as client, pytest.raises(grpc.RpcError) as refused:
        client.ask("ServerMetadata", classes()["ServerMetadataRequest"](), metadata=metadata)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a1_over_grpc_a_pipeline_is_for_those_who_may_ask_it(door: Door) -> None:
    metadata = (("x-api-key", door.keys["identity"]),)
    with channel(door.server.grpc_port) as client:
        client.infer(infer_request("identity", "x", "FP32", [1, 4], bytes(16)), metadata=metadata)
        for method in ("ModelMetadata", "ModelConfig", "ModelReady", "ModelStatistics"):
            with pytest.raises(grpc.RpcError) as refused:
                client.ask(method, classes()[f"{method}Request"](name="add"), metadata=metadata)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        asked = [infer_request("add", "x", "FP32", [1, 4], bytes(16))]
        assert "infer:add" in next(iter(client.stream(asked, metadata=metadata))).error_message
        (statistics,) = client.ask("ModelStatistics", classes()["ModelStatisticsRequest"](), metadata=metadata)[
            0
        ].model_stats
        assert statistics.name == "identity"


@pytest.mark.parametrize("key", ["", "wrong", "expired", "revoked"])
def test_a1_a_stream_of_nobody_ends_before_it_has_said_anything(door: Door, key: str) -> None:
    with door.wire(STREAM, key) as wire:
        assert UNAUTHENTICATED in wire.trailers(1)


@pytest.mark.parametrize("requests", [0, 1])
def test_a11_a_silent_stream_ends_once_its_key_is_revoked(door: Door, requests: int) -> None:
    name = f"silent {requests}"
    door.create(name, "acme", "infer")
    wait_until(lambda: door.ask("GET", "/v2", name).status == 200, REVOKED_WITHIN_S)
    with door.wire(STREAM, name) as wire:
        if requests:
            wire.say(frame(DATA, 0, 1, REQUEST))
            wire.until(DATA, 1)
        door.revoke(name)
        assert UNAUTHENTICATED in wire.trailers(1)


def test_a11_a_stream_ends_once_its_key_is_revoked(door: Door) -> None:
    door.create("streaming", "acme", "infer")
    metadata = (("authorization", f"Bearer {door.keys['streaming']}"),)
    wait_until(lambda: door.ask("GET", "/v2", "streaming").status == 200, REVOKED_WITHIN_S)
    revoked = False

    def requests() -> Iterator[Any]:
        yield infer_request("identity", "x", "FP32", [1, 4], bytes(16))
        wait_until(lambda: revoked)
        yield infer_request("identity", "x", "FP32", [1, 4], bytes(16))

    with channel(door.server.grpc_port) as client:
        answers = client.stream(requests(), metadata=metadata)
        assert next(answers).error_message == ""
        door.revoke("streaming")
        wait_until(lambda: door.ask("GET", "/v2", "streaming").status == 401, REVOKED_WITHIN_S)
        revoked = True
        with pytest.raises(grpc.RpcError) as refused:
            next(answers)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
