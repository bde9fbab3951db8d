"""What ``forwardpass predict NAME`` makes of its fields, and of whatever answers at the address."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from forwardpass import asking
from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.pipeline import Input

Answer = tuple[int, dict[str, str], bytes]


@contextmanager
def answering(answer: Callable[[str], Answer]) -> Iterator[tuple[str, list[str]]]:
    """A server's address and the paths it was asked for."""
    paths: list[str] = []

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            status, headers, body = answer(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", paths
        server.shutdown()
        thread.join()


def failure_of(answer: Answer) -> Failure:
    with answering(lambda path: answer) as (url, _), pytest.raises(Failure) as failure:
        asking.fetch_receipt(url, "x")
    return failure.value


def test_names_and_ids_are_quoted() -> None:
    with answering(lambda path: (200, {}, b"{}")) as (url, paths):
        asking.fetch_receipt(url, "a/b?c d")
        with pytest.raises(Failed, match="no server of pipelines"):
            asking.ask_server(url, "é?#", ["x=1"], receipt=False)
    assert paths == ["/receipts/a%2Fb%3Fc%20d", "/v2/models/%C3%A9%3F%23"]


@pytest.mark.parametrize(
    ("answer", "kind", "code", "text"),
    [
        ((502, {}, b"<html>"), Failed, Code.INTERNAL, "502 with something that is not JSON"),
        ((200, {}, b"\xff"), Failed, Code.INTERNAL, "200 with something that is not JSON"),
        ((404, {}, b"[1]"), Refused, Code.BAD_REQUEST, "answered 404"),
        ((418, {"X-Error-Code": "teapot"}, b'{"error": "short"}'), Refused, Code.BAD_REQUEST, "short"),
        ((503, {"X-Error-Code": "queue_full"}, b'{"error": {"message": "full"}}'), Failed, Code.QUEUE_FULL, "full"),
        ((200, {"Content-Length": "9"}, b"{"), Failed, Code.NOT_READY, "broke off"),
    ],
)
def test_whatever_answers_becomes_a_clear_failure(answer: Answer, kind: type, code: Code, text: str) -> None:
    failure = failure_of(answer)
    assert (type(failure), failure.code) == (kind, code)
    assert text in failure.text


def test_a_server_that_does_not_answer_in_time_is_said_to_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "TIMEOUT_S", 0.05)
    enough = threading.Event()

    def late(path: str) -> Answer:
        enough.wait(10)
        return 200, {}, b""

    with answering(late) as (url, _):
        try:
            with pytest.raises(Failed, match="did not answer within") as failure:
                asking.fetch_receipt(url, "x")
        finally:
            enough.set()
    assert failure.value.code is Code.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "localhost:8000", "", "file:///etc", "http://", "http://a:b", "http://[1"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Refused, match="expected http://host:port"):
        asking.fetch_receipt(url, "x")


def test_a_proxy_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with answering(lambda path: (200, {}, b'{"id": 1}')) as (url, _):
        assert asking.fetch_receipt(url, "x") == {"id": 1}


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        (["t=a", "t=b"], Code.INVALID_INPUT, "t: is given twice"),
        (["t"], Code.INVALID_INPUT, "expected field=value"),
        (['a"b=1'], Code.INVALID_INPUT, "expected field=value"),
        (["t=@nowhere"], Code.INVALID_INPUT, "cannot be read"),
        (["@latin"], Code.INVALID_UTF8, "not UTF-8 text"),
    ],
)
def test_fields_that_cannot_be_sent_are_refused(
    given: list[str], code: Code, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused, match=text) as refusal:
        asking.record(given, [Input("t", "text")])
    assert refusal.value.code is code
