"""Classes of priority and tenants, over real sockets: who is run first, who leaves a full queue, who may ask for what."""

import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import grpc
import numpy as np
import pytest
from tests.e2e.pipelines import OWN_MODEL, write_own
from tests.faults.overloaded import key
from tests.grpc_calls import channel, infer_request
from tests.serving import Reply, Server, forwardpass, serving, wait_until

HOLD_MS = 1500
PIPELINE = "slow"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One row at a time; two may wait."""
    folder = tmp_path_factory.mktemp("classes")
    with serving(_models(folder), data=folder / "data", settings={"grpc.serve": "on"}) as server:
        yield server


def _models(folder: Path) -> Path:
    write_own(folder / "models" / PIPELINE / "1", OWN_MODEL + "\n[batch]\nrows_max = 1\n[queue]\nrows_max = 2\n")
    forwardpass("trust", folder / "models", data=folder / "data")
    return folder / "models"


def ask(server: Server, value: float, **headers: str) -> Reply:
    return server.predict(PIPELINE, {"x": [value, 0.0]}, **headers)


class Asking:
    """Requests that wait, each in a thread of its own; ``ended`` in the order of their answers."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.ended: list[tuple[str, Reply]] = []
        self._threads: list[threading.Thread] = []

    def start(self, name: str, value: float, headers: Mapping[str, str]) -> None:
        """And wait until it is in: the first runs, the others wait."""

        def run() -> None:
            self.ended.append((name, ask(self.server, value, **headers)))

        before = self.server.version(PIPELINE)["running"]
        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()
        wait_until(lambda: self.server.version(PIPELINE)["running"] == before + 1)
        if before:
            wait_until(lambda: self.server.version(PIPELINE)["queue"]["items"] > 0)
        else:
            wait_until(lambda: self.server.version(PIPELINE)["queue"]["items"] == 0)

    def all(self) -> dict[str, Reply]:
        for thread in self._threads:
            thread.join()
        return dict(self.ended)


def test_the_more_urgent_class_is_run_first_and_the_status_shows_who_waits(served: Server) -> None:
    asking = Asking(served)
    asking.start("holder", 1000.0 + HOLD_MS, {})
    asking.start("late", 1.0, {"X-Priority": "sheddable"})
    asking.start("urgent", 2.0, {"X-Priority": "critical"})
    status = served.version(PIPELINE)
    assert status["waiting_by_class"] == {"critical": 1, "standard": 0, "sheddable": 1}
    assert status["predicted_wait_s"] >= 0.0
    assert {reply.status for reply in asking.all().values()} == {200}
    assert [name for name, _ in asking.ended] == ["holder", "urgent", "late"]


def test_what_can_be_shed_leaves_a_full_queue_for_what_is_more_urgent(served: Server) -> None:
    asking = Asking(served)
    asking.start("holder", 1000.0 + HOLD_MS, {})
    asking.start("stays", 1.0, {"X-Priority": "sheddable", "X-Request-Deadline-Ms": "10000"})
    asking.start("leaves", 1.0, {"X-Priority": "sheddable"})
    assert ask(served, 7.0, **{"X-Priority": "critical"}).json["outputs"] == {"y": 7.0}
    ended = asking.all()
    assert (ended["leaves"].status, ended["leaves"].code) == (503, "shed")
    assert 1 <= int(ended["leaves"].headers["retry-after"]) <= 5
    assert (ended["holder"].status, ended["stays"].status) == (200, 200)


def test_a_class_is_named_in_grpc_metadata_too(served: Server) -> None:
    row = infer_request(PIPELINE, "x", "FP64", [1, 2], np.array([3.0, 4.0], "<f8").tobytes())
    with channel(served.grpc_port) as client:
        answer = client.infer(row, metadata=[("x-priority", "critical")])
        assert list(np.frombuffer(answer.raw_output_contents[0], "<f8")) == [7.0]
        with pytest.raises(grpc.RpcError) as caught:
            client.infer(row, metadata=[("x-priority", "first")])
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_key_may_ask_for_its_class_and_lower_ones(tmp_path: Path) -> None:
    models, data = _models(tmp_path), tmp_path / "data"
    given = key(data, "acme", "--scope", "infer")
    with serving(models, data=data, settings={"auth.required": "true"}) as server:
        replies = {
            name: ask(server, 1.0, **{"X-API-Key": given, "X-Priority": name})
            for name in ("critical", "standard", "sheddable")
        }
    assert {name: reply.status for name, reply in replies.items()} == {
        "critical": 403, "standard": 200, "sheddable": 200
    }  # fmt: skip
    error = json.loads(replies["critical"].body)["error"]
    assert (error["code"], error["field"]) == ("forbidden", "X-Priority")
