"""Requests that kill the engine, eat the memory or come out as nonsense; workers killed from outside (T19-T22, D9, D13)."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from tests.e2e.pipelines import OWN_CODE, OWN_MODEL
from tests.faults.asking import Call, infer
from tests.faults.faulty import settle, write_own
from tests.faults.oracle import assert_well_told
from tests.serving import Reply, Server, forwardpass, serving, wait_until

INT32_MIN = -(2**31)
BACK_S = 3.0  # one second, with the slack of a busy machine


def divide(a: int, b: int) -> Call:
    inputs = [
        {"name": name, "datatype": "INT32", "shape": [1, 1], "data": [value]} for name, value in (("a", a), ("b", b))
    ]
    return Call(json.dumps({"inputs": inputs}).encode(), "divide")


def zeros(server: Server, count: int, pipeline: str = "huge") -> Reply:
    return infer(pipeline, name="n", datatype="INT64", shape=[1], data=[count]).send(server)


def slow(server: Server, answers: list[Reply], seconds: float = 1.0) -> threading.Thread:
    """A request that is running when this returns."""
    before = server.version("own")["running"]
    thread = threading.Thread(target=lambda: answers.append(server.predict("own", {"x": [1000 + seconds * 1000, 0.0]})))
    thread.start()
    wait_until(lambda: server.version("own")["running"] > before)
    time.sleep(0.2)
    return thread


def test_t19_a_division_that_kills_the_engine_fails_alone_and_its_batch_mates_are_answered(server: Server) -> None:
    # Only three together: from eight rows on the engine divides them as a vector, which does not trap.
    answers = server.together(3, lambda n: divide(INT32_MIN if n == 1 else 6 * n, -1 if n == 1 else 2).send(server))
    assert [answer.status for answer in answers] == [200, 500, 200]
    assert answers[1].code == "worker_crashed"
    assert_well_told(answers[1])
    assert [answers[n].json["outputs"][0]["data"] for n in (0, 2)] == [[0], [6]]
    assert any(batch["outcome"] == "worker_crashed" and batch["items"] > 1 for batch in server.batches("divide"))
    assert wait_until(lambda: divide(7, 2).send(server).status == 200, BACK_S) < BACK_S
    took_s = []
    for _ in range(3):  # the quickest: the machine has other things to do
        started = time.monotonic()
        again = divide(INT32_MIN, -1).send(server)
        assert (again.status, again.code) == (422, "quarantined")
        took_s.append(time.monotonic() - started)
    assert min(took_s) < 0.2
    assert sum(worker["deaths"] for worker in server.version("divide")["workers"]) == 2


def test_t3_the_empty_shape_that_kills_the_engine_never_reaches_it(server: Server) -> None:
    answer = infer("unique", shape=[3, 0], data=[]).send(server)
    assert (answer.status, answer.code) == (400, "shape_mismatch")
    assert sum(worker["deaths"] for worker in server.version("unique")["workers"]) == 0


@pytest.mark.parametrize("count", [10**9, 2 * 10**9, 2**40])
def test_t21_a_value_that_asks_for_all_memory_is_refused_by_the_engine_and_the_worker_lives(
    server: Server, count: int
) -> None:
    memory, pids = server.resident_bytes(), server.worker_pids("huge")
    answer = zeros(server, count)
    assert (answer.status, answer.code) == (500, "engine_out_of_memory")
    assert_well_told(answer)
    assert zeros(server, 3).json["outputs"][0]["data"] == [0.0] * 3
    assert server.worker_pids("huge") == pids
    assert server.resident_bytes() < memory + 64 * 1024**2


def test_t22_an_answer_larger_than_an_answer_may_be_is_refused_with_both_numbers(server: Server) -> None:
    memory = server.resident_bytes()
    answer = zeros(server, 20_000_000, "large")
    assert (answer.status, answer.code) == (413, "output_too_large")
    assert_well_told(answer, "80000000", "67108864")
    assert server.resident_bytes() < memory + 256 * 1024**2


def test_t21_a_value_that_asked_for_all_memory_leaves_the_worker_as_able_as_before(
    repository: Path, data: Path
) -> None:
    with serving(repository / "huge", data=data) as server:
        assert [zeros(server, count).status for count in (2**40, 10**9, 2 * 10**9)] == [500] * 3
        assert [zeros(server, 15_000_000).status for _ in range(2)] == [200] * 2


@pytest.mark.parametrize("count", [-5, 2**62])
def test_a_size_that_cannot_be_is_the_engines_failure_and_nothing_of_it_is_told(server: Server, count: int) -> None:
    answer = zeros(server, count)
    assert (answer.status, answer.code) == (500, "engine_failed")
    assert_well_told(answer)


@pytest.mark.parametrize("value", [-1.0, 0.0])
def test_t22_an_output_that_is_no_number_fails_its_row_alone(server: Server, value: float) -> None:
    answer = infer("nan", shape=[3, 1], data=[1.0, value, 1.0]).send(server)
    assert (answer.status, answer.code) == (500, "non_finite_output")
    assert_well_told(answer, "row 1", "y")
    rows = server.predict("nan", {"instances": [{"x": [1.0]}, {"x": [value]}, {"x": [1.0]}]}).json
    assert [row.get("outputs") for row in rows["results"]] == [{"y": [0.0]}, None, {"y": [0.0]}]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_worker_killed_during_a_batch_is_back_and_the_batch_is_answered(server: Server, how: signal.Signals) -> None:
    answers: list[Reply] = []
    thread = slow(server, answers, 0.6)
    (pid,) = server.worker_pids("own")
    os.kill(pid, how)
    killed = time.monotonic()
    wait_until(lambda: server.worker_pids("own") not in ([], [pid]) and server.version("own")["ready"], BACK_S)
    assert time.monotonic() - killed < BACK_S
    thread.join()
    assert answers[0].json["outputs"] == {"y": 1600.0}


@pytest.mark.parametrize("size", [1, 50_000])
def test_a_worker_that_prints_is_neither_blocked_nor_believed(server: Server, size: int) -> None:
    started = time.monotonic()
    answer = server.predict("probe", {"text": f"print {size}"})
    assert answer.json["outputs"] == {"result": "printed"}
    assert time.monotonic() - started < 5.0
    assert server.predict("probe", {"text": "hello"}).json["outputs"] == {"result": "HELLO"}
    assert sum(worker["deaths"] for worker in server.version("probe")["workers"]) == 0


DEATHS = {
    "at load": ("class Model:", "import os\nos.kill(os.getpid(), 11)\nclass Model:"),
    "at load by exit": ("class Model:", "import os\nos._exit(0)\nclass Model:"),
    "at warm-up": ('x = batch["x"]', "import os\n        os.abort()"),
}


@pytest.mark.parametrize("when", DEATHS)
def test_a_model_that_dies_before_it_serves_is_refused(tmp_path: Path, data: Path, when: str) -> None:
    write_own(tmp_path / "dying" / "1", OWN_MODEL, OWN_CODE.replace(*DEATHS[when]))
    settle(tmp_path)
    forwardpass("trust", tmp_path / "dying", data=data)
    checked = forwardpass("check", tmp_path / "dying", data=data, check=False)
    assert checked.returncode == 2
    assert "while it loaded the model" in checked.stderr
    assert "Traceback" not in checked.stderr


def test_a_model_that_dies_before_it_serves_keeps_no_other_from_serving(
    tmp_path: Path, repository: Path, data: Path
) -> None:
    write_own(tmp_path / "dying" / "1", OWN_MODEL, OWN_CODE.replace(*DEATHS["at load"]))
    settle(tmp_path)
    forwardpass("trust", tmp_path / "dying", data=data)
    with serving(tmp_path / "dying", repository / "identity", data=data, ready=False) as server:
        wait_until(lambda: server.get("/v2/models/identity/ready").status == 200)
        assert infer().send(server).status == 200
        wait_until(lambda: "load_failed" in server.get("/v2/health/ready").json["error"])
