"""3.13: kept answers at a server that runs, while leaders leave, are too late or die, and versions are replaced."""

import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.e2e.pipelines import OWN_MODEL, write_own
from tests.serving import Reply, Server, forwardpass, serving, wait_until

from forwardpass.cache.key import Keys
from forwardpass.core.pipeline import Input, Pipeline, Signature, Version

CACHED = OWN_MODEL + "\n[cache]\n"
SETTLED_S = 1_000_000_000


def write(folder: Path, definition: str) -> None:
    write_own(folder, definition)
    for path in folder.rglob("*"):
        os.utime(path, (SETTLED_S, SETTLED_S))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("cache-faults")
    write(root / "models" / "own" / "1", CACHED)
    forwardpass("trust", root / "models", data=root / "data")
    with serving(root / "models", data=root / "data") as running:
        yield running


def body(first: float, second: float) -> bytes:
    return json.dumps(
        {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [first, second]}]}
    ).encode()


def ask(server: Server, first: float, second: float, **headers: str) -> Reply:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.call("POST", "/v2/models/own/infer?receipt=full", body(first, second), given)


def running(server: Server) -> int:
    return int(server.version("own")["running"])


TEXT = st.text(max_size=4)
PART = st.tuples(TEXT, TEXT, st.binary(max_size=3), st.binary(max_size=3), st.integers(1, 3), TEXT, TEXT)


def key(part: tuple[str, str, bytes, bytes, int, str, str]) -> bytes:
    tenant, digest, one, two, rows, name, kind = part
    signature = Signature((Input(f"x{name}", "bytes"), Input(f"y{kind}", "text")), ())
    keys = Keys(Version("p", 1, digest, "/", Pipeline(())), signature, (), together=False)
    return keys.of(tenant, (one, two), ((), ()), rows)


@given(PART, PART)
def test_c1_c2_two_keys_are_equal_only_if_all_that_decides_is(
    one: tuple[str, str, bytes, bytes, int, str, str], other: tuple[str, str, bytes, bytes, int, str, str]
) -> None:
    assert (key(one) == key(other)) == (one == other)


def test_c5_a_leader_that_is_too_late_fails_alone(server: Server) -> None:
    with ThreadPoolExecutor(2) as pool:
        leader = pool.submit(ask, server, 1600.0, 1.0, X_Request_Deadline_Ms="300")
        wait_until(lambda: running(server) == 1)
        follower = pool.submit(ask, server, 1600.0, 1.0)
        assert leader.result().status == 504
        assert follower.result().json["outputs"][0]["data"] == [1601.0]
    assert ask(server, 1600.0, 1.0).headers["cache-status"] == "forwardpass; hit"


def test_c5_a_leader_whose_caller_hangs_up_leaves_the_followers_their_answer(server: Server) -> None:
    content = body(1500.0, 2.0)
    head = b"POST /v2/models/own/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(content)
    with ThreadPoolExecutor(4) as pool, socket.create_connection(("127.0.0.1", server.port)) as leader:
        leader.sendall(head + content)
        wait_until(lambda: running(server) == 1)
        followers = [pool.submit(ask, server, 1500.0, 2.0) for _ in range(4)]
        wait_until(lambda: running(server) == 5)
        leader.close()
        assert [each.result().json["outputs"][0]["data"] for each in followers] == [[1502.0]] * 4


def test_c5_an_input_that_kills_its_worker_is_nobodys_answer(server: Server) -> None:
    def one(number: int) -> Reply:
        return ask(server, -2.0, 3.0)

    replies: list[Reply] = server.together(6, one)
    assert {reply.code for reply in replies} <= {"worker_crashed", "quarantined", "model_unavailable"}
    wait_until(lambda: ask(server, 1.0, 3.0).status == 200)
    assert server.version("own")["workers"][0]["deaths"] <= 4


def test_c3_a_version_replaced_under_its_number_has_none_of_the_old_answers(tmp_path: Path) -> None:
    folder, data = tmp_path / "models" / "own" / "1", tmp_path / "data"
    write(folder, CACHED)
    forwardpass("trust", tmp_path / "models", data=data)
    with serving(tmp_path / "models", data=data) as server:
        before = ask(server, 1.0, 2.0)
        server.call("POST", "/pipelines/own/versions/1/unload", admin=True)
        code = folder / "steps.py"
        code.write_text(code.read_text().replace("x.sum(axis=1)", "x.sum(axis=1) * 1.0 + 0.0"))
        os.utime(code, (SETTLED_S, SETTLED_S))
        forwardpass("trust", tmp_path / "models", data=data)
        assert server.call("POST", "/pipelines/own/versions/1/load", admin=True).status == 200
        after = ask(server, 1.0, 2.0)
        assert after.headers["cache-status"] == "forwardpass; fwd=miss"
        assert after.headers["x-pipeline-digest"] != before.headers["x-pipeline-digest"]
