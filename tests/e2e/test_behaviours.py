"""What users of other servers asked for, one test a behaviour (numbers as in the list of behaviours)."""

import json
import socket
import struct
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from tests.serving import Reply, Server, serving, wait_until


def ask(server: Server, pipeline: str, first: float, second: float = 1.0) -> Reply:
    return server.predict(pipeline, {"x": [first, second]})


def own_rows(server: Server, pipeline: str, rows: list[list[float]]) -> Reply:
    return server.infer(pipeline, "x", "FP64", [len(rows), 2], rows)


def busy(server: Server, pipeline: str, seconds: float = 0.5) -> threading.Thread:
    """Keep the only worker busy from now for a while."""
    before = server.version(pipeline)["running"]
    thread = threading.Thread(target=ask, args=(server, pipeline, 1000 + seconds * 1000))
    thread.start()
    wait_until(lambda: server.version(pipeline)["running"] > before)
    time.sleep(0.05)
    return thread


def test_1_rows_of_three_clients_in_one_window_come_back_one_each_and_equal_to_alone(server: Server) -> None:
    answers = server.together(3, lambda n: own_rows(server, "wait", [[n, 0.5]]).json["outputs"][0])
    assert [answer["shape"] for answer in answers] == [[1]] * 3
    assert [answer["data"] for answer in answers] == [[n + 0.5] for n in range(3)]
    assert any(batch["items"] == 3 for batch in server.batches("wait"))


def test_2_an_answer_does_not_depend_on_the_batches_before_it(server: Server) -> None:
    ten = [[float(n), 0.25] for n in range(10)]
    first, _, third = (own_rows(server, "own", rows) for rows in (ten, ten[:2], ten))
    assert first.json["outputs"] == third.json["outputs"]
    assert len(third.json["outputs"][0]["data"]) == 10


def test_3_a_model_that_forgets_rows_is_found_at_load_and_never_batched(server: Server) -> None:
    assert "returned 1 rows for" in server.version("leading-one")["batching"]
    answers = server.together(
        8, lambda n: server.infer("leading-one", "x", "FP32", [1, 4], [n] * 4).json["outputs"][0]["data"]
    )
    alone = [server.infer("leading-one", "x", "FP32", [1, 4], [n] * 4).json["outputs"][0]["data"] for n in range(8)]
    assert answers == alone


def test_3_a_model_whose_rows_depend_on_each_other_is_found_at_load(server: Server) -> None:
    assert server.version("batch-mean")["batching"].startswith("off: output y of a row differs")


def test_5_one_item_that_raises_among_eight_fails_alone_with_its_own_message(server: Server) -> None:
    holder = busy(server, "own", 1.0)
    answers = server.together(8, lambda n: ask(server, "own", -1 if n == 3 else n))
    holder.join()
    assert [answer.status for answer in answers] == [200, 200, 200, 500, 200, 200, 200, 200]
    assert answers[3].code == "engine_failed"
    assert b"secret" not in answers[3].body
    assert b"/srv" not in answers[3].body
    assert any(batch["items"] == 8 for batch in server.batches("own"))


def test_5_a_bad_row_of_many_fails_alone(server: Server) -> None:
    answer = server.predict("rows", {"instances": [{"text": "a"}, {"text": "bad"}, {"text": "c"}]})
    first, bad, last = answer.json["results"]
    assert (first["outputs"], last["outputs"]) == ({"shout": "A"}, {"shout": "C"})
    assert bad["error"]["code"] == "invalid_input"
    assert "this text is bad" in bad["error"]["message"]
    assert answer.json["failed"] == 1


def test_6_input_that_ends_the_worker_fails_only_itself_and_is_refused_after_two_deaths(
    repository: Path, data: Path
) -> None:
    with serving(repository / "own", data=data) as server:
        holder = busy(server, "own", 1.0)
        answers = server.together(8, lambda n: ask(server, "own", -2 if n == 5 else n))
        holder.join()
        assert [answer.status for answer in answers] == [200] * 5 + [500] + [200] * 2
        assert answers[5].code == "worker_crashed"
        assert all(ask(server, "own", n).json["outputs"]["y"] == n + 1 for n in range(100))
        again = ask(server, "own", -2)
        assert (again.status, again.code) == (422, "quarantined")
        assert sum(worker["deaths"] for worker in server.version("own")["workers"]) == 2


def test_7_an_item_dearer_than_the_whole_batch_budget_runs_alone(tmp_path: Path, repository: Path, data: Path) -> None:
    folder = tmp_path / "budget" / "1"
    folder.mkdir(parents=True)
    (folder / "model.onnx").write_bytes((repository / "identity" / "1" / "model.onnx").read_bytes())
    (folder / "pipeline.toml").write_text(
        '[[steps]]\nuse = "model"\nengine = "onnxruntime"\nfile = "model.onnx"\n'
        '[batch]\ncost = "bytes"\ncost_max = 32\n'
    )
    with serving(folder, data=data) as server:
        dear = [float(n) for n in range(40)]
        assert server.infer("budget", "x", "FP32", [10, 4], dear).json["outputs"][0]["data"] == dear
        assert server.batches("budget")[-1]["items"] == 1


def test_9_the_model_never_sees_more_rows_than_rows_max(server: Server) -> None:
    ask(server, "limit32", -4)  # forget what the load ran
    holder = busy(server, "limit32", 1.0)
    rows = [[float(n), 1.0] for n in range(20)]
    answers = server.together(6, lambda n: own_rows(server, "limit32", rows))
    holder.join()
    large = own_rows(server, "limit32", [[float(n), 1.0] for n in range(100)])
    assert all(answer.json["outputs"][0]["data"] == [n + 1.0 for n in range(20)] for answer in answers)
    assert large.json["outputs"][0]["data"] == [n + 1.0 for n in range(100)]
    assert ask(server, "limit32", -4).json["outputs"]["y"] == 32  # by the model's own count
    assert max(batch["rows"] for batch in server.batches("limit32")) == 32


@pytest.mark.alone
def test_10_a_batch_of_one_with_a_wait_serves_and_the_wait_has_no_effect(server: Server) -> None:
    started = time.monotonic()
    assert ask(server, "single", 3).json["outputs"]["y"] == 4
    assert time.monotonic() - started < 0.4
    assert server.batches("single")[-1]["reason"] == "rows_max"


def test_11_what_arrives_while_the_only_worker_is_busy_leaves_together(server: Server) -> None:
    holder = busy(server, "own", 1.0)
    server.together(5, lambda n: ask(server, "own", n))
    holder.join()
    together = server.batches("own")[-1]
    assert (together["items"], together["reason"]) == (5, "worker_free")


@pytest.mark.alone
def test_13_a_large_binary_tensor_costs_the_server_a_tenth_of_the_json_path(server: Server) -> None:
    image = np.random.default_rng(0).integers(-99, 99, (1, 6, 320, 640)).astype("<f4") / 4
    tensor = {"name": "x", "datatype": "FP32", "shape": list(image.shape)}
    binary_tensor = {**tensor, "parameters": {"binary_data_size": image.nbytes}}
    head = json.dumps({"inputs": [binary_tensor], "parameters": {"binary_data_output": True}}).encode()
    path = "/v2/models/wide/infer?receipt=full"
    headers = {"Inference-Header-Content-Length": str(len(head))}
    body = json.dumps({"inputs": [{**tensor, "data": image.ravel().tolist()}]}).encode()
    binary_us, json_us = [], []
    for _ in range(4):  # turn by turn, so that what else the machine does meets both
        binary = server.call("POST", path, head + image.tobytes(), headers)
        split = int(binary.headers["inference-header-content-length"])
        assert binary.body[split:] == image.tobytes()
        plain = server.call("POST", path, body)
        assert np.array_equal(np.float32(plain.json["outputs"][0]["data"]), image.ravel())
        binary_us.append(json.loads(binary.body[:split])["receipt"]["timings_us"]["decode"])
        json_us.append(plain.json["receipt"]["timings_us"]["decode"])
    assert min(binary_us) < min(json_us) / 10


@pytest.mark.alone
def test_14_ten_thousand_strings_cost_ten_times_a_thousand(server: Server) -> None:
    def seconds(count: int) -> float:
        texts = [f"text {n}" for n in range(count)]
        started = time.monotonic()
        answer = server.infer("strings", "x", "BYTES", [count], texts)
        elapsed = time.monotonic() - started
        assert answer.json["outputs"][0]["data"] == texts
        return elapsed

    few = min(seconds(1000) for _ in range(3))
    many = min(seconds(10_000) for _ in range(3))
    assert many < 30 * few


@pytest.mark.alone
def test_15_clients_that_hang_up_leave_nothing_behind(server: Server) -> None:
    body = json.dumps({"x": [1300, 0]}).encode()
    holder = busy(server, "own", 1.0)
    memory = server.resident_bytes()
    for _ in range(1000):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(
                b"POST /predict/own HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
            )
    wait_until(lambda: server.version("own")["running"] <= 1)
    answer = ask(server, "own", 5)
    holder.join()
    assert answer.json["outputs"]["y"] == 6
    wait_until(lambda: server.version("own")["running"] == 0)
    assert server.version("own")["queue"] == {"rows": 0, "items": 0, "bytes": 0}
    wait_until(lambda: server.status()["connections"] == 0)
    assert server.resident_bytes() < memory + 32 * 1024 * 1024


def test_17_a_request_whose_client_left_while_it_queued_never_runs_and_counts_once(server: Server) -> None:
    holder = busy(server, "own", 1.0)
    before = server.version("own")["outcomes"].get("cancelled", 0)
    executed = sum(batch["rows"] for batch in server.batches("own"))
    body = json.dumps({"x": [77, 0]}).encode()
    client = socket.create_connection(("127.0.0.1", server.port))
    client.sendall(
        b"POST /predict/own HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
        % (len(body), body)
    )
    wait_until(lambda: server.version("own")["queue"]["rows"] == 1)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    wait_until(lambda: server.version("own")["queue"]["rows"] == 0)
    holder.join()
    assert server.version("own")["outcomes"]["cancelled"] == before + 1
    assert sum(batch["rows"] for batch in server.batches("own")) == executed + 1
