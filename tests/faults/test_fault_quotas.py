"""R8, R13 and PEERS 2.14: quotas of a server that runs, over HTTP, gRPC and its streams, however requests end."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tests import fixtures_onnx
from tests.admit.redis_process import redis_process
from tests.fixtures_families import text_classifier
from tests.grpc_calls import Channel, channel, infer_request
from tests.serving import Reply, Server, forwardpass, serving, wait_until

from forwardpass.ingress.grpc.messages import Message

QUOTAS = """
[[quotas]]
pipeline = "few"
tenant = "*"
rows_per_minute = 6
requests_per_minute = 30

[[quotas]]
pipeline = "dear"
key = "*"
cost_per_day = 20

[[quotas]]
pipeline = "one"
tenant = "*"
concurrent = 1

[[quotas]]
pipeline = "bytes"
tenant = "*"
bytes_per_minute = 400

[[quotas]]
tenant = "*"
requests_per_minute = 100000
"""
SLEEPER = '''
import time
import numpy as np


class Model:
    """Twice the input; 1000+ms sleep, -1 raises."""

    def predict(self, batch):
        x = batch["x"]
        if (x == -1).any():
            raise ValueError("raised")
        late = x[x >= 1000]
        if len(late):
            time.sleep(float(late.max() - 1000) / 1000)
        return {"y": x * 2}
'''
PIPELINE = """
[[inputs]]
name = "x"
type = "tensor"
datatype = "FP64"
shape = []
[[steps]]
use = "model"
engine = "python"
file = "steps.py"
call = "Model"
inputs = { x = { datatype = "FP64", shape = [] } }
outputs = { y = { datatype = "FP64", shape = [] } }
[[golden]]
request = { x = 1.0 }
expect = { y = 2.0 }
[[golden]]
request = { x = 2.0 }
expect = { y = 4.0 }
"""


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root, data = tmp_path_factory.mktemp("limited"), tmp_path_factory.mktemp("data")
    for name in ("few", "dear", "one", "bytes"):
        folder = root / name / "1"
        folder.mkdir(parents=True)
        (folder / "steps.py").write_text(SLEEPER)
        price = "[price]\nrequest = 2\nrow = 0.5\n" if name == "dear" else ""
        (folder / "pipeline.toml").write_text(PIPELINE + price)
    file = root / "server.toml"
    file.write_text(QUOTAS)
    forwardpass("trust", root, data=data)
    with serving(root, data=data, settings={"grpc.serve": "on"}, file=file) as running:
        yield running


def ask(server: Server, pipeline: str, *values: float, **headers: str) -> Reply:
    body = {"instances": [{"x": value} for value in values]}
    return server.predict(pipeline, body, **headers)


def message(pipeline: str, *values: float) -> Message:
    return infer_request(pipeline, "x", "FP64", [len(values)], np.array(values, "<f8").tobytes())


def test_rows_are_counted_and_those_of_a_failure_of_ours_are_not(limited: Server) -> None:
    assert ask(limited, "few", 1, 2).status == 200
    assert [ask(limited, "few", -1, -1).status for _ in range(4)] == [500] * 4  # golden examples counted for nothing
    assert ask(limited, "few", 1, 2, 3, 4).status == 200
    refused = ask(limited, "few", 1)
    assert (refused.status, refused.code) == (429, "rate_limited")
    assert "rows_per_minute of tenant anonymous on pipeline few: 6; asked 1" in refused.json["error"]["message"]
    assert 1 <= int(refused.headers["retry-after"]) <= 15
    assert '"tenant-pipeline-rows_per_minute";q=6;qu="rows";w=60' in refused.headers["ratelimit-policy"]
    assert ask(limited, "few", *range(7)).code == "input_too_large"


def test_a_budget_ends_and_receipts_say_what_each_request_cost(limited: Server) -> None:
    def paid(*values: float) -> float:
        id = ask(limited, "dear", *values).headers["x-request-id"]
        cost: float = limited.get(f"/receipts/{id}", admin=True).json["cost"]
        return cost

    assert [paid(1), paid(1, 2, 3, 4), paid(-1, -1)] == [2.5, 4.0, 0.0]
    statuses = [ask(limited, "dear", 1, 2, 3, 4).status for _ in range(4)]  # 13.5 of 20 are left
    assert statuses == [200, 200, 200, 429]
    refused = ask(limited, "dear", 1)
    assert (refused.status, refused.code) == (429, "budget_exhausted")
    day_s = 86_400 - time.time() % 86_400
    assert day_s - 60 <= int(refused.headers["retry-after"]) <= day_s + 60


def test_one_at_a_time_and_a_caller_that_goes_away_makes_room(limited: Server) -> None:
    def both(number: int) -> tuple[int, str]:
        reply = ask(limited, "one", 1400)
        return reply.status, reply.code

    assert sorted(limited.together(2, both)) == [(200, ""), (429, "concurrency_limited")]
    with channel(limited.grpc_port) as client, pytest.raises(grpc.RpcError, match="DEADLINE_EXCEEDED"):
        client.infer(message("one", 1200), timeout=0.05)
    wait_until(lambda: ask(limited, "one", 1).status == 200)


def test_bytes_are_counted_over_grpc_too_and_trailing_metadata_says_so(limited: Server) -> None:
    with channel(limited.grpc_port) as client:
        _, said = client.ask("ModelInfer", message("bytes", *range(20)))
        assert '"tenant-pipeline-bytes_per_minute";q=400;qu="content-bytes";w=60' in said["ratelimit-policy"]
        with pytest.raises(grpc.RpcError) as refusal:
            client.infer(message("bytes", *range(30)))
    assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "bytes_per_minute" in str(refusal.value.details())
    assert "retry-after" in dict(refusal.value.trailing_metadata())


def test_each_request_of_a_grpc_stream_counts_and_the_stream_goes_on(limited: Server) -> None:
    with channel(limited.grpc_port) as client:
        answers = list(stream(client, [message("one", 1100), message("one", 1100), message("one", 1)]))
    codes = [answer.infer_response.parameters["error_code"].string_param for answer in answers]
    assert codes.count("concurrency_limited") == 2 and codes[0] == ""
    assert ask(limited, "one", 1).status == 200


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Server]:
    """Three requests a minute, of 3,000 bytes together."""
    folder = tmp_path / "models" / "p" / "1"
    folder.mkdir(parents=True)
    (folder / "steps.py").write_text(SLEEPER)
    (folder / "pipeline.toml").write_text(PIPELINE)
    file = tmp_path / "server.toml"
    file.write_text('[[quotas]]\ntenant = "*"\nrequests_per_minute = 3\nbytes_per_minute = 3000\n')
    forwardpass("trust", folder.parents[1], data=tmp_path / "data")
    with serving(folder.parents[1], data=tmp_path / "data", settings={"grpc.serve": "on"}, file=file) as running:
        yield running


def test_bytes_are_those_on_the_wire_and_what_cannot_be_read_is_a_request_too(small: Server) -> None:
    packed = grpc.Compression.Gzip
    with channel(small.grpc_port) as client:
        client.infer(message("p", *[1.0] * 4000), compression=packed)  # 32,000 bytes before
        broken: Any = [b"\xff\xff"] * 4
        said = [answer.error_message for answer in client.stream(broken)]
    assert [("no ModelInferRequest" in each, "requests_per_minute" in each) for each in said] == [
        (True, False),
        (True, False),
        (False, True),
        (False, True),
    ]


def stream(client: Channel, messages: list[Message]) -> Iterator[Any]:
    return client.stream(messages)


def test_the_status_and_the_printed_settings_show_quotas(limited: Server, tmp_path: Path) -> None:
    assert limited.status()["quotas"]["redis"] is None
    file = tmp_path / "server.toml"
    file.write_text('[run]\nredis = "redis://:hidden@localhost:1"\n' + QUOTAS)
    shown = forwardpass("config", "--settings", file, data=tmp_path).stdout
    assert '[[quotas]]\nkey = "*"\npipeline = "dear"\ncost_per_day = 20.0\n' in shown
    assert "hidden" not in shown
    config = limited.get("/config", admin=True).json
    assert config["quotas"][1]["cost_per_day"] == 20.0


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A classifier of texts, as ``init`` makes it of a transformer's export; 40 tokens a minute."""
    root, data = tmp_path_factory.mktemp("tokens"), tmp_path_factory.mktemp("data")
    forwardpass(
        "init", "texts", "--from", text_classifier(root / "export", {}, 3), "--output", root / "models", data=data
    )
    file = root / "server.toml"
    file.write_text('[[quotas]]\ntenant = "*"\ntokens_per_minute = 40\n')
    with serving(root / "models", data=data, file=file) as running:
        yield running


def test_tokens_are_reserved_a_byte_each_and_settled_as_counted(tokens: Server) -> None:
    """Of an idle account 40 are there: a text of 25 bytes reserves 31 (27 and a length), and is 4 words and 2 special ones."""
    first = tokens.predict("texts", {"text": "aaaa bbbb cccc dddd eeeee"})
    left = int(first.headers["ratelimit"].split("r=")[1].split(";")[0])
    assert first.status == 200
    assert 40 - 8 <= left <= 40 - 6
    assert tokens.predict("texts", {"text": "a " * 60}).code == "input_too_large"
    statuses = [tokens.predict("texts", {"text": "aaaa bbbb cccc dddd eeeee"}).status for _ in range(4)]
    assert statuses[0] == 200 and 429 in statuses


def test_clients_of_openai_are_told_how_they_stand_in_their_words(tokens: Server) -> None:
    body = json.dumps({"model": "texts", "input": "aaaa bbbb cccc dddd"}).encode()
    kind = {"Content-Type": "application/json"}
    replies = [tokens.call("POST", "/v1/moderations", body, kind) for _ in range(9)]
    refused = next(reply for reply in replies if reply.status == 429)
    assert refused.headers["x-ratelimit-limit-tokens"] == "40"
    assert int(refused.headers["x-ratelimit-remaining-tokens"]) < 30
    assert int(refused.headers["retry-after-ms"]) > 0
    assert refused.json["error"]["type"] == "rate_limit_error"


def test_two_servers_share_a_quota_and_each_goes_on_by_itself_without_redis(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "identity" / "1"
    folder.mkdir(parents=True)
    fixtures_onnx.identity(folder / "model.onnx")
    with redis_process(tmp_path) as redis, ExitStack() as stack:
        file = tmp_path / "server.toml"
        file.write_text(f'[run]\nredis = "{redis.url}"\n[[quotas]]\ntenant = "*"\nrequests_per_minute = 6\n')
        servers = [
            stack.enter_context(serving(folder.parents[1], data=tmp_path / name, file=file)) for name in ("a", "b")
        ]
        statuses = [servers[number % 2].get("/v2/models/identity").status for number in range(10)]
        assert (statuses.count(200), statuses.count(429)) in ((6, 4), (7, 3))  # one may have been refilled
        redis.kill()
        wait_until(lambda: _away(servers[0]))
        assert servers[0].get("/v2/models/identity").status in (200, 429)  # it goes on from where Redis stood
        redis.start()
        wait_until(lambda: not _away(servers[0]))


def _away(server: Server) -> bool:
    """Asks, as somebody must."""
    server.get("/v2/models/identity")
    away: bool = server.status()["quotas"]["redis"]["away"]
    return away
