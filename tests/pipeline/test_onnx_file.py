from collections.abc import Mapping
from pathlib import Path

import pytest
from onnx import ModelProto, TensorProto, helper

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.pipeline.onnx_file import External, check_external, external_data


def look_into(path: Path) -> tuple[External, ...]:
    with path.open("rb") as file:
        return external_data(file.fileno(), path.name)


def external(name: str, entries: Mapping[str, str], dims: tuple[int, ...] = (4,)) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def model_with(*initializers: TensorProto, constant: TensorProto | None = None) -> ModelProto:
    nodes = [helper.make_node("Constant", [], ["c"], value=constant)] if constant else []
    graph = helper.make_graph(nodes, "g", [], [], list(initializers))
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return model


def written(folder: Path, model: ModelProto) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "empty file"),
        (b"\0" * 4096, "zeros"),
        (b"<!DOCTYPE html><html>404</html>", "HTML page"),
        (b"  \n<html>", "HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n", "Git LFS pointer"),
        (b'{"error": "not found"}', "JSON"),
        (b"PK\x03\x04rest", "zip archive"),
        (b"\x80\x04\x95rest", "pickle"),
        (b"GGUF\x03", "GGUF"),
        (b"hello, I am text", "no ONNX model"),
        (b"\xff" * 64, "no ONNX model"),
        (b"\x08\x09", "cut short, or no ONNX model"),
    ],
)
def test_what_is_no_model_is_refused_by_what_it_is(content: bytes, kind: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(Misconfigured) as caught:
        look_into(tmp_path / "m.onnx")
    assert caught.value.code == Code.MODEL_INVALID and kind in str(caught.value)


def test_a_model_cut_anywhere_is_refused(onnx_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(onnx_bytes)
    assert look_into(path) == ()
    for length in range(len(onnx_bytes) - 6, 0, -1):
        path.write_bytes(onnx_bytes[:length])
        with pytest.raises(Misconfigured, match="ONNX model"):
            look_into(path)


def test_a_changed_byte_never_raises_anything_else(onnx_bytes: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for place in range(len(onnx_bytes)):
        path.write_bytes(onnx_bytes[:place] + bytes([onnx_bytes[place] ^ 0xFF]) + onnx_bytes[place + 1 :])
        try:
            look_into(path)
        except Misconfigured as failure:
            assert failure.code == Code.MODEL_INVALID


def test_external_data_is_found_in_initializers_nodes_and_nested_graphs(tmp_path: Path) -> None:
    inner = helper.make_graph([], "inner", [], [], [external("deep", {"location": "c.bin"})])
    branch = helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)
    model = model_with(
        external("w", {"location": "a.bin", "offset": "8", "length": "16"}),
        constant=external("k", {"location": "b.bin"}),
    )
    model.graph.node.append(branch)
    found = set(look_into(written(tmp_path, model)))
    assert found == {External("w", "a.bin", 8, 16), External("k", "b.bin", 0, 16), External("deep", "c.bin", 0, 16)}


def test_long_lists_of_numbers_are_passed_over(tmp_path: Path) -> None:
    trees = helper.make_node(
        "Trees", ["x"], ["y"], values=[0.5] * 200_000, ids=list(range(200_000)), domain="ai.onnx.ml"
    )
    model = model_with(external("w", {"location": "a.bin"}))
    model.graph.node.append(trees)
    assert [found.tensor for found in look_into(written(tmp_path, model))] == ["w"]


def test_sizes_of_a_tensor_are_read_packed_too(tmp_path: Path) -> None:
    tensor = external("w", {"location": "a.bin"}, dims=()).SerializeToString() + b"\x0a\x02\x03\x05"
    graph = b"\x2a" + bytes([len(tensor)]) + tensor
    (tmp_path / "m.onnx").write_bytes(b"\x08\x09\x3a" + bytes([len(graph)]) + graph + b"\x42\x00")
    assert look_into(tmp_path / "m.onnx") == (External("w", "a.bin", 0, 60),)


@pytest.mark.parametrize("form", ["packed", "one by one"])
@pytest.mark.parametrize("count", [17, 3000, 100_000])
def test_a_tensor_of_more_dimensions_than_any_has_is_refused(tmp_path: Path, form: str, count: int) -> None:
    size = b"\xff" * 8 + b"\x7f"  # 2^63 - 1
    dims = inside(1, size * count) if form == "packed" else (b"\x08" + size) * count
    tensor = external("w", {"location": "a.bin"}, dims=()).SerializeToString() + dims
    path = written(tmp_path, model_with())
    path.write_bytes(path.read_bytes() + inside(7, inside(5, tensor)))
    with pytest.raises(Misconfigured, match="more than 16 dimensions"):
        look_into(path)


def inside(number: int, content: bytes) -> bytes:
    """A protobuf field that holds a message."""
    size = len(content)
    return bytes([number << 3 | 2, size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14]) + content


def test_graphs_nested_without_end_are_refused(tmp_path: Path) -> None:
    graph = b""
    for _ in range(40):
        graph = inside(1, inside(5, inside(6, graph)))  # a node's attribute is the next graph
    (tmp_path / "m.onnx").write_bytes(b"\x08\x09" + inside(7, graph) + b"\x42\x00")
    with pytest.raises(Misconfigured, match="levels deep"):
        look_into(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("entries", "dims"),
    [
        ({}, (4,)),
        ({"location": "a.bin", "offset": "-1"}, (4,)),
        ({"location": "a.bin", "offset": "0x10"}, (4,)),
        ({"location": "a.bin", "length": "9" * 30}, (4,)),
        ({"location": "a.bin"}, (-4,)),
    ],
)
def test_a_nonsense_reference_is_refused_with_its_tensor(
    entries: dict[str, str], dims: tuple[int, ...], tmp_path: Path
) -> None:
    with pytest.raises(Misconfigured, match="tensor weights"):
        look_into(written(tmp_path, model_with(external("weights", entries, dims))))


def test_a_reference_given_twice_is_refused(tmp_path: Path) -> None:
    tensor = external("weights", {"location": "a.bin"})
    tensor.external_data.add(key="location", value="/etc/passwd")
    with pytest.raises(Misconfigured, match="twice"):
        look_into(written(tmp_path, model_with(tensor)))


@pytest.mark.parametrize(
    ("found", "what"),
    [
        (External("w", "/etc/passwd", 0, 1), "an absolute path"),
        (External("w", "../a.bin", 0, 1), "leaves the folder"),
        (External("w", "*/_ORT_MEM_ADDR_/*", 0, 1), "missing"),
        (External("w", "none.bin", 0, 1), "missing"),
        (External("w", "a.bin", 0, 101), "at least 101"),
        (External("w", "a.bin", 2**60, 1), "100 bytes"),
    ],
)
def test_a_reference_to_no_file_beside_the_model_is_named(found: External, what: str) -> None:
    (problem,) = check_external([found], "m.onnx", lambda name: {"a.bin": 100}.get(name, "missing"))
    assert what in str(problem) and problem.key == "tensor w"


def test_a_reference_within_its_file_is_fine() -> None:
    assert check_external([External("w", "a.bin", 4, 96)], "m.onnx", lambda name: 100) == ()
