"""Commands that run a version without a server: what they say, and their exit status."""

import os
import subprocess
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests import fixtures_onnx as models
from tests.serving import forwardpass

from forwardpass.cli import main

OWN_MODEL = """
[[inputs]]
name = "x"
type = "tensor"
datatype = "FP64"
shape = [2]
[[steps]]
use = "model"
engine = "python"
file = "steps.py"
call = "predict"
inputs = { x = { datatype = "FP64", shape = [2] } }
outputs = { y = { datatype = "FP64", shape = [] } }
"""
WANTS_POSITIVE = """
def predict(batch):
    print("the model was called", flush=True)
    raise TypeError("only whole pictures")
"""


def run(data: Path, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """The command, its store and trust list in ``data``; files that were just written are given no time to settle."""
    for path in data.parent.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    return forwardpass(*arguments, data=data, check=False)


def folder(root: Path, definition: str, code: str = "") -> Path:
    root.mkdir(parents=True)
    (root / "pipeline.toml").write_text(definition)
    if code:
        (root / "steps.py").write_text(code)
    return root


def test_check_goes_through_all_versions_and_reports_every_bad_one(tmp_path: Path) -> None:
    root = tmp_path / "models"
    folder(root / "a" / "1", "colour = 1\nsize = 2\n[[steps]]\nuse = 'softmax'\n")
    models.identity(root / "b" / "1" / "model.onnx")
    folder(root / "c" / "1", "[[steps]]\nuse = 'no such step'\n")
    result = run(tmp_path / "data", "check", "--static", root)
    assert result.returncode == 2
    assert [line[:15] for line in result.stdout.splitlines()] == [
        "bad: a version ",
        "ok: b version 1",
        "bad: c version ",
    ]
    for mistake in ("colour", "size", "no such step"):
        assert mistake in result.stderr


def test_check_warns_of_a_model_that_could_not_be_tried_and_shows_what_it_said(tmp_path: Path) -> None:
    place = folder(tmp_path / "own" / "1", OWN_MODEL, WANTS_POSITIVE)
    run(tmp_path / "data", "trust", place)
    result = run(tmp_path / "data", "check", place)
    assert result.returncode == 0, result.stderr
    assert "warning: no made-up row could be run before serving: the model raised an error" in result.stdout
    assert "TypeError: only whole pictures" in result.stdout
    assert "the model was called" in result.stderr


def test_check_says_what_a_pipeline_is_to_clients_and_what_its_scores_are(tmp_path: Path) -> None:
    inputs = "".join(f'[[inputs]]\nname = "{name}"\ntype = "text"\n' for name in ("query", "document"))
    step = '[[steps]]\nuse = "steps:score"\noutput = "score"\ndatatype = "FP32"\n'
    code = "def score(query: str, document: str) -> float:\n    return 1.0\n"
    place = folder(tmp_path / "pairs" / "1", f'{inputs}{step}[task]\nkind = "rank"\nscale = "logit"\n', code)
    run(tmp_path / "data", "trust", place)
    result = run(tmp_path / "data", "check", place)
    assert "    task   rank, scale logit\n" in result.stdout, result.stderr


def test_predict_by_path_says_why_the_model_failed(tmp_path: Path) -> None:
    place = folder(tmp_path / "own" / "1", OWN_MODEL, WANTS_POSITIVE)
    run(tmp_path / "data", "trust", place)
    result = run(tmp_path / "data", "predict", place, "x=[1.0, 2.0]")
    assert result.returncode == 1
    assert "error: engine_failed: the model raised an error" in result.stderr
    assert "TypeError: only whole pictures" in result.stderr


def test_predict_by_path_prints_numbers_as_short_as_the_server(tmp_path: Path) -> None:
    model = models.identity(tmp_path / "same.onnx", ("N", 2))
    result = run(tmp_path / "data", "predict", model, "x=[0.1, 0.7]")
    assert result.returncode == 0, result.stderr
    assert "".join(result.stdout.split()) == '{"outputs":{"y":[0.1,0.7]}}'


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["./models", "x=1", "--url", "http://127.0.0.1:1"], "--url has no effect"),
        (["model.onnx", "x=1", "--url", "http://127.0.0.1:1"], "--url has no effect"),
        (["letters", "x=1", "--set", "run.threads=1"], "--set and --settings have no effect"),
        (["./nowhere", "x=1"], "cannot be read"),
    ],
)
def test_predict_refuses_options_without_effect(arguments: list[str], why: str) -> None:
    result = CliRunner().invoke(main, ["predict", *arguments])
    assert result.exit_code == 2
    assert why in result.stderr


def test_a_name_is_asked_at_the_server_even_if_a_folder_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "letters").mkdir()
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["predict", "letters", "x=1", "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 1
    assert "no server answers at http://127.0.0.1:1" in result.stderr


def test_init_says_how_many_examples_it_wrote(tmp_path: Path) -> None:
    model = models.identity(tmp_path / "same.onnx", ("N", 2))
    result = run(tmp_path / "data", "init", "same", "--from", model, "--output", tmp_path)
    assert result.stdout.splitlines()[0] == "golden examples written: 2"
    assert (tmp_path / "same" / "1" / "pipeline.toml").read_text().count("\n[[golden]]\n") == 2


def test_init_takes_smaller_free_dimensions_when_examples_would_be_too_large(tmp_path: Path) -> None:
    model = models.identity(tmp_path / "wide.onnx", ("N", "length", 100))
    result = run(tmp_path / "data", "init", "wide", "--from", model, "--output", tmp_path)
    assert result.stdout.splitlines()[0] == "golden examples written: 2"


def test_init_says_why_it_wrote_no_example(tmp_path: Path) -> None:
    model = models.identity(tmp_path / "wide.onnx", ("N", 1000))
    result = run(tmp_path / "data", "init", "wide", "--from", model, "--output", tmp_path)
    assert result.stdout.splitlines()[:2] == [
        "golden examples written: 0",
        "warning: no golden example: an input has 1000 numbers; an example has at most 512",
    ]


def test_init_turns_batching_off_only_for_a_model_that_was_found_dependent(tmp_path: Path) -> None:
    def batch(model: Path) -> bool:
        result = run(tmp_path / "data", "init", model.stem, "--from", model, "--output", tmp_path)
        assert result.returncode == 0, result.stderr
        definition = tomllib.loads((tmp_path / model.stem / "1" / "pipeline.toml").read_text())
        return bool(definition["batch"].get("enabled", True))

    assert not batch(models.mean_over_batch(tmp_path / "mean.onnx"))
    assert not batch(models.identity(tmp_path / "fixed.onnx", (3, 4)))
    assert batch(models.identity(tmp_path / "same.onnx"))
