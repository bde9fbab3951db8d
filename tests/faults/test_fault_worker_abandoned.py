"""Batches that run on when their callers have left (V5): who hangs is found, who is only slow is not, strangers are served."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.faults.overloaded import overloadable
from tests.serving import Reply, Server, wait_until

pytestmark = pytest.mark.alone

IMPATIENT = """
from forwardpass.execution import sent

sent.ABANDONED_S = 0.5
sent.ABANDONED_LOADS = 0.0
"""
HANGS, MATE = [-3.0, 0.0], [1.0, 2.0]


@contextmanager
def impatient(folder: Path, definition: str) -> Iterator[Server]:
    """A server that ends an abandoned batch after half a second, so that a test need not wait for five."""
    (folder / "python").mkdir()
    (folder / "python" / "sitecustomize.py").write_text(IMPATIENT)
    environment = {"PYTHONPATH": str(folder / "python")}
    with overloadable(folder, environment=environment, definition=definition) as (server, _):
        yield server


def ask(server: Server, x: list[float], deadline_ms: int = 1000) -> Reply:
    return server.predict("slow", {"x": x}, X_Request_Deadline_Ms=str(deadline_ms))


def test_v5_of_a_batch_that_hung_for_nobody_who_hangs_again_alone_is_quarantined_and_its_mate_answered(
    tmp_path: Path,
) -> None:
    with impatient(tmp_path, "[workers]\nbatch_limit_s = 3\n") as server:

        def together(number: int) -> Reply:
            if number == 0:
                return ask(server, [1300.0, 0.0])
            wait_until(lambda: server.version("slow")["running"])
            return ask(server, HANGS if number == 1 else MATE)

        assert [reply.status for reply in server.together(3, together)] == [200, 504, 504]
        wait_until(lambda: server.version("slow")["workers"][0]["abandoned"] == 1)
        assert server.version("slow")["quarantined"] == 0
        alone, again, mate = [ask(server, x, 20_000) for x in (HANGS, HANGS, MATE)]
        assert (alone.code, again.code, mate.status) == ("worker_hung", "quarantined", 200)
        assert server.version("slow")["workers"][0]["deaths"] == 1


def leave_again_and_again(server: Server, stopping: threading.Event) -> None:
    """Slow but sound work, with a deadline that nobody can keep, for a client that leaves."""
    body = json.dumps({"x": [3500.0, 0.0]}).encode()
    head = "POST /predict/slow HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Request-Deadline-Ms: 20\r\n"
    while not stopping.is_set():
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            time.sleep(0.02)


def test_v5_who_asks_for_slow_work_and_leaves_again_and_again_does_not_hold_the_only_worker(tmp_path: Path) -> None:
    """Each time it is ended, others are served before it comes again; its input is nobody's fault."""
    stopping, replies = threading.Event(), list[Reply]()
    with impatient(tmp_path, "[batch]\nrows_max = 1\n") as server:
        leaving = threading.Thread(target=leave_again_and_again, args=(server, stopping))
        leaving.start()
        try:
            wait_until(lambda: server.version("slow")["workers"][0]["abandoned"] >= 1)
            until = time.monotonic() + 8.0
            while time.monotonic() < until:
                replies.append(ask(server, MATE, 20_000))
        finally:
            stopping.set()
            leaving.join()
        version = server.version("slow")
    assert {reply.status for reply in replies} <= {200, 503}, {reply.code for reply in replies}
    assert sum(reply.status == 200 for reply in replies) >= 20, len(replies)
    assert version["quarantined"] == 0
