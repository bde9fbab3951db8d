"""What code inside a worker can reach: its own folder and the libraries, and nothing else (rule R6)."""

import os
import socket
from pathlib import Path

import pytest
from tests.faults.faulty import SECRET
from tests.serving import Server


def attempt(server: Server, act: str, where: object = "") -> str:
    """What the worker's own code saw when it tried."""
    answer = server.predict("probe", {"text": f"{act} {where}".strip()})
    assert answer.status == 200, answer.body
    result: str = answer.json["outputs"]["result"]
    return result


@pytest.mark.parametrize(
    ("act", "where"),
    [
        ("read", "/etc/passwd"),
        ("read", "/etc/shadow"),
        ("run", "/etc/passwd"),
        ("list", "/"),
        ("list", "/home"),
        ("write", "/tmp/left-by-a-worker"),
        ("write", "/dev/shm/left-by-a-worker"),
        ("make", "/tmp/folder-of-a-worker"),
        ("listen", ""),
        ("environment-of-server", ""),
        ("memory-of-server", ""),
        ("root-of-server", "/etc/passwd"),
        ("signal-server", ""),
        ("read", "/proc/self/root/etc/passwd"),
        ("read", "/proc/self/cwd/../etc/passwd"),
        ("list", "/root"),
        ("list", "/tmp"),
        ("write", "left-by-a-worker"),
        ("write", "/proc/self/oom_score_adj"),
        ("write-home", ""),
        ("write-temporary", ""),
        ("link", "/tmp/link-of-a-worker"),
        ("kernel-ring", ""),
        ("open-many", "10000"),
        ("raise-limit", "RLIMIT_NOFILE"),
        ("raise-limit", "RLIMIT_CORE"),
        ("raise-limit", "RLIMIT_AS"),
        ("take-memory", str(64 * 1024**3)),
    ],
)
def test_a_worker_is_refused_what_is_not_its_own(server: Server, act: str, where: str) -> None:
    assert attempt(server, act, where).startswith("refused: ")
    assert attempt(server, "hello") == "HELLO"


@pytest.mark.parametrize(
    ("act", "where"),
    [
        ("send", "9"),
        ("unix-socket", "/run/systemd/notify"),
        ("unix-pair", "/dev/log"),
        ("other-socket", "16"),
        ("other-socket", "17"),
        ("fork", ""),
        ("spawn", "/bin/sh"),
        ("replace", "/bin/sh"),
        ("signal", "1"),
        ("signal-everybody", ""),
        ("limit-server", ""),
        ("slow-server", ""),
        ("trace-server", ""),
        ("read-server", ""),
        ("hold-server", ""),
        ("own-namespace", ""),
        ("mount", ""),
        ("shared-memory", ""),
        ("outlive-server", ""),
    ],
)
def test_a_worker_can_reach_nobody_and_start_nothing(server: Server, act: str, where: str) -> None:
    """Refused before it is looked whether there is such a place or process."""
    assert attempt(server, act, where) == "refused: PermissionError"


def test_a_worker_cannot_connect_to_the_admin_plane_nor_to_a_neighbour(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as neighbour:
        for port in (server.admin_port, server.port, neighbour.getsockname()[1]):
            assert attempt(server, "connect", port) == "refused: PermissionError"


def test_a_worker_reads_its_own_folder_and_cannot_change_it(server: Server, data: Path) -> None:
    own = next(path for path in (data / "store").rglob("steps.py") if "def attempt" in path.read_text())
    assert "import ctypes" in attempt(server, "read", own)
    assert attempt(server, "write", own).startswith("refused: ")
    assert attempt(server, "write", own.parent / "more").startswith("refused: ")


def test_a_worker_cannot_read_another_model_nor_the_store(server: Server, data: Path, repository: Path) -> None:
    own = next(path.parent for path in (data / "store").rglob("steps.py") if "def attempt" in path.read_text())
    others = [path for path in data.rglob("*") if path.is_file() and not path.is_relative_to(own)]
    assert {"model.onnx", "trusted", server.log.name} <= {path.name for path in others}
    for path in (*others, repository / "identity" / "1" / "model.onnx"):
        assert attempt(server, "read", path).startswith("refused: "), path
    assert attempt(server, "list", data / "store").startswith("refused: ")


def test_a_worker_sees_no_secret_of_the_servers_environment(server: Server) -> None:
    seen = attempt(server, "environment")
    assert "PATH" in seen
    assert SECRET not in seen
    assert "PASSWORD" not in seen


def test_every_thread_of_a_worker_is_in_the_box_also_those_of_libraries(server: Server) -> None:
    for pid in server.worker_pids("identity") + server.worker_pids("probe"):
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        assert len(threads) > 1
        for thread in threads:
            status = dict(
                line.split(":\t", 1) for line in (thread / "status").read_text().splitlines() if ":\t" in line
            )
            assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
            assert all(int(status[f"Cap{name}"], 16) == 0 for name in ("Eff", "Prm", "Inh", "Amb"))


def test_a_worker_can_make_threads_and_leaves_no_core_file(server: Server) -> None:
    assert attempt(server, "threads", 32) == "32"
    assert attempt(server, "limits", "RLIMIT_CORE") == "(0, 0)"


def test_a_worker_holds_no_file_but_what_it_talks_to_the_front_with(server: Server) -> None:
    for pid in server.worker_pids("probe"):
        held = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
        assert all(each.startswith(("/dev/null", "socket:", "pipe:", "/memfd:forwardpass")) for each in held), held


def test_no_two_workers_share_a_descriptor(server: Server) -> None:
    pids = [worker["pid"] for version in server.status()["versions"] for worker in version["workers"]]
    nothing = os.stat("/dev/null").st_ino
    held = [{each.stat().st_ino for each in Path(f"/proc/{pid}/fd").iterdir()} - {nothing} for pid in pids]
    assert len(held) > 5
    assert sum(map(len, held)) == len(set().union(*held))
