"""A row that kills its worker, in a bundle of good ones: only its sender is told, and no more workers die than by itself."""

import json
import socket
from pathlib import Path

from tests.e2e.pipelines import OWN_CODE, OWN_MODEL
from tests.faults.faulty import settle, write_own
from tests.serving import forwardpass, serving, wait_until

WIDTH = 16


def text(x: float) -> bytes:
    body = b'{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP64","data":[%b]}]}' % f"{x},1".encode().ljust(WIDTH)
    return b"POST /v2/models/own/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def ask(clients: list[socket.socket], firsts: list[float]) -> list[tuple[int, str]]:
    """Sent one after the other; the status of each, and its sum or error code."""
    for client, first in zip(clients, firsts, strict=True):
        client.sendall(text(first))
    return [_answer(client) for client in clients]


def _answer(client: socket.socket) -> tuple[int, str]:
    here = b""
    while b"\r\n\r\n" not in here:
        here += client.recv(1 << 16)
    head, _, body = here.partition(b"\r\n\r\n")
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in head.decode().split("\r\n"))}
    while len(body) < int(fields["content-length"]):
        body += client.recv(1 << 16)
    if "x-error-code" in fields:
        return int(head[9:12]), fields["x-error-code"]
    return int(head[9:12]), str(json.loads(body)["outputs"][0]["data"][0])


def test_a_row_that_kills_its_worker_is_its_senders_failure_alone(tmp_path: Path) -> None:
    write_own(tmp_path / "models" / "own" / "1", OWN_MODEL, OWN_CODE)
    settle(tmp_path)
    forwardpass("trust", tmp_path / "models", data=tmp_path / "data")
    with serving(tmp_path / "models", data=tmp_path / "data") as server:
        clients = [socket.create_connection(("127.0.0.1", server.port), 30) for _ in range(6)]
        for _ in range(20):
            assert {status for status, _ in ask(clients, [1, 2, 3, 4, 5, 6])} == {200}
        told = ask(clients, [1, 2, -2, 4, 5, 6])
        assert told == [(200, "2.0"), (200, "3.0"), (500, "worker_crashed"), (200, "5.0"), (200, "6.0"), (200, "7.0")]
        deaths = sum(worker["deaths"] for worker in server.version("own")["workers"])
        assert deaths == 2
        wait_until(lambda: ask(clients[:1], [1.0]) == [(200, "2.0")])
        assert ask(clients, [1, 2, -2, 4, 5, 6])[2] == (422, "quarantined")
        assert sum(worker["deaths"] for worker in server.version("own")["workers"]) == deaths
        for client in clients:
            client.close()
