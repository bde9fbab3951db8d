"""Kept answers as callers and operators meet them, at real servers: in answers, receipts, statistics, metrics, commands."""

import json
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests import fixtures_onnx
from tests.admit.redis_process import redis_process
from tests.e2e.pipelines import OWN_MODEL, write_own
from tests.grpc_calls import channel, infer_request
from tests.serving import Reply, Server, forwardpass, serving, wait_until

from forwardpass.store.keys import Key, KeyStore, digest_of, new_id, new_secret

BARE = '[[steps]]\nuse = "model"\nengine = "onnxruntime"\nfile = "model.onnx"\n'
SHOUTING = """
[[inputs]]
name = "text"
type = "text"

[[guards]]
name = "private"
on = "input"
mode = "mask"
pii = ["email"]

[[steps]]
use = "steps:checked"
output = "shout"
datatype = "BYTES"

[cache]
"""


def write_repository(root: Path) -> None:
    write_own(root / "own" / "1", OWN_MODEL + "\n[batch]\nrows_max = 32\n[cache]\n")
    write_own(root / "short" / "1", OWN_MODEL + "\n[cache]\nttl_s = 0.2\n")
    write_own(root / "plain" / "1", OWN_MODEL)
    write_own(root / "rows" / "1", SHOUTING)
    for name, more in (("bits", ""), ("nearly", "approximate = true\n")):
        write_own(root / name / "1", OWN_MODEL + "\n[cache]\n" + more)
        code = root / name / "1" / "steps.py"
        code.write_text(code.read_text().replace("x.sum(axis=1)", "x.sum(axis=1) * (1.0 + len(x) * 1e-9)"))
    mean = root / "mean" / "1"
    mean.mkdir(parents=True)
    fixtures_onnx.mean_over_batch(mean / "model.onnx")
    (mean / "pipeline.toml").write_text(BARE + "[cache]\n")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    root = tmp_path_factory.mktemp("cached")
    write_repository(root)
    forwardpass("trust", root, data=data)
    return root


@pytest.fixture(scope="module")
def cached(models: Path, data: Path) -> Iterator[Server]:
    settings = {"grpc.serve": "on"}
    with serving(models, data=data, settings=settings) as running:
        yield running


def ask(server: Server, rows: Sequence[Sequence[float]], pipeline: str = "own", **headers: str) -> Reply:
    """The rows' sums, with a receipt."""
    data = [value for row in rows for value in row]
    tensor = {"name": "x", "datatype": "FP64", "shape": [len(rows), len(rows[0])], "data": data}
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps({"inputs": [tensor]}).encode()
    return server.call("POST", f"/v2/models/{pipeline}/infer?receipt=full", body, given)


def use(reply: Reply) -> tuple[int, int, int]:
    found = reply.json["receipt"]["cache"]
    return found["hit"], found["joined"], found["miss"]


def sums(reply: Reply) -> list[float]:
    found: list[float] = reply.json["outputs"][0]["data"]
    return found


def statistics(server: Server, pipeline: str) -> Any:
    return server.get(f"/v2/models/{pipeline}/stats").json["model_stats"][0]


def test_of_a_batch_of_32_with_30_known_rows_two_are_run(cached: Server) -> None:
    known = [[float(number), 100.0] for number in range(30)]
    ask(cached, known)
    before = statistics(cached, "own")
    reply = ask(cached, [*known, [30.0, 100.0], [31.0, 100.0]])
    assert sums(reply) == [100.0 + number for number in range(32)]
    after = statistics(cached, "own")
    assert use(reply) == (30, 0, 2)
    assert sum(batch["rows"] for batch in reply.json["receipt"]["batches"]) == 2
    assert after["inference_count"] - before["inference_count"] == 2
    looked = [each["inference_stats"]["cache_hit"]["count"] for each in (before, after)]
    assert looked[1] - looked[0] == 30


def test_an_answer_that_was_kept_says_so_and_how_old_it_is(cached: Server) -> None:
    first, again = ask(cached, [[1.0, 1.5]]), ask(cached, [[1.0, 1.5]])
    assert (first.headers["cache-status"], "age" in first.headers) == ("forwardpass; fwd=miss", False)
    assert (again.headers["cache-status"], again.headers["age"]) == ("forwardpass; hit", "0")
    assert again.json["receipt"]["cache"]["age_s_max"] >= 0 and again.json["receipt"]["batches"] == []
    assert sums(again) == sums(first) == [2.5]


def test_a_pipeline_without_the_section_says_nothing_of_a_cache(cached: Server) -> None:
    reply = ask(cached, [[1.0, 2.0]], "plain")
    assert "cache-status" not in reply.headers and "cache" not in reply.json["receipt"]


def test_equal_requests_at_the_same_time_are_run_once(cached: Server) -> None:
    before = statistics(cached, "own")["inference_count"]
    replies: list[Reply] = cached.together(12, lambda number: ask(cached, [[1300.0, 7.0]]))
    assert [sums(reply) for reply in replies] == [[1307.0]] * 12
    assert statistics(cached, "own")["inference_count"] - before == 1
    assert sorted({use(reply)[2] for reply in replies}) == [0, 1]


def test_a_failure_is_not_kept_and_is_the_failure_of_nobody_else(cached: Server) -> None:
    first, again = ask(cached, [[-1.0, 0.0]]), ask(cached, [[-1.0, 0.0]])
    assert first.code == again.code == "engine_failed"
    assert ask(cached, [[1.0, 9.0]]).status == 200


def test_a_caller_may_want_a_new_answer_or_none_kept(cached: Server) -> None:
    row = [[2.0, 40.0]]
    ask(cached, row)
    assert use(ask(cached, row, Cache_Control="no-cache")) == (0, 0, 1)
    assert use(ask(cached, row, Cache_Control="max-age=600")) == (1, 0, 0)
    other = [[3.0, 40.0]]
    ask(cached, other, Cache_Control="no-store")
    assert use(ask(cached, other)) == (0, 0, 1)


def test_v2_says_it_with_a_parameter(cached: Server) -> None:
    tensor = {"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [4.0, 40.0]}
    body = {"inputs": [tensor], "parameters": {"cache": False, "receipt": "full"}}
    replies = [cached.call("POST", "/v2/models/own/infer", json.dumps(body).encode()) for _ in range(2)]
    assert [use(reply) for reply in replies] == [(0, 0, 1)] * 2
    body["parameters"] = {"cache": 0}
    refused = cached.call("POST", "/v2/models/own/infer", json.dumps(body).encode())
    assert refused.code == "wrong_type" and "/parameters/cache" in refused.body.decode()


def test_an_answer_is_computed_again_when_its_time_is_over(cached: Server) -> None:
    row = [[5.0, 40.0]]
    ask(cached, row, "short")
    wait_until(lambda: use(ask(cached, row, "short", Cache_Control="max-age=100")) == (0, 0, 1), 10.0)


def test_grpc_and_rest_are_given_each_others_answers(cached: Server) -> None:
    ask(cached, [[6.0, 40.0]])
    raw = struct.pack("<2d", 6.0, 40.0)
    with channel(cached.grpc_port) as asking:
        asked = infer_request("own", "x", "FP64", [1, 2], raw)
        answer, told = asking.ask("ModelInfer", asked)
        asked.parameters["cache"].bool_param = False
        _, alone = asking.ask("ModelInfer", asked)
    assert struct.unpack("<d", answer.raw_output_contents[0]) == (46.0,)
    assert (told["cache-status"], alone["cache-status"]) == ("forwardpass; hit", "forwardpass; fwd=request")


def test_what_guards_said_of_a_row_is_said_again_with_its_answer(cached: Server) -> None:
    replies = [cached.predict("rows", {"text": "write to bo@example.org"}) for _ in range(2)]
    assert replies[1].headers["cache-status"] == "forwardpass; hit"
    assert [reply.headers["x-guardrails"] for reply in replies] == ["mask=1"] * 2
    assert replies[0].body == replies[1].body and b"BO@EXAMPLE" not in replies[0].body


def test_rows_that_depend_on_each_other_are_not_kept_and_the_status_says_why(cached: Server) -> None:
    assert cached.version("mean")["cache"].startswith("off: ")
    assert "cache" not in ask(cached, [[1.0, 2.0, 3.0, 4.0]], "mean").json


def test_answers_whose_last_bits_batching_changes_are_kept_only_where_the_pipeline_says_so(cached: Server) -> None:
    assert cached.version("bits")["cache"].startswith("off: batching changes the last bits of an answer (by ")
    assert "cache" not in ask(cached, [[1.0, 2.0]], "bits").json["receipt"]
    assert cached.version("nearly")["cache"] == "on"
    replies = [ask(cached, [[1.0, 2.0]], "nearly") for _ in range(2)]
    assert [use(reply) for reply in replies] == [(0, 0, 1), (1, 0, 0)]
    assert replies[1].json["receipt"]["repeatable"] is False


def test_the_operator_sees_what_is_kept_and_takes_it_away(cached: Server) -> None:
    row = [[7.0, 40.0]]
    ask(cached, row)
    shown = cached.get("/cache", admin=True).json
    own = next(each for each in shown["versions"] if each["pipeline"] == "own")
    assert own["entries"] >= 1 and 0 < own["bytes"] <= shown["bytes"] and own["oldest_s"] >= 0
    assert cached.call("POST", "/pipelines/own/cache/purge", admin=True).json["purged"] == own["entries"]
    assert use(ask(cached, row)) == (0, 0, 1)
    assert cached.call("POST", "/pipelines/nowhere/cache/purge", admin=True).code == "pipeline_not_found"


def test_metrics_count_what_was_found(cached: Server) -> None:
    ask(cached, [[8.0, 40.0], [8.0, 40.0]])
    text = cached.get("/metrics", admin=True).body.decode()
    for found in ("hit", "joined", "miss"):
        (line,) = [
            each
            for each in text.splitlines()
            if "cache_rows" in each and 'pipeline="own"' in each and f'"{found}"' in each
        ]
        assert float(line.split()[-1]) >= 1
    assert 'forwardpass_cache_bytes{pipeline="own",version="1"}' in text


def test_a_version_that_is_unloaded_takes_its_answers_with_it(models: Path, data: Path) -> None:
    with serving(models, data=data) as server:
        ask(server, [[1.0, 40.0]])
        assert server.get("/cache", admin=True).json["bytes"] > 0
        server.call("POST", "/pipelines/own/versions/1/unload", admin=True)
        assert server.get("/cache", admin=True).json["bytes"] == 0
        server.call("POST", "/pipelines/own/versions/1/load", admin=True)
        assert use(ask(server, [[1.0, 40.0]])) == (0, 0, 1)


def test_the_bound_of_the_server_holds_and_0_keeps_nothing(models: Path, data: Path) -> None:
    with serving(models, data=data, settings={"cache.bytes_max": 3000}) as server:
        ask(server, [[float(number), 1.0] for number in range(50)])
        assert 0 < server.get("/cache", admin=True).json["bytes"] <= 3000
    with serving(models, data=data, settings={"cache.bytes_max": 0}) as server:
        assert server.version("own")["cache"] == "off: cache.bytes_max of the server is 0"
        assert "cache" not in ask(server, [[1.0, 2.0]]).json["receipt"]


def test_what_was_kept_counts_for_a_quota_as_what_was_run(models: Path, data: Path, tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text('[[quotas]]\ntenant = "*"\npipeline = "own"\nrows_per_minute = 3\n')
    with serving(models, data=data, file=file) as server:
        replies = [ask(server, [[1.0, 2.0]]) for _ in range(4)]
        assert [reply.status for reply in replies] == [200, 200, 200, 429]
        assert [reply.json["receipt"]["cost"] for reply in replies[:3]] == [1.0] * 3


def test_tenants_do_not_learn_from_the_cache_what_others_asked(models: Path, tmp_path: Path) -> None:
    store, keys = KeyStore(tmp_path), {}
    for tenant in ("acme", "other"):
        id = new_id()
        secret = keys[tenant] = new_secret(id)
        store.add(Key(id, tenant, frozenset({"infer", "admin"}), 1.0, digest_of(secret.encode())))
    forwardpass("trust", models, data=tmp_path)
    with serving(models, data=tmp_path, settings={"auth.required": "true"}, ready=False) as server:

        def one(tenant: str) -> Reply:
            return ask(server, [[1.0, 2.0]], Authorization=f"Bearer {keys[tenant]}")

        wait_until(lambda: one("acme").status == 200)
        assert use(one("acme")) == (1, 0, 0)
        assert use(one("other")) == (0, 0, 1)


def test_two_servers_share_answers_in_redis_and_go_on_without_it(models: Path, data: Path, tmp_path: Path) -> None:
    with redis_process(tmp_path) as redis:
        settings = {"cache.redis": redis.url}
        with serving(models, data=data, settings=settings) as one, serving(models, data=data, settings=settings) as two:
            for server in (one, two):
                wait_until(lambda server=server: not server.get("/cache", admin=True).json["redis"]["away"])
            assert use(ask(one, [[1.0, 2.0]])) == (0, 0, 1)
            wait_until(lambda: use(ask(two, [[1.0, 2.0]], Cache_Control="max-age=500")) == (1, 0, 0), 10.0)
            assert one.call("POST", "/cache/purge", admin=True).json["purged_in_redis"] >= 1
            redis.kill()
            assert sums(ask(one, [[3.0, 2.0]])) == [5.0]
            wait_until(lambda: two.get("/cache", admin=True).json["redis"]["away"])
            assert use(ask(two, [[1.0, 2.0]])) == (1, 0, 0)
