"""Clients that know a pipeline by its task, against a real server: OpenAI's paths, reranking and TEI's."""

import base64
import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.serving import Reply, Server, forwardpass, serving

OWN_CODE = '''
def vector(text: str) -> list[float]:
    """Its a's, b's and c's."""
    if text == "bad":
        raise ValueError("this text is bad")
    return [float(text.count(letter)) for letter in "abc"]


def likeness(query: str, document: str) -> float:
    """How many letters of one are in the other."""
    return float(sum(letter in document for letter in query))


def scores(text: str) -> list[float]:
    return [0.25, 0.75] if "!" in text else [1.0, 0.0]
'''
TEXT = '[[inputs]]\nname = "text"\ntype = "text"\n'
VECTORS = TEXT + (
    '[[steps]]\nuse = "steps:vector"\noutput = "vector"\ndatatype = "FP32"\nshape = [3]\n'
    '[task]\nkind = "embed"\ndimensions = [2]\n'
)
PAIRS = (
    '[[inputs]]\nname = "query"\ntype = "text"\n[[inputs]]\nname = "document"\ntype = "text"\n'
    '[[steps]]\nuse = "steps:likeness"\noutput = "score"\ndatatype = "FP32"\n[task]\nkind = "rank"\nscale = "logit"\n'
)
MOOD = TEXT + (
    '[[steps]]\nuse = "steps:scores"\noutput = "scores"\ndatatype = "FP32"\nshape = [2]\n'
    '[task]\nkind = "classify"\nlabels = ["calm", "harassment"]\nharmless = ["calm"]\n'
)
PLAIN = MOOD.partition("[task]")[0]
VERSIONS = {
    "vectors/1": VECTORS,
    "pairs/1": PAIRS,
    "mood/1": MOOD,
    "mood/2": MOOD + "threshold = 0.9\n",
    "plain/1": PLAIN,
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root, data = tmp_path_factory.mktemp("tasks"), tmp_path_factory.mktemp("data")
    for place, definition in VERSIONS.items():
        (root / place).mkdir(parents=True)
        (root / place / "pipeline.toml").write_text(definition)
        (root / place / "steps.py").write_text(OWN_CODE)
    forwardpass("trust", root, data=data)
    with serving(root, data=data, settings={"run.versions": "all"}) as server:
        yield server


def post(server: Server, path: str, body: Any) -> Reply:
    return server.call("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})


def test_texts_become_vectors(tasks: Server) -> None:
    body = {"model": "vectors", "input": ["abba", "c"], "encoding_format": "base64"}
    answer = post(tasks, "/v1/embeddings", body).json
    assert [struct.unpack("<3f", base64.b64decode(each["embedding"])) for each in answer["data"]] == [
        (2, 2, 0),
        (0, 0, 1),
    ]
    cut = post(tasks, "/v1/embeddings", {"input": "aaabbbb", "dimensions": 2}).json
    assert cut["data"][0]["embedding"] == pytest.approx([0.6, 0.8])
    assert post(tasks, "/embed", {"inputs": "aaabbbb"}).json == [pytest.approx([0.6, 0.8, 0.0])]


def test_a_text_that_fails_fails_its_request_by_its_place(tasks: Server) -> None:
    reply = post(tasks, "/v1/embeddings", {"model": "vectors", "input": ["a", "bad"]})
    error = reply.json["error"]
    assert (reply.status, error["param"], error["code"]) == (400, "input/1", "invalid_input")
    assert "this text is bad" in error["message"]
    assert post(tasks, "/embed", {"inputs": "bad"}).json["error_type"] == "validation"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/rerank", {"model": "pairs", "query": "ab", "documents": ["c", "abc", "a"]}),
        ("/v2/rerank", {"model": "pairs", "query": "ab", "documents": ["c", "abc", "a"]}),
        ("/rerank", {"query": "ab", "texts": ["c", "abc", "a"]}),
        ("/", {"query": "ab", "texts": ["c", "abc", "a"]}),
    ],
)
def test_documents_are_ranked(tasks: Server, path: str, body: Any) -> None:
    answer = post(tasks, path, body).json
    found = answer if isinstance(answer, list) else answer["results"]
    assert [each["index"] for each in found] == [1, 2, 0]
    scores = [each.get("relevance_score", each.get("score")) for each in found]
    assert scores == pytest.approx([0.880797, 0.731059, 0.5], abs=1e-6)  # the logistic function of 2, 1 and 0


def test_an_embedder_ranks_too_where_it_is_named(tasks: Server) -> None:
    body = {"model": "vectors", "query": "ab", "documents": ["c", "aab", "ab"], "top_n": 2}
    results = post(tasks, "/v2/rerank", body).json["results"]
    assert [each["index"] for each in results] == [2, 1]
    assert [each["relevance_score"] for each in results] == pytest.approx([1.0, 3 / 10**0.5])


def test_texts_are_moderated_by_the_version_that_is_named(tasks: Server) -> None:
    flagged = [
        [
            each["flagged"]
            for each in post(tasks, "/v1/moderations", {"input": ["hm", "oh!"], "model": model}).json["results"]
        ]
        for model in ("mood:1", "mood:2", "mood")
    ]
    assert flagged == [[False, True], [False, False], [False, False]]
    assert post(tasks, "/predict", {"inputs": "oh!"}).json[0] == {"label": "harassment", "score": 0.75}


def test_whoever_has_the_bare_address_asks_there(tasks: Server) -> None:
    assert post(tasks, "/", {"inputs": "aab", "normalize": False}).json == [[2.0, 1.0, 0.0]]
    assert post(tasks, "/", {"inputs": "oh!", "raw_scores": False}).json[0] == {"label": "harassment", "score": 0.75}
    refused = post(tasks, "/", {"inputs": "aab", "query": "b"})
    assert (refused.status, refused.json["error_type"]) == (400, "validation")
    assert tasks.get("/").json == {"status": "alive"}


def test_models_are_listed_for_openai_and_kserve_at_once(tasks: Server) -> None:
    listed = tasks.get("/v1/models").json
    assert (listed["object"], listed["models"]) == ("list", ["mood", "pairs", "plain", "vectors"])
    one = tasks.get("/v1/models/mood:1").json
    assert {**one, "created": 0} == {
        "id": "mood:1", "object": "model", "created": 0, "owned_by": "forwardpass", "name": "mood:1", "ready": True,
    }  # fmt: skip
    assert 0 <= time.time() - one["created"] < 600
    assert listed["data"][0]["id"] == tasks.get("/v1/models/mood").json["id"] == "mood"


@pytest.mark.parametrize("path", ["/v1/models/nobody", "/v1/models/mood:9", "/v1/models/mood:x", "/v1/models/mood:"])
def test_a_model_that_is_not_there_is_not_found_in_openais_words(tasks: Server, path: str) -> None:
    reply = tasks.get(path)
    error = reply.json["error"]
    assert (reply.status, error["code"], error["param"]) == (404, "model_not_found", "model")


def test_a_pipeline_without_the_task_says_what_to_declare(tasks: Server) -> None:
    reply = post(tasks, "/v1/moderations", {"model": "plain", "input": "a"})
    assert reply.status == 400
    assert '[task] with kind = "classify"' in reply.json["error"]["message"]


def test_info_is_of_who_answers_without_a_name(tasks: Server) -> None:
    info = tasks.get("/info").json
    assert (info["model_id"], info["model_type"]) == ("vectors", {"embedding": {}})


def test_two_that_could_answer_must_be_told_apart(tasks: Server, tmp_path: Path) -> None:
    root = tmp_path / "models"
    for name in ("one", "two"):
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "pipeline.toml").write_text(VECTORS)
        (root / name / "1" / "steps.py").write_text(OWN_CODE)
    forwardpass("trust", root, data=tmp_path / "data")
    with serving(root, data=tmp_path / "data") as server:
        assert "2 pipelines of this kind (embed)" in post(server, "/embed", {"inputs": "a"}).json["error"]
    with serving(root, data=tmp_path / "data", settings={"data.pipeline": "two"}) as server:
        assert post(server, "/embed", {"inputs": "a"}).headers["x-pipeline"] == "two"
