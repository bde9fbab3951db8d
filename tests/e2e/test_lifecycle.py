"""Start, stop, load, unload, stall: what happens to requests and processes (behaviours 26, 35, 37; FAULTS S and D)."""

import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest
from tests.e2e.pipelines import OWN_MODEL, write_own
from tests.serving import Reply, Server, command, forwardpass, free_port, serving, wait_until

SLOW = {"x": [1500.0, 0.0]}


def test_26_after_sigterm_running_requests_finish_new_ones_are_answered_and_the_exit_is_clean(
    repository: Path, data: Path
) -> None:
    with serving(repository / "wait", data=data, settings={"run.ready_grace_s": 3.0}) as server:
        answers: list[Reply] = []
        running = [threading.Thread(target=lambda: answers.append(server.predict("wait", SLOW))) for _ in range(50)]
        for thread in running:
            thread.start()
        wait_until(lambda: server.version("wait")["running"] == 50)
        server.terminate()
        wait_until(lambda: server.get("/v2/health/ready").status == 503, 2.0)
        late = [server.predict("wait", {"x": [float(n), 0.0]}) for n in range(5)]
        for thread in running:
            thread.join()
        assert [answer.status for answer in answers] == [200] * 50
        assert all(answer.status == 200 or "retry-after" in answer.headers for answer in late)
        assert {answer.status for answer in late} <= {200, 503}
        assert server.process.wait(20) == 0


def test_27_a_kept_connection_is_answered_and_told_to_close_while_the_server_drains(
    repository: Path, data: Path
) -> None:
    with serving(repository / "own", data=data, settings={"run.ready_grace_s": 0.0}) as server:
        kept = HTTPConnection("127.0.0.1", server.port, timeout=30)
        kept.request("POST", "/predict/own", json.dumps({"x": [1.0, 2.0]}), {"Content-Type": "application/json"})
        first = kept.getresponse()
        assert first.read() and first.getheader("Connection") is None
        kept.request("POST", "/predict/own", json.dumps(SLOW), {"Content-Type": "application/json"})
        wait_until(lambda: server.version("own")["running"] == 1)
        server.terminate()
        last = kept.getresponse()
        assert json.loads(last.read())["outputs"] == {"y": 1500.0}
        assert last.getheader("Connection") == "close"
        assert server.process.wait(20) == 0


def test_a_second_signal_ends_at_once(repository: Path, data: Path) -> None:
    with serving(repository / "own", data=data, settings={"run.ready_grace_s": 30.0}) as server:
        threading.Thread(target=lambda: _quietly(server), daemon=True).start()
        wait_until(lambda: server.version("own")["running"] == 1)
        server.terminate()
        time.sleep(0.2)
        server.terminate()
        assert server.process.wait(8) == 0


def test_a_second_signal_ends_the_drain_at_once(repository: Path, data: Path) -> None:
    with serving(repository / "own", data=data, settings={"run.drain_s": 60.0}) as server:
        threading.Thread(target=lambda: _quietly(server), daemon=True).start()
        wait_until(lambda: server.version("own")["running"] == 1)
        server.terminate()
        wait_until(lambda: not _accepts(server.port), 5.0)
        server.terminate()
        assert server.process.wait(4) == 0


def test_failures_are_answered_also_when_nobody_reads_the_log(repository: Path, data: Path) -> None:
    with _unread(repository / "own", data) as server:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=5)
        for _ in range(3000):
            connection.request("POST", "/predict/own", b'{"x": [-1, 0]}', {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 500
        connection.close()
        _books_balance(server)


def test_killing_the_front_leaves_no_orphan(repository: Path, data: Path) -> None:
    with serving(repository / "own", data=data) as server:
        workers = server.worker_pids("own")
        assert workers
        server.process.kill()
        server.process.wait()
        wait_until(lambda: not any(psutil.pid_exists(pid) and _alive(pid) for pid in workers), 5.0)


def test_35_memory_stays_flat_over_loads_and_unloads(repository: Path, data: Path) -> None:
    with serving(repository / "identity", repository / "own", data=data) as server:
        for cycle in range(25):
            assert server.call("POST", "/pipelines/identity/versions/1/unload", admin=True).status == 200
            assert server.get("/ready", admin=True).status == 200  # it is away on purpose
            assert server.call("POST", "/pipelines/identity/versions/1/load", admin=True).status == 200
            answer = server.infer("identity", "x", "FP32", [1, 4], [1, 2, 3, cycle])
            assert answer.json["outputs"][0]["data"] == [1, 2, 3, cycle]
            if cycle == 4:
                early = server.resident_bytes()
        assert server.resident_bytes() < 1.07 * early


def test_37_a_worker_that_stops_moving_is_noticed_and_replaced(repository: Path, data: Path) -> None:
    with serving(repository / "own", data=data) as server:
        (pid,) = server.worker_pids("own")
        os.kill(pid, signal.SIGSTOP)
        assert wait_until(lambda: server.get("/v2/health/ready").status == 503, 10.0) < 10.0
        wait_until(lambda: server.get("/v2/health/ready").status == 200, 20.0)
        assert server.worker_pids("own") != [pid]
        assert server.predict("own", {"x": [1.0, 2.0]}).json["outputs"] == {"y": 3.0}


def test_37_a_long_request_that_moves_keeps_the_server_ready(repository: Path, data: Path) -> None:
    with serving(repository / "own", data=data) as server:
        answers: list[Reply] = []
        slow = threading.Thread(target=lambda: answers.append(server.predict("own", {"x": [7500.0, 0.0]})))
        slow.start()
        while slow.is_alive():
            assert server.get("/v2/health/ready").status == 200
            time.sleep(0.25)
        assert answers[0].json["outputs"] == {"y": 7500.0}


def test_a_killed_worker_is_back_within_a_second_and_its_batch_is_answered(repository: Path, data: Path) -> None:
    with serving(repository / "own", data=data) as server:
        answers: list[Reply] = []
        slow = threading.Thread(target=lambda: answers.append(server.predict("own", {"x": [1300.0, 0.0]})))
        slow.start()
        wait_until(lambda: server.version("own")["running"] == 1)
        (pid,) = server.worker_pids("own")
        os.kill(pid, signal.SIGKILL)
        slow.join()
        assert answers[0].json["outputs"] == {"y": 1300.0}


def test_a_batch_over_its_time_limit_loses_its_worker_and_the_next_request_is_answered(
    tmp_path: Path, data: Path
) -> None:
    folder = tmp_path / "hang" / "1"
    write_own(folder, OWN_MODEL + "\n[workers]\nbatch_limit_s = 1.0\n")
    forwardpass("trust", folder, data=data)
    with serving(folder, data=data) as server:
        hung = server.predict("hang", {"x": [-3.0, 0.0]}, X_Request_Deadline_Ms="900")
        assert (hung.status, hung.code) == (504, "deadline_exceeded")
        assert server.predict("hang", {"x": [1.0, 2.0]}).json["outputs"] == {"y": 3.0}


def test_a_worker_that_keeps_dying_makes_its_pipeline_unavailable_and_no_other(repository: Path, data: Path) -> None:
    with serving(repository / "own", repository / "identity", data=data) as server:
        for value in (-2.0, -2.5, -2.25):
            server.predict("own", {"x": [-2.0, value]})
        wait_until(lambda: server.version("own")["workers"][0]["state"] == "degraded")
        refused = server.predict("own", {"x": [1.0, 2.0]})
        assert (refused.status, refused.code) == (503, "model_unavailable")
        assert "retry-after" in refused.headers
        assert server.infer("identity", "x", "FP32", [1, 4], [1, 2, 3, 4]).status == 200


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html>404</html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git LFS"),
        (bytes(range(256)) * 8, "ONNX"),
    ],
)
def test_a_file_that_is_no_model_is_refused_by_kind_in_one_line(
    tmp_path: Path, data: Path, content: bytes, kind: str
) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    done = forwardpass("serve", tmp_path / "model.onnx", "--port", "0", "--admin-port", "0", data=data, check=False)
    assert done.returncode == 2
    assert kind.lower() in done.stderr.lower()
    assert "Traceback" not in done.stderr


def test_one_version_that_cannot_be_loaded_does_not_keep_the_others_from_serving(
    tmp_path: Path, repository: Path, data: Path
) -> None:
    bad = tmp_path / "bad" / "1"
    bad.mkdir(parents=True)
    (bad / "model.onnx").write_bytes(b"not a model at all, not even nearly")
    with serving(bad, repository / "identity", data=data, ready=False) as server:
        wait_until(lambda: server.get("/v2/models/identity/ready").status == 200)
        assert server.infer("identity", "x", "FP32", [1, 4], [1, 2, 3, 4]).status == 200
        wait_until(lambda: "bad version 1" in server.get("/v2/health/ready").json["error"])
        assert server.get("/v2/health/ready").status == 503
        wait_until(lambda: '"not ready: bad version 1' in server.log.read_text())
        assert "\nready: " not in server.log.read_text()


def test_of_versions_that_all_cannot_be_loaded_every_problem_is_told(tmp_path: Path, data: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.onnx").write_bytes(b"not a model at all, not even nearly")
    done = forwardpass("serve", tmp_path, "--port", "0", "--admin-port", "0", data=data, check=False)
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 2
    assert "/one/" in errors[0] and "/two/" in errors[1]


def test_a_version_in_two_places_and_a_source_with_nothing_in_it_are_refused(
    tmp_path: Path, repository: Path, data: Path
) -> None:
    other = tmp_path / "identity" / "1"
    shutil.copytree(repository / "identity" / "1", other)
    (tmp_path / "nothing").mkdir()
    sources = (repository / "identity", other, tmp_path / "nothing")
    done = forwardpass("serve", *sources, "--port", "0", "--admin-port", "0", data=data, check=False)
    assert done.returncode == 2
    assert f"{other}: identity version 1 is in {repository / 'identity' / '1'} too" in done.stderr
    assert f"{tmp_path / 'nothing'}: no pipeline was found here" in done.stderr


def test_more_connections_than_the_system_has_files_for_are_refused(repository: Path, data: Path) -> None:
    done = subprocess.run(
        ["prlimit", "--nofile=512:512", *command("serve", repository / "identity", "--set", f"run.data={data}")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "limits.connections_max: found 1000; this process may open 512 files" in done.stderr


def test_a_golden_example_that_does_not_hold_keeps_the_version_out(tmp_path: Path, data: Path) -> None:
    folder = tmp_path / "wrong" / "1"
    write_own(folder, OWN_MODEL.replace("expect = { y = 3.0 }", "expect = { y = 3.5 }"))
    forwardpass("trust", folder, data=data)
    done = forwardpass("check", folder, data=data, check=False)
    assert done.returncode == 2
    assert "golden[0].expect.y: found 3.0; expected 3.5" in done.stderr


def test_own_code_runs_only_after_its_digest_was_trusted(tmp_path: Path) -> None:
    write_own(tmp_path / "own" / "1", OWN_MODEL)
    data = tmp_path / "data"
    refused = forwardpass("check", tmp_path / "own", data=data, check=False)
    assert refused.returncode == 2
    assert "forwardpass trust" in refused.stderr
    forwardpass("trust", tmp_path / "own", data=data)
    assert forwardpass("check", tmp_path / "own", data=data).returncode == 0
    steps = tmp_path / "own" / "1" / "steps.py"
    steps.write_text(steps.read_text() + "\n# changed\n")
    assert forwardpass("check", tmp_path / "own", data=data, check=False).returncode == 2


def test_a_port_in_use_is_told_in_one_line(repository: Path, data: Path, server: Server) -> None:
    done = forwardpass("serve", repository / "identity", "--port", str(server.port), data=data, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "data.port" in done.stderr


def test_the_server_always_starts_again_after_it_was_killed(repository: Path, data: Path) -> None:
    for pause_s in (0.0, 0.2, 0.5, 0.9):
        process = subprocess.Popen(
            command("serve", repository / "identity", "--port", str(free_port()), "--admin-port", "0",
                    "--set", f"run.data={data}"),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(pause_s)
        process.kill()
        process.wait()
    with serving(repository / "identity", data=data) as server:
        assert server.infer("identity", "x", "FP32", [1, 4], [1, 2, 3, 4]).status == 200


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextmanager
def _unread(source: Path, data: Path) -> Iterator[Server]:
    """A server whose standard error is a small pipe that nobody reads."""
    port, admin_port = free_port(), free_port()
    arguments = command("serve", source, "--port", str(port), "--admin-port", str(admin_port))
    with subprocess.Popen(
        [*arguments, "--set", f"run.data={data}"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, pipesize=4096
    ) as process:
        server = Server(process, port, admin_port, data / "unread")
        try:
            wait_until(lambda: _accepts(admin_port) and server.get("/ready", admin=True).status == 200)
            yield server
        finally:
            process.kill()


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


def _books_balance(server: Server) -> None:
    """Every request that HTTP handed over ended somewhere; the golden examples came without HTTP."""
    server.get("/predict/nowhere")
    server.get("/v2/models/nowhere")
    status = server.status()
    (version,) = status["versions"]
    assert status["other_requests"] == {"method_not_allowed": 1, "pipeline_not_found": 1}
    assert status["requests"] == 3002
    assert version["outcomes"] == {"ok": 2, "engine_failed": 3000}


def _quietly(server: Server) -> None:
    with suppress(OSError):
        server.predict("own", {"x": [8000.0, 0.0]})
