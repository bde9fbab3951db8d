"""Signals and starts at bad moments (group S), beyond those in e2e/test_lifecycle.py."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
from tests.e2e.pipelines import OWN_CODE, OWN_MODEL
from tests.faults.faulty import settle, write_own
from tests.serving import Reply, Server, command, forwardpass, free_port, serving, wait_until

REFUSAL_S = 6.0  # two seconds, with the slack of a busy machine


def test_s2_a_request_longer_than_the_drain_is_ended_and_the_exit_is_clean(repository: Path, data: Path) -> None:
    with serving(repository / "own", data=data, settings={"run.drain_s": 0.5}) as server:
        ends: list[Reply | OSError] = []

        def ask() -> None:
            try:
                ends.append(server.predict("own", {"x": [8500.0, 0.0]}))
            except OSError as error:
                ends.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        wait_until(lambda: server.version("own")["running"] == 1)
        server.terminate()
        assert server.process.wait(10) == 0
        thread.join()
        assert isinstance(ends[0], OSError) or (ends[0].status, "retry-after" in ends[0].headers) == (503, True)


def test_s5_a_signal_during_a_load_ends_cleanly_and_the_next_start_serves(tmp_path: Path, data: Path) -> None:
    folder = tmp_path / "lengthy" / "1"
    write_own(folder, OWN_MODEL, OWN_CODE.replace("class Model:", "time.sleep(1.5)\nclass Model:"))
    settle(folder)
    forwardpass("trust", folder, data=data)
    with serving(folder, data=data, ready=False) as server:
        wait_until(lambda: server.process.poll() is None and server.get("/live", admin=True).status == 200)
        server.terminate()
        assert server.process.wait(10) == 0
        assert "Traceback" not in server.log.read_text()
    with serving(folder, data=data) as server:
        assert server.predict("lengthy", {"x": [1.0, 2.0]}).json["outputs"] == {"y": 3.0}


def test_s6_a_server_that_was_stopped_drops_what_expired_and_keeps_its_workers(repository: Path, data: Path) -> None:
    with serving(repository / "own", data=data) as server:
        pids = server.worker_pids("own")
        answers: list[Reply] = []
        held = threading.Thread(target=lambda: answers.append(server.predict("own", {"x": [1500.0, 0.0]})))
        hurried = threading.Thread(
            target=lambda: answers.append(server.predict("own", {"x": [7.0, 0.0]}, X_Request_Deadline_Ms="1500"))
        )
        held.start()
        wait_until(lambda: server.version("own")["running"] == 1)
        hurried.start()
        wait_until(lambda: server.version("own")["running"] == 2)
        os.kill(server.process.pid, signal.SIGSTOP)
        time.sleep(5.0)
        os.kill(server.process.pid, signal.SIGCONT)
        held.join()
        hurried.join()
        assert sorted(answer.status for answer in answers) in ([200, 504], [200, 200])
        assert server.predict("own", {"x": [1.0, 2.0]}).json["outputs"] == {"y": 3.0}
        assert server.worker_pids("own") == pids


S7 = {
    "unknown setting": (["--set", "data.prot=1"], "data.prot"),
    "setting out of bounds": (["--set", "limits.body_bytes_max=1"], "limits.body_bytes_max"),
    "open to the world": (["--set", "data.host=0.0.0.0"], "nobody need say who asks"),
    "no such settings file": (["--settings", "{}/none.toml"], "none.toml"),
    "settings that are no TOML": (["--settings", "{}/bad.toml"], "bad.toml"),
    "settings that are a folder": (["--settings", "{}"], "TOML"),
    "no such certificate": (["--set", "data.tls_certificate={}/no.pem", "--set", "data.tls_key={}/no.key"], "tls"),
    "half a certificate": (["--set", "data.tls_key={}/no.key"], "data.tls_"),
    "a file for a data folder": (["--set", "run.data={}/bad.toml"], ""),
}


@pytest.mark.parametrize("name", S7)
def test_s7_a_start_that_cannot_be_is_refused_in_a_clear_line(tmp_path: Path, repository: Path, name: str) -> None:
    (tmp_path / "bad.toml").write_text("[data\nport = ")
    arguments, said = S7[name]
    filled = [argument.replace("{}", str(tmp_path)) for argument in arguments]
    data = [] if any("run.data" in argument for argument in filled) else ["--set", f"run.data={tmp_path}"]
    started = time.monotonic()
    done = subprocess.run(
        command("serve", repository / "identity", "--port", "0", "--admin-port", "0", *data, *filled),
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert time.monotonic() - started < REFUSAL_S
    assert said in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert len(done.stderr.splitlines()) <= 5


def test_g5_a_server_whose_log_nobody_reads_any_more_goes_on(repository: Path, data: Path) -> None:
    port, admin_port = free_port(), free_port()
    process = subprocess.Popen(
        command("serve", repository / "own", "--port", str(port), "--admin-port", str(admin_port),
                "--set", f"run.data={data}", "--set", "run.ready_grace_s=0"),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    server = Server(process, port, admin_port, data)
    try:
        wait_until(lambda: _answers(server))
        assert process.stderr is not None
        process.stderr.close()
        assert [server.predict("own", {"x": [-1.0, n]}).status for n in range(3)] == [500] * 3
        assert server.predict("own", {"x": [1.0, 2.0]}).json["outputs"] == {"y": 3.0}
        server.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()


def _answers(server: Server) -> bool:
    try:
        return server.get("/ready", admin=True).status == 200
    except OSError:
        return False
