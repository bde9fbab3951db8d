"""Which family a model is told to belong to, by which file; and what is not recognised, and why."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import fixtures_families as families
from tests import fixtures_onnx as models

from forwardpass.core.pipeline import Input
from forwardpass.pipeline.onnx_facts import Value, facts
from forwardpass.pipeline.recognise import recognise
from forwardpass.pipeline.recognise.recognised import Recognised

BOXES = np.zeros((6, 10), dtype=np.float32)
YOLO = {"task": "detect", "names": "{0: 'cat', 1: 'dog'}", "stride": "32", "imgsz": "[64, 64]"}
RESIZED = {"do_resize": True, "size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": 32, "resample": 3,
           "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "rescale_factor": 0.00392156862745098}  # fmt: skip


def known(path: Path) -> Recognised:
    found = recognise(path)
    assert isinstance(found, Recognised), found
    return found


def uses(found: Recognised) -> list[str]:
    return [placed.step.use for placed in found.steps]


def options(found: Recognised, use: str) -> dict[str, Any]:
    return next(placed.step.options for placed in found.steps if placed.step.use == use)


def test_a_files_inputs_outputs_and_metadata_are_read_without_its_weights(tmp_path: Path) -> None:
    path = families.detector(tmp_path / "m.onnx", YOLO, BOXES)
    found = facts(path)
    assert found.inputs == (Value("images", "FP32", (-1, 3, 64, 64)),)
    assert found.outputs == (Value("output0", "FP32", (-1, 6, 10)),)
    assert found.metadata == YOLO
    assert found.makers["output0"] == "Add"
    assert facts(models.sequence_output(tmp_path / "s.onnx")).outputs[0] == Value("y", "", None)
    assert facts(models.sequence_output(tmp_path / "s.onnx")).class_labels == ("0", "1")
    assert facts(models.unranked(tmp_path / "u.onnx")).outputs[0].shape is None


@pytest.mark.parametrize(
    ("problem", "steps", "outputs"),
    [
        ("single_label_classification", ["tokenize", "model", "softmax", "labels"], ("label", "score")),
        ("multi_label_classification", ["tokenize", "model", "sigmoid", "label_set"], ("labels", "scores")),
    ],
)
def test_a_classifier_of_texts_is_known_by_its_config(
    problem: str, steps: list[str], outputs: tuple[str, ...], tmp_path: Path
) -> None:
    found = known(families.text_classifier(tmp_path, {"problem_type": problem, "max_position_embeddings": 40}, 3))
    assert uses(found) == steps
    assert found.outputs == outputs
    assert options(found, "tokenize") == {"tokenizer": "tokenizer.json", "tokens_max": 40}
    assert "config.json, max_position_embeddings: at most 40 tokens" in found.known
    assert options(found, steps[-1])["names"] == ["label 0", "label 1", "label 2"]


def test_a_model_file_is_found_where_exporters_put_it_and_by_its_own_name(tmp_path: Path) -> None:
    folder = families.text_classifier(tmp_path, {}, 2, inner="onnx")
    assert known(folder).files["model.onnx"] == folder / "onnx" / "model.onnx"
    assert known(folder / "onnx" / "model.onnx") == known(folder)


def test_positions_of_roberta_begin_after_the_padding(tmp_path: Path) -> None:
    config = {"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}
    assert options(known(families.text_classifier(tmp_path, config, 2)), "tokenize")["tokens_max"] == 512


def test_many_labels_go_into_a_file(tmp_path: Path) -> None:
    found = known(families.text_classifier(tmp_path, {}, 20))
    assert options(found, "labels")["file"] == "labels.txt"
    assert str(found.files["labels.txt"]).splitlines() == [f"label {place}" for place in range(20)]


@pytest.mark.parametrize(
    ("config", "steps"),
    [
        ({}, ["tokenize", "model", "sigmoid", "take"]),
        (
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
            ["tokenize", "model", "take"],
        ),
    ],
)
def test_one_label_is_the_score_of_a_pair(config: dict[str, Any], steps: list[str], tmp_path: Path) -> None:
    found = known(families.text_classifier(tmp_path, config, 1))
    assert uses(found) == steps
    assert [given.name for given in found.inputs] == ["query", "document"]
    assert options(found, "tokenize")["pair"] == "document"


def test_a_regressor_gives_its_number_as_it_is(tmp_path: Path) -> None:
    found = known(families.text_classifier(tmp_path, {"problem_type": "regression"}, 1))
    assert uses(found) == ["tokenize", "model", "take"]
    assert found.outputs == ("value",)


def test_a_classifier_of_tokens_finds_spans(tmp_path: Path) -> None:
    found = known(families.token_classifier(tmp_path, ["O", "B-RIVER", "I-RIVER"]))
    assert uses(found) == ["tokenize", "model", "softmax", "spans"]
    assert options(found, "spans")["names"] == ["O", "B-RIVER", "I-RIVER"]


@pytest.mark.parametrize(
    ("pooling", "more", "steps"),
    [
        ("pooling_mode_mean_tokens", ["Normalize"], ["tokenize", "model", "mean_pool", "l2_norm"]),
        ("pooling_mode_cls_token", [], ["tokenize", "model", "first_token"]),
    ],
)
def test_an_embedder_pools_and_normalises_as_its_modules_say(
    pooling: str, more: list[str], steps: list[str], tmp_path: Path
) -> None:
    found = known(families.embedder(tmp_path, pooling, *more))
    assert uses(found) == steps
    assert options(found, "tokenize")["tokens_max"] == 16
    assert found.outputs == ("embedding",)


def test_pictures_are_prepared_as_the_preprocessor_config_says(tmp_path: Path) -> None:
    families.picture_classifier(tmp_path / "model.onnx", ("N", 3, 32, 32), 4)
    families.write_json(tmp_path, "preprocessor_config.json", RESIZED)
    families.write_json(tmp_path, "config.json", {"id2label": {"0": "a", "1": "b", "2": "c", "3": "d"}})
    found = known(tmp_path)
    assert uses(found) == ["decode_image", "resize_image", "crop_image", "image_tensor", "model", "softmax", "labels"]
    assert options(found, "resize_image") == {"short_side": 40, "method": "bicubic"}
    assert options(found, "crop_image")["size"] == [32, 32]
    assert options(found, "image_tensor")["mean"] == [0.5, 0.5, 0.5]
    assert options(found, "labels")["names"] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("processor", "resize", "cropped"),
    [
        ({"size": {"height": 32, "width": 32}, "do_center_crop": False}, {"width": 32, "height": 32}, False),
        (
            {"size": {"height": 40, "width": 44}, "crop_size": {"height": 32, "width": 32}},
            {"width": 44, "height": 40},
            True,
        ),
        ({"size": 32}, {"width": 32, "height": 32}, False),
        ({"size": {"shortest_edge": 32}, "crop_pct": 0.8}, {"short_side": 40}, True),
    ],
)
def test_each_form_of_a_size_is_understood(
    processor: dict[str, Any], resize: dict[str, int], cropped: bool, tmp_path: Path
) -> None:
    families.picture_classifier(tmp_path / "model.onnx", ("N", 3, 32, 32), 4)
    families.write_json(tmp_path, "preprocessor_config.json", processor)
    found = known(tmp_path)
    assert options(found, "resize_image") == resize
    assert ("crop_image" in uses(found)) is cropped


def test_a_timm_config_says_size_crop_and_mean(tmp_path: Path) -> None:
    families.picture_classifier(tmp_path / "model.onnx", ("N", 3, "H", "W"), 4)
    timm = {"input_size": [3, 32, 32], "crop_pct": 0.8, "interpolation": "bicubic", "mean": [0, 0, 0], "std": [1, 1, 1]}
    families.write_json(tmp_path, "config.json", {"pretrained_cfg": timm})
    assert options(known(tmp_path), "resize_image") == {"short_side": 40, "method": "bicubic"}


def test_without_a_config_pictures_are_prepared_as_torchvision_does_and_that_is_said(tmp_path: Path) -> None:
    path = families.picture_classifier(tmp_path / "net.onnx", ("N", 224, 224, 3), 6, softmax=True)
    (tmp_path / "labels.txt").write_text("a\nb\nc\nd\ne\nf\n")
    found = known(path)
    assert uses(found) == ["decode_image", "resize_image", "crop_image", "image_tensor", "model", "labels"]
    assert options(found, "resize_image") == {"short_side": 256}
    assert options(found, "image_tensor")["layout"] == "hwc"
    assert options(found, "labels")["top"] == 5
    assert any("torchvision" in text for text in found.assumed)


def test_grey_pictures_without_names_get_numbers(tmp_path: Path) -> None:
    found = known(families.picture_classifier(tmp_path / "digits.onnx", ("N", 1, 28, 28), 10))
    assert options(found, "decode_image") == {"color": "gray"}
    assert options(found, "labels")["names"] == [str(digit) for digit in range(10)]


@pytest.mark.parametrize(
    ("boxes", "layout", "steps"),
    [((6, 10), "yolov8", ["decode_boxes", "nms"]), ((10, 7), "yolov5", ["decode_boxes", "nms"]),
     ((10, 6), "end_to_end", ["decode_boxes"])],
)  # fmt: skip
def test_a_detector_is_known_by_its_metadata(
    boxes: tuple[int, int], layout: str, steps: list[str], tmp_path: Path
) -> None:
    found = known(families.detector(tmp_path / "m.onnx", YOLO, np.zeros(boxes, dtype=np.float32), side="S"))
    before = ["decode_image", "letterbox_image", "image_tensor", "model"]
    assert uses(found) == [*before, *steps, "map_boxes", "records"]
    assert options(found, "decode_boxes")["layout"] == layout
    assert options(found, "letterbox_image")["width"] == 64


def test_named_columns_become_numbers_and_categories(tmp_path: Path) -> None:
    path = columns_model(tmp_path / "table.onnx")
    found = known(path)
    assert found.inputs == (
        Input("age", "number"),
        Input("city", "category", bytes_max=1000),
        Input("rooms", "tensor", datatype="INT64"),
    )
    assert uses(found) == ["columns", "model"]


def columns_model(path: Path) -> Path:
    """What skl2onnx makes of a pipeline over mixed columns."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    table = np.array([[1.0, "a", 1], [2.0, "b", 2], [3.0, "a", 3], [4.0, "b", 4]], dtype=object)
    prepared = ColumnTransformer([("city", OneHotEncoder(), [1])], remainder="passthrough")
    fitted = make_pipeline(prepared, LogisticRegression()).fit(table, ["no", "no", "yes", "yes"])
    types = [
        ("age", FloatTensorType([None, 1])),
        ("city", StringTensorType([None, 1])),
        ("rooms", Int64TensorType([None, 1])),
    ]
    model = to_onnx(fitted, initial_types=types, options={"zipmap": False}, target_opset=17)
    path.write_bytes(model.SerializeToString())
    return path


def unfit(tmp_path: Path, name: str) -> Path:
    """Something that is nearly of a family."""
    match name:
        case "several":
            models.identity(tmp_path / "a.onnx")
            models.identity(tmp_path / "b.onnx")
        case "no tokenizer":
            families.text_classifier(tmp_path, {}, 2)
            (tmp_path / "tokenizer.json").unlink()
        case "other head":
            families.text_classifier(tmp_path, {"architectures": ["BertForMaskedLM"]}, 2)
        case "no config":
            families.text_classifier(tmp_path, {}, 2)
            (tmp_path / "config.json").unlink()
        case "vector":
            families.picture_classifier(tmp_path / "m.onnx", ("N", 3, 8, 8), 4)
            families.write_json(tmp_path, "config.json", {"architectures": ["CLIPVisionModelWithProjection"]})
        case "labels":
            families.text_classifier(tmp_path, {"id2label": {"0": "a"}}, 2)
        case "module":
            families.embedder(tmp_path, "pooling_mode_mean_tokens", "Dense")
        case "pooling":
            families.embedder(tmp_path, "pooling_mode_weightedmean_tokens")
        case "zipmap":
            models.sequence_output(tmp_path / "m.onnx")
        case "task":
            families.detector(tmp_path / "m.onnx", {**YOLO, "task": "segment"}, BOXES)
        case "classes":
            families.detector(tmp_path / "m.onnx", {**YOLO, "names": "{0: 'cat'}"}, BOXES)
        case "names":
            families.detector(tmp_path / "m.onnx", {**YOLO, "names": "__import__('os')"}, BOXES)
        case "size":
            families.picture_classifier(tmp_path / "m.onnx", ("N", 3, "H", "W"), 4)
        case "picture labels":
            families.picture_classifier(tmp_path / "m.onnx", ("N", 3, 8, 8), 4)
            (tmp_path / "labels.txt").write_text("a\nb\n")
        case "unlike sizes":
            families.picture_classifier(tmp_path / "m.onnx", ("N", 3, 8, 8), 4)
            families.write_json(tmp_path, "preprocessor_config.json", RESIZED)
        case "plain":
            models.identity(tmp_path / "m.onnx")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("empty", "no file *.onnx is in this folder"),
        ("several", "several model files are here (a.onnx, b.onnx): name the one"),
        ("no tokenizer", "there is no tokenizer.json beside it"),
        ("other head", "config.json says BertForMaskedLM"),
        ("no config", "no config.json that says what the model does"),
        ("vector", "of pictures only classifiers and detectors are known"),
        ("labels", "config.json names 1 classes, and the model has 2"),
        ("module", "modules.json names a module Dense, for which there is no step"),
        ("pooling", "1_Pooling/config.json says pooling_mode_weightedmean_tokens"),
        ("zipmap", "its output y is no tensor; export it without zipmap"),
        ("task", "says task segment"),
        ("classes", "is not 4 + 1 classes"),
        ("names", "the names in the model's metadata cannot be read"),
        ("size", "nothing says the size of a picture"),
        ("picture labels", "labels.txt names 2 classes, and the model has 4"),
        ("unlike sizes", "a picture of 32 x 32 is prepared, and the model takes 8 x 8"),
        ("plain", "its inputs (FP32 [-1, 4]) and the files beside it are of no family"),
    ],
)
def test_what_does_not_fit_in_every_part_is_not_recognised(name: str, why: str, tmp_path: Path) -> None:
    found = recognise(unfit(tmp_path, name))
    assert isinstance(found, str)
    assert why in found


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b'{"architectures": 3}', b"\xff"])
def test_a_broken_file_beside_a_model_is_as_none(content: bytes, tmp_path: Path) -> None:
    folder = families.text_classifier(tmp_path, {}, 2)
    (folder / "config.json").write_bytes(content)
    assert isinstance(recognise(folder), str)
