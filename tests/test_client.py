"""The Python client: what it sends, what it makes of answers, when it tries again."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from forwardpass.client import (
    AsyncClient,
    Client,
    ConnectionFailed,
    DeadlineError,
    ForwardpassError,
    OverloadedError,
    Prediction,
    RequestError,
    RetryBudget,
    ServerError,
)

HEADERS = {"X-Request-Id": "r1", "X-Pipeline": "reviews", "X-Pipeline-Version": "3", "X-Pipeline-Digest": "d" * 64}
AT_ONCE = RetryBudget(wait_first_s=0.0)
URL = "http://server.test"

Handler = Callable[[httpx.Request], httpx.Response]
Ask = Callable[..., Any]
Array = NDArray[Any]


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Has a handler answer what ``use`` asks of a client; both clients must behave alike."""

    def in_thread(handler: Handler, use: Callable[[Any], Any], **options: Any) -> Any:
        with Client(URL, transport=httpx.MockTransport(handler), **{"retries": AT_ONCE, **options}) as client:
            return use(client)

    def in_loop(handler: Handler, use: Callable[[Any], Awaitable[Any]], **options: Any) -> Any:
        async def run() -> Any:
            transport = httpx.MockTransport(handler)
            async with AsyncClient(URL, transport=transport, **{"retries": AT_ONCE, **options}) as client:
                return await use(client)

        return asyncio.run(run())

    return in_thread if request.param == "sync" else in_loop


@dataclass(frozen=True)
class Reply:
    status: int
    content: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class Script:
    """Answers with each of these in turn, the last one for ever, and keeps what was asked."""

    def __init__(self, *answers: Reply | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status, headers=answer.headers, stream=httpx.ByteStream(answer.content))


def told(body: object, status: int = 200, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, json.dumps(body).encode(), {**HEADERS, **named})


def overloaded(**headers: str) -> Reply:
    return told({"error": {"code": "queue_full", "message": "full", "field": "", "request_id": "r9"}}, 503, **headers)


def predict(client: Any) -> Any:
    return client.predict("reviews", {"text": "lovely"})


GOOD = told({"outputs": {"label": "positive"}})
REFUSED = httpx.ConnectError("connection refused")
CUT = httpx.RemoteProtocolError("the peer closed the connection")


# What is sent, what comes back


def test_a_prediction_says_who_answered_and_what_was_done(ask: Ask) -> None:
    notes, receipt = [{"name": "truncated", "tokens": 300, "kept": 256}], {"batch": {"rows": 1}}
    answer = told({"outputs": {"label": "positive"}, "notes": notes, "receipt": receipt})
    prediction = ask(Script(answer), predict)
    assert prediction == Prediction({"label": "positive"}, notes, receipt, "reviews", 3, "d" * 64, "r1")


def test_a_request_carries_key_version_deadline_and_the_wish_for_a_receipt(ask: Ask) -> None:
    script = Script(GOOD)
    ask(script, lambda client: client.predict("a/b ü", {}, version=2, deadline_s=2.0, receipt=True), key="k1")
    (request,) = script.asked
    assert request.url.raw_path == b"/predict/a%2Fb%20%C3%BC/2?receipt=full"
    assert request.headers["authorization"] == "Bearer k1"
    assert request.headers["content-type"] == "application/json"
    assert 1900 <= int(request.headers["x-request-deadline-ms"]) <= 2000


def test_values_are_plain_json_and_bytes_are_base64(ask: Ask) -> None:
    script = Script(GOOD)
    fields = {
        "raw": b"\xfb\xff",
        "text": "ü",
        "half": np.float16(0.5),
        "rows": np.eye(2, dtype=">i4")[::-1],
        "no": None,
    }
    ask(script, lambda client: client.predict("p", fields))
    sent = json.loads(script.asked[0].content)
    assert sent == {"raw": "+/8=", "text": "ü", "half": 0.5, "rows": [[0, 1], [1, 0]], "no": None}


@pytest.mark.parametrize("value", [float("nan"), np.array([np.inf]), "\ud800", {1, 2}])
def test_what_json_cannot_carry_is_never_sent(ask: Ask, value: object) -> None:
    script = Script(GOOD)
    with pytest.raises((ValueError, TypeError)):
        ask(script, lambda client: client.predict("p", {"x": value}))
    assert not script.asked


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_lead_to_another_path_is_never_sent(ask: Ask, name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a pipeline"):
        ask(Script(GOOD), lambda client: client.predict(name, {}))


def test_one_bad_record_of_many_fails_alone(ask: Ask) -> None:
    bad = {"code": "missing_field", "message": "is required", "field": "/instances/1/text"}
    late = {"code": "worker_crashed", "message": "lost", "field": ""}
    new = {"code": "not_invented_yet", "message": "?", "field": ""}
    results = [{"outputs": {"label": "a"}}, {"error": bad}, {"error": late}, {"error": new}]
    script = Script(told({"results": results, "failed": 3}))
    good, *failed = ask(script, lambda client: client.predict_many("p", [{"text": "x"}, {}, {}, {}]))
    assert json.loads(script.asked[0].content) == {"instances": [{"text": "x"}, {}, {}, {}]}
    assert (good.outputs, good.request_id) == ({"label": "a"}, "r1")
    assert [type(error) for error in failed] == [RequestError, ServerError, ForwardpassError]
    assert (failed[0].code, failed[0].field, failed[0].request_id) == ("missing_field", "/instances/1/text", "r1")


def test_no_records_need_no_request(ask: Ask) -> None:
    script = Script(GOOD)
    outcome = ask(script, lambda client: client.predict_many("p", []))
    assert outcome == [] and not script.asked


@pytest.mark.parametrize(
    "answer",
    [
        Reply(200, b"<html>welcome</html>"),
        told(["outputs"]),
        told({"label": "positive"}),
        Reply(200, b'{"outputs":{}}'),
        Reply(200, b"no gzip", {"Content-Encoding": "gzip"}),
    ],
)
def test_an_answer_that_is_not_ours_is_a_server_error(ask: Ask, answer: Reply) -> None:
    with pytest.raises(ServerError) as caught:
        ask(Script(answer), predict)
    assert caught.value.code == "bad_answer"


def test_results_that_do_not_match_the_records_are_a_server_error(ask: Ask) -> None:
    with pytest.raises(ServerError, match="bad_answer"):
        ask(Script(told({"results": [], "failed": 0})), lambda client: client.predict_many("p", [{}]))


def test_metadata_is_what_v2_says(ask: Ask) -> None:
    script = Script(told({"name": "m", "inputs": []}))
    assert ask(script, lambda client: client.metadata("m", version=2)) == {"name": "m", "inputs": []}
    assert script.asked[0].url.path == "/v2/models/m/versions/2"


@pytest.mark.parametrize(
    ("answer", "healthy"), [(told({"ready": True}), True), (overloaded(), False), (REFUSED, False)]
)
def test_health_is_asked_once_and_is_yes_or_no(ask: Ask, answer: Reply | Exception, healthy: bool) -> None:
    script = Script(answer)
    assert ask(script, lambda client: client.ready()) is healthy
    assert ask(script, lambda client: client.live()) is healthy
    assert [request.url.path for request in script.asked] == ["/v2/health/ready", "/v2/health/live"]


def test_health_at_a_wrong_address_is_an_error(ask: Ask) -> None:
    with pytest.raises(RequestError):
        ask(Script(Reply(404)), lambda client: client.ready())


@pytest.mark.parametrize(
    "options",
    [
        {"url": "server:8000"},
        {"url": "http://server?x=1"},
        {"key": ""},
        {"key": "a b"},
        {"key": "a\n"},
        {"deadline_s": 0.0},
        {"deadline_s": 301.0},
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Client(**{"url": URL, **options})


# Errors


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RequestError),
        (404, RequestError),
        (413, RequestError),
        (429, OverloadedError),
        (500, ServerError),
        (302, ServerError),
        (503, OverloadedError),
        (504, DeadlineError),
    ],
)
@pytest.mark.parametrize("dialect", ["predict", "v2"])
def test_the_status_decides_the_class_in_each_dialect(
    ask: Ask, status: int, kind: type[ForwardpassError], dialect: str
) -> None:
    inner = {"code": "some_code", "message": "why", "field": "/text", "request_id": "r9"}
    body = {"error": inner} if dialect == "predict" else {"error": "why", "code": "some_code", "request_id": "r9"}
    with pytest.raises(ForwardpassError) as caught:
        ask(Script(told(body, status)), predict)
    error = caught.value
    assert type(error) is kind
    assert (error.code, error.message, error.request_id, error.status) == ("some_code", "why", "r9", status)
    assert error.field == ("/text" if dialect == "predict" else "")


def test_an_error_that_is_not_ours_names_its_status(ask: Ask) -> None:
    with pytest.raises(ServerError, match="502") as caught:
        ask(Script(Reply(502, b"<html>bad gateway</html>")), predict)
    assert (caught.value.code, caught.value.status) == ("unknown", 502)


# Retries


@pytest.mark.parametrize("trouble", [overloaded(), told({}, 429), overloaded(Retry_After="0"), REFUSED, CUT])
def test_overload_and_lost_connections_are_tried_again(ask: Ask, trouble: Reply | Exception) -> None:
    script = Script(trouble, trouble, GOOD)
    assert ask(script, predict).outputs == {"label": "positive"}
    assert len(script.asked) == 3


@pytest.mark.parametrize("status", [400, 404, 413, 422, 499, 500, 501, 502, 504])
def test_other_refusals_and_failures_are_not_tried_again(ask: Ask, status: int) -> None:
    script = Script(told({}, status))
    with pytest.raises(ForwardpassError):
        ask(script, predict)
    assert len(script.asked) == 1


@pytest.mark.parametrize(("trouble", "kind"), [(overloaded(), OverloadedError), (REFUSED, ConnectionFailed)])
def test_three_attempts_are_all(ask: Ask, trouble: Reply | Exception, kind: type[ForwardpassError]) -> None:
    script = Script(trouble)
    with pytest.raises(kind):
        ask(script, predict)
    assert len(script.asked) == 3


def test_a_retry_after_beyond_the_deadline_is_not_waited_for(ask: Ask) -> None:
    script = Script(overloaded(Retry_After="31"), GOOD)
    with pytest.raises(OverloadedError) as caught:
        ask(script, predict)
    assert caught.value.retry_after_s == 31.0
    assert len(script.asked) == 1


def test_each_attempt_tells_the_server_what_is_left(ask: Ask) -> None:
    script = Script(overloaded(), GOOD)
    ask(script, predict, retries=RetryBudget(wait_first_s=0.01), deadline_s=5.0)
    first, second = (int(request.headers["x-request-deadline-ms"]) for request in script.asked)
    assert second <= first - 8


def test_retries_do_not_amplify_an_overload(ask: Ask) -> None:
    script = Script(overloaded())
    for _ in range(2):  # a budget is a client's
        with pytest.raises(OverloadedError):
            ask(script, predict, retries=RetryBudget(wait_first_s=0.0, tokens_max=1.0, attempts_max=9))
    assert len(script.asked) == 4


def test_of_many_requests_a_tenth_is_retried() -> None:
    script = Script(overloaded())
    with Client(URL, transport=httpx.MockTransport(script), retries=AT_ONCE) as client:
        for _ in range(200):
            with pytest.raises(OverloadedError):
                predict(client)
    assert 200 + 25 <= len(script.asked) <= 200 + 10 + 20


def test_a_timeout_is_the_deadline_and_final(ask: Ask) -> None:
    script = Script(httpx.ReadTimeout("too slow"))
    with pytest.raises(DeadlineError) as caught:
        ask(script, predict)
    assert (caught.value.code, caught.value.status, len(script.asked)) == ("deadline_exceeded", None, 1)


def test_an_answer_that_trickles_in_is_cut_off_at_the_deadline() -> None:
    wait = threading.Event()

    def trickle() -> Iterator[bytes]:
        while not wait.wait(0.005):
            yield b" "

    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=trickle()))
    with Client(URL, transport=transport) as client, pytest.raises(DeadlineError):
        client.predict("p", {}, deadline_s=0.02)


def test_the_deadline_bounds_a_call_that_never_ends() -> None:
    async def never(request: httpx.Request) -> httpx.Response:
        await anyio.sleep_forever()
        raise AssertionError

    async def run() -> None:
        async with AsyncClient(URL, transport=httpx.MockTransport(never)) as client:
            await client.predict("p", {}, deadline_s=0.02)

    with pytest.raises(DeadlineError):
        asyncio.run(run())


# Arrays


@pytest.mark.parametrize("array", [np.zeros(2, "complex64"), np.zeros(2, "datetime64[s]"), np.array([1, None])])
def test_an_array_without_a_datatype_is_never_sent(ask: Ask, array: Array) -> None:
    script = Script(GOOD)
    with pytest.raises(TypeError, match="input 'x'"):
        ask(script, lambda client: client.infer("p", {"x": array}))
    assert not script.asked


def test_infer_names_the_outputs_wanted_and_tells_the_time_left(ask: Ask) -> None:
    script = Script(told({"error": "no", "code": "pipeline_not_found"}, 404))
    with pytest.raises(RequestError, match="pipeline_not_found"):
        ask(script, lambda client: client.infer("p", {"x": np.zeros(1)}, outputs=["y"], version=2, deadline_s=2.0))
    (request,) = script.asked
    head = json.loads(request.content[: int(request.headers["inference-header-content-length"])])
    assert request.url.path == "/v2/models/p/versions/2/infer"
    assert head["outputs"] == [{"name": "y"}]
    assert 1_900_000 <= head["parameters"]["timeout"] <= 2_000_000


def binary(outputs: str, data: bytes) -> Reply:
    head = b'{"outputs":[' + outputs.encode() + b"]}"
    return Reply(200, head + data, {"Inference-Header-Content-Length": str(len(head))})


FP32 = '{"name":"y","datatype":"FP32","shape":%s,"parameters":{"binary_data_size":%d}}'


@pytest.mark.parametrize(
    "answer",
    [
        told({"outputs": []}),  # not in binary
        binary(FP32 % ("[2]", 8), bytes(4)),
        binary(FP32 % ("[2]", 8), bytes(12)),
        binary(FP32 % ("[3]", 8), bytes(8)),
        binary(FP32 % ("[-1]", 8), bytes(8)),
        binary(FP32.replace("FP32", "BF16") % ("[4]", 8), bytes(8)),
        binary(FP32.replace("FP32", "BYTES") % ("[9]", 8), bytes(8)),
    ],
)
def test_tensors_that_do_not_add_up_are_a_server_error(ask: Ask, answer: Reply) -> None:
    with pytest.raises(ServerError, match="bad_answer"):
        ask(Script(answer), lambda client: client.infer("p", {"x": np.zeros(1)}))
