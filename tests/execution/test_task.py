"""What a loaded pipeline is to clients that know tasks: recognised where there is no doubt, else as it says."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import fixtures_onnx
from tests.steps import tokenizer_files

from forwardpass.core.errors import Misconfigured
from forwardpass.core.pipeline import Input, Pipeline, Step, Task, Version
from forwardpass.execution.plan import build

TEXT, QUERY, DOCUMENT = Input("text", "text"), Input("query", "text"), Input("document", "text")
DOCUMENTS, PICTURE = Input("documents", "texts"), Input("picture", "image")
OWN_CODE = """
def vector(text):
    return [1.0, 2.0, 3.0]
def number(input_ids):
    return 1.0
def vectors(documents):
    return [[1.0, 2.0, 3.0]] * 2
"""
NORM = Step("l2_norm")


def own(name: str, output: str, *shape: int) -> Step:
    return Step(f"steps:{name}", {"output": output, "datatype": "FP32", "shape": list(shape)})


VECTOR = own("vector", "vector", 3)
LABELS = Step("labels", {"input": "vector", "names": ["a", "b", "c"]})
PAIR = Step("tokenize", {"input": "query", "pair": "document", "tokenizer": "tokenizer.json", "tokens_max": 6})
SIMILAR = Step("similarity", {"input": "vector", "others": "vectors"})
Outputs = Sequence[str]


def task_of(
    folder: Path, inputs: Sequence[Input], *steps: Step, outputs: Outputs = (), task: Task | None = None
) -> Any:
    tokenizer_files.write(folder)
    (folder / "steps.py").write_text(OWN_CODE)
    (folder / "labels.txt").write_text("x\ny\nz\n")
    definition = Pipeline(steps, tuple(inputs), outputs=tuple(outputs), task=task)
    return build(Version("p", 1, "0" * 64, str(folder), definition, trusted=True), threads=1).signature.task


def test_one_text_that_becomes_a_vector_of_length_1_is_embedded(tmp_path: Path) -> None:
    assert task_of(tmp_path, [TEXT], VECTOR, NORM) == Task("embed", "text", output="vector")


def test_a_step_that_names_labels_classifies(tmp_path: Path) -> None:
    told = Task("classify", "text", output="score", label="label")
    assert task_of(tmp_path, [TEXT], VECTOR, LABELS) == told
    all_scores = Task("classify", "text", output="vector", labels=("a", "b", "c"))
    assert task_of(tmp_path, [TEXT], VECTOR, LABELS, outputs=("label", "vector")) == all_scores
    several = Step("label_set", {"input": "vector", "file": "labels.txt"})
    assert task_of(tmp_path, [TEXT], VECTOR, several) == Task("classify", "text", output="scores", label="labels")


def test_the_score_of_a_pair_ranks(tmp_path: Path) -> None:
    assert task_of(tmp_path, [DOCUMENT, QUERY], PAIR, own("number", "score")) is None  # which is which?
    assert task_of(tmp_path, [QUERY, DOCUMENT], PAIR, own("number", "score")) == Task(
        "rank", "query", "document", "score"
    )


TAKE = Step("take", {"input": "y", "index": 0, "output": "score"})


@pytest.mark.parametrize(
    ("width", "steps", "scale"),
    [
        (0, (), "logit"), (1, (TAKE,), "logit"), (1, (Step("take", {"index": 0, "output": "score"}),), "logit"),
        (1, (Step("sigmoid", {"input": "y", "output": "y"}), TAKE), "as_is"),
    ],
)  # fmt: skip
def test_what_a_model_says_of_a_pair_is_a_logit_unless_a_step_made_something_of_it(
    tmp_path: Path, width: int, steps: Sequence[Step], scale: str
) -> None:
    nodes = [
        fixtures_onnx.node("Cast", "input_ids", "ids", to=fixtures_onnx.FLOAT),
        fixtures_onnx.node("ReduceSum", "ids axes", "y", keepdims=width),
    ]
    inputs = [("input_ids", fixtures_onnx.INT64, ("N", "L"))]
    shape = ("N", 1) if width else ("N",)
    fixtures_onnx.write(
        tmp_path / "model.onnx", nodes, inputs, [("y", fixtures_onnx.FLOAT, shape)], {"axes": np.array([1])}
    )
    model = Step("model", {"engine": "onnxruntime", "file": "model.onnx"})
    assert task_of(tmp_path, [QUERY, DOCUMENT], PAIR, model, *steps).scale == scale


@pytest.mark.parametrize(("metric", "scale"), [("cosine", "cosine"), ("dot", "as_is"), ("euclidean", "as_is")])
def test_a_comparison_with_a_list_of_texts_ranks_them(tmp_path: Path, metric: str, scale: Any) -> None:
    compared = Step("similarity", {**SIMILAR.options, "metric": metric})
    steps = (own("vectors", "vectors", 2, 3), VECTOR, compared)
    found = task_of(tmp_path, [TEXT, DOCUMENTS], *steps, Step("rank"))
    assert found == Task("rank", "text", "documents", "ranking", scale=scale)
    assert task_of(tmp_path, [TEXT, DOCUMENTS], *steps).output == "scores"


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [([TEXT], ()), ([TEXT, DOCUMENT], ("vector",)), ([TEXT], ("vector", "text"))],
    ids=["no pooling", "two texts", "two outputs"],
)
def test_where_there_is_doubt_there_is_no_task(tmp_path: Path, inputs: Sequence[Input], outputs: Outputs) -> None:
    steps = (VECTOR, NORM) if outputs else (VECTOR,)
    assert task_of(tmp_path, inputs, *steps, outputs=outputs) is None


@pytest.mark.parametrize(
    ("written", "completed"),
    [
        (Task("embed", dimensions=(2,)), Task("embed", "text", output="vector", dimensions=(2,))),
        (
            Task("classify", labels_file="labels.txt"),
            Task("classify", "text", output="vector", labels_file="labels.txt", labels=("x", "y", "z")),
        ),
    ],
)
def test_a_written_task_is_completed_where_one_thing_is_left(tmp_path: Path, written: Task, completed: Task) -> None:
    assert task_of(tmp_path, [TEXT], VECTOR, task=written) == completed


def test_a_written_ranker_may_take_its_document_first(tmp_path: Path) -> None:
    found = task_of(
        tmp_path, [DOCUMENT, QUERY], PAIR, own("number", "score"), task=Task("rank", "query", scale="logit")
    )
    assert found == Task("rank", "query", "document", "score", scale="logit")


@pytest.mark.parametrize(
    ("inputs", "task", "problem"),
    [
        ([TEXT, DOCUMENT], Task("embed"), "task.input: missing; one of the inputs: text, document"),
        ([TEXT, DOCUMENT], Task("embed", "text"), 'task.kind: clients of a task do not send "document"'),
        ([TEXT], Task("embed", dimensions=(2, 4)), "task.dimensions[1]: 4; at most 3"),
        ([TEXT], Task("rank"), "task.documents: missing"),
        ([TEXT, DOCUMENTS], Task("rank", output="text"), 'task.output: "text" is no output'),
        ([TEXT], Task("classify"), "task.labels: missing; label, labels or labels_file"),
        ([TEXT], Task("classify", labels=("a",)), "task.labels: 1 labels; one of each score in vector (FP32[3])"),
        ([TEXT], Task("classify", label="vector"), "task.label: is vector (FP32[3])"),
    ],
)
def test_a_written_task_that_does_not_fit_does_not_load(
    tmp_path: Path, inputs: Sequence[Input], task: Task, problem: str
) -> None:
    with pytest.raises(Misconfigured) as caught:
        task_of(tmp_path, inputs, VECTOR, task=task)
    assert problem in str(caught.value)
