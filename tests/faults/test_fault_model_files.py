"""Folders and files that are no pipeline, or no longer the one they were (group D1-D6), through the command line."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from tests import fixtures_onnx
from tests.faults.asking import infer
from tests.faults.faulty import MODEL, settle
from tests.pipeline.model_files import gguf, pickled, safetensors, tensor
from tests.serving import command, forwardpass, serving


def check(folder: Path, data: Path) -> "subprocess.CompletedProcess[str]":
    """``forwardpass check`` on a folder whose files have settled; always clear, whatever it says."""
    settle(folder)
    done = subprocess.run(
        command("check", folder, "--set", f"run.data={data}"), capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done


def with_external_data(folder: Path, **entries: str) -> Path:
    """A model one of whose tensors is said to be elsewhere."""
    folder.mkdir(parents=True)
    weights = TensorProto(name="weights", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        weights.external_data.add(key=key, value=value)
    shape: list[str | int | None] = ["N", 4]
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "weights"], ["y"])], "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)], [weights],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return folder


def _weights(folder: Path) -> Path:
    (folder / "other").write_bytes(bytes(16))
    return folder / "other"


D2: dict[str, tuple[dict[str, str], Callable[[Path], object]]] = {
    "above": ({"location": "../weights"}, lambda folder: (folder.parent / "weights").write_bytes(bytes(16))),
    "absolute": ({"location": "/etc/passwd"}, lambda folder: None),
    "missing": ({"location": "weights"}, lambda folder: None),
    "too short": ({"location": "weights"}, lambda folder: (folder / "weights").write_bytes(bytes(15))),
    "negative offset": (
        {"location": "weights", "offset": "-16"}, lambda folder: (folder / "weights").write_bytes(bytes(16)),
    ),
    "petabyte": (
        {"location": "weights", "length": str(2**50)}, lambda folder: (folder / "weights").write_bytes(bytes(16)),
    ),
    "symbolic link": ({"location": "weights"}, lambda folder: (folder / "weights").symlink_to("/etc/passwd")),
    "hard link": ({"location": "weights"}, lambda folder: (folder / "weights").hardlink_to(_weights(folder))),
    "pipe": ({"location": "weights"}, lambda folder: os.mkfifo(folder / "weights")),
    "linked folder": (
        {"location": "sub/weights"}, lambda folder: (folder / "sub").symlink_to("/dev", target_is_directory=True),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", D2)
def test_d2_external_data_that_is_not_a_plain_file_beside_the_model_is_refused(
    tmp_path: Path, data: Path, name: str
) -> None:
    entries, place = D2[name]
    folder = with_external_data(tmp_path / "external" / "1", **entries)
    place(folder)
    done = check(folder, data)
    assert done.returncode == 2, done.stdout
    assert "weights" in done.stderr or "sub" in done.stderr
    assert "root:" not in done.stderr


D5 = {
    "unknown key": (MODEL + "[batch]\nrows_mx = 3\n", ":6: batch.rows_mx", "rows_max"),
    "wrong type": (MODEL + '[batch]\nrows_max = "3"\n', ":6: batch.rows_max", "whole number"),
    "key twice": (MODEL + "[batch]\nrows_max = 3\nrows_max = 4\n", ":7", "TOML"),
    "no such file": (MODEL.replace("model.onnx", "other.onnx"), "other.onnx", ""),
    "no such engine": (MODEL.replace("onnxruntime", "onxruntime"), "onxruntime", "onnxruntime"),
    "a file outside": (MODEL.replace("model.onnx", "../model.onnx"), "../model.onnx", ""),
    "another signature": (
        '[[inputs]]\nname = "x"\ntype = "tensor"\ndatatype = "INT64"\nshape = [7]\n' + MODEL, "INT64", "FP32",
    ),
    "an output that is none": ('outputs = ["z"]\n' + MODEL, "z", "y"),
    "deep": ("a = " + "[" * 5000 + "]" * 5000, "TOML", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", D5)
def test_d5_a_definition_with_a_mistake_is_refused_with_its_place(tmp_path: Path, data: Path, name: str) -> None:
    definition, *said = D5[name]
    folder = tmp_path / "mistaken" / "1"
    fixtures_onnx.identity(folder / "model.onnx")
    (folder / "pipeline.toml").write_text(definition)
    done = check(folder, data)
    assert done.returncode == 2, done.stdout
    assert all(part in done.stderr for part in said), done.stderr


BAD_WEIGHTS = {
    "d17 gguf": ("weights.gguf", gguf(cut=1), "cut short"),
    "d17 gguf alignment": ("weights.GGUF", gguf(alignment=0), "alignment"),
    "d17 no gguf": ("weights.gguf", b"<html>404</html>", "HTML"),
    "d18 safetensors": ("weights.safetensors", safetensors({"w": tensor(0, 24)}, 23), "cut short"),
    "d18 no safetensors": ("weights.safetensors", pickled(), "pickle"),
}


@pytest.mark.parametrize("name", BAD_WEIGHTS)
def test_d17_d18_weights_by_whose_name_there_is_no_whole_file_are_refused(
    tmp_path: Path, data: Path, name: str
) -> None:
    file, content, said = BAD_WEIGHTS[name]
    path = fixtures_onnx.identity(tmp_path / "weights" / "1" / "model.onnx")
    (path.parent / file).write_bytes(content)
    done = check(path.parent, data)
    assert (done.returncode, file in done.stderr, said in done.stderr) == (2, True, True), done.stderr


def test_whole_weights_of_every_kind_may_lie_in_a_version(tmp_path: Path, data: Path) -> None:
    path = fixtures_onnx.identity(tmp_path / "weights" / "1" / "model.onnx")
    for name, content in {"a.gguf": gguf(), "a.safetensors": safetensors({"w": tensor(0, 24)}, 24)}.items():
        (path.parent / name).write_bytes(content)
    assert check(path.parent, data).returncode == 0


@pytest.mark.parametrize("cut", [0.2, 0.9, 0.99])
def test_d1_a_model_cut_short_is_refused(tmp_path: Path, data: Path, cut: float) -> None:
    path = fixtures_onnx.network(tmp_path / "cut" / "1" / "model.onnx")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * cut)])
    done = check(path.parent, data)
    assert done.returncode == 2
    assert "model.onnx" in done.stderr


def test_d1_a_folder_under_a_models_name_is_refused(tmp_path: Path, data: Path) -> None:
    (tmp_path / "folder" / "1" / "model.onnx").mkdir(parents=True)
    assert check(tmp_path / "folder" / "1", data).returncode == 2


def test_d1_a_graph_no_engine_can_run_is_refused_without_the_engines_words(tmp_path: Path, data: Path) -> None:
    path = fixtures_onnx.identity(tmp_path / "strange" / "1" / "model.onnx")
    model = onnx.load(str(path))
    model.graph.node[0].op_type = "Unheard"
    path.write_bytes(model.SerializeToString())
    done = check(path.parent, data)
    assert done.returncode == 2
    error = next(line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert error.endswith("model.onnx: onnxruntime cannot load this model")


def test_d3_names_that_are_no_names_are_passed_over_and_said(tmp_path: Path, data: Path) -> None:
    for name in ("A", "two words", "n" * 65, "..hidden", "nаme", "good"):
        fixtures_onnx.identity(tmp_path / name / "1" / "model.onnx")
    settle(tmp_path)
    with serving(tmp_path, data=data) as server:
        assert [version["pipeline"] for version in server.status()["versions"]] == ["good"]
        assert server.log.read_text().count("ignored in the repository") >= 4


def test_d6_a_model_changed_on_disk_is_served_as_it_was_until_it_is_loaded_again(tmp_path: Path, data: Path) -> None:
    path = fixtures_onnx.identity(tmp_path / "changing" / "1" / "model.onnx")
    settle(tmp_path)
    with serving(tmp_path, data=data) as server:
        digest = server.version("changing")["digest"]
        path.write_bytes(b"no model any more")
        assert infer("changing").send(server).json["outputs"][0]["data"] == [1, 2, 3, 4]
        (pid,) = server.worker_pids("changing")
        os.kill(pid, 9)
        assert infer("changing").send(server).status == 200
        assert server.version("changing")["digest"] == digest
        assert server.call("POST", "/pipelines/changing/versions/1/unload", admin=True).status == 200
        again = server.call("POST", "/pipelines/changing/versions/1/load", admin=True)
        assert (again.status, again.code) == (422, "model_invalid")


def test_d6_a_private_copy_that_was_changed_is_not_loaded(tmp_path: Path) -> None:
    path = fixtures_onnx.identity(tmp_path / "kept" / "1" / "model.onnx")
    settle(path.parent)
    assert forwardpass("check", path, data=tmp_path / "data").returncode == 0
    (copy,) = (tmp_path / "data" / "store").rglob("model.onnx")
    copy.chmod(0o644)
    fixtures_onnx.identity(copy, ("N", 5))
    done = forwardpass("check", path, data=tmp_path / "data", check=False)
    assert done.returncode == 2
    assert "digest" in done.stderr or "store" in done.stderr
