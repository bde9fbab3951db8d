"""Several listening processes (run.fronts): what one of them suffers the others, and the owner, do not."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest
from tests import fixtures_onnx
from tests.serving import Server, serving, wait_until

FRONTS = 3
CONNECTIONS = 24
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]})


def fronts(server: Server) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = server.status()["fronts"]
    return told


def all_ready(server: Server) -> bool:
    return all(front["state"] == "ready" for front in fronts(server))


def ask(connection: HTTPConnection) -> int:
    connection.request("POST", "/v2/models/same/infer", BODY)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "same.onnx"
    fixtures_onnx.identity(path, ("N", 4))
    return path


@pytest.fixture
def server(model: Path, tmp_path: Path) -> Iterator[Server]:
    with serving(model, data=tmp_path / "data", settings={"run.fronts": FRONTS}) as running:
        wait_until(lambda: all_ready(running))
        yield running


@pytest.fixture
def connections(server: Server) -> Iterator[list[HTTPConnection]]:
    """So many that each front has some, open."""
    with ExitStack() as stack:
        opened = [HTTPConnection("127.0.0.1", server.port, timeout=20) for _ in range(CONNECTIONS)]
        for connection in opened:
            stack.callback(connection.close)
            assert ask(connection) == 200
        yield opened


def test_every_front_has_its_part_and_what_they_count_is_one(server: Server, connections: list[HTTPConnection]) -> None:
    told = server.status()
    assert [front["connections"] > 0 for front in told["fronts"]] == [True] * FRONTS
    assert sum(front["connections"] for front in told["fronts"]) == told["connections"] == CONNECTIONS
    assert told["requests"] == CONNECTIONS and told["running"] == 0
    metrics = server.get("/metrics", admin=True).body.decode()
    assert f"forwardpass_http_requests_total {CONNECTIONS}\n" in metrics
    assert all(f'forwardpass_front_connections{{front="{n}"}}' in metrics for n in range(1, FRONTS + 1))


def test_a_front_that_is_killed_takes_its_own_connections_with_it_and_no_others(
    server: Server, connections: list[HTTPConnection]
) -> None:
    killed = fronts(server)[0]
    os.kill(killed["pid"], signal.SIGKILL)
    wait_until(lambda: fronts(server)[0]["deaths"] == 1)
    kept = 0
    for connection in connections:
        try:
            kept += ask(connection) == 200
        except (OSError, HTTPException):
            pass
    assert kept == CONNECTIONS - killed["connections"]
    wait_until(lambda: all_ready(server))
    assert [front["deaths"] for front in fronts(server)] == [1, 0, 0]


def test_while_fronts_are_killed_whoever_connects_anew_is_answered(server: Server) -> None:
    """The owner accepts in their place: a connection that was not open when one died does not notice."""
    failed: list[str] = []
    ended = threading.Event()

    def keep_asking() -> None:
        while not ended.is_set():
            try:
                connection = HTTPConnection("127.0.0.1", server.port, timeout=20)
                connection.connect()
                wait_until(lambda: True)
                if ask(connection) != 200:
                    failed.append("refused")
                connection.close()
            except (OSError, HTTPException) as error:
                failed.append(repr(error))

    threads = [threading.Thread(target=keep_asking) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        for front in fronts(server):
            os.kill(front["pid"], signal.SIGKILL)
        deaths = sum(front["deaths"] for front in fronts(server))
        wait_until(lambda before=deaths: sum(f["deaths"] for f in fronts(server)) > before and all_ready(server))
    ended.set()
    for thread in threads:
        thread.join()
    assert len(failed) <= 3 * len(threads), failed  # those that a killed front had at that moment
    assert server.status()["running"] == 0


def test_requests_of_a_front_that_died_are_given_up(server: Server, connections: list[HTTPConnection]) -> None:
    workers = server.worker_pids("same")
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    for connection in connections:
        connection.request("POST", "/v2/models/same/infer", BODY)
    wait_until(lambda: server.status()["running"] == CONNECTIONS)
    lost = fronts(server)[1]
    os.kill(lost["pid"], signal.SIGKILL)
    wait_until(lambda: server.status()["running"] == CONNECTIONS - lost["connections"])
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: server.status()["running"] == 0)
    told = server.version("same")["outcomes"]
    assert told["cancelled"] == lost["connections"] == server.status()["cancelled"]


def test_a_front_that_stands_still_is_stepped_in_for_and_begun_anew(server: Server) -> None:
    stopped = fronts(server)[2]["pid"]
    os.kill(stopped, signal.SIGSTOP)
    for _ in range(CONNECTIONS):
        assert server.get("/v2/health/ready").status == 200
    wait_until(lambda: fronts(server)[2]["deaths"] == 1 and all_ready(server), 40)
    assert gone(stopped) and server.log.read_text().count("a front hangs") == 1


def test_when_the_owner_is_killed_its_fronts_end_at_once_and_the_port_is_free(server: Server) -> None:
    pids = [front["pid"] for front in fronts(server)]
    server.process.kill()
    server.process.wait()
    wait_until(lambda: all(map(gone, pids)), 3.0)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", server.port))


def test_a_signal_to_everybody_loses_no_request(server: Server, connections: list[HTTPConnection]) -> None:
    """As a service manager sends it: to each process of the group."""
    for pid in (pids := server.worker_pids("same")):
        os.kill(pid, signal.SIGSTOP)
    for connection in connections:
        connection.request("POST", "/v2/models/same/infer", BODY)
    wait_until(lambda: server.status()["running"] == CONNECTIONS)
    for front in fronts(server):
        os.kill(front["pid"], signal.SIGTERM)
    server.terminate()
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    assert [connection.getresponse().status for connection in connections] == [200] * CONNECTIONS
    assert server.process.wait(10) == 0


def test_a_second_server_at_the_same_port_is_refused(server: Server, model: Path, tmp_path: Path) -> None:
    from tests.serving import forwardpass

    arguments = ("serve", model, "--port", str(server.port), "--admin-port", "0", "--fronts", "2")
    done = forwardpass(*arguments, data=tmp_path / "other", check=False)
    assert done.returncode == 2 and "data.port" in done.stderr


@pytest.mark.parametrize("limit", ["connections_max", "connections_per_address_max"])
def test_connections_are_limited_over_all_fronts_together(limit: str, model: Path, tmp_path: Path) -> None:
    settings = {"run.fronts": FRONTS, f"limits.{limit}": 10}
    with serving(model, data=tmp_path / "data", settings=settings) as server, ExitStack() as stack:
        wait_until(lambda: all_ready(server))
        statuses = []
        for _ in range(14):
            connection = HTTPConnection("127.0.0.1", server.port, timeout=20)
            stack.callback(connection.close)
            statuses.append(ask(connection))
        assert statuses == [200] * 10 + [503] * 4
