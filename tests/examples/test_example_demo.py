"""``examples/demo.py`` as a newcomer runs it: a real server, every story, the lines it gives to paste, Ctrl-C."""

import errno
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, "examples/demo.py"]
STORIES = 6
WIDTH = 100
Up = tuple["subprocess.Popen[str]", list[str]]


@pytest.fixture(scope="module")
def models(folder_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the built examples, so that the demo's data folder is not the one of whoever develops here."""
    folder = tmp_path_factory.mktemp("demo") / "models"
    for name in ("sentences", "filetype", "ocr", "fraud"):
        shutil.copytree(folder_of(name), folder / name / "1")
    return folder


@pytest.fixture(scope="module")
def up(models: Path) -> Iterator[Up]:
    """The demo after its show, still up, and the lines it has printed."""
    environment = {name: value for name, value in os.environ.items() if name != "DEMO_ONCE"}
    with subprocess.Popen(
        [*DEMO, str(models)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line.rstrip("\n"))
                if line.startswith("Ctrl-C"):
                    break
            yield process, lines
        finally:
            process.terminate()


def commands(lines: list[str]) -> list[str]:
    start = next(number for number, line in enumerate(lines) if line.startswith("Your turn"))
    return [line for line in lines[start + 1 :] if line.startswith("  ")]


def test_the_demo_tells_every_story_and_finds_every_answer_right(up: Up) -> None:
    _, lines = up
    assert [line[:2] for line in lines if line[:1].isdigit()] == [f"{n}." for n in range(1, STORIES + 1)]
    assert not [line for line in lines if "WRONG" in line]


def test_a_pipe_gets_plain_narrow_text(up: Up) -> None:
    _, lines = up
    told = [line for line in lines if line not in commands(lines)]
    assert max(map(len, told)) <= WIDTH
    assert "".join(told).isascii()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed here")
def test_every_line_to_paste_works(up: Up) -> None:
    _, lines = up
    pasted = commands(lines)
    assert len(pasted) == 7
    for line in pasted:
        program, *arguments = shlex.split(line)
        command = ["curl", "--fail", *arguments] if program == "curl" else [program, *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout


def test_ctrl_c_ends_the_demo_and_its_server(up: Up) -> None:
    process, lines = up
    url = urlsplit(next(word for word in shlex.split(commands(lines)[-1]) if word.startswith("http")))
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    with socket.socket() as probe:
        assert probe.connect_ex((url.hostname, url.port)) == errno.ECONNREFUSED


def test_a_wrong_answer_is_told_and_makes_the_exit_status_1(models: Path) -> None:
    file = models / "fraud" / "1" / "reference.json"
    file.write_text(json.dumps([{**entry, "fraud_probability": 0.5} for entry in json.loads(file.read_text())]))
    done = subprocess.run(
        [*DEMO, str(models)],
        cwd=ROOT,
        env={**os.environ, "DEMO_ONCE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "WRONG: 0.5 is right" in done.stdout


def test_a_folder_without_the_examples_ends_it_at_once(tmp_path: Path) -> None:
    done = subprocess.run([*DEMO, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "examples/build.py" in done.stderr
