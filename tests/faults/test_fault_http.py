"""Bytes that are no request, against the real server with real pipelines behind it (group H)."""

import gzip
import json
import socket
import struct
import threading
import time
import zlib

import pytest
from tests.faults.asking import infer
from tests.faults.faulty import SECRET
from tests.faults.oracle import assert_well_told
from tests.serving import Server, wait_until

BODY = infer().body
PATH = b"/v2/models/identity/infer"


def head(*lines: bytes, method: bytes = b"POST", path: bytes = PATH, host: bytes = b"Host: localhost") -> bytes:
    return b"\r\n".join((method + b" " + path + b" HTTP/1.1", *((host,) if host else ()), *lines, b"", b""))


def length(size: object = len(BODY)) -> bytes:
    return b"Content-Length: " + str(size).encode()


def raw(server: Server, sent: bytes, *, half_close: bool = False) -> bytes:
    """Everything the server says until it closes, or has answered and says no more."""
    with socket.create_connection(("127.0.0.1", server.port), 10) as client:
        try:
            client.sendall(sent)
            if half_close:
                client.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it may have refused and closed already
        client.settimeout(10)
        said = b""
        try:
            while part := client.recv(65536):
                said += part
        except ConnectionResetError:
            pass
        return said


SMUGGLED = head(method=b"GET", path=b"/v2/models/smuggled")
REFUSED = {
    "H5 100 MiB announced": (head(length(100 * 1024**2)), 413, "body_too_large"),
    "H9 length and chunked": (head(length(), b"Transfer-Encoding: chunked") + b"0\r\n\r\n" + SMUGGLED, 400, "bad_request"),
    "H10 two lengths": (head(length(5), length(6)) + BODY, 400, "bad_request"),
    "H10 negative": (head(length(-1)) + BODY, 400, "bad_request"),
    "H10 signed": (head(length("+3")) + BODY, 400, "bad_request"),
    "H10 2^70": (head(length(2**70)) + BODY, 400, "bad_request"),
    "H11 unknown coding": (head(b"Transfer-Encoding: xchunked") + BODY, 400, "bad_request"),
    "H11 space before colon": (head(b"Transfer-Encoding : chunked") + BODY, 400, "bad_request"),
    "H13 no Host": (head(length(), host=b"") + BODY, 400, "bad_request"),
    "H13 two Hosts": (head(length(), b"Host: y") + BODY, 400, "bad_request"),
    "H14 header of 100 KB": (head(length(), b"X-Long: " + b"a" * 100_000) + BODY, 431, "headers_too_large"),
    "H14 5,000 headers": (head(length(), *[b"a: b"] * 5000) + BODY, 431, "headers_too_large"),
    "H14 URL of 100 KB": (head(length(), path=PATH + b"?" + b"a" * 100_000) + BODY, 414, "url_too_long"),
    "H29 HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "bad_request"),
    "H chunk size of 17 digits": (
        head(b"Transfer-Encoding: chunked") + b"00000000000000001\r\n[\r\n0\r\n\r\n", 400, "bad_request",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_breaks_the_framing_is_refused_closed_and_never_read_on(server: Server, name: str) -> None:
    sent, status, code = REFUSED[name]
    said = raw(server, sent)
    assert said.startswith(b"HTTP/1.1 %d " % status), said[:300]
    assert b"X-Error-Code: " + code.encode() in said
    assert said.count(b"HTTP/1.1 ") == 1
    assert b"smuggled" not in said + server.log.read_bytes()


ANSWERED = {
    "H23 media type": ("POST", PATH.decode(), {"Content-Type": "text/plain; charset=utf-16"}, (200, 415)),
    "H23 coding": ("POST", PATH.decode(), {"Content-Encoding": "br"}, (415,)),
    "H21 coded twice": ("POST", PATH.decode(), {"Content-Encoding": "gzip, gzip"}, (415,)),
    "R2 page of another origin": ("POST", PATH.decode(), {"Origin": "http://evil.example"}, (403,)),
    "R2 preflight": ("OPTIONS", PATH.decode(), {"Origin": "null", "Access-Control-Request-Method": "POST"}, (403,)),
    "P9 no key": ("POST", PATH.decode(), {"Idempotency-Key": '"a"b"'}, (400,)),
    "H25 method": ("DELETE", PATH.decode(), {}, (405,)),
    "H25 override": ("GET", PATH.decode(), {"X-HTTP-Method-Override": "POST"}, (405,)),
    "H26 dots": ("POST", "/v2/models/..%2f..%2fadmin/infer", {}, (400, 404)),
    "H26 twice encoded": ("POST", "/v2/models/%252e%252e/infer", {}, (400, 404)),
    "H26 null byte": ("POST", "/v2/models/identity%00/infer", {}, (400, 404)),
    "H26 double slash": ("POST", "//v2/models/identity/infer", {}, (400, 404)),
    "H26 not UTF-8": ("POST", "/v2/models/%ff/infer", {}, (400, 404)),
    "A10 admin path": ("GET", "/status", {"X-Original-URL": "/live", "X-Forwarded-For": "127.0.0.1"}, (404,)),
    "A10 admin act": ("POST", "/pipelines/identity/versions/1/unload", {}, (404,)),
    "D3 unknown name": ("POST", "/v2/models/" + "a" * 256 + "/infer", {}, (404,)),
    "D3 version": ("POST", "/v2/models/identity/versions/-1/infer", {}, (404,)),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_a_request_for_what_is_not_there_is_told_so(server: Server, name: str) -> None:
    method, path, headers, statuses = ANSWERED[name]
    secret = {"Authorization": f"Bearer {SECRET}", "Cookie": SECRET}
    answer = server.call(method, path, BODY, headers | secret)
    assert answer.status in statuses
    if answer.status != 200:
        assert_well_told(answer)
    assert answer.status != 405 or answer.headers["allow"] == "POST"


PACKED = gzip.compress(BODY)
DAMAGED = {
    "cut": PACKED[:-9],
    "without its checksum": PACKED[:-8],
    "corrupt": PACKED[:20] + bytes(8) + PACKED[28:],
    "garbage behind it": PACKED + b"x",
    "two members": PACKED + PACKED,
    "packed twice": gzip.compress(PACKED),
    "not packed": BODY,
    "empty": b"",
    "of another coding": zlib.compress(BODY),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_h21_a_body_that_does_not_unpack_is_never_run(server: Server, name: str) -> None:
    before = server.version("identity")["outcomes"]
    answer = server.call("POST", PATH.decode(), DAMAGED[name], {"Content-Encoding": "gzip"})
    assert (answer.status, answer.code) in ((400, "bad_encoding"), (400, "json_invalid"))
    assert_well_told(answer)
    assert server.version("identity")["outcomes"] == before


def test_h21_a_bomb_is_refused_while_it_is_unpacked(server: Server) -> None:
    before = server.resident_bytes()
    bomb = gzip.compress(bytes(200 * 1024**2), 1)
    answer = server.call("POST", PATH.decode(), bomb, {"Content-Encoding": "gzip"})
    assert (answer.status, answer.code) == (413, "body_too_large")
    assert server.resident_bytes() - before < 100 * 1024**2


def test_h15_a_body_cut_short_is_never_run(server: Server) -> None:
    before = server.version("identity")["outcomes"]
    said = raw(server, head(length()) + BODY[:-5], half_close=True)
    assert said == b"" or b"incomplete_body" in said
    assert server.version("identity")["outcomes"] == before


def test_h18_a_reset_in_the_middle_of_a_large_answer_harms_nobody(server: Server) -> None:
    body = json.dumps(
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [30_000, 4], "data": [0] * 120_000}]}
    ).encode()
    for _ in range(2):
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(head(length(len(body))) + body)
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    assert infer().send(server).status == 200


@pytest.mark.alone
def test_h1_half_sent_heads_keep_nobody_out_and_are_closed(server: Server) -> None:
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
    for client in clients:
        client.sendall(b"POST " + PATH + b" HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    started = time.monotonic()
    assert infer().send(server).status == 200
    assert time.monotonic() - started < 1.0
    for client in clients:
        client.settimeout(15)
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")
        client.close()
    assert 1.0 < time.monotonic() - started < 10.0


def test_h19_pipelined_good_and_bad_are_answered_in_order(server: Server) -> None:
    good, bad = head(length()) + BODY, head(length(2)) + b"[]"
    said = raw(server, (good + bad) * 8 + head(length(), b"Connection: close") + BODY)
    assert [int(part[:3]) for part in said.split(b"HTTP/1.1 ")[1:]] == [200, 400] * 8 + [200]


def test_g3_a_clients_request_id_is_never_the_servers_own(server: Server) -> None:
    for given in ("a" * 10_000, "bad id", "x\x1b[31m"):
        answer = server.call("POST", PATH.decode(), BODY, {"X-Request-Id": given})
        assert answer.headers["x-request-id"] != given
        assert "x-client-request-id" not in answer.headers


def test_g1_a_thousand_names_make_no_series(server: Server) -> None:
    before = len(server.get("/metrics", admin=True).body.splitlines())

    def many(client: int) -> None:
        for n in range(250):
            assert (
                server.call("POST", f"/v2/models/none-{client}-{n}/infer", BODY, {"User-Agent": f"{n}"}).status == 404
            )

    threads = [threading.Thread(target=many, args=(client,)) for client in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: len(server.get("/metrics", admin=True).body.splitlines()) <= before)
