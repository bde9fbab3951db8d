"""The safety example: photos get the scores of Yahoo's recipe in whatever file, and what is no picture fails alone."""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from examples.build import WORK
from examples.photos import photos
from PIL import Image, ImageOps
from tests.examples.ways import outputs_by_every_way
from tests.serving import Reply, Server
from tests.steps.photos import encoded, png

from forwardpass.core.errors import Code
from forwardpass.steps.protocol import Batch

Ask = Callable[[str, Sequence[Mapping[str, object]]], Batch]
Score = Callable[[bytes], float]
RIGHT = {"astronaut": 0.0317, "chelsea": 0.0001, "coffee": 0.0130}
SKIN = (230, 180, 150)


@pytest.fixture(scope="module")
def photo(folder_of: Callable[[str], Path]) -> dict[str, Image.Image]:
    folder_of("safety")  # skips where the packages cannot be had
    return {name: Image.open(path).convert("RGB") for name, path in photos(WORK / "downloads").items()}


@pytest.fixture(scope="module")
def score(folder_of: Callable[[str], Path]) -> Score:
    """Yahoo's recipe with Pillow and ONNX Runtime alone."""
    session = onnxruntime.InferenceSession(str(folder_of("safety") / "open_nsfw.onnx"))

    def scored(file: bytes) -> float:
        picture = ImageOps.exif_transpose(Image.open(io.BytesIO(file))).convert("RGB")
        small = Image.open(io.BytesIO(encoded(picture.resize((256, 256), Image.Resampling.BILINEAR), "JPEG")))
        middle = np.asarray(small.crop((16, 16, 240, 240)), dtype=np.float32)[np.newaxis, ..., ::-1]
        return float(session.run(None, {"input:0": middle - np.array([104, 117, 123], np.float32)})[0][0, 1])

    return scored


def kinds_of_file(picture: Image.Image) -> dict[str, bytes]:
    turned = Image.Exif()
    turned[0x0112] = 6  # to be seen upright, turn it a quarter to the right
    return {
        "png": encoded(picture, "PNG"),
        "jpeg": encoded(picture, "JPEG"),
        "webp": encoded(picture, "WEBP"),
        "cmyk": encoded(picture.convert("CMYK"), "JPEG"),
        "grey": encoded(picture.convert("L"), "PNG"),
        "turned": encoded(picture.rotate(90, expand=True), "PNG", exif=turned),
    }


def send(server: Server, file: bytes, kind: str = "image/*") -> Reply:
    return server.call("POST", "/predict/safety", file, {"Content-Type": kind})


@pytest.mark.parametrize("name", RIGHT)
def test_a_photo_has_the_score_that_is_known_of_it(ask: Ask, photo: dict[str, Image.Image], name: str) -> None:
    columns = ask("safety", [{"picture": encoded(photo[name], "PNG")}]).columns
    assert columns["nsfw"][0] == pytest.approx(RIGHT[name], abs=5e-5)
    assert columns["label"][0] == "safe"


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "cmyk", "grey", "turned"])
def test_every_kind_of_file_gets_the_score_of_the_recipe(
    served: Callable[[str], Server], photo: dict[str, Image.Image], score: Score, kind: str
) -> None:
    file = kinds_of_file(photo["coffee"])[kind]
    assert send(served("safety"), file).json["outputs"]["nsfw"] == pytest.approx(score(file), abs=1e-4)


def test_a_photo_that_exif_turns_upright_is_the_photo(ask: Ask, photo: dict[str, Image.Image]) -> None:
    files = kinds_of_file(photo["coffee"])
    scores = ask("safety", [{"picture": files["png"]}, {"picture": files["turned"]}]).columns["nsfw"]
    assert scores[0] == scores[1]


def test_a_rule_sends_what_the_network_is_not_sure_of_to_somebody(
    served: Callable[[str], Server], score: Score
) -> None:
    file = encoded(Image.new("RGB", (300, 300), SKIN), "PNG")
    answer = send(served("safety"), file).json
    assert 0.2 <= score(file) <= 0.8
    assert answer["outputs"] == {"label": "review", "nsfw": pytest.approx(score(file), abs=1e-4)}
    assert [(note["rule"], note["did"]) for note in answer["notes"]] == [("unsure", "set")]


def test_photos_together_score_as_they_do_alone(ask: Ask, photo: dict[str, Image.Image]) -> None:
    records = [{"picture": encoded(each, "PNG")} for each in photo.values()]
    together = ask("safety", records).columns["nsfw"]
    alone = [ask("safety", [record]).columns["nsfw"][0] for record in records]
    np.testing.assert_allclose(together, alone, atol=1e-6)


BAD: dict[str, tuple[Callable[[Image.Image], bytes], int, Code]] = {
    "cut": (lambda photo: encoded(photo, "JPEG")[:5000], 400, Code.IMAGE_TRUNCATED),
    "huge": (lambda _: png(40_000, 40_000, 8, 2, b"\0"), 413, Code.INPUT_TOO_LARGE),
    "long": (lambda _: encoded(Image.new("RGB", (2000, 1)), "PNG"), 400, Code.OUT_OF_RANGE),
    "text": (lambda _: b"not a picture", 400, Code.IMAGE_INVALID),
    "empty": (lambda _: b"", 400, Code.IMAGE_INVALID),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_whole_picture_is_refused_and_the_worker_lives(
    served: Callable[[str], Server], photo: dict[str, Image.Image], bad: str
) -> None:
    make, status, code = BAD[bad]
    server = served("safety")
    before = server.worker_pids("safety")
    reply = send(server, make(photo["coffee"]))
    assert (reply.status, reply.code) == (status, code)
    assert send(server, encoded(photo["coffee"], "PNG")).status == 200
    assert server.worker_pids("safety") == before


def test_a_picture_that_is_none_fails_alone(ask: Ask, photo: dict[str, Image.Image]) -> None:
    batch = ask("safety", [{"picture": b"no picture"}, {"picture": encoded(photo["coffee"], "PNG")}])
    assert batch.columns["nsfw"] == pytest.approx([RIGHT["coffee"]], abs=5e-5)
    assert {row: failure.code for row, failure in batch.failures.items()} == {0: Code.IMAGE_INVALID}


def test_every_way_in_gives_the_same_bytes(
    served: Callable[[str], Server], folder_of: Callable[[str], Path], data: Path
) -> None:
    given: dict[str, Any] = {"picture": folder_of("safety") / "golden" / "astronaut.png"}
    answers = outputs_by_every_way(served("safety"), folder_of("safety"), given, data)
    assert b'"label":"safe"' in answers["http"]
    assert len(set(answers.values())) == 1, answers
