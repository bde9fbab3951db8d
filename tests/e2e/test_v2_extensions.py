"""V2's extensions over real sockets: statistics, repository, logging, classification, schedule policy."""

import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import fixtures_onnx
from tests.e2e.pipelines import OWN_MODEL, write_own
from tests.serving import Reply, Server, forwardpass, serving, wait_until

CONTROL = {"data.model_control": "true"}
LONG_AGO = 1_000_000_000  # files that were just written are given a second to settle


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """books/1: batches of 8; spare/1 and 2; slow/1: one row at a time, two may wait; scores/1: FP32 [4]; half/1: FP16 [4]."""
    root = tmp_path_factory.mktemp("models")
    write_own(root / "books" / "1", OWN_MODEL + "\n[batch]\nrows_max = 8\n")
    for number in (1, 2):
        write_own(root / "spare" / str(number), OWN_MODEL)
    write_own(root / "slow" / "1", OWN_MODEL + "\n[batch]\nrows_max = 1\n[queue]\nrows_max = 2\n")
    (root / "scores" / "1").mkdir(parents=True)
    fixtures_onnx.identity(root / "scores" / "1" / "model.onnx")
    fixtures_onnx.identity(root / "half" / "1" / "model.onnx", kind=fixtures_onnx.HALF)
    for path in root.rglob("*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    return root


@pytest.fixture(scope="module")
def served(models: Path, data: Path) -> Iterator[Server]:
    forwardpass("trust", models, data=data)
    with serving(models, data=data, settings=CONTROL) as running:
        yield running


def anew(server: Server, pipeline: str) -> None:
    """What was counted is forgotten with the version."""
    for act in ("unload", "load"):
        assert control(server, f"repository/models/{pipeline}/{act}").status == 200


def infer(server: Server, pipeline: str, rows: list[list[float]], **members: Any) -> Reply:
    tensor = {"name": "x", "datatype": "FP64", "shape": [len(rows), len(rows[0])], "data": rows}
    body = json.dumps({"inputs": [tensor], **members}).encode()
    return server.call("POST", f"/v2/models/{pipeline}/infer", body)


def books(server: Server, pipeline: str = "books") -> dict[str, Any]:
    (found,) = server.get(f"/v2/models/{pipeline}/stats").json["model_stats"]
    assert isinstance(found, dict)
    return found


def ended(found: dict[str, Any]) -> dict[str, int]:
    return {name: found["inference_stats"][name]["count"] for name in ("success", "fail")}


def executed_rows(found: dict[str, Any]) -> int:
    assert sum(each["compute_infer"]["count"] for each in found["batch_stats"]) == found["execution_count"]
    return sum(each["batch_size"] * each["compute_infer"]["count"] for each in found["batch_stats"])


def control(server: Server, path: str, *, admin: bool = False, **members: Any) -> Reply:
    return server.call("POST", f"/v2/{path}", json.dumps(members).encode() if members else None, admin=admin)


def states(server: Server, *, admin: bool = False) -> dict[str, str]:
    entries = control(server, "repository/index", admin=admin).json
    return {f"{entry['name']}/{entry['version']}": entry["state"] for entry in entries}


def test_statistics_begin_at_nothing_and_count_every_row_and_batch(served: Server) -> None:
    anew(served, "books")
    assert (books(served)["inference_count"], books(served)["execution_count"]) == (0, 0)  # golden examples are ours
    for rows in (1, 3, 8):
        assert infer(served, "books", [[1.0, 2.0]] * rows).status == 200
    found = books(served)
    assert (found["inference_count"], found["execution_count"], executed_rows(found)) == (12, 3, 12)
    assert ended(found) == {"success": 3, "fail": 0}
    assert [each["batch_size"] for each in found["batch_stats"]] == [1, 3, 8]
    spans = {name: found["inference_stats"][name]["ns"] for name in ("queue", "compute_input", "compute_infer")}
    assert all(ns > 0 for ns in spans.values())
    assert sum(spans.values()) < found["inference_stats"]["success"]["ns"]
    assert found["memory_usage"][0]["byte_size"] > 1_000_000


def test_a_request_in_several_batches_is_one_success_and_all_its_rows(served: Server) -> None:
    anew(served, "books")
    assert infer(served, "books", [[1.0, 2.0]] * 20).status == 200
    found = books(served)
    assert (ended(found), found["inference_count"]) == ({"success": 1, "fail": 0}, 20)
    assert (found["execution_count"], executed_rows(found)) == (3, 20)


def test_the_books_balance_whatever_becomes_of_requests(served: Server) -> None:
    """O11: every request that reached the version ended once, as a success or a failure."""
    anew(served, "books")
    answers = served.together(12, lambda n: infer(served, "books", [[1.0, float(n)]] * (n % 3 + 1)))
    assert [answer.status for answer in answers] == [200] * 12
    assert infer(served, "books", [[-1.0, 0.0]]).code == "engine_failed"
    partial = served.predict("books", {"instances": [{"x": [1.0, 1.0]}, {"x": [-1.0, 0.0]}]})
    assert partial.status == 200 and b"engine_failed" in partial.body
    assert infer(served, "books", [[1500.0, 0.0]], parameters={"timeout": 50_000}).code == "deadline_exceeded"
    wait_until(lambda: executed_rows(books(served)) == 24 + 2 + 1)  # it ran to its end, for nobody
    leave_while_it_runs(served, "books", 1300.0)
    assert infer(served, "books", [[-2.0, 0.0]]).code == "worker_crashed"
    wait_until(lambda: served.version("books")["ready"])
    assert infer(served, "books", [[-2.0, 0.0]]).code == "quarantined"
    assert infer(served, "books", [[1.0]]).code == "shape_mismatch"  # read and refused: it never reached the version
    found = books(served)
    assert ended(found) == {"success": 12, "fail": 6}
    assert found["inference_count"] == 24 + 1
    assert executed_rows(found) == 24 + 2 + 1 + 1  # one beside a row that failed, one too late, one for nobody


def test_an_answer_that_has_no_form_in_what_was_asked_for_is_a_failure(served: Server) -> None:
    """The client was told 400: a success of the version it is not, nor of the receipt."""
    half = {"name": "x", "datatype": "FP16", "shape": [1, 4], "parameters": {"binary_data_size": 8}}
    head = json.dumps({"inputs": [half]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    refused = served.call("POST", "/v2/models/half/infer", head + bytes(8), headers)
    assert (refused.status, refused.code) == (400, "datatype_mismatch")
    found = books(served, "half")
    assert (ended(found), found["inference_count"], found["execution_count"]) == ({"success": 0, "fail": 1}, 0, 1)
    receipt = served.get(f"/receipts/{refused.headers['x-request-id']}", admin=True).json
    assert receipt["outcome"] == "datatype_mismatch"


def test_a_request_whose_rows_all_fail_ended_as_its_client_was_told(served: Server) -> None:
    anew(served, "books")
    failed = infer(served, "books", [[-1.0, 0.0]])
    receipt = served.get(f"/receipts/{failed.headers['x-request-id']}", admin=True).json
    assert (failed.code, receipt["outcome"]) == ("engine_failed", "engine_failed")
    found = books(served)
    assert (ended(found), found["execution_count"], executed_rows(found)) == ({"success": 0, "fail": 1}, 0, 0)


def taken(server: Server, pipeline: str) -> bool:
    """The only request there is runs, and waits no more."""
    version = server.version(pipeline)
    return bool(version["running"] == 1 and version["queue"]["items"] == 0)


def leave_while_it_runs(server: Server, pipeline: str, first: float) -> None:
    """A caller that goes away in the middle of its execution, and the end of that."""
    before = books(server, pipeline)
    body = json.dumps({"x": [first, 0.0]}).encode()
    head = f"POST /predict/{pipeline} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as leaving:
        leaving.sendall(head.encode() + body)
        wait_until(lambda: taken(server, pipeline))
    wait_until(lambda: books(server, pipeline)["execution_count"] > before["execution_count"])
    wait_until(lambda: ended(books(server, pipeline))["fail"] > ended(before)["fail"])


def test_the_statistics_of_all_stand_before_a_pipeline_of_that_name(served: Server) -> None:
    names = [found["name"] for found in served.get("/v2/models/stats").json["model_stats"]]
    assert names == ["books", "half", "scores", "slow", "spare"]
    assert [found["version"] for found in served.get("/v2/models/spare/versions/2/stats").json["model_stats"]] == ["2"]
    assert served.get("/v2/models/spare/versions/1/stats").code == "version_not_found"
    assert served.get("/v2/models/nobody/stats").code == "pipeline_not_found"


def test_the_configuration_is_told_of_a_version_too(served: Server) -> None:
    found = served.get("/v2/models/spare/versions/2/config").json
    assert (found["name"], found["backend"], found["max_batch_size"]) == ("spare", "python", 32)
    assert found["input"] == [{"name": "x", "data_type": "TYPE_FP64", "dims": [2], "optional": False}]
    assert served.get("/v2/models/scores/config").json["platform"] == "onnxruntime_onnx"


@pytest.mark.parametrize("admin", [False, True], ids=["data", "admin"])
def test_a_pipeline_is_unloaded_and_loaded_again_by_its_name(served: Server, admin: bool) -> None:
    assert states(served, admin=admin)["spare/1"] == "UNAVAILABLE"
    for _ in range(2):  # the second time there is nothing left to do
        assert control(served, "repository/models/spare/unload", admin=admin).status == 200
        assert infer(served, "spare", [[1.0, 2.0]]).code == "pipeline_not_found"
    assert served.get("/ready", admin=True).status == 200  # it is away on purpose
    for _ in range(2):
        assert control(served, "repository/models/spare/load", admin=admin).status == 200
        assert infer(served, "spare", [[1.0, 2.0]]).json["model_version"] == "2"
    ready = control(served, "repository/index", admin=admin, ready=True).json
    assert {"name": "spare", "version": "2", "state": "READY", "reason": ""} in ready
    assert all(entry["state"] == "READY" for entry in ready)


def test_statistics_begin_anew_with_a_load(served: Server) -> None:
    infer(served, "spare", [[1.0, 2.0]])
    assert books(served, "spare")["inference_count"] > 0
    anew(served, "spare")
    assert (books(served, "spare")["inference_count"], books(served, "spare")["execution_count"]) == (0, 0)


def test_a_version_that_cannot_be_loaded_says_why_without_a_path_and_the_others_stay(
    served: Server, models: Path
) -> None:
    write_own(models / "spare" / "3", "nonsense = 1\n")
    for file in (models / "spare" / "3").iterdir():
        os.utime(file, (LONG_AGO, LONG_AGO))
    failed = control(served, "repository/models/spare/load")
    assert (failed.status, failed.code) == (422, "definition_invalid")
    assert str(models) not in failed.json["error"]
    (entry,) = [e for e in control(served, "repository/index").json if (e["name"], e["version"]) == ("spare", "3")]
    assert (entry["state"], entry["reason"]) == ("UNAVAILABLE", "could not be loaded: definition_invalid")
    assert infer(served, "spare", [[1.0, 2.0]]).json["model_version"] == "2"
    assert served.get("/ready", admin=True).status == 200
    assert f"{models}/spare/3/pipeline.toml:1" in served.log.read_text()
    shutil.rmtree(models / "spare" / "3")


def test_without_the_setting_the_data_plane_changes_nothing_and_names_no_such_extension(
    repository: Path, data: Path
) -> None:
    with serving(repository / "own", data=data) as server:
        for path in ("repository/index", "repository/models/own/unload", "repository/models/own/load", "logging"):
            answer = control(server, path)
            assert (answer.status, answer.code) == (403, "forbidden") and "data.model_control" in answer.json["error"]
        extensions = server.get("/v2").json["extensions"]
        assert {"statistics", "model_configuration", "classification", "schedule_policy"} <= set(extensions)
        assert not {"model_repository", "logging"} & set(extensions)
        assert control(server, "repository/models/own/load", admin=True).status == 200


def test_repositories_have_no_names(served: Server) -> None:
    for path in ("mine/index", "mine/models/spare/load", "mine/models/spare/unload"):
        assert control(served, f"repository/{path}").code == "not_implemented"
    assert states(served)["spare/2"] == "READY"


def test_a_verbose_log_has_a_line_for_each_request_and_says_when_as_asked(served: Server) -> None:
    changed = control(served, "logging", admin=True, log_verbose_level=1, log_format="ISO8601").json
    assert (changed["log_verbose_level"], changed["log_format"]) == (1, "ISO8601")
    assert served.get("/v2/logging").json == changed
    id = infer(served, "books", [[1.0, 2.0]]).headers["x-request-id"]
    line = wait_for_line(served, id)
    assert (line["level"], line["pipeline"], line["outcome"]) == ("debug", "books", "ok")
    assert line["at"].endswith("Z") and "T" in line["at"]
    assert control(served, "logging", log_verbose_level=0, log_format="default").status == 200


def test_warnings_that_are_switched_off_are_not_logged(served: Server) -> None:
    assert control(served, "logging", log_warning=False).json["log_warning"] is False
    quiet = infer(served, "books", [[-1.0, 0.0]]).headers["x-request-id"]
    control(served, "logging", log_warning=True)
    told = infer(served, "books", [[-1.0, 1.0]]).headers["x-request-id"]
    assert wait_for_line(served, told)["code"] == "engine_failed"
    assert quiet not in served.log.read_text()


def wait_for_line(server: Server, id: str) -> dict[str, Any]:
    def lines() -> list[str]:
        return [line for line in server.log.read_text().splitlines() if id in line]

    wait_until(lines)
    found: dict[str, Any] = json.loads(lines()[0])
    return found


def test_classes_are_texts_with_the_highest_first_in_both_forms(served: Server) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [2, 4], "data": [1, 4, 2, 3, 0.5, 0.5, 0.25, 0]}
    asked: dict[str, Any] = {"inputs": [tensor], "outputs": [{"name": "y", "parameters": {"classification": 2}}]}
    expected = ["4.0:1", "3.0:3", "0.5:0", "0.5:1"]
    (output,) = served.call("POST", "/v2/models/scores/infer", json.dumps(asked).encode()).json["outputs"]
    assert output == {"name": "y", "datatype": "BYTES", "shape": [2, 2], "data": expected}
    asked["outputs"][0]["parameters"]["binary_data"] = True
    binary = served.call("POST", "/v2/models/scores/infer", json.dumps(asked).encode())
    head = int(binary.headers["inference-header-content-length"])
    assert json.loads(binary.body[:head])["outputs"][0]["datatype"] == "BYTES"
    assert binary.body[head:] == b"".join(len(text).to_bytes(4, "little") + text.encode() for text in expected)


def test_an_output_without_classes_is_refused(served: Server) -> None:
    outputs = [{"name": "y", "parameters": {"classification": 1}}]
    assert infer(served, "books", [[1.0, 2.0]], outputs=outputs).code == "shape_mismatch"


def test_the_more_urgent_request_is_run_first(served: Server) -> None:
    """One runs; two more wait for the only worker, which takes one row at a time."""
    order: list[str] = []

    def ask(name: str, first: float, priority: int) -> None:
        assert infer(served, "slow", [[first, 0.0]], parameters={"priority": priority}).status == 200
        order.append(name)

    asking = [threading.Thread(target=ask, args=given) for given in (("first", 1400.0, 5), ("late", 1050.0, 5), ("urgent", 1050.0, 1))]  # fmt: skip
    for waiting, thread in enumerate(asking):
        thread.start()
        wait_until(lambda waiting=waiting: served.version("slow")["running"] == waiting + 1)
        wait_until(lambda waiting=waiting: served.version("slow")["queue"]["items"] == waiting)
    for thread in asking:
        thread.join()
    assert order == ["first", "urgent", "late"]


def test_a_timeout_that_passes_in_the_queue_ends_the_request_and_it_never_runs(served: Server) -> None:
    anew(served, "slow")
    slow = threading.Thread(target=infer, args=(served, "slow", [[1500.0, 0.0]]))
    slow.start()
    wait_until(lambda: taken(served, "slow"))
    late = infer(served, "slow", [[1.0, 0.0]], parameters={"timeout": 100_000})
    assert (late.status, late.code) == (504, "deadline_exceeded")
    slow.join()
    found = books(served, "slow")
    assert (ended(found), found["execution_count"]) == ({"success": 1, "fail": 1}, 1)


def test_a_request_that_is_shed_is_a_failure_and_runs_nothing(served: Server) -> None:
    anew(served, "slow")
    running = threading.Thread(target=infer, args=(served, "slow", [[1800.0, 0.0]]))
    running.start()
    wait_until(lambda: taken(served, "slow"))
    waiting = threading.Thread(target=infer, args=(served, "slow", [[1.0, 0.0]] * 2))
    waiting.start()
    wait_until(lambda: served.version("slow")["queue"]["items"] == 2)
    shed = infer(served, "slow", [[1.0, 0.0]])
    assert (shed.status, shed.code, "retry-after" in shed.headers) == (503, "queue_full", True)
    running.join()
    waiting.join()
    found = books(served, "slow")
    assert (ended(found), found["inference_count"]) == ({"success": 2, "fail": 1}, 3)
    assert executed_rows(found) == found["execution_count"] == 3
