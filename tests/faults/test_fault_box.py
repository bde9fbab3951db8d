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
    ],
)
def test_a_worker_is_refused_what_is_not_its_own(server: Server, act: str, where: str) -> None:
    assert attempt(server, act, where).startswith("refused: ")
    assert attempt(server, "hello") == "HELLO"


def test_a_worker_cannot_connect_to_the_admin_plane_nor_to_a_neighbour(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as neighbour:
        for port in (server.admin_port, server.port, neighbour.getsockname()[1]):
            assert attempt(server, "connect", port) == "refused: PermissionError"


def test_a_worker_reads_its_own_folder_and_cannot_change_it(server: Server, data: Path) -> None:
    own = next(path for path in (data / "store").rglob("steps.py") if "def attempt" in path.read_text())
    assert "def attempt" in attempt(server, "read", own)
    assert attempt(server, "write", own).startswith("refused: ")
    assert attempt(server, "write", own.parent / "more").startswith("refused: ")


def test_a_worker_cannot_read_another_model_nor_the_store(server: Server, data: Path, repository: Path) -> None:
    others = list((data / "store").rglob("model.onnx"))
    assert others
    for path in (*others, repository / "identity" / "1" / "model.onnx", *data.glob("trusted*"), server.log):
        assert attempt(server, "read", path).startswith("refused: "), path
    assert attempt(server, "list", data / "store").startswith("refused: ")


def test_a_worker_sees_no_secret_of_the_servers_environment(server: Server) -> None:
    seen = attempt(server, "environment")
    assert "PATH" in seen
    assert SECRET not in seen
    assert "PASSWORD" not in seen


def test_no_two_workers_share_a_descriptor(server: Server) -> None:
    pids = [worker["pid"] for version in server.status()["versions"] for worker in version["workers"]]
    held = [{os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()} - {"/dev/null"} for pid in pids]
    assert len(held) > 5
    assert sum(map(len, held)) == len(set().union(*held))
