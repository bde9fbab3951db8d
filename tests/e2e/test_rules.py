"""Rules as a caller meets them: in the answer, in its notes, in the receipt, as a refusal."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.serving import Server, forwardpass, serving

DEFINITION = """
outputs = ["label", "score", "tags"]

[[inputs]]
name = "x"
type = "tensor"
datatype = "FP32"
shape = [2]

[[inputs]]
name = "place"
type = "text"

[[steps]]
use = "label_set"
input = "x"
names = ["cat", "dog"]
output = "tags"
score = "tag_scores"

[[steps]]
use = "labels"
input = "x"
names = ["cat", "dog"]

[[rules]]
name = "unsure"
when = "score < 0.6"
set = { label = "unsure" }
drop = ["score", "tags"]
flag = "look at it"

[[rules]]
name = "zoo"
when = "place == 'zoo'"
refuse = "the zoo is closed"

[[rules]]
name = "broken"
when = "place == 'nowhere' && tags == null && tags[0] == 'cat'"
flag = "never"
"""


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("judged")
    (folder / "models" / "judged" / "1").mkdir(parents=True)
    (folder / "models" / "judged" / "1" / "pipeline.toml").write_text(DEFINITION)
    with serving(folder / "models", data=folder / "data") as running:
        yield running


def infer(server: Server, x: list[float], place: str) -> Any:
    inputs = [
        {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": x},
        {"name": "place", "datatype": "BYTES", "shape": [1], "data": [place]},
    ]
    return server.call("POST", "/v2/models/judged/infer", json.dumps({"inputs": inputs}).encode())


def test_the_verdict_is_in_the_answer_and_its_notes(judged: Server) -> None:
    found = judged.predict("judged", {"x": [0.5, 0.4], "place": "home"}).json
    assert found["outputs"] == {"label": "unsure", "score": None, "tags": None}
    assert found["notes"] == [
        {"name": "rule", "rule": "unsure", "did": "set", "names": ["label"]},
        {"name": "rule", "rule": "unsure", "did": "drop", "names": ["score", "tags"]},
        {"name": "rule", "rule": "unsure", "did": "flag", "text": "look at it"},
    ]
    sure = judged.predict("judged", {"x": [0.5, 0.75], "place": "home"}).json
    assert sure == {"outputs": {"label": "dog", "score": 0.75, "tags": ["dog", "cat"]}}


def test_v2_answers_say_it_too(judged: Server) -> None:
    found = infer(judged, [0.5, 0.4], "home").json
    assert [output["data"] for output in found["outputs"]][:2] == [["unsure"], [None]]
    notes = json.loads(found["parameters"]["notes"])
    assert [note["value"]["did"] for note in notes] == ["set", "drop", "flag"]


def test_the_receipt_keeps_it(judged: Server) -> None:
    asked = judged.call(
        "POST",
        "/predict/judged?receipt=full",
        b'{"x": [0.5, 0.4], "place": "home"}',
        {"Content-Type": "application/json"},
    )
    notes = asked.json["receipt"]["notes"]
    assert [(note["name"], note["rule"], note["did"]) for note in notes] == [
        ("rule", "unsure", did) for did in ("set", "drop", "flag")
    ]


def test_a_refused_row_is_the_callers_fault_and_leaves_its_neighbours(judged: Server) -> None:
    refused = judged.predict("judged", {"x": [0.9, 0.1], "place": "zoo"})
    assert (refused.status, refused.code) == (422, "rule_refused")
    assert refused.json["error"]["message"] == "zoo: the zoo is closed"
    records = [{"x": [0.9, 0.1], "place": place} for place in ("home", "zoo")]
    results = judged.predict("judged", {"instances": records}).json["results"]
    assert results[0]["outputs"]["label"] == "cat"
    assert results[1]["error"]["code"] == "rule_refused"


def test_an_expression_without_a_value_is_the_servers_fault(judged: Server) -> None:
    failed = judged.predict("judged", {"x": [0.5, 0.4], "place": "nowhere"})
    assert (failed.status, failed.code) == (500, "step_failed")
    assert failed.json["error"]["message"] == (
        'the rule "broken": a value is null or of another type than the expression needs'
    )


def test_check_names_the_place_of_a_mistake(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "judged" / "1"
    folder.mkdir(parents=True)
    (folder / "pipeline.toml").write_text(DEFINITION.replace("score < 0.6", "score <"))
    for arguments in (["--static"], []):
        done = forwardpass("check", *arguments, tmp_path / "models", data=tmp_path / "data", check=False)
        assert done.returncode == 2
        assert "rules[0].when: at 1:8: mismatched input" in done.stderr.replace("\n", " ")
