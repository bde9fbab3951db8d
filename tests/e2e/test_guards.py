"""Guards as callers and operators meet them: in answers of every dialect, receipts, metrics and refusals."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.grpc_calls import channel, infer_request
from tests.serving import Reply, Server, forwardpass, serving, wait_until

OWN_CODE = """
def shout(text: str) -> str:
    if text == "never":
        raise ValueError("this step saw what a guard blocks")
    return text.upper()


def told(text: str) -> str:
    return f"{text} - written by bot@example.org"


def count(xs: list) -> float:
    return float(len(xs))


def length(text: str) -> float:
    if text == "judge, fail":
        raise RuntimeError("a judge that fails")
    return float(len(text))
"""

TEXT = """
[[inputs]]
name = "text"
type = "text"
"""

GUARDED = f"""
outputs = ["shout", "told"]
{TEXT}
[[guards]]
name = "blocked"
on = "input"
deny = ["(?i)^never$"]

[[guards]]
name = "private"
on = "input"
mode = "mask"
pii = ["email", "card"]

[[guards]]
name = "long"
on = "input"
mode = "flag"
length_max = 60

[[guards]]
name = "watched"
on = "input"
mode = "shadow"
words = ["curious"]

[[guards]]
name = "bot"
on = "output"
mode = "mask"
fields = ["told"]
pii = ["email"]

[[steps]]
use = "steps:shout"
datatype = "BYTES"
output = "shout"

[[steps]]
use = "steps:told"
datatype = "BYTES"
output = "told"

[[golden]]
request = {{ text = "a@example.com" }}
expect = {{ shout = "[EMAIL]", told = "[email] - written by [email]" }}
"""

JUDGE = f"""
{TEXT}
bytes_max = 200
[[steps]]
use = "steps:length"
datatype = "FP64"
output = "length"
"""


def judged(on: str, **more: str) -> str:
    options = "".join(f'{name} = "{value}"\n' for name, value in more.items())
    guard = f'[[guards]]\nname = "short"\non = "{on}"\njudge = "judge"\nwhen = "length > 20.0"\n{options}'
    step = '[[steps]]\nuse = "steps:told"\ndatatype = "BYTES"\noutput = "told"\n'
    golden = '[[golden]]\nrequest = { text = "a text that is longer than twenty characters" }\n'
    return (
        TEXT
        + guard
        + step
        + golden
        + 'expect = { told = "a text that is longer than twenty characters - '
        + ('written by bot@example.org" }\n')
    )


LISTS = """
[[inputs]]
name = "xs"
type = "texts"
[[guards]]
name = "short"
on = "input"
judge = "judge"
when = "length > 20.0"
on_failure = "pass"
[[steps]]
use = "steps:count"
datatype = "FP64"
output = "count"
"""

POLICY = """
[[guards]]
name = "codeword"
on = "input"
words_file = "codewords.txt"

[[guards]]
name = "judged"
on = "input"
mode = "flag"
judge = "judge"
when = "length > 100.0"

[[guards]]
name = "only-guarded"
on = "output"
mode = "mask"
words = ["rosebud"]
pipelines = ["guarded"]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("guards")
    pipelines = {
        "guarded": GUARDED,
        "judge": JUDGE,
        "asks-in": judged("input"),
        "asks-out": judged("output"),
        "passes": judged("input", on_failure="pass"),
        "lists": LISTS,
        "strict": LISTS.replace('on_failure = "pass"', ""),
        "away": judged("input").replace('judge = "judge"', 'judge = "nobody"'),
    }
    for name, definition in pipelines.items():
        place = folder / "models" / name / "1"
        place.mkdir(parents=True)
        (place / "pipeline.toml").write_text(definition)
        (place / "steps.py").write_text(OWN_CODE)
    (folder / "guards.toml").write_text(POLICY)
    (folder / "codewords.txt").write_text("swordfish\nopen sesame\n")
    forwardpass("trust", folder / "models", data=folder / "data")
    settings = {"run.guards": str(folder / "guards.toml"), "grpc.serve": "on"}
    with serving(folder / "models", data=folder / "data", settings=settings) as running:
        yield running


def text_request(pipeline: str, text: str) -> Any:
    return infer_request(pipeline, "text", "BYTES", [1], len(text).to_bytes(4, "little") + text.encode())


def rows(server: Server, pipeline: str, *texts: str, query: str = "") -> Reply:
    body = json.dumps({"instances": [{"text": text} for text in texts]}).encode()
    return server.call("POST", f"/predict/{pipeline}{query}", body, {"Content-Type": "application/json"})


def requests(server: Server, pipeline: str) -> float:
    lines = server.get("/metrics", admin=True).body.decode().splitlines()
    wanted = f'forwardpass_requests_total{{pipeline="{pipeline}",'
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(wanted))


def verdicts(notes: list[dict[str, Any]]) -> list[tuple[str, str, str, int]]:
    return [(note["guard"], note["mode"], note["field"], note["count"]) for note in notes if note["name"] == "guard"]


def test_a_masked_text_is_masked_before_the_first_step_and_told(server: Server) -> None:
    reply = server.predict("guarded", {"text": "mail joe@example.com, card 4111 1111 1111 1111"})
    assert reply.json["outputs"]["shout"] == "MAIL [EMAIL], CARD [CARD]"
    assert verdicts(reply.json["notes"]) == [("private", "mask", "text", 2), ("bot", "mask", "told", 1)]
    assert reply.headers["x-guardrails"] == "mask=2"


def test_no_answer_holds_what_was_masked(server: Server) -> None:
    reply = rows(server, "guarded", "joe@example.com is never shown", query="?receipt=full")
    assert b"joe" not in reply.body
    assert b"bot@" not in reply.body


def test_a_blocked_row_fails_alone_and_no_step_sees_it(server: Server) -> None:
    reply = rows(server, "guarded", "one", "never", "two").json
    assert [result.get("outputs", {}).get("shout") for result in reply["results"]] == ["ONE", None, "TWO"]
    error = reply["results"][1]["error"]
    assert (error["code"], error["field"]) == ("guard_blocked", "text")
    assert error["message"] == 'the guard "blocked" blocks this'


def test_what_is_blocked_alone_is_the_answer(server: Server) -> None:
    reply = server.predict("guarded", {"text": "NEVER"})
    assert (reply.status, reply.code, reply.headers["x-guardrails"]) == (422, "guard_blocked", "block=1")


def test_a_guard_in_shadow_is_seen_by_the_receipt_and_the_metric_only(server: Server) -> None:
    reply = server.predict("guarded", {"text": "a curious thing"})
    assert b"watched" not in reply.body
    id = reply.headers["x-request-id"]
    kept = server.get(f"/receipts/{id}", admin=True).json
    assert ("watched", "shadow", "text", 1) in verdicts(kept["notes"])
    metrics = server.get("/metrics", admin=True).body.decode()
    line = 'forwardpass_guard_verdicts_total{pipeline="guarded",version="1",guard="watched",verdict="shadow"}'
    assert line in metrics


def test_v2_tells_in_parameters_and_header(server: Server) -> None:
    reply = server.infer("guarded", "text", "BYTES", [1], ["x" * 61])
    assert json.loads(reply.json["parameters"]["notes"])[0]["value"]["guard"] == "long"
    assert reply.headers["x-guardrails"] == "flag=1, mask=1"


def test_the_event_of_a_stream_is_as_guarded_as_an_answer(server: Server) -> None:
    reply = server.call("POST", "/v2/models/guarded/generate_stream", b'{"text_input": "to a@example.com"}')
    event = json.loads(reply.body.removeprefix(b"data: "))
    assert event["told"] == "to [email] - written by [email]"
    assert reply.headers["x-guardrails"] == "mask=2"


def test_grpc_tells_in_its_trailing_metadata(server: Server) -> None:
    with channel(server.grpc_port) as client:
        answer, trailing = client.ask("ModelInfer", text_request("guarded", "to a@example.com"))
        assert trailing["x-guardrails"] == "mask=2"
        assert json.loads(answer.parameters["notes"].string_param)[0]["value"]["guard"] == "private"
        with pytest.raises(grpc.RpcError) as refused:
            client.infer(text_request("guarded", "never"))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert dict(refused.value.trailing_metadata())["x-guardrails"] == "block=1"


def test_a_judge_blocks_the_rows_that_it_finds_so_and_no_others(server: Server) -> None:
    reply = rows(server, "asks-in", "short", "a text that is much longer than that", "also").json
    assert [result.get("outputs", {}).get("told", "")[:5] for result in reply["results"]] == ["short", "", "also "]
    assert reply["results"][1]["error"]["code"] == "guard_blocked"


def test_rows_that_a_judge_blocks_all_are_told_one_by_one(server: Server) -> None:
    long = "a text that is much longer than that"
    for reply in (rows(server, "asks-in", long, long), server.infer("asks-in", "text", "BYTES", [2], [long, long])):
        assert (reply.status, reply.code) == (422, "guard_blocked")
    body = json.dumps({"instances": [long, long]}).encode()
    assert server.call("POST", "/v1/models/asks-in:predict", body).code == "guard_blocked"


def test_a_judge_of_outputs_sees_what_comes_out(server: Server) -> None:
    reply = rows(server, "asks-out", "short", "s")
    assert (reply.status, reply.code) == (422, "guard_blocked")  # both end in "written by bot@example.org"


def test_pipelines_that_would_judge_themselves_are_not_loaded(tmp_path: Path) -> None:
    for name, judge in (("one", "two"), ("two", "one")):
        place = tmp_path / "models" / name / "1"
        place.mkdir(parents=True)
        (place / "pipeline.toml").write_text(judged("input").replace('judge = "judge"', f'judge = "{judge}"'))
        (place / "steps.py").write_text(OWN_CODE)
    forwardpass("trust", tmp_path / "models", data=tmp_path / "data")
    with serving(tmp_path / "models", data=tmp_path / "data", ready=False) as running:
        wait_until(lambda: running.status()["failures"])
        (failure,) = running.status()["failures"].values()
    assert "would be judged by itself" in failure


@pytest.mark.parametrize(("pipeline", "text"), [("asks-in", "judge, fail"), ("away", "anything")])
def test_where_the_judge_gives_no_answer_nothing_passes(server: Server, pipeline: str, text: str) -> None:
    reply = server.predict(pipeline, {"text": text})
    assert (reply.status, reply.code) == (503, "model_unavailable")
    assert "RuntimeError" not in reply.body.decode()


def test_a_guard_may_be_told_to_pass_what_its_judge_cannot_tell(server: Server) -> None:
    reply = server.predict("passes", {"text": "judge, fail"})
    assert reply.status == 200
    assert reply.json["notes"][0]["judge"] == "failed"
    assert reply.headers["x-guardrails"] == "failed=2"  # the operator's judge is the same


def test_a_judge_that_fails_is_told_once_for_a_row_however_many_texts_it_has(server: Server) -> None:
    reply = server.predict("lists", {"xs": ["judge, fail"] * 1000})
    assert (reply.status, reply.json["outputs"]["count"]) == (200, 1000.0)
    assert [note["judge"] for note in reply.json["notes"] if note["guard"] == "short"] == ["failed"]


def test_texts_that_the_judge_does_not_take_keep_it_from_no_others(server: Server) -> None:
    texts = ["fine"] * 600 + ["x" * 201] + ["fine"] * 600
    before = requests(server, "judge")
    reply = server.predict("strict", {"xs": texts})
    assert (reply.status, reply.code) == (422, "guard_blocked")
    assert requests(server, "judge") - before <= 20  # slices for two guards, not one request for each text


def test_more_texts_than_a_judge_looks_at_are_refused(server: Server) -> None:
    reply = server.predict("lists", {"xs": ["a"] * 10_001})
    assert (reply.code, "10000 texts" in reply.body.decode()) == ("input_too_large", True)


def test_what_judges_are_asked_pushes_no_receipt_out(server: Server) -> None:
    reply = server.predict("lists", {"xs": ["one", "two"] * 300})
    kept = server.get(f"/receipts/{reply.headers['x-request-id']}", admin=True)
    assert kept.json["pipeline"] == "lists"


def test_the_receipt_counts_what_every_guard_did(server: Server) -> None:
    reply = rows(server, "guarded", *["a@example.com"] * 30, "never")
    receipt = server.get(f"/receipts/{reply.headers['x-request-id']}", admin=True).json
    assert (receipt["guards"]["private"], receipt["guards"]["blocked"]) == ({"mask": 30}, {"block": 1})
    assert receipt["notes_left_out"] > 0


def test_a_policy_for_a_pipeline_that_is_not_served_keeps_the_server_from_being_ready(tmp_path: Path) -> None:
    place = tmp_path / "models" / "judge" / "1"
    place.mkdir(parents=True)
    (place / "pipeline.toml").write_text(JUDGE)
    (place / "steps.py").write_text(OWN_CODE)
    (tmp_path / "guards.toml").write_text(
        '[[guards]]\nname = "w"\non = "input"\nwords = ["x"]\npipelines = ["jugde"]\n'
    )
    forwardpass("trust", tmp_path / "models", data=tmp_path / "data")
    settings = {"run.guards": str(tmp_path / "guards.toml")}
    with serving(tmp_path / "models", data=tmp_path / "data", settings=settings, ready=False) as running:
        wait_until(lambda: "jugde" in running.status()["why_not_ready"])
        assert running.get("/v2/health/ready").status == 503


def test_a_pipeline_with_a_judge_is_not_asked_without_a_server(tmp_path: Path) -> None:
    place = tmp_path / "asks"
    place.mkdir()
    (place / "pipeline.toml").write_text(judged("input"))
    (place / "steps.py").write_text(OWN_CODE)
    forwardpass("trust", place, data=tmp_path / "data", check=False)
    told = forwardpass("predict", place, "text=hello", data=tmp_path / "data", check=False)
    assert told.returncode != 0
    assert 'asks the pipeline "judge"' in told.stderr + told.stdout


def test_the_operators_guards_are_around_every_pipeline(server: Server) -> None:
    for pipeline in ("guarded", "judge"):
        reply = server.predict(pipeline, {"text": "say Open-Sesame"})
        assert (reply.code, "operator.codeword" in reply.body.decode()) == ("guard_blocked", True)


def test_the_operators_output_guards_come_last_and_only_where_they_are_said_to(server: Server) -> None:
    found = server.predict("guarded", {"text": "rosebud"}).json
    assert found["outputs"]["told"] == "[operator.only-guarded] - written by [email]"
    assert "rosebud" in server.predict("asks-in", {"text": "rosebud"}).json["outputs"]["told"]


def test_the_operators_judge_is_asked_for_every_pipeline_but_itself(server: Server) -> None:
    flagged = server.predict("guarded", {"text": "x" * 101}).json["notes"]
    assert ("operator.judged", "flag", "text", 1) in verdicts(flagged)
    assert "notes" not in server.predict("judge", {"text": "x" * 101}).json


def test_the_receipt_names_the_digest_of_the_operators_policy(server: Server) -> None:
    body = rows(server, "guarded", "a", query="?receipt=full").json
    assert len(body["receipt"]["policy"]) == 64
