"""The section [task]: what it may hold, and that nothing in it is without effect."""

from pathlib import Path

import pytest

import forwardpass
from forwardpass.core.errors import Misconfigured
from forwardpass.core.pipeline import Pipeline, Task
from forwardpass.execution.kinds import kinds
from forwardpass.pipeline.definition import parse, to_toml

PIPELINE = """
outputs = ["vector"]
[[inputs]]
name = "text"
type = "text"
[[inputs]]
name = "picture"
type = "image"
[[steps]]
use = "model"
engine = "onnxruntime"
file = "m.onnx"
outputs = { y = "vector" }
[task]
"""


def parsed(folder: Path, section: str) -> Pipeline:
    (folder / "m.onnx").write_bytes(b"never read")
    return parse(PIPELINE + section, file="pipeline.toml", folder=folder, kinds=kinds())


@pytest.mark.parametrize(
    ("section", "task"),
    [
        ('kind = "embed"\ndimensions = [2, 4]', Task("embed", dimensions=(2, 4))),
        (
            'kind = "classify"\ninput = "picture"\nlabels = ["a", "b"]\nharmless = ["a"]\nthreshold = 1',
            Task("classify", "picture", labels=("a", "b"), harmless=("a",), threshold=1.0),
        ),
        ('kind = "rank"\nscale = "logit"\noutput = "vector"', Task("rank", output="vector", scale="logit")),
    ],
)
def test_a_section_is_read_and_written(tmp_path: Path, section: str, task: Task) -> None:
    pipeline = parsed(tmp_path, section)
    assert pipeline.task == task
    assert parse(to_toml(pipeline), file="x", folder=tmp_path, kinds=kinds()) == pipeline


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ('kind = "embeds"', ':15: task.kind: embeds; did you mean "embed"? allowed: embed, rank, classify'),
        ('output = "vector"', ":14: task.kind: missing; it must be given"),
        ('kind = "embed"\nmodel = 1', ":16: task.model: unknown key"),
        ('kind = "embed"\nscale = "logit"', ":16: task.scale: has no effect on a task of kind embed"),
        ('kind = "rank"\ndimensions = [2]', ":16: task.dimensions: has no effect on a task of kind rank"),
        ('kind = "embed"\ndimensions = [4, 2]', ":16: task.dimensions: not ascending"),
        ('kind = "embed"\ninput = "txt"', ':16: task.input: "txt": no such input; an input of type text: text'),
        ('kind = "embed"\ninput = "picture"', ':16: task.input: "picture": is of type image'),
        ('kind = "rank"\ninput = "text"\ndocuments = "text"', ':17: task.documents: "text" is the query already'),
        ('kind = "embed"\noutput = "vectr"', ':16: task.output: "vectr" is no output; did you mean "vector"?'),
        ('kind = "classify"\nlabels = ["a", "a"]', ':16: task.labels[1]: "a" is there twice'),
        ('kind = "classify"\nlabels = ["a"]\nharmless = ["b"]', ':17: task.harmless[0]: "b" is no label'),
        (
            'kind = "classify"\nlabels = ["a"]\nlabels_file = "m.onnx"',
            ":17: task.labels_file: has no effect beside labels",
        ),
        ('kind = "classify"\nlabels_file = "../x"', ":16: task.labels_file: ../x: "),
    ],
)
def test_what_is_wrong_with_it_is_told_with_its_line(tmp_path: Path, section: str, problem: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        parsed(tmp_path, section)
    assert f"pipeline.toml{problem}" in str(caught.value)


def letters(text: str) -> list[float]:
    return [float(text.count("a")), float(text.count("b"))]


def test_a_pipeline_made_in_python_says_its_task_too(tmp_path: Path) -> None:
    vector = forwardpass.step(output="vector", datatype="FP32", shape=(2,))(letters)
    task = forwardpass.Task("embed", dimensions=(1,))
    with forwardpass.Pipeline([vector], inputs={"text": "text"}, task=task) as made:
        folder = made.save(tmp_path / "1")
    text = (folder / "pipeline.toml").read_text()
    assert parse(text, file="x", folder=folder, kinds=kinds()).task == task
