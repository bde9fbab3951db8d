"""Raw bytes against the running server: what each row is answered with, and whether the connection is closed."""

import gzip
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.ingress.http_wire import GET, LIMITS, Served, raw, serving

from forwardpass.ingress.connections import host_of
from forwardpass.ingress.cors import Origins


def head(*lines: bytes, start: bytes = b"POST / HTTP/1.1", host: bytes = b"Host: a\r\n") -> bytes:
    return start + b"\r\n" + host + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def start(line: bytes) -> bytes:
    return head(start=line)


SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = head(b"Transfer-Encoding: chunked")
LONG = b"x" * 100_000
GZIPPED = gzip.compress(b"hello " * 100)

REFUSED: dict[str, tuple[bytes, int, str]] = {
    # body framing
    "CL and TE": (head(b"Content-Length: 3", b"Transfer-Encoding: chunked") + b"0\r\n\r\n", 400, "bad_request"),
    "TE and CL": (head(b"Transfer-Encoding: chunked", b"Content-Length: 3") + b"0\r\n\r\n", 400, "bad_request"),
    "CL twice, equal": (head(b"Content-Length: 3", b"Content-Length: 3") + b"abc", 400, "bad_request"),
    "CL twice, different": (head(b"Content-Length: 3", b"content-length: 4") + b"abc", 400, "bad_request"),
    **{
        f"CL {value!r}": (head(b"Content-Length: " + value) + b"abc", 400, "bad_request")
        for value in (b"3, 3", b"+3", b"-1", b"1e2", b"3_0", b"0x3", b"", b"3 3", "\u0663".encode(), b"%d" % 2**70)
    },
    "CL over the limit": (head(b"Content-Length: 104857600"), 413, "body_too_large"),
    "CL one over the limit": (head(b"Content-Length: %d" % (LIMITS.body_bytes_max + 1)), 413, "body_too_large"),
    **{
        f"TE {value!r}": (head(b"Transfer-Encoding: " + value) + b"0\r\n\r\n", 400, "bad_request")
        for value in (b"xchunked", b"chunked, identity", b"gzip, chunked", b"chunked, chunked", b"identity", b"")
    },
    "TE twice": (head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), 400, "bad_request"),
    "TE with a space before the colon": (head(b"Transfer-Encoding : chunked"), 400, "bad_request"),
    "TE in HTTP/1.0": (head(b"Transfer-Encoding: chunked", start=b"POST / HTTP/1.0"), 400, "bad_request"),
    "chunk size of 17 hex digits": (CHUNKED + b"0" * 16 + b"1\r\na\r\n0\r\n\r\n", 400, "bad_request"),
    "chunk size with a sign": (CHUNKED + b"+1\r\na\r\n0\r\n\r\n", 400, "bad_request"),
    "chunk size with 0x": (CHUNKED + b"0x1\r\na\r\n0\r\n\r\n", 400, "bad_request"),
    "chunk lines with bare LF": (CHUNKED + b"1\na\n0\n\n" + b" " * 300, 400, "bad_request"),
    "chunk longer than its size": (CHUNKED + b"1\r\nab\r\n0\r\n\r\n", 400, "bad_request"),
    "chunk extension of 1 MB": (CHUNKED + b"1;" + b"x" * 1_000_000 + b"\r\na\r\n0\r\n\r\n", 400, "bad_request"),
    "chunk extension with bare LF": (CHUNKED + b"1;\nx\r\na\r\n0\r\n\r\n", 400, "bad_request"),
    "trailers": (CHUNKED + b"0\r\nX: y\r\n\r\n", 400, "bad_request"),
    "chunk larger than the limit": (CHUNKED + b"fffffff0\r\n", 413, "body_too_large"),
    "chunks larger than the limit": (CHUNKED + b"10000\r\n%b\r\n" % (b"x" * 65536) * 17, 413, "body_too_large"),
    "too many chunks": (CHUNKED + b"1\r\nx\r\n" * 1_000_000, 400, "too_many_chunks"),
    # head
    "no Host": (head(host=b""), 400, "bad_request"),
    "two Hosts": (head(b"Host: a"), 400, "bad_request"),
    "two Hosts in one": (head(host=b"Host: a, b\r\n"), 400, "bad_request"),
    "Host with a path": (head(host=b"Host: a/b\r\n"), 400, "bad_request"),
    "Host with a user": (head(host=b"Host: u@a\r\n"), 400, "bad_request"),
    "empty Host": (head(host=b"Host:\r\n"), 400, "bad_request"),
    "two Authorizations": (head(b"Authorization: a", b"Authorization: b"), 400, "bad_request"),
    "obs-fold": (head(b"X: a\r\n b"), 400, "bad_request"),
    "space before the colon": (head(b"X : a"), 400, "bad_request"),
    "no colon": (head(b"X"), 400, "bad_request"),
    "NUL in a value": (head(b"X: a\0b"), 400, "bad_request"),
    "bare CR in a value": (head(b"X: a\rY: b"), 400, "bad_request"),
    "bare LF after a header": (head(b"X: a\nY: b"), 400, "bad_request"),
    "bare LF throughout": (b"GET / HTTP/1.1\nHost: a\n\n", 400, "bad_request"),
    "bare LF at the end": (b"GET / HTTP/1.1\r\nHost: a\r\n\n", 400, "bad_request"),
    "header of 100 KB": (head(b"X: " + LONG), 431, "headers_too_large"),
    "header of 10 MB": (head(b"X: " + LONG * 100), 431, "headers_too_large"),
    "5,000 headers": (head(*[b"X: a"] * 5000), 431, "headers_too_large"),
    "101 headers": (head(*[b"X: a"] * 100), 431, "headers_too_large"),
    "URL of 100 KB": (start(b"GET /" + LONG + b" HTTP/1.1"), 414, "url_too_long"),
    "URL one over the limit": (start(b"GET /" + b"x" * 8192 + b" HTTP/1.1"), 414, "url_too_long"),
    "Expect: junk": (head(b"Expect: junk"), 417, "expectation_failed"),
    "Content-Encoding br": (head(b"Content-Encoding: br"), 415, "unsupported_media_type"),
    "two encodings": (head(b"Content-Encoding: gzip, gzip"), 415, "unsupported_media_type"),
    # request line
    "TRACE": (start(b"TRACE / HTTP/1.1"), 405, "method_not_allowed"),
    "CONNECT": (start(b"CONNECT a:80 HTTP/1.1"), 405, "method_not_allowed"),
    "unknown method": (start(b"BREW / HTTP/1.1"), 501, "not_implemented"),
    "lower-case method": (start(b"get / HTTP/1.1"), 400, "bad_request"),
    "method with @": (start(b"G@T / HTTP/1.1"), 400, "bad_request"),
    "two spaces": (start(b"GET  / HTTP/1.1"), 400, "bad_request"),
    "space in the target": (start(b"GET /a b HTTP/1.1"), 400, "bad_request"),
    "space at the end": (start(b"GET / HTTP/1.1 "), 400, "bad_request"),
    "no version": (start(b"GET /"), 400, "bad_request"),
    "HTTP/0.9": (start(b"GET / HTTP/0.9"), 400, "bad_request"),
    "HTTP/2.0": (start(b"GET / HTTP/2.0"), 400, "bad_request"),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "bad_request"),
    "RTSP": (start(b"GET / RTSP/1.0"), 400, "bad_request"),
    "TLS hello": (b"\x16\x03\x01\x02\n\x01\x00\x01\xfc\x03\x03", 400, "bad_request"),
    "absolute-form of another host": (start(b"GET http://b/ HTTP/1.1"), 400, "bad_request"),
    "absolute-form of another scheme": (start(b"GET ftp://a/ HTTP/1.1"), 400, "bad_request"),
    "absolute-form with a user": (start(b"GET http://u@a/ HTTP/1.1"), 400, "bad_request"),
    "authority-form": (start(b"GET a:80 HTTP/1.1"), 400, "bad_request"),
    "asterisk with GET": (start(b"GET * HTTP/1.1"), 400, "bad_request"),
    **{
        f"path {path!r}": (start(b"GET " + path + b" HTTP/1.1"), 400, "bad_request")
        for path in (
            b"/%2e%2e/x", b"/a/../b", b"/./a", b"/%2E", b"/a%2fb", b"/a%5Cb", b"/a\\b", b"/%00", b"/%0a", b"/%ff",
            b"/%", b"/%4", b"/%zz", b"/\xc3\xa9", b"/a#b", b"/%7f", b"/%ed%a0%80",
        )
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as served:
        yield served


@pytest.mark.parametrize("row", REFUSED)
def test_what_breaks_the_rules_is_refused_and_nothing_after_it_is_read(served: Served, row: str) -> None:
    data, status, code = REFUSED[row]
    before = len(served.requests)
    reply = raw(served, data + SMUGGLED)
    assert (reply.statuses, reply.closed) == ([status], True)
    assert f"X-Error-Code: {code}\r\n" in reply.head + "\r\n"
    assert "Connection: close" in reply.head
    assert served.requests[before:] == []


TAKEN: dict[str, tuple[bytes, str, bytes]] = {
    "plain": (GET, "/", b""),
    "empty lines before": (b"\r\n\r\n" + GET, "/", b""),
    "body": (head(b"Content-Length: 3") + b"abc", "/", b"abc"),
    "leading zeros": (head(b"Content-Length: 003") + b"abc", "/", b"abc"),
    "space around a length": (head(b"Content-Length:  3 \t") + b"abc", "/", b"abc"),
    "chunked": (CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", "/", b"abcde"),
    "chunked, upper case": (head(b"Transfer-Encoding: Chunked") + b"A\r\n0123456789\r\n00\r\n\r\n", "/", b"0123456789"),
    "offered upgrade": (head(b"Connection: Upgrade", b"Upgrade: h2c", b"Content-Length: 1") + b"a", "/", b"a"),
    "percent decoded once": (start(b"GET /a%20b%252e%C3%A9 HTTP/1.1"), "/a b%2e\u00e9", b""),
    "double slash and semicolon stay": (start(b"GET //a;x HTTP/1.1"), "//a;x", b""),
    "absolute-form": (start(b"GET HTTP://A/x?y HTTP/1.1"), "/x", b""),
    "absolute-form without path": (start(b"GET http://a?y HTTP/1.1"), "/", b""),
    "asterisk": (start(b"OPTIONS * HTTP/1.1"), "*", b""),
    "100 headers": (head(*[b"X: a"] * 99), "/", b""),
    "URL at the limit": (start(b"GET /" + b"x" * 8191 + b" HTTP/1.1"), "/" + "x" * 8191, b""),
    "IPv6 host": (head(host=b"Host: [::1]:80\r\n"), "/", b""),
    "gzip": (head(b"Content-Encoding: gzip", b"Content-Length: %d" % len(GZIPPED)) + GZIPPED, "/", GZIPPED),
}


@pytest.mark.parametrize("row", TAKEN)
def test_what_keeps_the_rules_is_handed_over_and_the_connection_stays(served: Served, row: str) -> None:
    data, path, body = TAKEN[row]
    before = len(served.requests)
    reply = raw(served, data, wait_s=0.05)
    assert (reply.statuses, reply.closed) == ([200], False)
    assert [(request.path, request.body) for request in served.requests[before:]] == [(path, body)]


def test_a_head_at_the_limit_is_taken_and_one_byte_more_refused(served: Served) -> None:
    room = LIMITS.header_bytes_max - len(head(b"X: "))
    assert raw(served, head(b"X: " + b"a" * room), wait_s=0.05).statuses == [200]
    assert raw(served, head(b"X: " + b"a" * (room + 1))).statuses == [431]


def test_repeated_headers_are_joined_and_names_lower_cased(served: Served) -> None:
    raw(served, head(b"X-Tag: a", b"x-tag:  b "), wait_s=0.05)
    assert served.requests[-1].headers[b"x-tag"] == b"a, b"


@pytest.mark.parametrize(
    ("name", "coding"), [(b"gzip", b"gzip"), (b"GZIP", b"gzip"), (b"x-gzip", b"gzip"), (b"deflate", b"deflate")]
)
def test_a_coding_is_known_by_each_of_its_names_and_left_to_whoever_lets_the_request_in(
    served: Served, name: bytes, coding: bytes
) -> None:
    request = head(b"Content-Encoding: " + name, b"Content-Length: %d" % len(GZIPPED)) + GZIPPED
    assert raw(served, request, wait_s=0.05).statuses == [200]
    assert (served.requests[-1].body, served.requests[-1].encoding) == (GZIPPED, coding)


@pytest.mark.parametrize("coding", [b"br", b"zstd", b"gzip, gzip", b"gzip, deflate", b""])
def test_a_coding_that_cannot_be_undone_is_told_those_that_can(served: Served, coding: bytes) -> None:
    reply = raw(served, head(b"Content-Encoding: " + coding, b"Content-Length: 2") + b"[]", wait_s=0.05)
    assert reply.statuses == [415] and "Accept-Encoding: gzip, deflate" in reply.head


@pytest.mark.parametrize("host, status", [(b"A.example:8080", 200), (b"a.example", 200), (b"evil.example", 421)])
def test_only_listed_hosts_are_served(host: bytes, status: int) -> None:
    with serving(limits=replace(LIMITS, hosts=("a.example",))) as served:
        assert raw(served, b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n").statuses == [status]


@pytest.mark.parametrize("host", [b"127.0.0.1", b"127.0.0.1:80"])
def test_whoever_asks_by_the_address_that_they_reach_is_served_whatever_the_names(host: bytes) -> None:
    """A probe, or a scrape; no name can be rebound to be an address."""
    with serving(limits=replace(LIMITS, hosts=("a.example",))) as served:
        assert raw(served, b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n", wait_s=0.05).statuses == [200]
        assert raw(served, b"GET / HTTP/1.1\r\nHost: 127.0.0.2\r\n\r\n").statuses == [421]


@pytest.mark.parametrize(
    ("address", "host"),
    [
        (("10.0.0.5", 8000), b"10.0.0.5"), (("::ffff:10.0.0.5", 8000, 0, 0), b"10.0.0.5"),
        (("fd00::5", 8000, 0, 0), b"[fd00::5]"), (("fe80::5%eth0", 8000, 0, 2), b"[fe80::5]"), ("/a/socket", b""), (None, b""),
    ],
)  # fmt: skip
def test_an_address_of_ours_as_a_host(address: object, host: bytes) -> None:
    assert host_of(address) == host


def test_a_refusal_of_a_head_request_has_no_body(served: Served) -> None:
    reply = raw(served, head(b"Content-Length: +3", start=b"HEAD / HTTP/1.1"))
    assert (reply.statuses, reply.body, reply.closed) == ([400], b"", True) and "Content-Length: 0" not in reply.head


@pytest.mark.parametrize(
    "sent",
    [
        head(b"Origin: http://app.example", b"Content-Length: 104857600"),
        head(b"Content-Encoding: br", b"origin:http://app.example \t", b"Content-Length: 2") + b"[]",
        head(b"Origin: http://app.example", b"Transfer-Encoding: chunked") + b"x\r\n",
    ],
)
def test_a_page_of_a_configured_origin_may_read_what_broke_a_rule(sent: bytes) -> None:
    with serving(origins=Origins(frozenset([b"http://app.example"]))) as served:
        assert "Access-Control-Allow-Origin: http://app.example" in raw(served, sent).head
        assert "Access-Control-Allow" not in raw(served, sent.replace(b"app", b"bad")).head
