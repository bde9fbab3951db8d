"""Options are read strictly and every problem is named."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field
from forwardpass.steps.catalogue import kind_of, kinds
from forwardpass.steps.kind import Kind
from forwardpass.steps.protocol import StepKind

LOGITS = {"logits": Field("logits", "FP32", (3,))}


def trouble(use: str, options: dict[str, Any], folder: Path = Path("/nowhere")) -> tuple[str, str, str]:
    (only,) = kinds()[use].check(options, folder)
    return only


@pytest.mark.parametrize(
    ("use", "options", "key", "found", "allowed"),
    [
        ("softmax", {"inptu": "x"}, "inptu", "unknown option", "did you mean 'input'?"),
        ("softmax", {"output": 3}, "output", "3 (integer)", "the name of a field"),
        ("softmax", {"output": "a\n"}, "output", "a\\n (text)", "the name of a field"),
        ("softmax", {"output": ""}, "output", " (text)", "1 to 256"),
        ("threshold", {"score_min": 10**400}, "score_min", "(integer)", "a finite number"),
        ("take", {"output": "p"}, "index", "missing", "an integer from 0"),
        ("take", {"output": "p", "index": True}, "index", "True (true/false)", "an integer from 0"),
        ("take", {"output": "p", "index": -1}, "index", "-1 (integer)", "an integer from 0"),
        ("normalize_text", {"lower": 1}, "lower", "1 (integer)", "true or false"),
        ("normalize_text", {"form": "NFD"}, "form", "NFD (text)", '"NFC" or "NFKC" or "none"'),
        ("normalize_text", {"form": "none"}, "form", "changes nothing", "a form, lower"),
        ("scale", {"mean": {"a": 1}, "std": {"a": 0}}, "std.a", "0.0", "above 0"),
        ("scale", {"mean": {"a": 1, "b": 2}, "std": {"a": 1}}, "std.b", "missing", "same columns"),
        ("scale", {"mean": {"a": float("nan")}, "std": {"a": 1}}, "mean.a", "nan (number)", "a finite number"),
        ("scale", {"mean": {}, "std": {"a": 1}}, "mean", "{} (table)", "a table of 1"),
        ("one_hot", {"categories": {"c": ["x", True]}}, "categories.c[1]", "True (true/false)", "text or a finite"),
        ("one_hot", {"categories": {"c": ["x", "x"]}}, "categories.c", "x is there twice", "different"),
        (
            "ordinal",
            {"categories": {"c": ["x"]}, "unknown": "zeros"},
            "unknown",
            "zeros (text)",
            '"refuse" or "missing" or a finite',
        ),
        ("columns", {"names": []}, "names", "[] (list)", "a list of 1"),
        ("columns", {"names": ["a", "a"]}, "names", "a is there twice", "different"),
        ("byte_windows", {"first": 0, "last": 0, "bytes_min": 0}, "first", "first = 0", "1 or more"),
        ("byte_windows", {"block": 512}, "block", "first = 1024", "at most block (512)"),
        ("labels", {}, "file", "none or both", "one of file and names"),
        ("labels", {"names": ["a"], "top": 2}, "top", "2", "at most 1"),
        ("labels", {"names": ["a"], "score": "label"}, "score", "label", "another name"),
        ("threshold", {"otherwise": "no"}, "score_min", "missing", "score_min or score_min_file"),
        ("threshold", {"score_min": 1, "otherwise": "no", "output": "x"}, "output", "x", "not beside otherwise"),
        ("threshold", {"score_min": 1, "label": "x"}, "label", "x", "only with otherwise"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(
    use: str, options: dict[str, Any], key: str, found: str, allowed: str
) -> None:
    at, was, may = trouble(use, options)
    assert at == key
    assert found in was
    assert allowed in may


def test_all_problems_are_found_at_once() -> None:
    assert len(kinds()["take"].check({"index": "x", "outptu": "y"}, Path("/nowhere"))) == 3


@pytest.mark.parametrize("name", ["", "../labels.txt", "/etc/passwd", "a//b", "./labels.txt", "a\\b", "x" * 256, 3])
def test_a_file_is_a_plain_name_inside_the_folder(tmp_path: Path, name: object) -> None:
    assert trouble("labels", {"file": name}, tmp_path)[0] == "file"


def test_a_file_that_is_not_there_is_found_by_check(tmp_path: Path) -> None:
    assert trouble("labels", {"file": "labels.txt"}, tmp_path)[1] == "no file labels.txt"


def test_a_file_behind_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "labels.txt").write_text("a\n")
    (tmp_path / "linked").symlink_to("real")
    assert "symbolic link" in trouble("labels", {"file": "linked/labels.txt"}, tmp_path)[1]
    assert not kinds()["labels"].check({"file": "real/labels.txt"}, tmp_path)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").mkdir()
    assert "no regular file" in trouble("labels", {"file": "labels.txt"}, tmp_path)[1]


def test_a_field_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(Misconfigured) as refusal:
        kinds()["softmax"].fields({"input": "logit"}, LOGITS)
    assert refusal.value.code is Code.DEFINITION_INVALID
    assert "'logit'" in refusal.value.text
    assert "logits (FP32[3]); did you mean 'logits'?" in refusal.value.text


def test_a_field_that_does_not_fit_is_named_with_what_would() -> None:
    with pytest.raises(Misconfigured, match=r"label \(text\) is not a floating tensor"):
        kinds()["softmax"].fields({"input": "label"}, {"label": Field("label", "BYTES", (), "text")})


def test_the_latest_field_that_fits_is_taken() -> None:
    known = {**LOGITS, "later": Field("later", "FP32", (5,)), "label": Field("label", "BYTES", (), "text")}
    assert kinds()["softmax"].fields({}, known) == [Field("probabilities", "FP32", (5,))]


def test_no_field_that_fits_is_a_problem() -> None:
    with pytest.raises(Misconfigured, match="no field is a text"):
        kinds()["normalize_text"].fields({}, LOGITS)


def test_wrong_options_are_refused_by_fields_too() -> None:
    with pytest.raises(Misconfigured, match="unknown option"):
        kinds()["softmax"].fields({"axis": 1}, LOGITS)


@pytest.mark.parametrize("kind", kinds().values(), ids=list(kinds()))
def test_every_kind_and_each_of_its_options_says_what_it_does(kind: StepKind) -> None:
    assert isinstance(kind, Kind)
    assert "(*" not in (kind.options.__doc__ or "(*")  # what a dataclass writes itself
    for declared in fields(kind.options):
        assert len(declared.metadata["doc"]) > 10


def test_the_catalogue_loads_no_heavy_library() -> None:
    program = (
        "import sys, forwardpass.steps.catalogue; print('tokenizers' in sys.modules, 'onnxruntime' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"False False\n"


def test_an_own_name_is_needed_for_each_field_that_is_made() -> None:
    known = {"sound": Field("sound", "FP32", (-1,), "ragged")}
    options = {"length": 160, "rate_hz": 16_000}
    with pytest.raises(Misconfigured, match="'start_s' is made twice"):
        kinds()["frames"].fields({**options, "output": "start_s"}, known)


def test_what_a_step_reads_may_be_replaced_only_by_what_it_is_for() -> None:
    known = {"scores": Field("scores", "FP32", (2,))}
    assert kinds()["labels"].fields({"names": ["a", "b"], "output": "scores"}, known)
    with pytest.raises(Misconfigured, match=r"score: scores \(FP32\[2\]\) is read here and would be lost"):
        kinds()["labels"].fields({"names": ["a", "b"], "score": "scores"}, known)


def test_an_unknown_kind_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(Misconfigured, match=r"'sofmax'.*did you mean 'softmax'"):
        kind_of("sofmax", kinds())


@pytest.mark.parametrize("use", ["steps:", "steps:a.b", "steps:__import__", "steps:1a"])
def test_an_own_function_is_named_by_a_plain_public_name(use: str) -> None:
    with pytest.raises(Misconfigured, match="no kind of step"):
        kind_of(use, kinds())
