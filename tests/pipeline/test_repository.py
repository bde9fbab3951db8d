import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import ModelProto, TensorProto, helper

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Version
from forwardpass.pipeline import definition, repository
from forwardpass.pipeline.intake import Patience
from forwardpass.pipeline.repository import Found, digest_of, scan, take_in
from forwardpass.pipeline.trust import Trust
from forwardpass.steps.protocol import StepKind

DEFINITION = '[[steps]]\nuse = "model"\nengine = "onnxruntime"\nfile = "model.onnx"\n'
AT_ONCE = Patience(settle_s=0.0)

TakeIn = Callable[..., Version]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "data" / "store"


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path / "data" / "trusted")


@pytest.fixture
def take(store: Path, trust: Trust, step_kinds: Mapping[str, StepKind]) -> TakeIn:
    """Take in what a scan of a place finds first."""

    def act(place: Path, patience: Patience = AT_ONCE) -> Version:
        return take_in(scan(place).found[0], store, kinds=step_kinds, trusted=trust, patience=patience)

    return act


@pytest.fixture
def version(model_folder: Path) -> Path:
    """A folder of one version with a definition."""
    (model_folder / "pipeline.toml").write_text(DEFINITION)
    return model_folder


def refusal(take: TakeIn, place: Path, code: Code) -> str:
    with pytest.raises(Misconfigured) as caught:
        take(place)
    assert caught.value.code == code, str(caught.value)
    return str(caught.value)


def external_model(location: str, **numbers: str) -> bytes:
    weights = TensorProto(name="weights", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **numbers}.items():
        weights.external_data.add(key=key, value=value)
    graph = helper.make_graph([helper.make_node("Identity", ["weights"], ["y"])], "g", [], [], [weights])
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    content: bytes = model.SerializeToString()
    return content


# -- scanning


def names(place: Path) -> list[tuple[str, int]]:
    return [(found.pipeline, found.number) for found in scan(place).found]


def test_a_repository_is_pipelines_of_versions(tmp_path: Path) -> None:
    for inner in ("reviews/1", "reviews/10", "reviews/2", "fraud-2.0/3"):
        (tmp_path / inner).mkdir(parents=True)
    assert names(tmp_path) == [("fraud-2.0", 3), ("reviews", 1), ("reviews", 2), ("reviews", 10)]
    assert scan(tmp_path).ignored == ()


@pytest.mark.parametrize("name", ["A", "a b", "_a", "a..b", "a" * 65, "а", "con:", "-x", "x\n"])
def test_what_is_no_pipeline_name_is_passed_over_with_a_warning(name: str, tmp_path: Path) -> None:
    (tmp_path / name / "1").mkdir(parents=True)
    result = scan(tmp_path)
    assert result.found == () and len(result.ignored) == 1


@pytest.mark.parametrize("name", ["0", "01", "v1", "-1", "1.0", "2147483648", "99999999999", "١", "latest"])
def test_what_is_no_version_number_is_passed_over_with_a_warning(name: str, tmp_path: Path) -> None:
    (tmp_path / "reviews" / name).mkdir(parents=True)
    (tmp_path / "reviews" / "2147483647").mkdir()
    result = scan(tmp_path)
    assert names(tmp_path) == [("reviews", 2147483647)] and len(result.ignored) == 1


def test_links_and_files_are_passed_over_with_a_warning_and_hidden_ones_without(tmp_path: Path) -> None:
    (tmp_path / "reviews" / "1").mkdir(parents=True)
    (tmp_path / "reviews" / "2").symlink_to("1")
    (tmp_path / "other").symlink_to("reviews")
    (tmp_path / "readme.md").write_text("x")
    (tmp_path / ".git").mkdir()
    assert names(tmp_path) == [("reviews", 1)] and len(scan(tmp_path).ignored) == 3


def test_a_model_file_is_a_pipeline_named_after_it(model_folder: Path) -> None:
    odd = model_folder / "My Model..v2.onnx"
    odd.write_bytes(b"")
    assert scan(odd).found == (Found("my-model.v2", 1, model_folder, "My Model..v2.onnx"),)


def test_a_folder_with_a_definition_is_version_1_of_a_pipeline_named_after_it(version: Path) -> None:
    assert names(version) == [("adder", 1)]


def test_a_numbered_folder_in_a_named_one_is_that_version(tmp_path: Path) -> None:
    (tmp_path / "reviews" / "7").mkdir(parents=True)
    (tmp_path / "reviews" / "7" / "pipeline.toml").write_text("")
    assert names(tmp_path / "reviews" / "7") == [("reviews", 7)]
    assert names(tmp_path / "reviews") == [("reviews", 7)]
    assert names(tmp_path) == [("reviews", 7)]


def test_a_link_to_a_version_is_none_in_the_folder_of_one_pipeline(version: Path) -> None:
    home = version.parent / "reviews"
    home.mkdir()
    (home / "1").symlink_to(version)
    version.rename(home / "2")
    assert names(home) == [("reviews", 2)]


def test_a_pipeline_may_be_named_by_a_number(tmp_path: Path) -> None:
    (tmp_path / "123" / "1").mkdir(parents=True)
    assert names(tmp_path) == [("123", 1)]


def test_a_place_that_is_not_there_or_not_understood_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").mkdir()
    (tmp_path / "model.pkl").write_bytes(b"")
    (tmp_path / "...onnx").write_bytes(b"")
    for name in ("nowhere", "model.onnx", "model.pkl", "...onnx"):
        with pytest.raises(Misconfigured):
            scan(tmp_path / name)


# -- taking in


def test_a_version_is_copied_and_named_by_its_digest(version: Path, store: Path, take: TakeIn) -> None:
    taken = take(version)
    assert (taken.pipeline, taken.number, taken.folder) == ("adder", 1, str(store / taken.digest))
    assert sorted(os.listdir(taken.folder)) == ["labels.txt", "manifest.json", "model.onnx", "pipeline.toml"]
    assert taken.definition.steps[0].options["file"] == "model.onnx"
    assert os.listdir(store) == [taken.digest]


def test_equal_files_give_one_digest_and_other_files_another(version: Path, take: TakeIn) -> None:
    first = take(version)
    os.utime(version / "model.onnx", (1, 1))
    assert take(version).digest == first.digest
    (version / "labels.txt").write_text("ja\nnein\n")
    assert take(version).digest != first.digest


def test_a_bare_model_file_is_served_as_it_is(model_folder: Path, take: TakeIn) -> None:
    taken = take(model_folder / "model.onnx")
    assert sorted(os.listdir(taken.folder)) == ["manifest.json", "model.onnx"]
    assert taken.definition.steps[0].options == {"engine": "onnxruntime", "file": "model.onnx"}


def test_a_folder_with_one_model_file_needs_no_definition(model_folder: Path, take: TakeIn) -> None:
    assert len(take(model_folder).definition.steps) == 1


def test_hidden_files_and_caches_of_python_are_left_behind(version: Path, take: TakeIn) -> None:
    (version / "__pycache__").mkdir()
    (version / "__pycache__" / "steps.pyc").write_bytes(b"x")
    (version / ".git").mkdir()
    (version / ".DS_Store").write_bytes(b"x")
    (version / "sub").mkdir()
    (version / "sub" / "more.txt").write_text("x")
    assert sorted(os.listdir(take(version).folder)) == [
        "labels.txt", "manifest.json", "model.onnx", "pipeline.toml", "sub"
    ]  # fmt: skip


def test_a_definition_with_mistakes_is_refused_by_the_owners_path(version: Path, store: Path, take: TakeIn) -> None:
    (version / "pipeline.toml").write_text(DEFINITION + "bogus = 1\n")
    assert f"{version / 'pipeline.toml'}:5: steps[0].bogus" in refusal(take, version, Code.DEFINITION_INVALID)
    assert os.listdir(store) == []


def test_a_definition_that_is_no_text_is_refused_with_its_line(version: Path, take: TakeIn) -> None:
    (version / "pipeline.toml").write_bytes(b"description = 'x'\nx = '\xff'\n")
    assert "pipeline.toml:2" in refusal(take, version, Code.DEFINITION_INVALID)


def test_a_definition_of_endless_size_is_not_read(version: Path, take: TakeIn) -> None:
    (version / "pipeline.toml").write_bytes(b"#" * (definition.DEFINITION_BYTES_MAX + 1))
    assert "too large" in refusal(take, version, Code.DEFINITION_INVALID)


def test_a_folder_without_a_definition_and_with_two_models_is_refused(
    model_folder: Path, store: Path, trust: Trust, step_kinds: Mapping[str, StepKind]
) -> None:
    (model_folder / "other.onnx").write_bytes((model_folder / "model.onnx").read_bytes())
    with pytest.raises(Misconfigured, match="2 model files"):
        take_in(Found("x", 1, model_folder), store, kinds=step_kinds, trusted=trust, patience=AT_ONCE)


def test_a_bare_model_without_the_kind_of_step_it_needs_is_refused(
    model_folder: Path, store: Path, trust: Trust
) -> None:
    with pytest.raises(Misconfigured, match="no kind of step"):
        take_in(scan(model_folder).found[0], store, kinds={}, trusted=trust, patience=AT_ONCE)


def a_link(place: Path) -> None:
    place.symlink_to("labels.txt")


def a_hard_link(place: Path) -> None:
    place.hardlink_to(place.parent / "pipeline.toml")


def a_fifo(place: Path) -> None:
    os.mkfifo(place)


def a_socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place))


@pytest.mark.parametrize("make", [a_link, a_hard_link, a_fifo, a_socket, Path.mkdir])
@pytest.mark.parametrize("name", ["extra.bin", "weights.onnx"])
def test_only_regular_files_with_one_name_are_taken_in(
    make: Callable[[Path], None], name: str, version: Path, store: Path, take: TakeIn
) -> None:
    make(version / name)
    if make is Path.mkdir and name == "extra.bin":
        assert take(version).number == 1  # an empty folder is nothing to copy
    else:
        assert name in refusal(take, version, Code.MODEL_INVALID)
        assert os.listdir(store) == []


def test_a_linked_folder_is_refused(version: Path, tmp_path: Path, take: TakeIn) -> None:
    (tmp_path / "elsewhere").mkdir()
    (version / "weights").symlink_to(tmp_path / "elsewhere")
    assert "weights: a symbolic link" in refusal(take, version, Code.MODEL_INVALID).replace(": : ", ": ")


@pytest.mark.parametrize("name", ["model.onnx.part", "x.tmp", "x.crdownload", "labels.txt~", "x.swp", "x.partial"])
def test_a_copy_in_progress_is_refused_by_its_name(name: str, version: Path, take: TakeIn) -> None:
    (version / name).write_bytes(b"x")
    assert "copy in progress" in refusal(take, version, Code.MODEL_INVALID)


@pytest.mark.parametrize("name", ["a\\b", "a\nb", "\udcff"])
def test_only_plain_names_are_taken_in(name: str, version: Path, take: TakeIn) -> None:
    (version / name).write_bytes(b"x")
    assert "a name with" in refusal(take, version, Code.MODEL_INVALID)


def test_a_folder_with_a_name_that_is_not_plain_is_refused(version: Path, take: TakeIn) -> None:
    (version / "a\\b").mkdir()
    assert "a name with" in refusal(take, version, Code.MODEL_INVALID)


def test_too_many_files_are_refused(version: Path, take: TakeIn) -> None:
    for number in range(10_001):
        os.mknod(version / f"f{number}")
    assert "more than 10000" in refusal(take, version, Code.MODEL_INVALID)


def test_too_many_bytes_are_refused(version: Path, take: TakeIn) -> None:
    with (version / "huge.bin").open("wb") as file:
        file.truncate(64 * 1024**3 + 1)
    assert "bytes in all" in refusal(take, version, Code.MODEL_INVALID)


@pytest.mark.parametrize(
    ("content", "kind"),
    [(b"", "empty file"), (b"<html>404", "HTML page"), (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS")],
)
def test_garbage_under_a_models_name_is_refused_by_what_it_is(
    content: bytes, kind: str, version: Path, take: TakeIn
) -> None:
    (version / "model.onnx").write_bytes(content)
    assert kind in refusal(take, version, Code.MODEL_INVALID)


# -- external data


def test_external_data_comes_along_with_a_bare_model(tmp_path: Path, take: TakeIn) -> None:
    (tmp_path / "model.onnx").write_bytes(external_model("parts/w.bin", offset="4", length="16"))
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "w.bin").write_bytes(b"x" * 20)
    (tmp_path / "secret.txt").write_text("not named, not copied")
    taken = take(tmp_path / "model.onnx")
    assert sorted(os.listdir(taken.folder)) == ["manifest.json", "model.onnx", "parts"]


@pytest.mark.parametrize(
    "location", ["../w.bin", "/etc/passwd", "none.bin", "linked.bin", "fifo", "linked/w.bin", "short.bin"]
)
@pytest.mark.parametrize("bare", [True, False])
def test_external_data_that_is_no_file_beside_the_model_is_refused_with_its_tensor(
    location: str, bare: bool, tmp_path: Path, take: TakeIn
) -> None:
    folder = tmp_path / "linear"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(b"x" * 16)
    (folder / "model.onnx").write_bytes(external_model(location))
    (folder / "linked.bin").symlink_to(tmp_path / "w.bin")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "short.bin").write_bytes(b"x" * 15)
    os.mkfifo(folder / "fifo")
    assert "tensor weights" in refusal(take, folder / "model.onnx" if bare else folder, Code.MODEL_INVALID)


# -- a source that moves


class Writer:
    """A clock whose pauses are used by somebody who still writes to the folder."""

    def __init__(self, newest: Path, writes: list[Callable[[], object]]) -> None:
        self.now_s = newest.stat().st_mtime + 0.1
        self.writes = writes

    def pause(self, seconds: float) -> None:
        self.now_s += seconds
        if self.writes:
            self.writes.pop(0)()

    def patience(self) -> Patience:
        return Patience(settle_s=1.0, limit_s=5.0, pause=self.pause, wall_s=lambda: self.now_s)


def test_a_folder_that_is_still_being_copied_is_waited_for(version: Path, take: TakeIn) -> None:
    whole = (version / "model.onnx").read_bytes()
    (version / "model.onnx").write_bytes(whole[:20])
    writer = Writer(version / "model.onnx", [lambda: (version / "model.onnx").write_bytes(whole)])
    taken = take(version, writer.patience())
    assert (Path(taken.folder) / "model.onnx").read_bytes() == whole


def test_a_folder_that_never_keeps_still_is_refused(version: Path, take: TakeIn) -> None:
    labels = version / "labels.txt"
    writer = Writer(labels, [])
    writer.writes = [lambda: os.utime(labels, (writer.now_s, writer.now_s))] * 20
    with pytest.raises(Misconfigured) as caught:
        take(version, writer.patience())
    assert caught.value.code == Code.FOLDER_CHANGED


def test_files_dated_in_the_future_do_not_hold_a_version_up(version: Path, take: TakeIn) -> None:
    writer = Writer(version / "labels.txt", [])
    os.utime(version / "labels.txt", (2**32, 2**32))
    assert take(version, writer.patience()).number == 1


def test_a_bare_model_that_changes_before_its_weights_are_copied_is_refused(
    version: Path, store: Path, trust: Trust, step_kinds: Mapping[str, StepKind]
) -> None:
    found = scan(version / "model.onnx").found[0]
    (version / "model.onnx").write_bytes(external_model("w.bin"))
    (version / "w.bin").write_bytes(b"x" * 16)
    writer = Writer(version / "model.onnx", [lambda: None, (version / "model.onnx").touch])
    os.utime(version / "w.bin", (writer.now_s + 2, writer.now_s + 2))
    with pytest.raises(Misconfigured) as caught:
        take_in(found, store, kinds=step_kinds, trusted=trust, patience=writer.patience())
    assert caught.value.code == Code.FOLDER_CHANGED


# -- manifests, the store, trust


def test_a_source_with_its_manifest_must_match_it(version: Path, take: TakeIn) -> None:
    taken = Path(take(version).folder)
    (version / "manifest.json").write_bytes((taken / "manifest.json").read_bytes())
    assert take(version).folder == str(taken)
    (version / "labels.txt").write_text("ja\n")
    (version / "new.txt").write_text("x")
    text = refusal(take, version, Code.DIGEST_MISMATCH)
    assert "labels.txt" in text and "new.txt: is not in the manifest" in text


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"a": {"size": -1, "sha256": "0"}}', b'{"a": 1, "a": 2}', b"[" * 100_000, b'{"../a": {}}']
)
def test_a_manifest_that_is_none_is_refused(content: bytes, version: Path, take: TakeIn) -> None:
    (version / "manifest.json").write_bytes(content)
    refusal(take, version, Code.DIGEST_MISMATCH)


def test_a_running_versions_source_may_change(version: Path, take: TakeIn) -> None:
    taken = take(version)
    model = (Path(taken.folder) / "model.onnx").read_bytes()
    (version / "model.onnx").write_bytes(b"other")
    assert (Path(taken.folder) / "model.onnx").read_bytes() == model


def change(folder: Path) -> None:
    (folder / "labels.txt").chmod(0o600)
    (folder / "labels.txt").write_text("changed\n")


@pytest.mark.parametrize(
    "damage",
    [
        change,
        lambda folder: (folder / "labels.txt").unlink(),
        lambda folder: (folder / "more.txt").write_text("x"),
        lambda folder: (folder / "manifest.json").unlink(),
        lambda folder: (folder / "manifest.json").write_text("{}"),
    ],
)
def test_a_changed_store_is_found_at_the_next_load(
    damage: Callable[[Path], object], version: Path, take: TakeIn
) -> None:
    taken = take(version)
    assert take(version) == taken
    damage(Path(taken.folder))
    refusal(take, version, Code.DIGEST_MISMATCH)


def test_own_code_is_taken_in_only_when_its_digest_is_trusted(
    version: Path, store: Path, trust: Trust, take: TakeIn
) -> None:
    (version / "steps.py").write_text("def double(y: float) -> float:\n    return 2 * y\n")
    own = '[[steps]]\nuse = "steps:double"\noutput = "z"\ndatatype = "FP32"\n'
    (version / "pipeline.toml").write_text(DEFINITION + own)
    text = refusal(take, version, Code.NOT_TRUSTED)
    digest = digest_of(scan(version).found[0], store, patience=AT_ONCE)
    assert digest in text and f"forwardpass trust {version}" in text and os.listdir(store) == []
    trust.add(digest, "read")
    assert take(version) == replace(take(version), digest=digest, trusted=True)


def test_trust_taken_back_counts_at_the_next_load(version: Path, store: Path, trust: Trust, take: TakeIn) -> None:
    (version / "steps.py").write_text("def double(y: float) -> float:\n    return 2 * y\n")
    own = '[[steps]]\nuse = "steps:double"\noutput = "z"\ndatatype = "FP32"\n'
    (version / "pipeline.toml").write_text(DEFINITION + own)
    trust.add(digest_of(scan(version).found[0], store, patience=AT_ONCE), "")
    trust.remove(take(version).digest)
    refusal(take, version, Code.NOT_TRUSTED)


def test_drafts_of_a_killed_server_are_swept(version: Path, store: Path, take: TakeIn) -> None:
    digest = take(version).digest
    (store / ".tmp-dead").mkdir()
    (store / ".tmp-dead" / "model.onnx").write_bytes(b"half")
    (store / ".tmp-file").write_bytes(b"half of what a first load found")
    repository.sweep(store)
    assert sorted(os.listdir(store)) == [".tmp-dead", ".tmp-file", digest]  # somebody may be at it
    os.utime(store / ".tmp-dead", (0, 0))
    os.utime(store / ".tmp-file", (0, 0))
    repository.sweep(store)
    assert os.listdir(store) == [digest]


def test_a_file_in_the_place_of_a_version_is_a_failure_to_load(version: Path, store: Path, take: TakeIn) -> None:
    digest = digest_of(scan(version).found[0], store, patience=AT_ONCE)
    (store / digest).write_text("in the way")
    refusal(take, version, Code.LOAD_FAILED)
    assert os.listdir(store) == [digest]


def test_a_store_that_cannot_be_written_is_a_failure_to_load(version: Path, store: Path, take: TakeIn) -> None:
    store.parent.mkdir()
    store.write_text("a file where the store should be")
    refusal(take, version, Code.LOAD_FAILED)
