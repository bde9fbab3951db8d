"""Who may ask (the catalogue's A): the whole route table, by callers of every kind, at one server that wants keys.

A11 is shown over gRPC: a stream over HTTP (``generate_stream``) of a whole server has one event, as no engine gives parts
of an answer, so none is there to be cut; that one of several is, shows tests/ingress/test_identity_keys.py.
"""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import fixtures_onnx
from tests.faults.door import CLOSED, HTTP_ROUTES, LESS, RIGHT, Door, opened, path_of
from tests.serving import Reply, forwardpass, wait_until

from forwardpass.ingress.routes import Route
from forwardpass.store.keys import FILE

BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}).encode()


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with opened(tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("data")) as door:
        yield door


def named(route: Route) -> str:
    return f"{route.plane} {route.method.decode()} {route.pattern}"


@pytest.mark.parametrize("route", HTTP_ROUTES, ids=named)
def test_a1_only_health_and_the_page_are_open(door: Door, route: Route) -> None:
    if route.scope == "open":
        assert door.walk(route).status in (200, 404, 501)
        assert route.endpoint in {"live", "ready", "ping", "alive", "version", "try_page", "try_page_asset"}
    else:
        assert (door.walk(route).status, door.walk(route).code) == (401, "unauthenticated")


@pytest.mark.parametrize("route", CLOSED, ids=named)
def test_a1_a_key_that_is_wrong_expired_or_revoked_opens_nothing_and_is_told_the_same(door: Door, route: Route) -> None:
    replies = [door.walk(route, key) for key in ("wrong", "expired", "revoked")]
    assert [reply.status for reply in replies] == [401] * 3
    assert len({re.sub(rb"[0-9a-f]{32}", b"", reply.body) for reply in replies}) == 1
    assert all(reply.headers["www-authenticate"] == "Bearer" for reply in replies)


@pytest.mark.parametrize("route", [route for route in CLOSED if route.scope != "read"], ids=named)
def test_a1_a_key_for_something_else_is_forbidden_and_the_right_one_is_not(door: Door, route: Route) -> None:
    assert (door.walk(route, LESS[route.scope]).status, door.walk(route, LESS[route.scope]).code) == (403, "forbidden")
    right = door.walk(route, RIGHT[route.scope], "nothing")  # a pipeline that is not there: nothing is unloaded
    assert right.status not in (401, 403), right.body


@pytest.mark.parametrize("route", [route for route in CLOSED if route.scope == "read"], ids=named)
def test_a1_what_is_said_of_a_pipeline_is_for_those_who_may_ask_it(door: Door, route: Route) -> None:
    one = re.search(r"\{(pipeline|model)\}", route.pattern) is not None or route.endpoint == "tei_info"
    assert door.walk(route, "infer").status not in (401, 403)
    other = door.walk(route, "identity", "add")
    assert other.status == (404 if route.endpoint in {"tei_info"} else 403) if one else other.status == 200, other.body


def test_a5_whether_there_is_a_pipeline_is_not_told_to_those_who_may_not_ask_it(door: Door) -> None:
    for path in ("/v2/models/{}", "/v2/models/{}/ready", "/v1/models/{}", "/models/{}"):
        there, nowhere = (door.ask("GET", path.format(name), "identity") for name in ("add", "nix"))
        assert (there.status, nowhere.status) == (403, 403)
        assert b"add" in there.body and there.body.replace(b"add", b"nix")[:40] == nowhere.body[:40]


@pytest.mark.parametrize("route", CLOSED, ids=named)
def test_a1_no_other_way_to_write_a_path_goes_round_the_door(door: Door, route: Route) -> None:
    path, admin = path_of(route), route.plane == "admin"
    # Of a placeholder's segment any case is another value, and is asked for like it.
    variants = [
        path + "/",
        path.upper(),
        path.replace("/", "//"),
        path.replace("/", "/%2f", 1),
        path + "%00",
        path + ";a",
    ]
    variants += [path.replace("/", "/./", 1), path + "?key=" + door.keys["admin"], path.replace("e", "%65")]
    found = {door.ask(route.method.decode(), each, admin=admin).status for each in variants if each.isascii()}
    assert found <= {400, 401}, found


@pytest.mark.parametrize("route", CLOSED, ids=named)
def test_a1_no_other_method_goes_round_the_door(door: Door, route: Route) -> None:
    path, admin = path_of(route), route.plane == "admin"
    for method in ("HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "QUERY", "POST", "GET"):
        opened = any(other.scope == "open" and path_of(other) == path for other in HTTP_ROUTES)
        if not (opened and method in ("GET", "HEAD")):
            assert door.ask(method, path, admin=admin).status == 401


def test_a5_lists_show_a_caller_what_it_may_see(door: Door) -> None:
    def seen(key: str) -> list[set[str]]:
        stats = {each["name"] for each in door.ask("GET", "/v2/models/stats", key).json["model_stats"]}
        tags = {tag["name"] for tag in door.ask("GET", "/openapi.json", key).json["tags"]} & {"add", "identity"}
        v1 = {each["id"] for each in door.ask("GET", "/v1/models", key).json["data"]}
        containers = {each["modelName"] for each in door.ask("GET", "/models", key).json["models"]}
        return [set(door.ask("GET", "/v2/models", key).json["models"]), v1, containers, stats, tags]

    assert seen("identity") == [{"identity"}] * 5
    assert seen("infer") == [{"add", "identity"}] * 5
    assert seen("jobs") == [set()] * 5


def test_a1_a_request_that_names_no_pipeline_is_for_the_only_one_its_caller_may_ask(door: Door) -> None:
    csv = {"Content-Type": "application/json"}
    body = b'{"instances": [[1, 2, 3, 4]]}'
    assert door.ask("POST", "/invocations", "identity", body, headers=csv).json == {"predictions": [[1, 2, 3, 4]]}
    assert door.ask("POST", "/invocations", "infer", body, headers=csv).code == "pipeline_not_found"
    none = door.ask("POST", "/invocations", "nothing there", body, headers=csv)
    assert (none.status, none.code) == (404, "pipeline_not_found")
    assert b"no pipeline is served that this caller may ask" in none.body


def test_a1_health_names_no_pipeline(door: Door) -> None:
    assert door.ask("GET", "/ready", admin=True).json == {"ready": True}
    assert door.ask("GET", "/v2/health/ready").status == 200


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a2_the_case_of_bearer_does_not_count(door: Door, scheme: str) -> None:
    assert door.ask("GET", "/v2", headers={"Authorization": f"{scheme} {door.keys['jobs']}"}).status == 200


@pytest.mark.parametrize("name", ["X-API-Key", "x-api-key", "api-key"])
def test_a2_a_key_may_stand_where_other_clients_put_it(door: Door, name: str) -> None:
    assert door.ask("GET", "/v2", headers={name: door.keys["jobs"]}).status == 200


HOSTILE = {
    "not ASCII": b"Authorization: Bearer \xff\xfe\xc3\xa9",
    "10 KB": b"Authorization: Bearer " + b"k" * 10_240,
    "empty": b"Authorization:",
    "no key": b"Authorization: Bearer",
    "empty X-API-Key": b"X-API-Key:",
    "SQL": b"Authorization: Bearer ' OR 1=1--",
    "other scheme": b"Authorization: Basic YTpi",
    "no scheme": b"Authorization: fp_abc",
    "looks like a token": b"Authorization: Bearer eyJhbGciOiJub25lIn0.e30.",
    "NUL": b"Authorization: Bearer a\0b",
    "two": b"Authorization: Bearer a\r\nAuthorization: Bearer b",
    "two that are one": b"Authorization: Bearer a\r\nAuthorization: Bearer a",
    "two joined": b"Authorization: Bearer a, Bearer b",
    "two names": b"Authorization: Bearer a\r\nX-API-Key: b",
    "X-API-Key twice": b"X-API-Key: a\r\nX-API-Key: a",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a2_a_hostile_credential_is_refused_by_its_kind(door: Door, case: str) -> None:
    with socket.create_connection(("127.0.0.1", door.server.port), 10, (f"127.200.0.{len(case) + 1}", 0)) as client:
        client.sendall(b"GET /v2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + HOSTILE[case] + b"\r\n\r\n")
        status = int(b"".join(iter(lambda: client.recv(65536), b"")).split(b" ", 2)[1])
    assert status == (400 if case.startswith(("two", "NUL", "X-API-Key twice")) else 401)


def test_a5_a_receipt_is_for_its_own_tenant_and_administrators(door: Door) -> None:
    id = door.ask("POST", "/v2/models/identity/infer", "infer", BODY).headers["x-request-id"]
    unknown = door.ask("GET", f"/receipts/{'0' * 32}", "other", admin=True)
    foreign = door.ask("GET", f"/receipts/{id}", "other", admin=True)
    assert (foreign.status, foreign.json["detail"]) == (404, unknown.json["detail"])
    assert foreign.code == unknown.code == "receipt_not_found"
    for key in ("receipts", "admin"):
        seen = door.ask("GET", f"/receipts/{id}", key, admin=True)
        assert (seen.json["tenant"], seen.json["key"]) == ("acme", door.keys["infer"].split("_")[1])


def test_a5_an_idempotency_key_is_of_one_tenant_and_of_those_who_may_do_the_same(door: Door) -> None:
    def ask(key: str) -> Reply:
        return door.ask("POST", "/v2/models/identity/infer", key, BODY, headers={"Idempotency-Key": "k"})

    door.create("infer too", "acme", "infer")
    wait_until(lambda: door.ask("GET", "/v2", "infer too").status == 200)
    replies = [ask(key) for key in ("infer", "other", "identity", "infer too")]
    assert ["idempotency-replayed" in reply.headers for reply in replies] == [False, False, False, True]
    assert replies[3].headers["x-request-id"] == replies[0].headers["x-request-id"]


def test_a6_guessing_is_bounded_for_the_guesser_alone(door: Door) -> None:
    guesses = [
        door.ask("GET", "/v2", f"guess{n}", address="127.201.0.1", headers={"X-Forwarded-For": f"10.0.0.{n}"}).status
        for n in range(200)
    ]
    assert set(guesses) == {401, 429}
    assert guesses.count(401) < 100
    limited = door.ask("GET", "/v2", "guess", address="127.201.0.1")
    assert limited.status == 401 or "retry-after" in limited.headers
    assert door.ask("GET", "/v2", "infer", address="127.201.0.1").status == 200
    assert door.ask("GET", "/v2", "guess", address="127.201.0.2").status == 401


def test_a9_what_can_be_reached_from_outside_does_not_start_without_keys(tmp_path: Path) -> None:
    done = forwardpass("serve", tmp_path, "--set", "data.host=0.0.0.0", data=tmp_path, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "auth.required" in line and "data.host" in line


def test_a_store_of_keys_that_cannot_be_read_at_the_start_is_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    fixtures_onnx.identity(tmp_path / "identity.onnx")
    done = forwardpass("serve", tmp_path / "identity.onnx", "--set", "auth.required=true", data=tmp_path, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert str(tmp_path / FILE) in line and "is of user" in line


def test_a10_the_operator_s_paths_are_not_on_the_data_plane(door: Door) -> None:
    for route in HTTP_ROUTES:
        if route.plane == "admin" and not any(path_of(o) == path_of(route) for o in HTTP_ROUTES if o.plane == "data"):
            assert door.ask(route.method.decode(), path_of(route), "admin").status == 404


@pytest.mark.parametrize("header", ["X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Prefix", "X-Forwarded-Host"])
def test_a10_no_header_is_believed_to_say_another_path_or_caller(door: Door, header: str) -> None:
    assert door.ask("GET", "/v2/models/add", "identity", headers={header: "/v2/models/identity"}).status == 403
    assert door.ask("GET", "/v2", headers={header: "/v2/health/live", "X-Forwarded-For": "127.0.0.1"}).status == 401


def test_no_key_is_in_the_log_or_the_metrics(door: Door) -> None:
    told = door.server.log.read_bytes() + door.ask("GET", "/metrics", "admin", admin=True).body
    told += door.ask("GET", "/status", "admin", admin=True).body + door.ask("GET", "/config", "admin", admin=True).body
    assert not [name for name, key in door.keys.items() if key.encode() in told]


def test_the_verbose_log_names_tenant_and_key_of_a_request(door: Door) -> None:
    def verbose(level: int) -> None:
        settings = json.dumps({"log_verbose_level": level}).encode()
        assert door.ask("POST", "/v2/logging", "admin", settings, admin=True).status == 200

    verbose(1)
    id = door.ask("POST", "/v2/models/identity/infer", "infer", BODY).headers["x-request-id"]
    wait_until(lambda: id.encode() in door.server.log.read_bytes())
    verbose(0)
    line = next(json.loads(line) for line in door.server.log.read_text().splitlines() if id in line)
    assert (line["tenant"], line["key"]) == ("acme", door.keys["infer"].split("_")[1])
