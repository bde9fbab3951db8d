"""The Python client in a sequence: what each request says of it, and what it does when nobody knows how one ended."""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import anyio
import httpx
import pytest
from tests.test_client import AT_ONCE, CUT, GOOD, REFUSED, URL, Reply, Script, overloaded, told

from forwardpass.client import AsyncClient, Client, ForwardpassError, Prediction, RequestError

Talk = Callable[..., list[Any]]
Step = dict[str, Any]
"""Arguments of ``predict`` beside the record."""

LAST: Step = {"last": True}
TURN = ("x-sequence-start", "x-sequence-end")


class Stream(Script):
    """A script of what the records are answered with; what ends a sequence without a record is kept in ``ends``."""

    def __init__(self, *answers: Reply | Exception, end: Reply | Exception | None = None) -> None:
        super().__init__(*answers)
        self.ends: list[httpx.Request] = []
        self._end = end or told({})

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method != "DELETE":
            return super().__call__(request)
        self.ends.append(request)
        if isinstance(self._end, Exception):
            raise self._end
        return httpx.Response(self._end.status, headers=self._end.headers, content=self._end.content)


def outcome(error: Exception) -> str:
    return error.code if isinstance(error, ForwardpassError) else type(error).__name__


def talk_in_thread(script: Stream, *steps: Step, **options: Any) -> list[Any]:
    said: list[Any] = []
    transport = httpx.MockTransport(script)
    with Client(URL, transport=transport, retries=AT_ONCE) as client, client.sequence("voice", **options) as live:
        for step in steps:
            try:
                said.append(live.predict({"sound": b"ab"}, **step).outputs)
            except (ForwardpassError, RuntimeError, ValueError) as error:
                said.append(outcome(error))
    return said


def talk_in_loop(script: Stream, *steps: Step, **options: Any) -> list[Any]:
    async def run() -> list[Any]:
        said: list[Any] = []
        client = AsyncClient(URL, transport=httpx.MockTransport(script), retries=AT_ONCE)
        async with client, client.sequence("voice", **options) as live:
            for step in steps:
                try:
                    said.append((await live.predict({"sound": b"ab"}, **step)).outputs)
                except (ForwardpassError, RuntimeError, ValueError) as error:
                    said.append(outcome(error))
        return said

    return asyncio.run(run())


@pytest.fixture(params=[talk_in_thread, talk_in_loop], ids=["sync", "async"])
def talk(request: pytest.FixtureRequest) -> Talk:
    """Sends a record for each step of one sequence; both clients must behave alike."""
    chosen: Talk = request.param
    return chosen


def failed(code: str, status: int) -> Reply:
    return told({"error": {"code": code, "message": "no", "field": "", "request_id": "r9"}}, status)


def turns(script: Stream) -> list[tuple[str, ...]]:
    return [tuple(request.headers.get(name, "") for name in TURN) for request in script.asked]


def test_the_first_request_starts_the_sequence_and_the_last_ends_it(talk: Talk) -> None:
    script = Stream(GOOD)
    assert talk(script, {}, {}, LAST) == [{"label": "positive"}] * 3
    assert turns(script) == [("true", ""), ("", ""), ("", "true")]
    (id,) = {request.headers["x-sequence-id"] for request in script.asked}
    assert len(id) == 32
    assert json.loads(script.asked[0].content) == {"sound": base64.b64encode(b"ab").decode()}


def test_a_sequence_of_one_request_starts_and_ends_with_it(talk: Talk) -> None:
    script = Stream(GOOD)
    talk(script, LAST)
    assert turns(script) == [("true", "true")]


def test_each_sequence_has_an_id_of_its_own(talk: Talk) -> None:
    script = Stream(GOOD)
    talk(script, {})
    talk(script, {})
    assert len({request.headers["x-sequence-id"] for request in script.asked}) == 2


def test_it_stays_with_the_version_that_began_it(talk: Talk) -> None:
    script = Stream(GOOD)
    talk(script, {}, {})
    talk(script, {}, version=2)
    assert [request.url.path for request in script.asked] == ["/predict/voice", "/predict/voice/3", "/predict/voice/2"]


def test_leaving_the_block_ends_the_sequence_at_the_version_that_began_it_and_nothing_is_sent_after_it() -> None:
    script = Stream(GOOD)
    with Client(URL, transport=httpx.MockTransport(script)) as client:
        with client.sequence("voice") as live:
            live.predict({"sound": b""})
        with pytest.raises(RuntimeError, match="has ended"):
            live.predict({"sound": b""})
    assert len(script.asked) == 1
    (end,) = script.ends
    assert (end.url.path, end.headers["x-sequence-id"]) == ("/predict/voice/3", live.id)
    assert 0 < int(end.headers["x-request-deadline-ms"]) <= 2_000


@pytest.mark.parametrize(
    ("answers", "steps", "ends"),
    [
        ([GOOD], [], 0),
        ([GOOD], [{}], 1),
        ([GOOD], [{}, LAST], 0),
        ([failed("invalid_input", 400)], [{}], 0),
        ([CUT], [{}], 1),  # it may have begun
        ([GOOD, CUT], [{}, LAST], 1),  # it may not have ended
        ([GOOD, failed("invalid_input", 400)], [{}, LAST], 1),
    ],
)
def test_a_sequence_is_ended_that_may_be_there(
    talk: Talk, answers: list[Reply | Exception], steps: list[Step], ends: int
) -> None:
    script = Stream(*answers)
    talk(script, *steps)
    assert len(script.ends) == ends


@pytest.mark.parametrize("trouble", [CUT, REFUSED, failed("sequence_not_found", 404), Reply(502, b"a proxy")])
def test_an_end_that_fails_is_nobodys_trouble(talk: Talk, trouble: Reply | Exception) -> None:
    script = Stream(GOOD, end=trouble)
    assert talk(script, {}) == [{"label": "positive"}]
    assert script.ends


def test_after_the_last_request_there_is_none(talk: Talk) -> None:
    script = Stream(GOOD)
    assert talk(script, {}, LAST, {})[2] == "RuntimeError"
    assert len(script.asked) == 2


@pytest.mark.parametrize("trouble", [overloaded(), failed("not_ready", 503), REFUSED])
def test_what_surely_did_not_run_is_sent_again(talk: Talk, trouble: Reply | Exception) -> None:
    script = Stream(GOOD, trouble, GOOD)
    assert talk(script, {}, {}) == [{"label": "positive"}] * 2
    assert turns(script) == [("true", ""), ("", ""), ("", "")]


@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        (CUT, "connection_failed"),
        (httpx.ReadTimeout("too slow"), "deadline_exceeded"),
        (Reply(503, b"a proxy on the way"), "unknown"),
        (Reply(502, b"a proxy on the way"), "unknown"),
        (Reply(200, b"no answer of ours"), "bad_answer"),
    ],
)
def test_a_request_that_may_have_counted_is_never_sent_again_and_ends_the_sequence(
    talk: Talk, trouble: Reply | Exception, code: str
) -> None:
    script = Stream(GOOD, trouble, GOOD)
    assert talk(script, {}, {}, {}) == [{"label": "positive"}, code, "sequence_lost"]
    assert len(script.asked) == 2


@pytest.mark.parametrize(("code", "status"), [("invalid_input", 400), ("engine_failed", 500), ("shutting_down", 503)])
def test_after_a_failure_that_the_server_tells_the_sequence_goes_on(talk: Talk, code: str, status: int) -> None:
    script = Stream(GOOD, failed(code, status), GOOD)
    assert talk(script, {}, {}, LAST) == [{"label": "positive"}, code, {"label": "positive"}]
    assert turns(script) == [("true", ""), ("", ""), ("", "true")]


def test_a_sequence_whose_first_request_failed_is_still_to_be_started(talk: Talk) -> None:
    script = Stream(failed("invalid_input", 400), GOOD)
    talk(script, {}, {})
    assert turns(script) == [("true", ""), ("true", "")]


def test_a_last_request_that_failed_has_ended_nothing(talk: Talk) -> None:
    script = Stream(GOOD, failed("invalid_input", 400), GOOD)
    assert talk(script, {}, LAST, LAST)[2] == {"label": "positive"}


@pytest.mark.parametrize(("code", "status"), [("sequence_lost", 410), ("sequence_not_found", 404)])
def test_what_the_server_no_longer_has_is_the_caller_s_to_begin_anew(talk: Talk, code: str, status: int) -> None:
    script = Stream(GOOD, failed(code, status))
    assert talk(script, {}, {}) == [{"label": "positive"}, code]
    assert len(script.asked) == 2


def test_a_deadline_that_makes_no_sense_changes_nothing(talk: Talk) -> None:
    script = Stream(GOOD)
    assert talk(script, {}, {"deadline_s": 0.0}, {}) == [{"label": "positive"}, "ValueError", {"label": "positive"}]


def test_a_second_request_while_one_is_out_is_refused_and_a_cancelled_one_loses_the_sequence() -> None:
    async def never(request: httpx.Request) -> httpx.Response:
        await anyio.sleep_forever()
        raise AssertionError

    async def run() -> None:
        async with AsyncClient(URL, transport=httpx.MockTransport(never)) as client:
            live = client.sequence("voice")
            first = asyncio.create_task(live.predict({}))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="one at a time"):
                await live.predict({})
            first.cancel()
            await asyncio.wait([first])
            with pytest.raises(RequestError, match="sequence_lost"):
                await live.predict({})

    asyncio.run(run())


def test_an_output_of_bytes_is_given_as_bytes() -> None:
    prediction = Prediction({"picture": "+/8=", "label": "no!", "score": 0.5}, [], None, "p", 1, "d", "r")
    assert prediction.bytes_of("picture") == b"\xfb\xff"
    for other in ("label", "score"):
        with pytest.raises(ValueError):
            prediction.bytes_of(other)
    with pytest.raises(KeyError):
        prediction.bytes_of("pictures")
