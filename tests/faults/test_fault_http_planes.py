"""Bytes that are no request, against each plane of a real server (FAULTS 3.1 H), and what each costs when it is repeated."""

import gzip
import resource
import select
import socket
import struct
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from tests import fixtures_onnx
from tests.ingress.test_http_rules import REFUSED
from tests.serving import Server, serving, wait_until

HEADER_BYTES_MAX = 20_000
SETTINGS = {
    "limits.header_bytes_max": HEADER_BYTES_MAX,
    "limits.header_time_s": 1.0,
    "limits.body_grace_s": 1.0,
    "limits.write_time_s": 1.0,
    "limits.body_bytes_max": 1024**2,
}
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
GROWTH_BYTES_MAX = 8 * 1024**2


class Plane(NamedTuple):
    """One listener of the server."""

    server: Server
    name: str
    read: bytes  # a path that is answered with 200, at some length
    write: bytes  # a path that takes a body

    @property
    def port(self) -> int:
        return self.server.admin_port if self.name == "admin" else self.server.port

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def says(self, sent: bytes, *, half_close: bool = False) -> bytes:
        """All that is said until the server closes."""
        with self.connect() as client:
            try:
                client.sendall(sent)
                if half_close:
                    client.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has refused already
            return everything(client)

    def answers(self) -> bool:
        return self.says(get(self.read, b"Connection: close")).startswith(b"HTTP/1.1 200 ")


def everything(client: socket.socket) -> bytes:
    said = bytearray()
    try:
        while part := client.recv(65536):
            said += part
    except ConnectionError:
        pass
    return bytes(said)


def get(path: bytes, *lines: bytes) -> bytes:
    return b"\r\n".join((b"GET " + path + b" HTTP/1.1", b"Host: 127.0.0.1", *lines, b"", b""))


def post(path: bytes, *lines: bytes) -> bytes:
    return get(path, *lines).replace(b"GET ", b"POST ", 1)


def resident_bytes(server: Server) -> int:
    """Of the front alone."""
    return int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * 4096


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("planes")
    (root / "models" / "identity" / "1").mkdir(parents=True)
    fixtures_onnx.identity(root / "models" / "identity" / "1" / "model.onnx")
    with serving(root / "models", data=root / "data", settings=SETTINGS) as server:
        yield server


def planes_of(running: Server) -> tuple[Plane, Plane]:
    data = Plane(running, "data", b"/openapi.json", b"/v2/models/identity/infer")
    return data, Plane(running, "admin", b"/metrics", b"/v2/repository/index")


@pytest.fixture
def planes(running: Server) -> tuple[Plane, Plane]:
    """For rows that wait: both wait at the same time."""
    return planes_of(running)


@pytest.fixture(params=[0, 1], ids=["data", "admin"])
def plane(running: Server, request: pytest.FixtureRequest) -> Plane:
    return planes_of(running)[request.param]


def to(plane: Plane, row: str) -> tuple[bytes, tuple[int, ...]]:
    """The bytes of a row of the rules as they are sent there, and the statuses that may come."""
    sent, status, _ = REFUSED[row]
    limited = (413, status) if plane.name == "admin" and row == "too many chunks" else (status,)  # the first limit met
    return sent.replace(b"Host: a\r\n", b"Host: 127.0.0.1\r\n"), limited


@pytest.mark.parametrize("row", [row for row in REFUSED if not row.startswith("header of ")])
def test_what_breaks_the_rules_is_refused_closed_and_nothing_after_it_is_run(plane: Plane, row: str) -> None:
    sent, statuses = to(plane, row)
    before = served_nowhere(plane.server)
    said = plane.says(sent + SMUGGLED * 3)
    assert said.count(b"HTTP/1.1 ") == 1 and int(said[9:12]) in statuses, said[:300]
    assert b"\r\nConnection: close\r\n" in said
    assert (b"application/problem+json" in said) == (plane.name == "admin")
    assert served_nowhere(plane.server) == before, "a request was made of what came after"


def served_nowhere(server: Server) -> Counter[str]:
    """How often each plane was asked for a path that it does not have: what is smuggled would be."""
    status = server.status()
    kinds = {"data": status["other_requests"], "admin": status["admin"]["requests"]}
    return Counter({name: ends.get("route_not_found", 0) for name, ends in kinds.items()})


def test_h14_a_head_at_its_limit_is_taken_and_one_byte_more_refused(plane: Plane) -> None:
    room = HEADER_BYTES_MAX - len(get(plane.read, b"Connection: close", b"X: "))
    for over, status in ((0, b"200"), (1, b"431")):
        said = plane.says(get(plane.read, b"Connection: close", b"X: " + b"a" * (room + over)))
        assert said.startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("size", [100_000, 10_000_000])
def test_h14_a_head_that_is_much_too_large_is_refused_before_it_is_whole(plane: Plane, size: int) -> None:
    assert b" 431 " in plane.says(get(plane.read, b"X: " + b"a" * size))[:20]


@pytest.mark.alone
def test_h1_300_heads_that_never_end_keep_nobody_out_and_are_each_refused_in_time(planes: tuple[Plane, Plane]) -> None:
    with ExitStack() as stack:
        clients = [(plane, stack.enter_context(plane.connect())) for plane in planes for _ in range(300)]
        started = time.monotonic()
        for plane, client in clients:
            client.sendall(get(plane.read)[:-4] + b"\r\nX-Slow: ")
        assert all(plane.answers() for plane in planes) and time.monotonic() - started < 1.5
        assert all(everything(client).startswith(b"HTTP/1.1 408 ") for _, client in clients)
        assert 0.9 < time.monotonic() - started < 8


def test_h2_a_body_that_hardly_comes_is_refused_and_never_run(planes: tuple[Plane, Plane]) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(plane.connect()) for plane in planes]
        for plane, client in zip(planes, clients, strict=True):
            client.sendall(post(plane.write, b"Content-Length: 60000"))
        started = time.monotonic()
        while len(select.select(clients, (), (), 0.1)[0]) < len(clients) and time.monotonic() - started < 8:
            for client in clients:
                client.sendall(b" ")
        assert time.monotonic() - started > 0.9
        said = [everything(client) for client in clients]
    assert all(each.startswith(b"HTTP/1.1 408 ") and b"body_too_slow" in each for each in said)


@pytest.mark.alone
def test_h3_clients_that_do_not_read_are_cut_and_hold_little(plane: Plane) -> None:
    plane.answers()
    before, count = resident_bytes(plane.server), 4 if plane.name == "admin" else 10
    with ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", plane.port))
            client.setblocking(False)
            flood(client, get(plane.read))
        assert resident_bytes(plane.server) - before < 10 * 2 * 256 * 1024  # count of them, with what is read ahead
        assert plane.answers()
        wait_until(lambda: connections(plane) <= 0, 30)


def flood(client: socket.socket, request: bytes) -> None:
    """Ask until no more is taken."""
    try:
        for _ in range(200):
            client.send(request * 500)
            time.sleep(0)
    except BlockingIOError:
        pass


def connections(plane: Plane) -> int:
    status = plane.server.status()
    count: int = status["admin"]["connections"] - 1 if plane.name == "admin" else status["connections"]
    return count


def test_h6_a_chunked_body_without_end_is_refused_at_the_limit(plane: Plane) -> None:
    """No more is sent than is read before the refusal, so that no reset overtakes it."""
    with plane.connect() as client:
        client.sendall(post(plane.write, b"Transfer-Encoding: chunked"))
        sent = 0
        while not select.select([client], (), (), 0.05)[0] and sent < 100:
            client.sendall(b"8000\r\n%b\r\n" % bytes(32768))
            sent += 1
        assert everything(client).startswith(b"HTTP/1.1 413 ")
    assert 32768 * sent <= 2 * 1024**2


def test_h7_a_hundred_thousand_chunks_of_one_byte_are_refused_and_hold_nobody_up(plane: Plane) -> None:
    with plane.connect() as client:
        with suppress(OSError):
            client.sendall(post(plane.write, b"Transfer-Encoding: chunked") + b"1\r\nx\r\n" * 65_600)
        assert plane.answers()
        said = everything(client)
    assert (b" 413 " if plane.name == "admin" else b" 400 ") in said[:20]
    assert plane.name == "admin" or b"too_many_chunks" in said


def test_h17_a_client_that_goes_before_its_answers_has_them_given_up_and_counted(plane: Plane) -> None:
    before = gone(plane)
    for _ in range(5):
        with plane.connect() as client:
            client.sendall(get(plane.read) * 400)  # the first answers fill what nobody takes
            client.recv(100)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: connections(plane) <= 0, 10)
    assert plane.answers() and (plane.name == "admin" or gone(plane) == before + 5)


def gone(plane: Plane) -> int:
    """Of the data plane's requests."""
    count: int = plane.server.status()["cancelled"]
    return count


@pytest.mark.parametrize("cut", ["in its head", "in its body"])
def test_h15_a_request_that_ends_half_way_is_refused_and_never_run(plane: Plane, cut: str) -> None:
    sent = post(plane.write, b"Content-Length: 9")
    said = plane.says(sent[:-6] if cut == "in its head" else sent + b"{}", half_close=True)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert (b"incomplete_body" in said) == (cut == "in its body")


def test_h18_a_reset_in_the_middle_of_an_answer_is_logged_by_nobody(plane: Plane) -> None:
    logged = plane.server.log.stat().st_size
    for _ in range(20):
        with plane.connect() as client:
            client.sendall(get(plane.read) * 16)
            client.recv(100)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: connections(plane) <= 0, 10)
    assert plane.server.log.stat().st_size == logged and plane.answers()


@pytest.mark.parametrize("count", [16, 1000])
def test_h19_pipelined_requests_good_and_bad_are_answered_in_order(plane: Plane, count: int) -> None:
    short = b"/live" if plane.name == "admin" else b"/v2/health/live"
    said = plane.says((get(short) + get(b"/nowhere")) * (count // 2) + get(short, b"Connection: close"))
    statuses = [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"404"] * (count // 2) + [b"200"]


def test_h19_nothing_is_read_after_a_framing_error(plane: Plane) -> None:
    said = plane.says(get(plane.read) * 3 + get(plane.read, b"Content-Length: +1") + SMUGGLED)
    assert [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"200", b"400"]


@pytest.mark.parametrize("method", [b"DELETE", b"PUT", b"PATCH"])
def test_h25_a_method_that_a_path_does_not_take_is_told_those_that_it_does(plane: Plane, method: bytes) -> None:
    said = plane.says(get(plane.read, b"X-HTTP-Method-Override: GET", b"Connection: close").replace(b"GET", method, 1))
    assert said.startswith(b"HTTP/1.1 405 ") and b"\r\nAllow: GET, HEAD\r\n" in said


@pytest.mark.parametrize("form", [b"/%b", b"%b;x", b"%b/", b"%b%%20", b"/%%252e%%252e%b"])
def test_h26_a_path_that_only_looks_like_another_is_not_that_one(plane: Plane, form: bytes) -> None:
    assert plane.says(get(plane.read, b"Connection: close")).startswith(b"HTTP/1.1 200 ")
    assert plane.says(get(form % plane.read, b"Connection: close")).startswith(b"HTTP/1.1 404 ")


def test_h27_ten_thousand_ranges_are_as_one(plane: Plane) -> None:
    path = plane.read if plane.name == "admin" else b"/docs"
    ranges = b"Range: bytes=" + b",".join([b"0-1"] * 4_000)
    assert plane.says(get(path, ranges, b"Connection: close")).startswith(b"HTTP/1.1 200 ")


def test_h13_a_name_rebound_to_this_machine_reaches_no_operator(running: Server) -> None:
    plane = planes_of(running)[1]
    assert b" 421 " in plane.says(get(plane.read).replace(b"127.0.0.1", b"evil.example"))[:20]


PART = b'--b\r\nContent-Disposition: form-data; name="x%d"\r\n\r\n1\r\n'


@pytest.mark.alone
def test_without_descriptors_it_waits_and_goes_on_when_there_are_some(planes: tuple[Plane, Plane]) -> None:
    server = planes[0].server
    assert all(plane.answers() for plane in planes)
    pid = server.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        stack.callback(resource.prlimit, pid, resource.RLIMIT_NOFILE, before)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors(pid), before[1]))
        waiting = [[stack.enter_context(plane.connect()) for _ in range(8)][-1] for plane in planes]
        began_s = psutil.Process(pid).cpu_times().user
        time.sleep(1.5)
        assert psutil.Process(pid).cpu_times().user - began_s < 0.5, "it tries again and again"
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        for plane, client in zip(planes, waiting, strict=True):
            client.sendall(get(plane.read, b"Connection: close"))
            assert everything(client).startswith(b"HTTP/1.1 200 ")


def descriptors(pid: int) -> int:
    """One more than the highest that is open."""
    return 1 + max(int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir())


MULTIPART = {
    "10,000 parts": (b"b", b"".join(PART % n for n in range(10_000)) + b"--b--"),
    "a boundary of 10 KB": (b"b" * 10_000, b"--" + b"b" * 10_000 + b"--"),
    "a part's header of 900 KB": (b"b", b"--b\r\nX: " + b"a" * 900_000 + b"\r\n\r\n1\r\n--b--"),
    "nested": (b"b", b'--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c--\r\n--b--'),
    "without an end": (b"b", b'--b\r\nContent-Disposition: form-data; name="x"\r\n\r\n' + b"\r\n--" * 200_000),
}  # fmt: skip


@pytest.mark.parametrize("name", MULTIPART)
def test_h22_a_form_that_is_none_is_refused_at_once(running: Server, name: str) -> None:
    started = time.monotonic()
    boundary, body = MULTIPART[name]
    kind = {"Content-Type": f"multipart/form-data; boundary={boundary.decode()}"}
    answer = running.call("POST", "/predict/identity", body, kind)
    assert (answer.status, answer.code) == (400, "bad_request")
    assert time.monotonic() - started < 2


CODED = {
    "gzip of zeros": gzip.compress(bytes(50 * 1024**2)),
    "gzip cut": gzip.compress(b"[]" * 100_000)[:-9],
    "deflate of zeros": zlib.compress(bytes(50 * 1024**2)),
}


ENOUGH_BYTES = 1_200_000
"""Of 10 MB: past what any rule lets in, or it would be waited for."""
COSTLY_BYTES = 200_000
"""So long ones, as 65,537 chunks, take a fifth of a second each: they are repeated a fifth as often."""


def hostile(plane: Plane) -> list[tuple[bytes, bool]]:
    """Each with whether the client hangs up once it is sent, and reads nothing."""
    inputs = [(to(plane, row)[0][:ENOUGH_BYTES], False) for row in REFUSED]
    for name, body in CODED.items():
        coding = b"Content-Encoding: " + name.partition(" ")[0].encode()
        inputs.append(
            (post(plane.write, coding, b"Connection: close", b"Content-Length: %d" % len(body)) + body, False)
        )
    half = post(plane.write, b"Content-Length: 60000") + bytes(30_000)
    return [*inputs, (half, True), (half[:60], True), (get(plane.read) * 40, True)]


@pytest.mark.alone
@pytest.mark.parametrize("name", ["data", "admin"])
def test_a_hundred_repeats_of_all_hostile_input_leave_nothing_behind(running: Server, name: str) -> None:
    """Of all together; the admin plane is the same code: there it is ten."""
    plane = planes_of(running)[name == "admin"]
    inputs, rounds = hostile(plane), 10 if name == "admin" else 100
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda each: suffer(plane, *each), inputs * 2))  # what is kept for good is there now
        before = resident_bytes(running)
        for number in range(rounds):
            some = inputs if number % 5 == 0 else [each for each in inputs if len(each[0]) < COSTLY_BYTES]
            list(pool.map(lambda each: suffer(plane, *each), some))
    assert resident_bytes(running) - before <= GROWTH_BYTES_MAX


def suffer(plane: Plane, sent: bytes, hangs_up: bool) -> None:
    if not hangs_up:
        plane.says(sent)
        return
    with plane.connect() as client:
        client.sendall(sent)
