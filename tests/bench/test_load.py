"""What the figures rest on: quantiles, latency from when a request was due, CPU and memory of a whole tree."""

import json
import math
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from statistics import quantiles

import pytest
from bench.load import open_loop, tree
from bench.load.answers import complete, post
from bench.load.closed_loop import close_loop
from bench.load.histogram import Histogram
from bench.load.open_loop import Offered, offer
from bench.load.served import Question, together
from bench.peers.forms import Request

REQUEST = post("/", {"Content-Type": "application/json"}, b"{}")
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def whole(client: socket.socket) -> bytes:
    """One request, which has a body; empty where the client has gone."""
    data = client.recv(65536)
    while data and (b"\r\n\r\n" not in data or data.endswith(b"\r\n\r\n")):
        data += client.recv(65536)
    return data


@contextmanager
def answering(
    stall_at: int = -1, stall_s: float = 0.0, answer: bytes = ANSWER, seen: list[bytes] | None = None
) -> Iterator[int]:
    """A server that answers one request after the other, and once does nothing for a while; ``seen``: what was asked."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        asked = 0
        alone = threading.Lock()

        def serve(client: socket.socket) -> None:
            nonlocal asked
            with client, suppress(OSError):
                while data := whole(client):
                    with alone:
                        if seen is not None:
                            seen.append(data)
                        asked += 1
                        time.sleep(stall_s if asked == stall_at else 0)
                        client.sendall(answer)

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 0.999])
def test_a_quantile_is_never_below_the_exact_one_and_less_than_one_percent_above(share: float) -> None:
    drawn = random.Random(1)
    seconds = [round(drawn.lognormvariate(-6, 2), 6) for _ in range(20_000)]
    exact = sorted(seconds)[math.ceil(len(seconds) * share) - 1]
    assert exact <= Histogram.of(seconds).quantile_s(share) + 1e-9
    assert Histogram.of(seconds).quantile_s(share) <= exact * 1.008 + 1e-6


def test_the_quantiles_of_known_latencies_are_those_of_the_standard_library() -> None:
    seconds = [each / 1000 for each in range(1, 1001)]
    assert Histogram.of(seconds).quantile_s(0.5) == pytest.approx(quantiles(seconds, n=2)[0], rel=0.01)


def test_a_histogram_that_was_stored_and_merged_counts_everything_once() -> None:
    whole = Histogram.of([0.001, 0.002])
    whole.merge(Histogram.read(Histogram.of([0.003, 3.0]).stored()))
    assert whole.total == 4
    assert whole.quantile_s(0.75) == pytest.approx(0.003, rel=0.01)


def test_nothing_counted_has_no_finite_quantile() -> None:
    assert Histogram().quantile_s(0.99) == math.inf


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (ANSWER, 200),
        (ANSWER[:-1], None),
        (b"HTTP/1.1 503 Busy\r\nCONTENT-LENGTH:  0\r\n", None),
        (b"HTTP/1.1 503 Busy\r\nCONTENT-LENGTH:  0\r\n\r\n", 503),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n", None),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 200),
    ],
)
def test_an_answer_is_complete_when_its_head_says_so(data: bytes, status: int | None) -> None:
    answer = complete(data)
    assert (answer.status if answer else None) == status


@pytest.mark.alone
def test_a_server_that_stalls_once_is_charged_for_all_that_were_due_meanwhile() -> None:
    """Half a second in three, at 100/s: a sixth of the requests waited, half of these more than a quarter second."""
    with answering(stall_at=50, stall_s=0.5) as port:
        offered = offer(port, [REQUEST], rate_per_s=100, seconds=3, connections=1)
    assert offered.histogram.quantile_s(0.99) > 0.4
    assert offered.histogram.quantile_s(0.90) > 0.1
    assert offered.histogram.quantile_s(0.50) < 0.1


def test_every_request_of_the_schedule_is_sent_and_counted() -> None:
    with answering() as port:
        offered = offer(port, [REQUEST], rate_per_s=200, seconds=1, warm_s=0.5)
    assert (offered.answered, offered.failed, offered.histogram.total) == (200, 0, 200)


def test_answers_that_are_no_success_count_as_refused() -> None:
    with answering(answer=ANSWER.replace(b"200 OK", b"503 No")) as port:
        offered = offer(port, [REQUEST], rate_per_s=100, seconds=0.5)
    assert offered.refused == 50


def test_what_was_never_answered_or_never_sent_counts_with_the_time_it_waited() -> None:
    with answering(stall_at=2, stall_s=30) as port:
        offered = offer(port, [REQUEST], rate_per_s=100, seconds=0.1, connections=1, leave_s=1)
    assert (offered.answered, offered.lost) == (1, 9)
    assert offered.histogram.quantile_s(0.2) >= 1


def test_requests_take_turns_in_the_open_loop() -> None:
    asked: list[bytes] = []
    with answering(seen=asked) as port:
        offered = offer(
            port, [post("/", {}, b"one"), post("/", {}, b"two")], rate_per_s=100, seconds=0.2, connections=1
        )
    assert offered.answered == 20
    assert [each[-3:] for each in asked] == [b"one", b"two"] * 10


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_requests_take_turns_in_the_closed_loop() -> None:
    asked: list[bytes] = []
    with answering(seen=asked) as port:
        one, two = Request(b"one", {"X-Kind": "a"}), Request(b"two", {})
        closed = close_loop(f"http://127.0.0.1:{port}/here", [one, two], connections=1, seconds=1)
    assert not closed.failed
    assert {asked[0], asked[1]} == {asked[2], asked[3]}
    first = next(each for each in asked if each.endswith(b"one"))
    assert first.startswith(b"POST /here HTTP/1.1") and b"X-Kind: a" in first
    assert b"X-Kind" not in next(each for each in asked if each.endswith(b"two"))


def client(port: int, rate_per_s: float, count: int) -> "subprocess.Popen[str]":
    """The open loop in a process that a test can halt."""
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(REQUEST)
    plan = {
        "port": port,
        "requests_file": file.name,
        "lengths": [len(REQUEST)],
        "rate_per_s": rate_per_s,
        "count": count,
    }
    process = subprocess.Popen(
        [sys.executable, open_loop.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(plan))
    process.stdin.close()
    return process


@pytest.mark.alone
def test_a_client_that_was_halted_says_that_its_figures_are_no_servers() -> None:
    asked: list[bytes] = []
    with answering(seen=asked) as port, client(port, 200, 200) as process:
        while not asked:
            time.sleep(0.01)
        process.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        process.send_signal(signal.SIGCONT)
        assert process.stdout is not None
        offered = Offered(**json.load(process.stdout))
    assert (offered.answered, offered.failed) == (200, 0)
    assert offered.late_p99_s > 0.1
    assert not offered.valid


@pytest.mark.alone
def test_a_client_that_has_more_to_do_than_a_core_can_says_so() -> None:
    """16 MB an answer: the server hands it to the system, the client gathers it piece by piece."""
    large = b"HTTP/1.1 200 OK\r\nContent-Length: 16000000\r\n\r\n" + bytes(16_000_000)
    with answering(answer=large) as port:
        offered = offer(port, [REQUEST], rate_per_s=100, seconds=0.3, connections=4, leave_s=0.5)
    assert offered.busy_share > 0.9
    assert not offered.valid


@pytest.mark.alone
def test_a_server_that_stalls_does_not_make_the_client_late() -> None:
    with answering(stall_at=20, stall_s=0.5) as port:
        offered = offer(port, [REQUEST], rate_per_s=100, seconds=1, connections=8)
    assert offered.late_p99_s < 0.05 < offered.histogram.quantile_s(0.99)
    assert offered.valid


def question(wanted: bytes) -> Question:
    return Question("/", b"{}", {}, lambda status, headers, body: "" if body == wanted else f"{body!r}")


def test_answers_of_requests_asked_at_once_are_each_compared_with_their_own() -> None:
    with answering() as port:
        assert together([question(b"{}")] * 8, port) == ""
        assert together([question(b"{}")] * 7 + [question(b"[]")], port) == "1 of 8 asked at once: b'{}'"


@pytest.mark.alone
def test_the_cpu_of_a_tree_counts_children_that_run_and_that_have_ended() -> None:
    """A child burns 0.3 s and ends, a grandchild burns 0.3 s and stays."""
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    stay = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}])\n"
    stay += f"subprocess.run([sys.executable, '-c', {burn + 'print(1, flush=True); input()'!r}])"
    process = subprocess.Popen([sys.executable, "-c", stay], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 0.6 <= tree.cpu_s(process.pid) < 1.2
        assert tree.memory_bytes(process.pid) > 2 * 2**20
        tree.end(process)
    assert tree.tree_of(process.pid) == []


def test_a_process_that_left_its_session_and_its_parent_is_still_of_the_tree() -> None:
    away = "import os, time\nif os.fork() == 0:\n os.setsid()\n time.sleep(60)\nelse:\n print(1, flush=True); time.sleep(60)"
    environment = {tree.MARK: "away"}
    process = subprocess.Popen([sys.executable, "-c", away], env=environment, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        process.wait()
        assert len(tree.tree_of(process.pid, "away")) == 1
        tree.end(process, "away")
    assert tree.tree_of(process.pid, "away") == []
