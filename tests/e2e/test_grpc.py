"""V2 over gRPC, asked by grpcio: every method, deadlines and cancellation that reach the queue, streams in their order."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import trustme
from tests import fixtures_onnx
from tests.e2e.pipelines import RUNNING_SUM
from tests.faults.h2_wire import DATA, END_HEADERS, END_STREAM, HEADERS, field, frame, wire
from tests.grpc_calls import SERVICE, Channel, channel, infer_request
from tests.serving import Server, serving, wait_until

from forwardpass.ingress.grpc.messages import Message


@pytest.fixture(scope="module")
def served(repository: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    summing = tmp_path_factory.mktemp("summing") / "sum" / "1"
    fixtures_onnx.accumulator(summing / "model.onnx")
    (summing / "pipeline.toml").write_text(RUNNING_SUM + "[sequence]\n")
    for path in summing.iterdir():
        os.utime(path, (1_000_000_000, 1_000_000_000))
    folders = [summing.parent, *[repository / name for name in ("own", "identity", "single", "wait")]]
    settings = {"grpc.serve": "on", "limits.body_bytes_max": 8 << 20}
    with serving(*folders, data=data, settings=settings) as running:
        yield running


@pytest.fixture(scope="module")
def named(repository: Path, data: Path) -> Iterator[Server]:
    """A server that answers for two names only."""
    settings = {"grpc.serve": "on", "data.hosts": '["a.example", "[::1]"]'}
    with serving(repository / "identity", data=data / "named", settings=settings) as running:
        yield running


@pytest.fixture
def client(served: Server) -> Iterator[Channel]:
    with channel(served.grpc_port) as opened:
        yield opened


def own(*rows: tuple[float, float], pipeline: str = "own", **more: Any) -> Message:
    return infer_request(pipeline, "x", "FP64", [len(rows), 2], np.array(rows, "<f8").tobytes(), **more)


def identity(values: np.ndarray[Any, Any], **more: Any) -> Message:
    return infer_request("identity", "x", "FP32", values.shape, values.astype("<f4").tobytes(), **more)


def sums(answer: Message) -> list[float]:
    return list(np.frombuffer(answer.raw_output_contents[0], "<f8"))


def failure(ask: Any) -> Any:
    with pytest.raises(grpc.RpcError) as caught:
        ask()
    return caught.value


def told(error: Any) -> dict[str, Any]:
    return dict(error.trailing_metadata())


def test_the_server_and_its_models_are_described(client: Channel) -> None:
    assert client.call("ServerLive").live and client.call("ServerReady").ready
    assert client.call("ModelReady", name="own").ready
    assert client.call("ServerMetadata").name == "forwardpass"
    described = client.call("ModelMetadata", name="own", version="1")
    assert [(given.name, given.datatype, list(given.shape)) for given in described.inputs] == [("x", "FP64", [-1, 2])]
    assert [(made.name, list(made.shape)) for made in described.outputs] == [("y", [-1])]
    assert list(described.versions) == ["1"]


def test_a_model_that_is_not_there_is_not_ready_and_has_no_metadata(client: Channel) -> None:
    assert not client.call("ModelReady", name="nobody").ready
    assert failure(lambda: client.call("ModelMetadata", name="nobody")).code() is grpc.StatusCode.NOT_FOUND


def test_configuration_and_statistics_are_those_of_rest(client: Channel, served: Server) -> None:
    client.infer(own((1, 2), (3, 4)))
    config = client.call("ModelConfig", name="own").config
    told = served.get("/v2/models/own/config").json
    assert told.keys() <= {field.name for field in config.DESCRIPTOR.fields}
    assert (config.name, config.max_batch_size) == ("own", told["max_batch_size"])
    (counted,) = client.call("ModelStatistics", name="own").model_stats
    (same,) = served.get("/v2/models/own/stats").json["model_stats"]
    assert counted.inference_count == same["inference_count"] >= 2
    assert counted.inference_stats.success.count == same["inference_stats"]["success"]["count"]


def test_a_health_check_answers_for_the_server_and_no_other_service(client: Channel) -> None:
    check = "grpc.health.v1.Health/Check"
    assert client.ask(check, b"")[0].status == 1
    assert failure(lambda: client.ask(check, b"\x0a\x05other")).code() is grpc.StatusCode.NOT_FOUND


def test_an_answer_names_its_model_version_and_request(client: Channel) -> None:
    answer, metadata = client.ask("ModelInfer", own((1, 2), (3, 4), id="mine"))
    assert (answer.model_name, answer.model_version, answer.id) == ("own", "1", "mine")
    assert (answer.outputs[0].datatype, list(answer.outputs[0].shape), sums(answer)) == ("FP64", [2], [3.0, 7.0])
    assert len(metadata["x-request-id"]) == 32
    assert metadata["x-pipeline-version"] == "1"


def test_trace_and_the_clients_own_id_come_back(client: Channel) -> None:
    trace = "0123456789abcdef0123456789abcdef"
    asked = (("traceparent", f"00-{trace}-0123456789abcdef-01"), ("x-request-id", "mine-1"))
    _, metadata = client.ask("ModelInfer", own((1, 2)), metadata=asked)
    assert metadata["traceparent"].startswith(f"00-{trace}-")
    assert metadata["x-client-request-id"] == "mine-1"


@pytest.mark.parametrize(
    "compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate]
)
def test_large_tensors_pass_both_ways_compressed_or_not(client: Channel, compression: Any) -> None:
    values = np.arange(4 * 200_000, dtype="<f4").reshape(-1, 4)[:60_000]
    answer = client.infer(identity(values), compression=compression)
    assert answer.raw_output_contents[0] == values.tobytes()


def test_failures_have_the_status_code_text_and_id_that_rest_has(client: Channel) -> None:
    error = failure(lambda: client.infer(infer_request("own", "x", "FP64", [1, 3], bytes(24))))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "/inputs/0/shape: expected rows of shape [2], got [3]"
    assert told(error)["x-error-code"] == "shape_mismatch"
    assert len(told(error)["x-request-id"]) == 32


def test_what_fails_on_our_side_says_nothing_of_the_inside(client: Channel) -> None:
    error = failure(lambda: client.infer(own((-1, 0))))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in error.details() and "/srv" not in error.details()


def test_a_message_over_the_limit_is_refused_and_one_at_it_is_not(client: Channel) -> None:
    fits = identity(np.zeros((2 * 1024 * 1024 - 16, 1), "<f4"))
    assert failure(lambda: client.infer(fits)).code() is grpc.StatusCode.INVALID_ARGUMENT  # its shape is wrong
    over = identity(np.zeros((2 * 1024 * 1024, 1), "<f4"))
    error = failure(lambda: client.infer(over))
    assert (error.code(), told(error)["x-error-code"]) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "body_too_large")


def test_a_deadline_ends_the_wait_in_the_queue(client: Channel, served: Server) -> None:
    holder = client.start(own((2500, 0), pipeline="single"))
    wait_until(lambda: served.version("single")["running"] == 1)
    error = failure(lambda: client.infer(own((1, 2), pipeline="single"), timeout=0.1))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    wait_until(lambda: served.version("single")["queue"]["rows"] == 0)
    assert sums(holder.result()) == [2500.0]


def test_a_call_given_up_leaves_the_queue_and_harms_nobody(client: Channel, served: Server) -> None:
    holder = client.start(own((2500, 0), pipeline="single"))
    wait_until(lambda: served.version("single")["running"] == 1)
    before = served.status()["grpc"]["cancelled"]
    waiting = client.start(own((1, 2), pipeline="single"))
    wait_until(lambda: served.version("single")["queue"]["rows"] > 0)
    waiting.cancel()
    wait_until(lambda: served.version("single")["queue"]["rows"] == 0)
    assert served.status()["grpc"]["cancelled"] == before + 1
    assert sums(holder.result()) == [2500.0]


def test_calls_of_one_connection_run_side_by_side_and_share_a_batch(client: Channel, served: Server) -> None:
    calls = [client.start(own((n, 0.5), pipeline="wait")) for n in range(8)]
    assert [sums(call.result()) for call in calls] == [[n + 0.5] for n in range(8)]
    assert any(batch["items"] > 1 for batch in served.batches("wait"))


def test_answers_of_a_stream_come_in_its_order_and_a_failure_does_not_end_it(client: Channel) -> None:
    asked = [own((1200.0 - 10 * n, 0.5), id=str(n)) for n in range(5)]
    asked[2] = infer_request("own", "x", "FP64", [1, 3], bytes(24), id="2")
    answers = list(client.stream(asked))
    assert [answer.infer_response.id for answer in answers] == ["0", "1", "2", "3", "4"]
    assert [answer.error_message for answer in answers] == [
        "", "", "/inputs/0/shape: expected rows of shape [2], got [3]", "", "",
    ]  # fmt: skip
    assert sums(answers[4].infer_response) == [1160.5]


def test_a_stream_takes_what_is_sent_after_an_answer(client: Channel) -> None:
    def talk() -> Iterator[Message]:
        for n in range(3):
            yield own((n, 0.25))
            assert answered.acquire(timeout=10)

    answered = threading.Semaphore(0)
    for n, answer in enumerate(client.stream(talk())):
        assert sums(answer.infer_response) == [n + 0.25]
        answered.release()


def test_a_stream_of_very_many_requests_is_answered_whole(client: Channel) -> None:
    answers = client.stream([own((n % 900, 0.0)) for n in range(3000)])
    assert [sums(answer.infer_response)[0] for answer in answers] == [n % 900 for n in range(3000)]


def test_requests_of_a_sequence_sent_at_once_in_a_stream_count_in_their_order(client: Channel) -> None:
    def part(n: int) -> Message:
        asked = infer_request("sum", "x", "FP32", [1, 2], np.array([n, 0], "<f4").tobytes())
        asked.parameters["sequence_id"].int64_param = 7
        asked.parameters["sequence_start"].bool_param = n == 0
        asked.parameters["sequence_end"].bool_param = n == 19
        return asked

    answers = [answer.infer_response for answer in client.stream([part(n) for n in range(20)])]
    totals = [float(np.frombuffer(answer.raw_output_contents[0], "<f4")[0]) for answer in answers]
    assert totals == [sum(range(n + 1)) for n in range(20)]


def test_the_last_answer_of_a_request_is_marked_when_that_is_asked(client: Channel) -> None:
    asked = own((1, 2))
    asked.parameters["triton_enable_empty_final_response"].bool_param = True
    (answer,) = client.stream([asked])
    assert answer.infer_response.parameters["triton_final_response"].bool_param is True


def test_a_stream_that_is_given_up_gives_up_what_it_asked(client: Channel, served: Server) -> None:
    answers: Any = client.stream([own((1400, 0), pipeline="single"), own((1, 0), pipeline="single")])
    wait_until(lambda: served.version("single")["queue"]["rows"] > 0)
    answers.cancel()
    wait_until(lambda: served.version("single")["queue"]["rows"] == 0)


def test_metadata_that_would_be_ignored_is_refused(client: Channel) -> None:
    error = failure(lambda: client.infer(own((1, 2)), metadata=(("idempotency-key", "k"),)))
    assert (error.code(), told(error)["x-error-code"]) == (grpc.StatusCode.INVALID_ARGUMENT, "unknown_field")


def test_headers_of_rest_mean_the_same_as_metadata(client: Channel) -> None:
    error = failure(lambda: client.infer(own((1, 2)), metadata=(("x-request-deadline-ms", "0"),)))
    assert told(error)["x-error-code"] == "out_of_range"


def test_what_is_switched_off_says_which_setting_switches_it_on(client: Channel) -> None:
    error = failure(lambda: client.call("RepositoryIndex"))
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "data.model_control" in error.details()


def test_with_a_certificate_calls_are_encrypted(repository: Path, data: Path, tmp_path: Path) -> None:
    authority = trustme.CA()
    pair = authority.issue_cert("localhost")
    pair.cert_chain_pems[0].write_to_path(tmp_path / "chain.pem")
    pair.private_key_pem.write_to_path(tmp_path / "key.pem")
    settings = {
        "grpc.serve": "on",
        "data.tls_certificate": tmp_path / "chain.pem",
        "data.tls_key": tmp_path / "key.pem",
    }
    trusted = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    with serving(repository / "own", data=data, settings=settings) as secret:
        with channel(secret.grpc_port, trusted) as client:
            assert sums(client.infer(own((1, 2)))) == [3.0]
        with channel(secret.grpc_port) as plain:
            assert failure(lambda: plain.infer(own((1, 2)))).code() is grpc.StatusCode.UNAVAILABLE


def test_a_server_that_is_told_to_has_no_grpc_port(repository: Path, data: Path) -> None:
    settings = {"grpc.serve": "off"}
    with serving(repository / "own", data=data, settings=settings) as without, channel(without.grpc_port) as client:
        assert failure(lambda: client.call("ServerLive")).code() is grpc.StatusCode.UNAVAILABLE


def test_a_server_that_ends_answers_what_runs_and_tells_idle_streams(repository: Path, data: Path) -> None:
    def silent() -> Iterator[Message]:
        release.wait(20)
        yield from ()

    release = threading.Event()
    settings = {"grpc.serve": "on"}
    with serving(repository / "own", data=data, settings=settings) as ending, channel(ending.grpc_port) as client:
        idle = client.stream(silent())
        running = client.start(own((1500, 0)))
        wait_until(lambda: ending.version("own")["running"] == 1)
        ending.terminate()
        assert sums(running.result()) == [1500.0]
        assert told(failure(lambda: list(idle)))["x-error-code"] == "shutting_down"
        assert ending.process.wait(10) == 0
        release.set()


@pytest.mark.parametrize(
    ("given", "served"),
    [
        ({":authority": "a.example:8001"}, True),
        ({":authority": "A.Example"}, True),
        ({":authority": "[::1]"}, True),
        ({":authority": "", "host": "a.example"}, True),
        ({":authority": "b.example"}, False),
        ({":authority": "[::2]:8001"}, False),
        ({":authority": ""}, False),
    ],
)
def test_only_listed_hosts_are_served(named: Server, given: dict[str, str], served: bool) -> None:
    fields = {":method": "POST", ":scheme": "http", ":path": f"/{SERVICE}/ServerLive", **given}
    block = b"".join(field(name.encode(), value.encode()) for name, value in fields.items() if value)
    block += field(b"content-type", b"application/grpc")
    with wire(named) as asking:
        asking.say(frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, END_STREAM, 1, bytes(5)))
        assert (field(b"grpc-status", b"0") in asking.trailers(1)) == served
