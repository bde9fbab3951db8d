"""The peers of the benchmark, as far as can be told without installing or starting one."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from bench.peers import environments, networks
from bench.peers.forms import FORMS, HEADER_LENGTH, numbers
from bench.peers.forwardpass import configuration
from bench.peers.measure import with_layout
from bench.peers.models import TOKENS, VARIANTS, WORKLOADS, inputs, row, sentence, token_ids
from bench.peers.peer import Layout, Peer
from bench.peers.registry import ALL
from bench.peers.triton import configuration as triton
from bench.tabular import write_tabular
from tests.serving import forwardpass

X = np.arange(30, dtype="f4").reshape(1, 30) / 8
ASKED = [(peer, model) for peer in ALL for model in peer.models]
HERE = Path(__file__).parents[2] / "bench" / "peers"


def test_every_peer_of_the_issue_is_listed() -> None:
    wanted = {"forwardpass", "triton", "litserve", "bentoml", "mlserver", "ray", "mosec", "fastapi"}
    assert wanted <= {peer.name for peer in ALL}


def test_what_matters_is_asked_of_the_peers_that_matter() -> None:
    by_name = {peer.name: set(peer.models) for peer in ALL}
    for name in ("triton", "mosec", "fastapi"):
        assert {"tabular", "minilm", "image", "cascade"} <= by_name[name]
    assert all("tabular" in models for name, models in by_name.items() if name != "forwardpass-auto")


@pytest.mark.parametrize(("peer", "model"), ASKED, ids=lambda each: getattr(each, "name", each))
def test_a_workload_is_one_that_exists_in_a_form_that_is_made(peer: Peer, model: str) -> None:
    assert peer.forms[model] in WORKLOADS[model].forms
    assert peer.forms[model] in FORMS
    assert peer.layouts[model].workers >= 1


@pytest.mark.parametrize("peer", ALL, ids=lambda peer: peer.name)
def test_a_peer_says_what_it_is_and_which_versions_it_takes(peer: Peer) -> None:
    assert peer.note
    lines = (HERE / peer.environment / "requirements.txt").read_text().splitlines() if peer.environment else []
    assert all(re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+", line) for line in lines)


def test_all_peers_run_the_same_onnxruntime() -> None:
    found = {re.findall(r"^onnxruntime==(.+)$", (HERE / name / "requirements.txt").read_text(), re.MULTILINE)[0]
             for name in environments.names()}  # fmt: skip
    assert found == {onnxruntime.__version__}


def test_a_command_serves_the_port_it_is_told() -> None:
    for peer, model in ASKED:
        if peer.name in ("forwardpass", "forwardpass-auto", "triton"):
            continue  # they write a repository first: see below
        launch = peer.command(model, 4711, Layout(2, 1, 7))
        assert "4711" in (*launch.argv, *launch.environment.values())
        assert launch.environment["BATCH"] == "7"


def test_our_own_server_is_given_a_repository_that_it_takes(tmp_path: Path) -> None:
    write_tabular(tmp_path / "tabular.onnx")
    made = configuration.repository("tabular_binary", tmp_path, models=tmp_path)
    assert f"/v2/models/{next(made.iterdir()).name}/infer" == configuration.path("tabular_binary")
    assert "ok: tabular version 1" in forwardpass("check", made, "--static", data=tmp_path / "data").stdout


@pytest.mark.parametrize("model", triton.FORMS)
def test_triton_is_told_the_inputs_that_the_request_has(model: str, tmp_path: Path) -> None:
    made = triton.write_repository(model, Layout(2, 1, 7), tmp_path, python=True)
    text = (made / triton.path(model).split("/")[3] / "config.pbtxt").read_text()
    asked = {"minilm": ["input_ids", "attention_mask"], "sentence": ["text"], "image": ["image"], "jpeg": ["picture"]}
    assert re.findall(r'input \[\{ name: "(\w+)"', text) == asked.get(model, ["x"])
    assert "max_batch_size: 7" in text


def test_triton_runs_a_cascade_as_an_ensemble_of_its_networks(tmp_path: Path) -> None:
    made = triton.write_repository("cascade", Layout(2, 1, 7), tmp_path, python=False)
    assert sorted(folder.name for folder in made.iterdir()) == ["cascade", "first", "second"]
    assert 'platform: "ensemble"' in (made / "cascade" / "config.pbtxt").read_text()


@pytest.mark.parametrize("workload", ["tabular", "tabular_binary", "cascade", "sentence", "image", "jpeg"])
def test_no_two_requests_of_a_workload_are_the_same(workload: str) -> None:
    form = FORMS[WORKLOADS[workload].forms[0]]
    assert len({form(inputs(workload, variant)).body for variant in range(VARIANTS)}) == VARIANTS == 32


def test_every_peer_is_asked_the_same_numbers_whatever_its_form() -> None:
    given = inputs("tabular", 7)
    (tensor,) = json.loads(FORMS["v2"](given).body)["inputs"]
    assert tensor["data"] == json.loads(FORMS["record"](given).body)["x"]
    assert np.array_equal(np.frombuffer(FORMS["floats"](given).body, "<f4"), np.array(tensor["data"], "f4"))


def test_the_sentences_are_words_of_one_token_each(tmp_path: Path) -> None:
    networks.write_tokenizer(tmp_path / "tokenizer.json")
    assert {token_ids(sentence(variant), tmp_path)["input_ids"].shape for variant in range(VARIANTS)} == {(1, TOKENS)}


def test_a_cascade_has_rows_that_its_first_network_is_sure_about_and_others(tmp_path: Path) -> None:
    networks.write_first(tmp_path / "first.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "first.onnx", providers=["CPUExecutionProvider"])
    (first,) = session.run(None, {"x": np.concatenate([row(variant) for variant in range(VARIANTS)])})
    assert 8 <= (abs(first - 0.5) < networks.UNSURE).sum() <= 24


def test_a_peer_with_several_layouts_is_measured_in_the_one_that_did_best() -> None:
    peer = next(each for each in ALL if each.name == "triton")
    (other,) = peer.tried["tabular"]
    better = with_layout(peer, {"workload": "tabular", "best": asdict(other)})
    assert (better.layouts["tabular"], better.layouts["minilm"]) == (other, peer.layouts["minilm"])


def test_tensors_are_json_of_the_open_inference_protocol() -> None:
    (tensor,) = json.loads(FORMS["v2"]({"x": X}).body)["inputs"]
    assert (tensor["name"], tensor["shape"], tensor["datatype"]) == ("x", [1, 30], "FP32")
    assert np.array_equal(np.array(tensor["data"], "f4"), X.ravel().round(4))


def test_binary_tensors_stand_behind_a_header_of_the_length_that_is_said() -> None:
    request = FORMS["v2_binary"]({"x": X})
    length = int(request.headers[HEADER_LENGTH])
    (tensor,) = json.loads(request.body[:length])["inputs"]
    assert tensor["parameters"] == {"binary_data_size": 120}
    assert np.array_equal(np.frombuffer(request.body[length:], "<f4"), X.ravel())


def test_token_ids_and_their_mask_are_one_row_where_only_one_argument_can_be_batched() -> None:
    ids = {"input_ids": np.array([[5, 6]]), "attention_mask": np.array([[1, 1]])}
    assert json.loads(FORMS["rows"](ids).body) == {"ids": [[5, 6, 1, 1]]}
    assert json.loads(FORMS["record"](ids).body) == {"input_ids": [5, 6], "attention_mask": [1, 1]}


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'{"outputs":[{"name":"y","shape":[1,2],"datatype":"FP32","data":[0.5,2]}]}', {}),
        (b'{"y":[0.5,2]}', {"Content-Type": "application/json"}),
        (b"[[0.5,2]]", {"content-type": "application/json; charset=utf-8"}),
        (b'{"outputs":{"embedding":[0.5,2]}}', {}),
        (b'{"label":"0.5","score":2}', {}),
        (b"\0\0\0?\0\0\0@", {"Content-Type": "application/octet-stream"}),
        (b'{"outputs":[{"datatype":"BYTES","shape":[1,1],"data":["2.000000:0.5"]}]}', {}),
        (b"{}\0\0\0?\0\0\0@", {"inference-header-content-length": "2"}),
    ],
)
def test_the_numbers_are_found_in_every_kind_of_answer(body: bytes, headers: Mapping[str, str]) -> None:
    assert numbers(body, headers).tolist() == [0.5, 2.0]


def test_what_is_no_answer_is_not_taken_for_one() -> None:
    with pytest.raises(ValueError, match="not an answer"):
        numbers(b'{"error":"no"}', {"Content-Type": "application/json"})


def test_the_second_network_speaks_only_where_the_first_is_unsure(tmp_path: Path) -> None:
    networks.write_second(tmp_path / "second.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "second.onnx", providers=["CPUExecutionProvider"])
    first = np.array([[0.1], [0.31], [0.5], [0.9]], "f4")
    (y,) = session.run(None, {"x": np.tile(X, (4, 1)), "first": first})
    assert y[0] == first[0] and y[3] == first[3]
    assert y[1] == y[2] != first[2]


def test_a_picture_is_a_distribution_over_the_classes(tmp_path: Path) -> None:
    networks.write_squeezenet(tmp_path / "squeezenet.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "squeezenet.onnx", providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {"image": np.zeros((2, 3, 224, 224), "f4")})
    assert answer.shape == (2, networks.CLASSES)
    assert np.allclose(answer.sum(axis=1), 1, atol=1e-5)
