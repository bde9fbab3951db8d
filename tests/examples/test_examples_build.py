"""``examples/build.py``: builds what changed, and only that."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

BUILD = Path(__file__).parents[2] / "examples" / "build.py"


def build(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(BUILD), *arguments], capture_output=True, text=True, check=False)


def test_an_example_is_built_again_only_when_a_built_file_changed(
    folder_of: Callable[[str], Path], tmp_path: Path
) -> None:
    folder_of("filetype")  # skips this test where its package cannot be had
    labels = tmp_path / "filetype" / "1" / "labels.txt"
    assert build("filetype", "--output", str(tmp_path)).stdout == "filetype: 214 file types\n"
    right = labels.read_text()
    assert build("filetype", "--output", str(tmp_path)).stdout == "filetype: unchanged\n"
    labels.write_text("damaged")
    assert build("filetype", "--output", str(tmp_path)).stdout == "filetype: 214 file types\n"
    assert labels.read_text() == right


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    done = build("fruad")
    assert done.returncode == 2
    assert "fruad" in done.stderr
    assert "sentences, filetype, fraud" in done.stderr
