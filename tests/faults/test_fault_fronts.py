"""Several listening processes (run.fronts): what one of them suffers the others, and the owner, do not."""

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest
from tests import fixtures_onnx
from tests.serving import Server, forwardpass, serving, wait_until

FRONTS = 3
CONNECTIONS = 24


def fronts(server: Server) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = server.status()["fronts"]
    return told


def all_ready(server: Server) -> bool:
    return all(front["state"] == "ready" for front in fronts(server))


def send(connection: HTTPConnection, number: float = 1.0, spaces: int = 0) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [number, 2.0, 3.0, 4.0]}
    connection.request("POST", "/v2/models/same/infer", json.dumps({"inputs": [tensor]}) + " " * spaces)


def receive(connection: HTTPConnection) -> tuple[int, Any]:
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def ask(connection: HTTPConnection) -> int:
    send(connection)
    return receive(connection)[0]


@contextmanager
def opened(server: Server, count: int = CONNECTIONS) -> Iterator[list[HTTPConnection]]:
    """So many that each front has some."""
    with ExitStack() as stack:
        connections = [HTTPConnection("127.0.0.1", server.port, timeout=30) for _ in range(count)]
        for connection in connections:
            stack.callback(connection.close)
            assert ask(connection) == 200
        yield connections


@contextmanager
def held(server: Server) -> Iterator[None]:
    """Nothing that is asked within is answered before the end."""
    pids = server.worker_pids("same")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def fronted(model: Path, data: Path, **settings: object) -> Iterator[Server]:
    with serving(model, data=data, settings={"run.fronts": FRONTS, **settings}) as server:
        wait_until(lambda: all_ready(server))
        yield server


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fronts")


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    path = folder / "same.onnx"
    fixtures_onnx.identity(path, ("N", 4))
    return path


@pytest.fixture(scope="module")
def shared(model: Path, folder: Path) -> Iterator[Server]:
    with fronted(model, folder / "data") as running:
        yield running


@pytest.fixture
def server(shared: Server) -> Server:
    """With every front there, and nothing going on."""
    wait_until(lambda: all_ready(shared) and shared.status()["running"] == shared.status()["connections"] == 0)
    return shared


def test_every_front_has_its_part_and_what_they_count_is_one(server: Server) -> None:
    before = server.status()["requests"]
    with opened(server):
        told = server.status()
        assert all(front["connections"] for front in told["fronts"])
        assert sum(front["connections"] for front in told["fronts"]) == told["connections"] == CONNECTIONS
        assert (told["requests"], told["running"]) == (before + CONNECTIONS, 0)
        metrics = server.get("/metrics", admin=True).body.decode()
    assert f"forwardpass_http_requests_total {before + CONNECTIONS}\n" in metrics
    assert all(f'forwardpass_front_connections{{front="{n}"}}' in metrics for n in range(1, FRONTS + 1))


def test_each_answer_of_a_batch_goes_to_who_asked(server: Server) -> None:
    with opened(server) as connections:
        for round in range(5):
            with held(server):
                for number, connection in enumerate(connections):
                    send(connection, 100.0 * round + number)
            answers = [receive(connection)[1]["outputs"][0]["data"][0] for connection in connections]
            assert answers == [100.0 * round + number for number in range(CONNECTIONS)]


def test_a_front_that_is_killed_takes_its_own_connections_with_it_and_no_others(server: Server) -> None:
    with opened(server) as connections:
        killed = fronts(server)[0]
        os.kill(killed["pid"], signal.SIGKILL)
        wait_until(lambda: fronts(server)[0]["deaths"] == killed["deaths"] + 1)
        kept = 0
        for connection in connections:
            connection.auto_open = 0
            with suppress(OSError, HTTPException):
                kept += ask(connection) == 200
        assert kept == CONNECTIONS - killed["connections"]


def test_while_fronts_are_killed_whoever_connects_anew_is_answered(server: Server) -> None:
    """The owner accepts in their place; only what a front has at that moment goes with it."""
    failed: list[str] = []
    ended = threading.Event()

    def keep_asking() -> None:
        while not ended.is_set():
            try:
                assert server.get("/v2/health/ready").status == 200
            except (OSError, HTTPException) as error:
                failed.append(repr(error))

    threads = [threading.Thread(target=keep_asking) for _ in range(4)]
    for thread in threads:
        thread.start()
    for front in fronts(server):
        os.kill(front["pid"], signal.SIGKILL)
        wait_until(lambda pid=front["pid"]: all_ready(server) and pid not in [each["pid"] for each in fronts(server)])
    ended.set()
    for thread in threads:
        thread.join()
    assert len(failed) <= FRONTS * len(threads), failed


def test_requests_of_a_front_that_died_are_given_up(server: Server) -> None:
    before = server.status()["cancelled"]
    with opened(server) as connections, held(server):
        for connection in connections:
            send(connection)
        wait_until(lambda: server.status()["running"] == CONNECTIONS)
        lost = fronts(server)[1]
        os.kill(lost["pid"], signal.SIGKILL)
        wait_until(lambda: server.status()["running"] == CONNECTIONS - lost["connections"])
    wait_until(lambda: server.status()["running"] == 0)
    assert server.status()["cancelled"] - before >= lost["connections"]


def test_of_fronts_that_died_nothing_stays_open(server: Server) -> None:
    folder = f"/proc/{server.process.pid}/fd"
    before, deaths = len(os.listdir(folder)), sum(front["deaths"] for front in fronts(server))
    with opened(server) as connections, held(server):
        for connection in connections[:8]:
            send(connection, spaces=100_000)  # each body is in a memory file
        wait_until(lambda: server.status()["running"] == 8)
        for front in fronts(server):
            os.kill(front["pid"], signal.SIGKILL)
    wait_until(lambda: sum(front["deaths"] for front in fronts(server)) == deaths + FRONTS)
    wait_until(lambda: all_ready(server) and len(os.listdir(folder)) == before)


def test_pages_and_metrics_are_there_through_every_front(server: Server) -> None:
    with opened(server) as connections:
        for path in ("/docs", "/openapi.json", "/v2/models/same"):
            for connection in connections:
                connection.request("GET", path)
                answer = connection.getresponse()
                assert answer.status == 200 and answer.read()


def test_a_front_that_stands_still_is_stepped_in_for_and_begun_anew(server: Server) -> None:
    stopped = fronts(server)[2]
    os.kill(stopped["pid"], signal.SIGSTOP)
    for _ in range(CONNECTIONS):
        assert server.get("/v2/health/ready").status == 200
    wait_until(lambda: fronts(server)[2]["deaths"] == stopped["deaths"] + 1, 40)
    assert gone(stopped["pid"]) and "a front hangs" in server.log.read_text()


def test_a_second_server_at_the_same_port_is_refused(server: Server, model: Path, tmp_path: Path) -> None:
    arguments = ("serve", model, "--port", str(server.port), "--admin-port", "0", "--fronts", "2")
    done = forwardpass(*arguments, data=tmp_path / "other", check=False)
    assert done.returncode == 2 and "data.port" in done.stderr


def test_when_the_owner_is_killed_its_fronts_end_at_once_and_the_port_is_free(model: Path, tmp_path: Path) -> None:
    with fronted(model, tmp_path) as server:
        pids = [front["pid"] for front in fronts(server)]
        server.process.kill()
        server.process.wait()
        wait_until(lambda: all(map(gone, pids)), 3.0)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", server.port))


def test_a_signal_to_everybody_loses_no_request(model: Path, tmp_path: Path) -> None:
    """As a service manager sends it: to each process of the group."""
    with fronted(model, tmp_path) as server, opened(server) as connections:
        with held(server):
            for connection in connections:
                send(connection)
            wait_until(lambda: server.status()["running"] == CONNECTIONS)
            for front in fronts(server):
                os.kill(front["pid"], signal.SIGTERM)
            server.terminate()
        assert [receive(connection)[0] for connection in connections] == [200] * CONNECTIONS
        assert server.process.wait(15) == 0


def test_connections_are_limited_over_all_fronts_together(model: Path, tmp_path: Path) -> None:
    limits = {"limits.connections_max": 10, "limits.connections_per_address_max": 8}
    with fronted(model, tmp_path, **limits) as server, opened(server, 8), ExitStack() as stack:
        statuses = []
        for address in ["127.0.0.1"] * 2 + ["127.0.0.2"] * 4:
            connection = HTTPConnection("127.0.0.1", server.port, timeout=30, source_address=(address, 0))
            stack.callback(connection.close)
            statuses.append(ask(connection))
        assert statuses[:2] == [503, 503] and statuses[2] == 200 and statuses[-1] == 503
