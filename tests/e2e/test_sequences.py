"""A live client sends part after part with the same sequence id; the worker remembers what was before."""

import json
import os
import signal
from collections.abc import Iterator

import pytest
from tests import fixtures_onnx
from tests.e2e.pipelines import RUNNING_SUM
from tests.serving import Reply, Server, serving, wait_until

KILLER = """
[[steps]]
use = "model"
engine = "onnxruntime"
file = "model.onnx"
state = { total = "after" }
[sequence]
"""
SEQUENCE = "[sequence]\nidle_s = 0.5\nsequences_max = 8\n"
PARTS = 20
INT32_MIN = -(2**31)


_MODELS = {
    "divide": fixtures_onnx.dividing_accumulator,
    "deadly": fixtures_onnx.dividing_accumulator,
    "half": fixtures_onnx.half_accumulator,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("sequences")
    definitions = {
        "sum": RUNNING_SUM + "[sequence]\nsequences_max = 64\n[workers]\ncount = 2\n",
        "few": RUNNING_SUM + SEQUENCE,
        "none": RUNNING_SUM,
        "half": RUNNING_SUM.replace("constants = { scale = 1 }", "[sequence]"),
        "divide": KILLER,
        "deadly": KILLER,
    }
    for name, definition in definitions.items():
        _MODELS.get(name, fixtures_onnx.accumulator)(root / name / "1" / "model.onnx")
        (root / name / "1" / "pipeline.toml").write_text(definition)
        for path in (root / name / "1").iterdir():
            os.utime(path, (1_000_000_000, 1_000_000_000))
    with serving(root, data=tmp_path_factory.mktemp("data")) as running:
        yield running


def say(server: Server, pipeline: str, id: str, value: float, *, start: bool = False, end: bool = False) -> Reply:
    flags = {"X_Sequence_Start": str(start).lower(), "X_Sequence_End": str(end).lower()}
    return server.predict(pipeline, {"x": [value, 0.0]}, X_Sequence_Id=id, **flags)


def total(reply: Reply) -> float:
    assert reply.status == 200, reply.body
    first: float = reply.json["outputs"]["y"][0]
    return first


def test_eight_sequences_at_once_over_two_workers_are_each_as_alone(server: Server) -> None:
    def one(number: int) -> list[float]:
        return [
            total(say(server, "sum", f"s{number}", number + part, start=part == 0, end=part == PARTS - 1))
            for part in range(PARTS)
        ]

    for number, sums in enumerate(server.together(8, one)):
        assert sums == [sum(number + each for each in range(part + 1)) for part in range(PARTS)]
    assert {batch["worker"] for batch in server.batches("sum")} == {0, 1}
    assert say(server, "sum", "s0", 1.0).code == "sequence_not_found"


def test_v2_parameters_do_the_same_and_the_answer_names_the_sequence(server: Server) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [2, 0]}
    for turn, expected in ({"sequence_start": True}, 2), ({}, 4), ({"sequence_end": True}, 6):
        body = {"inputs": [tensor], "parameters": {"sequence_id": 7, **turn}}
        reply = server.call("POST", "/v2/models/sum/infer", json.dumps(body).encode())
        assert (reply.json["outputs"][0]["data"][0], reply.headers["x-sequence-id"]) == (expected, "7")


def test_requests_without_an_id_begin_anew_each_time(server: Server) -> None:
    assert [server.predict("sum", {"x": [3.0, 0.0]}).json["outputs"]["y"][0] for _ in range(3)] == [3.0] * 3


def test_requests_of_one_sequence_sent_at_once_all_count(server: Server) -> None:
    total(say(server, "sum", "burst", 0.0, start=True))
    sums = server.together(10, lambda _: total(say(server, "sum", "burst", 1.0)))
    assert sorted(sums) == [float(n) for n in range(1, 11)]


def test_a_request_that_is_refused_changes_nothing(server: Server) -> None:
    total(say(server, "sum", "careful", 1.0, start=True))
    wrong = server.predict("sum", {"x": ["1", 0.0]}, X_Sequence_Id="careful")
    many = server.predict("sum", {"instances": [{"x": [1.0, 0.0]}] * 2}, X_Sequence_Id="careful")
    not_finite = say(server, "sum", "careful", 1e39)
    assert [reply.status for reply in (wrong, many, not_finite)] == [400, 400, 400]
    assert many.code == "batch_too_large"
    assert total(say(server, "sum", "careful", 1.0)) == 2.0


def test_what_is_idle_is_forgotten_and_makes_room(server: Server) -> None:
    for number in range(8):
        total(say(server, "few", f"s{number}", 1.0, start=True))
    full = say(server, "few", "one-too-many", 1.0, start=True)
    assert (full.status, full.code, full.headers["retry-after"]) == (503, "sequences_full", "1")
    wait_until(lambda: say(server, "few", "one-too-many", 1.0, start=True).status == 200, 5.0)
    assert say(server, "few", "s0", 1.0).code == "sequence_not_found"


def test_a_pipeline_that_keeps_nothing_refuses_the_id(server: Server) -> None:
    refused = say(server, "none", "a", 1.0, start=True)
    assert (refused.status, refused.code) == (400, "unknown_field")
    assert "[sequence]" in refused.json["error"]["message"]


def test_a_sequence_can_be_ended_without_a_record(server: Server) -> None:
    def end(pipeline: str, id: str | None, **headers: str) -> tuple[int, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        reply = server.call("DELETE", f"/predict/{pipeline}", headers=named | ({"X-Sequence-Id": id} if id else {}))
        return reply.status, reply.code

    total(say(server, "sum", "ended", 1.0, start=True))
    reply = server.call("DELETE", "/predict/sum/1", headers={"X-Sequence-Id": "ended"})
    assert (reply.status, reply.json, reply.headers["x-sequence-id"]) == (200, {}, "ended")
    assert say(server, "sum", "ended", 1.0).code == "sequence_not_found"
    assert end("sum", "ended") == (404, "sequence_not_found")
    assert end("sum", None) == (400, "missing_field")
    assert end("sum", "ended", X_Sequence_Start="true") == (400, "invalid_input")
    assert end("none", "ended") == (400, "unknown_field")
    assert end("nowhere", "ended") == (404, "pipeline_not_found")


def test_an_answer_that_cannot_be_told_loses_the_sequence_and_says_so(server: Server) -> None:
    def ask(form: str, **turn: bool) -> Reply:
        tensor = {"name": "x", "datatype": "FP16", "shape": [1, 2], "data": [1, 0]}
        output = {"name": "y", "parameters": {"binary_data": form == "binary"}}
        body = {"inputs": [tensor], "outputs": [output], "parameters": {"sequence_id": "half", **turn}}
        return server.call("POST", "/v2/models/half/infer", json.dumps(body).encode())

    assert ask("binary", sequence_start=True).status == 200
    assert [ask(form).code for form in ("json", "binary")] == ["datatype_mismatch", "sequence_lost"]


def test_an_input_that_kills_is_quarantined_and_the_sequences_after_it_live(server: Server) -> None:
    def ask(id: str, a: int, b: int, *, start: bool = False) -> Reply:
        flags = {"X_Sequence_Id": id, "X_Sequence_Start": str(start).lower()}
        return server.predict("divide", {"a": [a], "b": [b]}, **flags)

    def killed_again() -> bool:
        return ask("killer", 1, 1, start=True).status == 200 and ask("killer", INT32_MIN, -1).code == "quarantined"

    assert ask("killer", 1, 1, start=True).status == 200
    assert ask("killer", INT32_MIN, -1).code == "sequence_lost"
    wait_until(killed_again, 20.0)
    assert ask("mate", 6, 2, start=True).json["outputs"] == {"y": [3]}
    assert ask("killer", INT32_MIN, -1).code == "quarantined"
    assert ask("mate", 6, 2).status == 200  # what is refused changes nothing
    assert ask("killer", 1, 1).status == 200


def test_starts_that_wait_behind_a_killer_with_its_input_are_refused_and_kill_nobody(server: Server) -> None:
    def ask(a: int, b: int, **given: str) -> Reply:
        return server.predict("deadly", {"a": [a], "b": [b]}, X_Sequence_Start="true", **given)

    wait_until(lambda: ask(1, 1, X_Sequence_Id="before").status == 200, 20.0)
    codes = server.together(10, lambda _: ask(INT32_MIN, -1, X_Sequence_Id="same").code)
    assert sorted(set(codes)) == ["quarantined", "worker_crashed"]
    assert codes.count("worker_crashed") == 1


def test_with_its_worker_a_sequence_is_lost_and_says_so_until_it_is_started_again(server: Server) -> None:
    total(say(server, "few", "doomed", 1.0, start=True))
    os.kill(server.worker_pids("few")[0], signal.SIGKILL)
    lost = say(server, "few", "doomed", 1.0)
    assert (lost.status, lost.code) == (410, "sequence_lost")
    assert say(server, "few", "doomed", 1.0).code in ("sequence_lost", "sequence_not_found")
    assert total(say(server, "few", "doomed", 5.0, start=True)) == 5.0


def test_of_two_workers_only_the_dead_ones_sequences_are_lost(server: Server) -> None:
    for id in "abcd":
        total(say(server, "sum", id, 1.0, start=True))
    os.kill(server.worker_pids("sum")[0], signal.SIGKILL)
    statuses = sorted(say(server, "sum", id, 1.0).status for id in "abcd")
    assert statuses == [200, 200, 410, 410]
