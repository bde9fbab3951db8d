"""Lists of text as an input, JSON and rows of unlike shape as answers, golden examples with files: over every door."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import fixtures_onnx
from tests.serving import Server, command, forwardpass, serving

PIPELINE = """
outputs = ["found", "lengths"]

[[inputs]]
name = "words"
type = "texts"
bytes_max = 8
count_max = 3

[[steps]]
use = "expand"
over = { words = "word" }
[[steps]]
use = "model"
engine = "onnxruntime"
file = "model.onnx"
[[steps]]
use = "steps:length"
output = "length"
datatype = "INT64"
[[steps]]
use = "fold"
records = "found"
fields = ["y", "length"]
lists = { length = "lengths" }

[[golden]]
request = { words = ["a", "bb"] }
expect = { lengths = [1, 2] }
[[golden]]
request = { words = ["ccc"] }
expect = { lengths = [3] }
"""
CODE = """
def length(word: str) -> int:
    return len(word)
"""
RAW = """
[[inputs]]
name = "picture"
type = "image"
[[steps]]
use = "byte_windows"
input = "picture"
first = 2
last = 2
bytes_min = 2

[[golden]]
request = { picture = { file = "golden/picture.bin" } }
expect = { bytes = [1, 2, 3, 4] }
"""


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("kinds")
    fixtures_onnx.text_identity(root / "words" / "1" / "model.onnx")
    (root / "words" / "1" / "pipeline.toml").write_text(PIPELINE)
    (root / "words" / "1" / "steps.py").write_text(CODE)
    (root / "raw" / "1" / "golden").mkdir(parents=True)
    (root / "raw" / "1" / "pipeline.toml").write_text(RAW)
    (root / "raw" / "1" / "golden" / "picture.bin").write_bytes(bytes([1, 2, 3, 4]))
    forwardpass("trust", root, data=data)
    with serving(root, data=data) as server:
        yield server


def test_a_list_of_text_becomes_a_list_of_objects(kinds: Server) -> None:
    reply = kinds.predict("words", {"words": ["ab", "ö"]})
    assert reply.json["outputs"] == {
        "found": [{"y": "ab", "length": 2}, {"y": "ö", "length": 1}],
        "lengths": [2, 1],
    }


def test_each_record_has_a_list_of_its_own_length(kinds: Server) -> None:
    reply = kinds.predict("words", {"instances": [{"words": ["a"]}, {"words": ["b", "c"]}]})
    assert [result.get("outputs", {}).get("found") for result in reply.json["results"]] == [
        [{"y": "a", "length": 1}], [{"y": "b", "length": 1}, {"y": "c", "length": 1}],
    ]  # fmt: skip


def test_over_v2_a_list_is_a_second_dimension_and_json_is_a_string(kinds: Server) -> None:
    described = kinds.get("/v2/models/words").json
    assert described["inputs"] == [{"name": "words", "datatype": "BYTES", "shape": [-1, -1]}]
    assert described["outputs"][0] == {"name": "found", "datatype": "BYTES", "shape": [-1]}
    reply = kinds.infer("words", "words", "BYTES", [1, 2], ["ab", "c"])
    found, lengths = reply.json["outputs"]
    assert json.loads(found["data"][0]) == [{"y": "ab", "length": 2}, {"y": "c", "length": 1}]
    assert (lengths["shape"], lengths["data"]) == ([1, 2], [2, 1])


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        ([], "out_of_range", "/words: the list is empty; at least 1 text is needed"),
        (["a"] * 4, "input_too_large", "/words: has 4 texts; at most 3 are allowed"),
        (["a", "123456789"], "input_too_large", "/words/1: has 9 bytes; at most 8 are allowed"),
        (["a", 1], "wrong_type", "/words/1: expected a string, got an integer"),
        ("a", "wrong_type", "/words: expected a list of strings, got a string"),
        (None, "wrong_type", "/words: expected a list of strings, got null"),
    ],
)
def test_a_list_that_does_not_fit_is_refused_by_place(kinds: Server, given: object, code: str, text: str) -> None:
    reply = kinds.predict("words", {"words": given})
    assert (400 <= reply.status < 500, reply.code, reply.json["error"]["message"]) == (True, code, text)


@pytest.mark.parametrize(
    ("shape", "values", "code"),
    [([1, 0], [], "shape_mismatch"), ([1], ["a"], "shape_mismatch"), ([1, 4], list("abcd"), "input_too_large")],
)
def test_v2_shapes_that_are_no_lists_are_refused(kinds: Server, shape: list[int], values: list[str], code: str) -> None:
    reply = kinds.infer("words", "words", "BYTES", shape, values)
    assert (400 <= reply.status < 500, reply.code) == (True, code)


@pytest.mark.parametrize("media", ["image/png", "application/octet-stream"])
def test_an_image_is_sent_as_it_is(kinds: Server, media: str) -> None:
    reply = kinds.call("POST", "/predict/raw", bytes([3, 2, 1]), {"Content-Type": media})
    assert reply.json["outputs"]["bytes"] == [3, 2, 2, 1]


def test_an_image_in_json_is_base64(kinds: Server) -> None:
    assert kinds.predict("raw", {"picture": "AwIB"}).json["outputs"]["bytes"] == [3, 2, 2, 1]


def asked(server: Server, *arguments: str) -> Any:
    """What ``forwardpass predict`` prints when it asks this server."""
    url = f"http://127.0.0.1:{server.port}"
    done = subprocess.run(command("predict", *arguments, "--url", url), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["outputs"]


def test_the_command_line_sends_lists_and_files(kinds: Server, tmp_path: Path) -> None:
    (tmp_path / "p.bin").write_bytes(bytes([5, 6]))
    assert asked(kinds, "words", 'words=["a","bb"]')["lengths"] == [1, 2]
    assert asked(kinds, "raw", f"picture=@{tmp_path / 'p.bin'}") == {"bytes": [5, 6, 5, 6]}


def test_a_golden_file_that_is_not_there_is_found_by_check(tmp_path: Path, data: Path) -> None:
    folder = tmp_path / "raw" / "1"
    folder.mkdir(parents=True)
    (folder / "pipeline.toml").write_text(RAW)
    done = forwardpass("check", folder, data=data, check=False)
    assert done.returncode != 0
    assert "golden[0].request.picture.file" in done.stdout + done.stderr
