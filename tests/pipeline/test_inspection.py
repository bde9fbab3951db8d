"""What a file is said to hold, and whether it would be taken in: by its bytes, whatever it is called."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests import fixtures_onnx
from tests.pipeline.model_files import (
    every_kind,
    gguf,
    numpy_objects,
    openvino,
    pickled,
    safetensors,
    tensor,
    text,
    zipped,
)

from forwardpass.core.errors import Misconfigured
from forwardpass.execution.kinds import kinds
from forwardpass.pipeline.inspection.files import damage, inspect_file
from forwardpass.pipeline.inspection.places import inspect_place
from forwardpass.pipeline.inspection.reading import Report


def told(folder: Path, content: bytes, name: str = "file.bin") -> Report:
    (folder / name).write_bytes(content)
    return inspect_file(folder / name)


KINDS = {
    "model.onnx": "onnx", "model.gguf": "gguf", "model.safetensors": "safetensors", "model.xml": "OpenVINO IR",
    "model.pkl": "pickle", "old.pkl": "pickle", "model.pt": "PyTorch checkpoint", "arrays.npz": "NumPy arrays (npz)",
    "array.npy": "NumPy array", "tokenizer.json": "tokenizer", "config.json": "transformers configuration",
    "trees.txt": "LightGBM text",
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_a_whole_file_is_named_for_what_it_is_and_only_onnx_is_taken_in_by_itself(tmp_path: Path, name: str) -> None:
    report = told(tmp_path, every_kind(tmp_path)[name], name)
    assert (report.kind, report.problem) == (KINDS[name], "")
    assert report.fits == (name == "model.onnx")


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_is_refused_with_what_it_would_import(tmp_path: Path, protocol: int) -> None:
    report = told(tmp_path, pickled(protocol))
    assert "posix.system" in report.facts["imports"]
    assert report.facts["calls"] >= 1
    assert "never" not in report.problem and "runs code" in report.unfit


def test_the_pickle_inside_a_checkpoint_is_looked_into_without_unpacking(tmp_path: Path) -> None:
    report = told(tmp_path, zipped({"archive/data.pkl": pickled(2), "../../outside": b"x"}))
    assert report.facts["pickles"]["archive/data.pkl"]["imports"] == ["posix.system"]
    assert report.facts["names_that_leave"] == ["../../outside"]


@pytest.mark.parametrize(
    "content",
    [
        b"cos\nsystem\n(S'id'\ntR.",
        b"(cos\nsystem\nS'id'\no.",
        b"(S'id'\nios\nsystem\n.",
        b"I1\n0cos\nsystem\n.",
        b"cos\nsystem\n(S'id'\ntR.\n",
    ],
)
def test_a_pickle_without_a_sign_is_told_by_what_it_imports(tmp_path: Path, content: bytes) -> None:
    report = told(tmp_path, content)
    assert (report.kind, report.facts["imports"]) == ("pickle", ["os.system"])


@pytest.mark.parametrize(
    "content",
    [
        b"cat\ndog\n.\n",
        b"cat\ndog\n.\negg\n",
        b"import os\nos.system('x')\n.",
        b"cat\ndog\negg\nhat\n",
        b"come\nin\n",
        b".\n",
        b"in a.b\nx\n.",
    ],
)
def test_words_that_begin_like_a_pickle_are_none(tmp_path: Path, content: bytes) -> None:
    assert told(tmp_path, content).kind == "text"


def test_what_joblib_writes_is_a_pickle_also_with_arrays_in_it(tmp_path: Path) -> None:
    joblib.dump({"weights": np.zeros(100)}, tmp_path / "model.joblib")
    joblib.dump({"weights": np.zeros(100)}, tmp_path / "small.joblib", compress=3)
    assert "joblib.numpy_pickle.NumpyArrayWrapper" in inspect_file(tmp_path / "model.joblib").facts["imports"]
    assert "joblib" in inspect_file(tmp_path / "small.joblib").kind


def test_a_numpy_file_of_objects_holds_a_pickle(tmp_path: Path) -> None:
    assert told(tmp_path, numpy_objects()).facts["holds_a_pickle"]


def test_an_onnx_file_says_what_its_graph_needs(tmp_path: Path) -> None:
    facts = inspect_file(fixtures_onnx.identity(tmp_path / "model.onnx", ("N", 4))).facts
    assert facts["operator_sets"] == {"ai.onnx": 17}
    assert facts["operators"] == {"Identity": 1}
    assert (facts["inputs"], facts["outputs"]) == (["x FP32 [-1, 4]"], ["y FP32 [-1, 4]"])


def graph_with(operator: str, domain: str, **model: Any) -> bytes:
    node = helper.make_node(operator, ["x"], ["y"], domain=domain)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([node], "graph", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, **model).SerializeToString()
    return content


def test_operators_that_no_engine_has_are_named(tmp_path: Path) -> None:
    report = told(tmp_path, graph_with("Attack", "my.library"), "model.onnx")
    assert report.facts["operators"] == {"my.library.Attack": 1}
    assert "my.library" in report.unfit


def test_operators_that_the_file_brings_as_functions_are_no_foreign_ones(tmp_path: Path) -> None:
    body = [helper.make_node("Identity", ["a"], ["b"])]
    function = helper.make_function("local", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    assert told(tmp_path, graph_with("Twice", "local", functions=[function]), "model.onnx").fits


def test_weights_beside_an_onnx_file_are_named_with_their_size_and_missed_when_away(tmp_path: Path) -> None:
    model = onnx.load(str(fixtures_onnx.network(tmp_path / "whole.onnx")))
    onnx.save(model, str(tmp_path / "model.onnx"), save_as_external_data=True, location="weights", size_threshold=0)
    report = inspect_file(tmp_path / "model.onnx")
    assert report.fits and 0 < report.facts["external_data"]["weights"] <= (tmp_path / "weights").stat().st_size
    (tmp_path / "weights").unlink()
    assert "weights" in inspect_file(tmp_path / "model.onnx").problem


def test_a_gguf_file_says_its_architecture_its_types_and_that_it_has_a_template(tmp_path: Path) -> None:
    facts = told(tmp_path, gguf()).facts
    assert (facts["architecture"], facts["tokens"], facts["parameters"]) == ("llama", 2, 64)
    assert facts["tensor_types"] == {"Q8_0": 1}
    assert len(facts["chat_template_sha256"]) == 64


def test_a_gguf_file_with_long_texts_nested_arrays_and_new_types_is_whole(tmp_path: Path) -> None:
    values = [
        text("tokenizer.huggingface.json") + struct.pack("<I", 8) + text("x" * 1_000_000),
        text("nested")
        + struct.pack("<IIQ", 9, 9, 2)
        + struct.pack("<IQ", 8, 1)
        + text("a")
        + struct.pack("<IQB", 0, 1, 7),
        text("general.name") + struct.pack("<I", 8) + text("after"),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, len(values)) + b"".join(values)
    head += text("weights") + struct.pack("<IQIQ", 1, 33, 99, 0)
    report = told(tmp_path, head + bytes(-len(head) % 32) + bytes(64))
    assert report.problem == ""
    assert (report.facts["name"], report.facts["tensor_types"]) == ("after", {"unknown type 99": 1})


HEAD = b"GGUF" + struct.pack("<I", 3)
BAD_GGUF = {
    "cut": (gguf(cut=1), "cut short"),
    "version": (gguf(version=9), "version 9"),
    "alignment 0": (gguf(alignment=0), "alignment"),
    "alignment 48": (gguf(alignment=48), "alignment"),
    "unaligned offset": (gguf(offset=8), "not aligned"),
    "product overflow": (gguf(rows=2).replace(struct.pack("<QQ", 32, 2), struct.pack("<QQ", 2**62, 8)), "cannot be"),
    "no elements": (gguf(rows=0), "cannot be"),
    "huge n_kv": (HEAD + struct.pack("<QQ", 1, 2**63), "keys"),
    "huge n_tensors": (HEAD + struct.pack("<QQ", 2**63, 0), "tensors"),
    "string longer than the file": (HEAD + struct.pack("<QQQ", 0, 1, 1000) + b"x", "cut short"),
    "string of 2^63": (HEAD + struct.pack("<QQQ", 0, 1, 2**63), "a name of"),
    "value of 2^63": (HEAD + struct.pack("<QQ", 0, 1) + text("a") + struct.pack("<IQ", 8, 2**63), "cut short"),
    "name of a tensor": (HEAD + struct.pack("<QQ", 1, 0) + text("n" * 257), "a name of 257 bytes"),
    "array of 2^62": (HEAD + struct.pack("<QQ", 0, 1) + text("a") + struct.pack("<IIQ", 9, 8, 2**62), "arrays of more"),
    "deep arrays": (
        HEAD + struct.pack("<QQ", 0, 1) + text("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 1000,
        "levels deep",
    ),
    "unknown value": (HEAD + struct.pack("<QQ", 0, 1) + text("a") + struct.pack("<I", 99), "unknown type 99"),
    "key twice": (HEAD + struct.pack("<QQ", 0, 2) + 2 * (text("a") + struct.pack("<II", 4, 1)), "twice"),
}


@pytest.mark.parametrize("name", BAD_GGUF)
def test_d17_a_damaged_gguf_header_is_found(tmp_path: Path, name: str) -> None:
    content, said = BAD_GGUF[name]
    report = told(tmp_path, content)
    assert said in report.problem, report


BAD_SAFETENSORS = {
    "header of 2^63": (struct.pack("<Q", 2**63) + b'{"a": 1}', "at most"),
    "header longer than the file": (struct.pack("<Q", 4000) + b"{}  ", "cut short"),
    "overlap": (safetensors({"a": tensor(0, 24), "b": tensor(12, 36)}, 36), "ends at 24"),
    "gap": (safetensors({"a": tensor(0, 24), "b": tensor(28, 52)}, 52), "ends at 24"),
    "key twice": (safetensors(b'{"a": 1, "a": 2}', 0), "twice"),
    "cut": (safetensors({"a": tensor(0, 24)}, 20), "cut short"),
    "more than said": (safetensors({"a": tensor(0, 24)}, 25), "damaged"),
    "size of another shape": (safetensors({"a": tensor(0, 24, shape=(5,))}, 24), "cannot be 24 bytes"),
    "negative": (safetensors({"a": tensor(-24, 0)}, 24), "cannot be"),
    "unknown type": (safetensors({"a": tensor(0, 24, dtype="OBJ")}, 24), "not described"),
    "true for a size": (safetensors(b'{"a": {"dtype": "U8", "shape": [true], "data_offsets": [0, 1]}}', 1), "not desc"),
    "deep": (safetensors(b'{"a":' + b"[" * 100_000, 0), "no JSON"),
    "NaN": (safetensors(b'{"a": NaN}', 0), "no JSON"),
    "metadata of numbers": (safetensors({"__metadata__": {"a": 1}}, 0), "__metadata__"),
}


@pytest.mark.parametrize("name", BAD_SAFETENSORS)
def test_d18_a_damaged_safetensors_header_is_found(tmp_path: Path, name: str) -> None:
    content, said = BAD_SAFETENSORS[name]
    report = told(tmp_path, content)
    assert (report.kind, said in report.problem) == ("safetensors", True), report


BOMB = '<!DOCTYPE net [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
BAD_OPENVINO = {
    "entity bomb": (openvino(0, BOMB), "entity"),
    "document type": (openvino(0, '<!DOCTYPE net SYSTEM "file:///etc/passwd">'), "document type"),
    "instruction": (openvino(0, '<?include href="/etc/passwd"?>'), "document type, a comment or an instruction"),
    "weights missing": (openvino(16), "weights are missing"),
    "cut": (openvino(0)[:-8], "cut short"),
    "another root": (b"<?xml version='1.0'?><html></html>", "<html>"),
    "crossed": (b"<net ><a><b></a></b></net>", "ends nothing"),
    "deep": (b"<net >" + b"<a>" * 1000, "levels deep"),
    "weights at a negative place": (openvino(0).replace(b'offset="0"', b'offset="-1"'), "offset and size"),
}


@pytest.mark.parametrize("name", BAD_OPENVINO)
def test_d19_an_openvino_file_that_is_no_plain_tree_or_lacks_its_weights_is_found(tmp_path: Path, name: str) -> None:
    content, said = BAD_OPENVINO[name]
    report = told(tmp_path, content, "model.xml")
    assert said in report.problem, report


def test_d19_weights_beside_an_openvino_file_must_be_a_file_that_is_long_enough(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(bytes(15))
    assert "has 15 bytes; 16 are needed" in told(tmp_path, openvino(16), "model.xml").problem
    (tmp_path / "model.bin").write_bytes(bytes(16))
    assert told(tmp_path, openvino(16), "model.xml").problem == ""
    (tmp_path / "model.bin").unlink()
    (tmp_path / "model.bin").symlink_to("/dev/zero")
    assert "missing" in told(tmp_path, openvino(16), "model.xml").problem


def test_a_zip_whose_entries_lie_over_each_other_is_refused(tmp_path: Path) -> None:
    content = zipped({"a.pkl": pickled(), "b.pkl": pickled()})
    second = content.index(b"PK\x01\x02", content.index(b"PK\x01\x02") + 1)
    over = content[: second + 42] + bytes(4) + content[second + 46 :]  # where its local header is
    assert "lies over another" in told(tmp_path, over).problem


def test_of_many_pickles_in_a_zip_the_first_are_looked_into(tmp_path: Path) -> None:
    facts = told(tmp_path, zipped({f"{number}.pkl": b"N." for number in range(130)})).facts
    assert (len(facts["pickles"]), facts["pickles_not_looked_into"]) == (100, 30)


def test_what_a_name_promises_is_read_by_that_reader_only(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(pickled())
    assert damage(tmp_path / "model.gguf") == "not what its name says: pickle"
    (tmp_path / "model.safetensors").write_bytes(gguf())
    assert damage(tmp_path / "model.safetensors") == "not what its name says: gguf"


def test_a_zip_that_names_an_entry_twice_is_refused(tmp_path: Path) -> None:
    assert "twice" in told(tmp_path, zipped({"a.bin": b"1", "b.bin": b"2"}).replace(b"b.bin", b"a.bin")).problem


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\x7fELF\x02\x01", "program or library of Linux"),
        (b"#!/bin/sh\nrm -rf x\n", "script"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"<html>not found</html>", "HTML or XML text"),
        (b"\x89HDF\r\n\x1a\n" + bytes(40), "HDF5 file, such as Keras writes"),
        (b"\x1c\x00\x00\x00TFL3" + bytes(20), "TensorFlow Lite model"),
        (bytes(257) + b"ustar", "tar archive"),
        (b"\x1f\x8b\x08" + bytes(10), "gzip file"),
        (b"", "an empty file"),
        (bytes(5000), "a file that begins with zeros"),
        (b"some words\n", "text"),
        (bytes(range(255, 127, -1)), "unknown"),
    ],
)
def test_what_is_no_model_is_said_to_be_what_it_is(tmp_path: Path, content: bytes, kind: str) -> None:
    report = told(tmp_path, content)
    assert (report.kind, report.fits) == (kind, False)


def test_a_link_a_pipe_and_a_device_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    for place in (tmp_path / "pipe", tmp_path / "link", Path("/dev/zero"), tmp_path / "nowhere"):
        with pytest.raises(Misconfigured):
            inspect_file(place)


# -- folders


def version(
    root: Path, definition: str = '[[steps]]\nuse = "model"\nengine = "onnxruntime"\nfile = "model.onnx"\n'
) -> Path:
    fixtures_onnx.identity(root / "model.onnx")
    (root / "pipeline.toml").write_text(definition)
    return root


def test_a_folder_is_every_file_and_whether_each_version_would_be_taken_in(tmp_path: Path) -> None:
    version(tmp_path / "good" / "1")
    (version(tmp_path / "bad" / "1", "steps = 3\n") / "weights.pkl").write_bytes(pickled())
    found = inspect_place(tmp_path, kinds())
    assert (found.versions, list(found.refused)) == (["good version 1"], ["bad version 1"])
    assert found.reports["bad/1/weights.pkl"].kind == "pickle"
    assert not found.taken_in
    plain = json.loads(json.dumps(found.plain()))
    assert (plain["taken_in"], "runs code" in plain["files"]["bad/1/weights.pkl"]["unfit"]) == (False, True)


def test_what_there_was_no_time_for_is_said_and_not_said_to_be_taken_in(tmp_path: Path) -> None:
    version(tmp_path / "good" / "1")
    ticks = iter([0.0, *[1.0] * 3, *[1000.0] * 100])  # three folders are listed in time
    found = inspect_place(tmp_path, kinds(), lambda: next(ticks))
    assert not found.taken_in
    assert "not looked into: the 120 s" in found.reports["good/1/model.onnx"].problem
    assert "not looked into: the 120 s" in found.refused["good version 1"]


def test_the_signature_of_a_model_file_is_no_file_of_its_folder(tmp_path: Path) -> None:
    version(tmp_path / "good" / "1")
    (tmp_path / "good" / "1" / "model.onnx.sig").symlink_to("/etc/passwd")
    assert "a symbolic link" in inspect_place(tmp_path, kinds()).refused["good version 1"]
    (tmp_path / "good" / "1" / "model.onnx.sig").unlink()
    (tmp_path / "good" / "1" / "model.onnx.sig").write_text("{}")
    assert inspect_place(tmp_path, kinds()).taken_in


def test_a_model_that_no_engine_can_run_is_held_against_its_own_version_only(tmp_path: Path) -> None:
    version(tmp_path / "good" / "1")
    (version(tmp_path / "foreign" / "1") / "model.onnx").write_bytes(graph_with("Attack", "my.library"))
    found = inspect_place(tmp_path, kinds())
    assert (found.versions, list(found.refused)) == (["good version 1"], ["foreign version 1"])
    assert "my.library" in found.refused["foreign version 1"]


def test_a_link_that_was_named_is_followed_as_serving_it_would_be(tmp_path: Path) -> None:
    version(tmp_path / "good" / "1")
    (tmp_path / "link").symlink_to("good")
    (tmp_path / "circle").symlink_to("circle")
    assert inspect_place(tmp_path / "link", kinds()).taken_in
    with pytest.raises(Misconfigured):
        inspect_place(tmp_path / "circle", kinds())


def test_a_version_with_code_of_its_own_is_said_to_need_trust(tmp_path: Path) -> None:
    root = version(
        tmp_path / "own" / "1",
        '[[inputs]]\nname="x"\ntype="text"\n[[steps]]\nuse = "steps:f"\noutput = "y"\ndatatype = "BYTES"\n',
    )
    (root / "steps.py").write_text("raise SystemExit('it was run')\n")
    found = inspect_place(tmp_path, kinds())
    assert found.taken_in and "forwardpass trust" in found.notes[0], found.refused


def test_a_version_whose_model_is_damaged_would_not_be_taken_in(tmp_path: Path) -> None:
    root = version(tmp_path / "damaged" / "1")
    (root / "model.onnx").write_bytes((root / "model.onnx").read_bytes()[:40])
    found = inspect_place(root, kinds())
    assert not found.taken_in and "cut short" in found.refused["damaged version 1"]


def test_a_folder_without_a_version_says_so_and_names_its_files(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(gguf())
    (tmp_path / "link").symlink_to("model.gguf")
    found = inspect_place(tmp_path, kinds())
    assert not found.taken_in
    assert (found.reports["model.gguf"].kind, found.reports["link"].kind) == ("gguf", "unreadable")
