import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.pipeline.files import file_problem, kind_problem, name_problem, open_file, open_folder
from forwardpass.pipeline.intake import Source


@pytest.fixture
def beneath(model_folder: Path) -> Iterator[int]:
    descriptor = open_folder(model_folder)
    yield descriptor
    os.close(descriptor)


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", ".hidden", "./a", "a\\b", "a\0b", "é" * 128, "a/" * 16 + "b"],
)
def test_what_is_no_plain_relative_name_is_not_opened(name: str, beneath: int, model_folder: Path) -> None:
    assert name_problem(name) and file_problem(model_folder, name)
    with pytest.raises(Misconfigured):
        open_file(beneath, name)


@pytest.mark.parametrize("name", ["a", "a b.txt", "onnx::MatMul_12", "é.bin", "deep/er/x..y", "%s{0}$HOME"])
def test_plain_names_are_plain(name: str) -> None:
    assert name_problem(name) == ""


def test_a_file_is_not_reached_through_a_file_or_a_link(beneath: int, model_folder: Path) -> None:
    (model_folder / "linked").symlink_to(model_folder)
    for name in ("labels.txt/x", "linked/labels.txt", "none/x"):
        assert file_problem(model_folder, name)
        with pytest.raises(Misconfigured):
            open_file(beneath, name)


def test_a_link_is_not_followed_to_a_folder(model_folder: Path) -> None:
    (model_folder.parent / "linked").symlink_to(model_folder)
    with pytest.raises(OSError):
        open_folder(model_folder.parent / "linked")


def test_a_device_is_no_file() -> None:
    assert kind_problem(os.stat("/dev/null")) == "a device, not a file"


def test_a_file_that_changes_between_look_and_copy_is_refused(model_folder: Path, tmp_path: Path) -> None:
    with Source(model_folder) as source:
        look = source.look()
        (model_folder / "labels.txt").write_text("longer than it was\n")
        with pytest.raises(Misconfigured) as caught:
            source.copy(look, ["labels.txt"], tmp_path / "draft")
    assert caught.value.code == Code.FOLDER_CHANGED


def test_a_file_that_is_replaced_by_an_equal_one_is_refused_too(model_folder: Path, tmp_path: Path) -> None:
    labels = model_folder / "labels.txt"
    with Source(model_folder) as source:
        look = source.look()
        (tmp_path / "other").write_bytes(labels.read_bytes())
        (tmp_path / "other").replace(labels)
        with pytest.raises(Misconfigured):
            source.copy(look, ["labels.txt"], tmp_path / "draft")
