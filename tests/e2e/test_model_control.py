"""Loads and unloads that are given up, overtaken, late or too much: what is served afterwards is what was asked for."""

import os
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.e2e.pipelines import OWN_MODEL, write_own
from tests.serving import Reply, Server, forwardpass, serving, wait_until

SLOW_TO_LOAD = OWN_MODEL.replace("x = [2.0, 2.0]", "x = [600.0, 2.0]").replace("y = 4.0", "y = 602.0")
"""Its golden example takes 0.6 s, and is run several times."""
LOAD, UNLOAD = "/v2/repository/models/own/load", "/v2/repository/models/own/unload"
LONG_AGO = 1_000_000_000  # files that were just written are given a second to settle


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """own/1 and own/2, which is slow to load, and bad/1, which cannot be."""
    root = tmp_path_factory.mktemp("models")
    write_own(root / "own" / "1", OWN_MODEL)
    write_own(root / "own" / "2", SLOW_TO_LOAD)
    (root / "bad" / "1").mkdir(parents=True)
    (root / "bad" / "1" / "model.onnx").write_bytes(b"not a model at all, not even nearly")
    for path in root.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    forwardpass("trust", root / "own", data=data)
    return root


@contextmanager
def older(models: Path, data: Path, **settings: object) -> Iterator[Server]:
    """Version 1 is loaded; version 2 came to the repository after the start."""
    with TemporaryDirectory() as folder:
        own = Path(folder) / "own"
        shutil.copytree(models / "own" / "1", own / "1")
        with serving(own, data=data, settings={"data.model_control": "true", **settings}) as server:
            shutil.copytree(models / "own" / "2", own / "2")
            yield server


def state(server: Server, version: str = "own/2") -> str:
    entries = server.call("POST", "/v2/repository/index").json
    (found,) = (entry["state"] for entry in entries if f"{entry['name']}/{entry['version']}" == version)
    return str(found)


def ready(server: Server) -> bool:
    return server.get("/v2/health/ready").status == 200


def answering(server: Server) -> str:
    version: str = server.infer("own", "x", "FP64", [1, 2], [1.0, 2.0]).json["model_version"]
    return version


def give_up(server: Server, path: str, once: str) -> None:
    """Ask, and go away as soon as version 2 is in the state ``once``."""
    with socket.create_connection(("127.0.0.1", server.port)) as leaving:
        leaving.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
        wait_until(lambda: state(server) == once)
    wait_until(lambda: server.status()["cancelled"] == 1)


@contextmanager
def meanwhile(call: "threading.Thread") -> Iterator[None]:
    call.start()
    yield
    call.join()


def test_a_load_whose_client_gives_up_goes_on_and_the_new_version_takes_over(models: Path, data: Path) -> None:
    with older(models, data) as server:
        give_up(server, LOAD, "LOADING")
        assert (state(server), answering(server), ready(server)) == ("LOADING", "1", True)
        wait_until(lambda: state(server) == "READY")
        assert (answering(server), ready(server)) == ("2", True)
        assert '"text": "version is ready", "pipeline": "own", "version": 2' in server.log.read_text()


def test_a_load_after_one_that_was_given_up_is_answered_when_it_is_ready(models: Path, data: Path) -> None:
    with older(models, data) as server:
        give_up(server, LOAD, "LOADING")
        assert server.call("POST", LOAD).status == 200
        assert (state(server), answering(server)) == ("READY", "2")


def test_an_unload_whose_client_gives_up_goes_on(models: Path, data: Path) -> None:
    with older(models, data) as server:
        assert server.call("POST", LOAD).status == 200
        with meanwhile(threading.Thread(target=server.predict, args=("own", {"x": [3000.0, 0.0]}))):
            wait_until(lambda: sum(version["running"] for version in server.status()["versions"]) == 1)
            assert server.call("POST", "/pipelines/own/versions/1/unload", admin=True).status == 200
            give_up(server, UNLOAD, "UNLOADING")
            assert state(server) == "UNLOADING"
        wait_until(lambda: state(server) == "UNAVAILABLE")
        assert ready(server)


@pytest.mark.parametrize("path", [UNLOAD, "/pipelines/own/versions/2/unload"])
def test_an_unload_during_a_load_ends_in_unloaded_and_ready(models: Path, data: Path, path: str) -> None:
    with older(models, data) as server:
        with meanwhile(threading.Thread(target=server.call, args=("POST", LOAD))):
            wait_until(lambda: state(server) == "LOADING")
            assert server.call("POST", path, admin=path != UNLOAD).status == 200
        assert (state(server), ready(server)) == ("UNAVAILABLE", True)


def test_while_the_server_shuts_down_nothing_is_loaded(models: Path, data: Path) -> None:
    with older(models, data, **{"run.ready_grace_s": 3.0}) as server:
        server.terminate()
        wait_until(lambda: not ready(server))
        late = [server.call("POST", LOAD), server.call("POST", "/pipelines/own/versions/2/load", admin=True)]
        assert [(answer.status, answer.code) for answer in late[:1]] == [(503, "shutting_down")]
        assert (late[1].status, late[1].json["title"]) == (503, "shutting_down")
        assert server.process.wait(20) == 0
        assert "defect" not in server.log.read_text()


def test_a_load_that_runs_when_the_server_shuts_down_is_told_so_and_holds_up_nothing(models: Path, data: Path) -> None:
    with older(models, data, **{"run.drain_s": 0.1}) as server:
        answers: list[Reply] = []
        path = "/pipelines/own/versions/2/load"
        loading = threading.Thread(target=lambda: answers.append(server.call("POST", path, admin=True)))
        with meanwhile(loading):
            wait_until(lambda: state(server) == "LOADING")
            server.terminate()
            assert server.process.wait(20) == 0
        assert [answer.json["title"] for answer in answers] == ["shutting_down"]
        assert "defect" not in server.log.read_text()


@pytest.mark.parametrize("path", ["/v2/repository/models/bad/unload", "/pipelines/bad/versions/1/unload"])
def test_a_version_that_failed_at_the_start_can_be_given_up(models: Path, data: Path, path: str) -> None:
    with serving(models / "bad", models / "own" / "1", data=data, ready=False) as server:
        wait_until(lambda: "bad version 1" in server.get("/v2/health/ready").json.get("error", ""))
        assert server.call("POST", path, admin=True).status == 200
        assert ready(server)
        assert server.status()["failures"] == {}
        assert server.call("POST", "/pipelines/bad/versions/1/unload", admin=True).status == 404
