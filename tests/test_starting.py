"""``forwardpass init``: models of known families, tiny and real in form, become pipelines that answer as they should."""

import asyncio
import json
import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests import fixtures_families as families
from tests import fixtures_onnx as models
from tests.pipeline.test_recognise import YOLO, columns_model
from tokenizers import Tokenizer

from forwardpass import Misconfigured, Pipeline, Prediction
from forwardpass.settings import Run, Settings
from forwardpass.starting import Started, start_pipeline

TEXT = "the green river sings ."


def started(path: Path, tmp_path: Path, name: str = "made") -> Started:
    for each in path.parent.rglob("*"):
        os.utime(each, (1_000_000_000, 1_000_000_000))  # not just written: no time to settle is needed
    settings = Settings(run=Run(threads=1, data=str(tmp_path / "data")))
    return asyncio.run(start_pipeline(name, path, tmp_path / "models", settings))


def answer(made: Started, record: dict[str, Any]) -> dict[str, Any]:
    """What the written pipeline, whose golden examples are replayed first, says."""
    assert (made.examples, made.why_none) == (2, ""), made
    with Pipeline.open(made.folder) as pipeline:
        predicted = pipeline.predict(record)
    assert isinstance(predicted, Prediction)
    return predicted.outputs


def ids(text: str, pair: str | None = None) -> list[int]:
    found: list[int] = Tokenizer.from_file("tokenizer.json").encode(text, pair).ids
    return found


def softmax(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    powers = np.exp(scores - scores.max())
    shares: np.ndarray[Any, Any] = powers / powers.sum()
    return shares


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as model hubs have them."""
    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_a_classifier_of_texts(hub: Path, tmp_path: Path) -> None:
    made = started(families.text_classifier(hub, {"problem_type": "single_label_classification"}, 3), tmp_path)
    logits = families.vectors()[ids(TEXT)].mean(axis=0) @ families.weights(3)
    outputs = answer(made, {"text": TEXT})
    assert made.family == "a classifier of texts"
    assert outputs["label"] == f"label {logits.argmax()}"
    assert outputs["score"] == pytest.approx(softmax(logits).max(), abs=1e-5)


def test_a_classifier_with_many_labels_of_a_text(hub: Path, tmp_path: Path) -> None:
    made = started(families.text_classifier(hub, {"problem_type": "multi_label_classification"}, 4), tmp_path)
    scores = 1 / (1 + np.exp(-families.vectors()[ids(TEXT)].mean(axis=0) @ families.weights(4)))
    likely = [place for place in np.argsort(-scores) if scores[place] >= 0.5]
    assert answer(made, {"text": TEXT})["labels"] == [f"label {place}" for place in likely]


def test_a_cross_encoder(hub: Path, tmp_path: Path) -> None:
    made = started(families.text_classifier(hub, {}, 1), tmp_path)
    (logit,) = families.vectors()[ids("why", "the river")].mean(axis=0) @ families.weights(1)
    outputs = answer(made, {"query": "why", "document": "the river"})
    assert outputs["score"] == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-5)


@pytest.mark.parametrize("pooling", ["pooling_mode_mean_tokens", "pooling_mode_cls_token"])
def test_an_embedder(pooling: str, hub: Path, tmp_path: Path) -> None:
    made = started(families.embedder(hub, pooling, "Normalize"), tmp_path)
    vectors = families.vectors()[ids(TEXT)]
    vector = vectors.mean(axis=0) if pooling == "pooling_mode_mean_tokens" else vectors[0]
    expected = vector / np.linalg.norm(vector)
    assert answer(made, {"text": TEXT})["embedding"] == pytest.approx(expected.tolist(), abs=1e-5)


def test_a_classifier_of_tokens(hub: Path, tmp_path: Path) -> None:
    labels = ["O", "B-A", "B-B"]
    made = started(families.token_classifier(hub, labels), tmp_path)
    scores = families.vectors()[ids(TEXT)][1:-1] @ families.weights(3)
    words = [word for word, row in zip(TEXT.split(), scores, strict=True) if row.argmax() != 0]
    assert words, "the made-up weights find something"
    assert [span["text"] for span in answer(made, {"text": TEXT})["spans"]] == words


def test_a_classifier_of_pictures(tmp_path: Path) -> None:
    path = families.picture_classifier(tmp_path / "in" / "net.onnx", ("N", 3, 56, 56), 3)
    (tmp_path / "in" / "labels.txt").write_text("red\ngreen\nblue\n")
    made = started(path, tmp_path)
    Image.new("RGB", (80, 60), (200, 20, 120)).save(tmp_path / "p.png")
    level = (np.array([200, 20, 120]) / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    scores = softmax(level @ families.weights(3)[:3])
    outputs = answer(made, {"picture": (tmp_path / "p.png").read_bytes()})
    assert outputs["label"][0] == ["red", "green", "blue"][int(scores.argmax())]
    assert outputs["score"] == pytest.approx(sorted(scores, reverse=True), abs=1e-4)
    assert sorted(file.name for file in (made.folder / "golden").iterdir()) == ["1.png", "2.png"]


def test_a_detector_answers_in_pixels_of_the_picture_that_came(tmp_path: Path) -> None:
    boxes = np.zeros((6, 3), dtype=np.float32)  # cx, cy, w, h, cat, dog; the second overlaps the first
    boxes[:, 0] = [32, 32, 16, 8, 0.1, 0.9]
    boxes[:, 1] = [32, 32, 16, 9, 0.1, 0.8]
    made = started(families.detector(tmp_path / "in" / "m.onnx", YOLO, boxes), tmp_path)
    Image.new("RGB", (128, 64)).save(tmp_path / "p.png")  # half as large in the model's 64 x 64, 16 rows down
    (found,) = answer(made, {"picture": (tmp_path / "p.png").read_bytes()})["objects"]
    assert (found["label"], found["score"]) == ("dog", pytest.approx(0.9))
    assert found["box"] == pytest.approx([48, 24, 80, 40])


def test_a_model_of_named_columns(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    made = started(columns_model(tmp_path / "in" / "table.onnx"), tmp_path)
    outputs = answer(made, {"age": 4, "city": "b", "rooms": 4})
    assert outputs["label"] == "yes"
    assert sum(outputs["probabilities"]) == pytest.approx(1)
    assert "in the order of their probabilities: no, yes" in (made.folder / "pipeline.toml").read_text()


def test_what_is_known_and_what_is_assumed_stands_in_the_file(hub: Path, tmp_path: Path) -> None:
    made = started(families.text_classifier(hub, {}, 2), tmp_path)
    text = (made.folder / "pipeline.toml").read_text()
    assert "#   config.json, architectures: BertForSequenceClassification\n" in text
    assert "#   one label of all is right (config.json has no problem_type)\n" in text
    assert len(tomllib.loads(text)["golden"]) == 2


def test_text_of_anybodys_file_stays_in_its_comment(hub: Path, tmp_path: Path) -> None:
    evil = 'x"\n[[steps]]\nuse = "steps:evil"\n# \x1b[31m'
    folder = families.text_classifier(hub, {}, 2)
    config = json.loads((folder / "config.json").read_text())
    families.write_json(folder, "config.json", {**config, "id2label": {"0": evil, "1": "b"}})
    made = started(folder, tmp_path)
    definition = tomllib.loads((made.folder / "pipeline.toml").read_text())
    assert [step["use"] for step in definition["steps"]] == ["tokenize", "model", "softmax", "labels"]
    assert definition["steps"][-1]["names"] == [evil, "b"]


def test_what_is_not_recognised_is_started_plainly_and_says_why(tmp_path: Path) -> None:
    made = started(models.identity(tmp_path / "in" / "m.onnx", ("N", 2)), tmp_path)
    assert (made.family, made.examples) == ("", 2)
    assert "are of no family that is known" in made.why_plain


def test_what_does_not_load_as_its_family_is_started_plainly_and_says_why(hub: Path, tmp_path: Path) -> None:
    folder = families.text_classifier(hub, {}, 2)
    (folder / "tokenizer.json").write_text("{}")
    made = started(folder, tmp_path)
    assert made.family == ""
    assert "it looks like a classifier of texts, and does not load as one" in made.why_plain


@pytest.mark.parametrize("family", ["a classifier of pictures", ""])
def test_of_several_model_files_the_usual_one_is_taken_and_that_is_said(family: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    if family:
        families.picture_classifier(folder / "model.onnx", ("N", 3, 56, 56), 3)
    else:
        models.identity(folder / "model.onnx", ("N", 2))
    models.identity(folder / "onnx" / "small.onnx", ("N", 2))
    for each in folder.rglob("*.onnx"):
        os.utime(each, (1_000_000_000, 1_000_000_000))
    made = started(folder, tmp_path)
    assert made.family == family
    text = (made.folder / "pipeline.toml").read_text()
    assert "the model is model.onnx, by its usual name; also there: onnx/small.onnx\n" in text


@pytest.mark.parametrize(("path", "said"), [("nowhere", "is not there"), ("empty", "no file *.onnx is in this folder")])
def test_where_no_model_is_nothing_is_written(path: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(Misconfigured) as refused:
        started(tmp_path / path, tmp_path)
    assert said in str(refused.value)
    assert not (tmp_path / "models").exists()
