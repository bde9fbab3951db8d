"""Golden examples with pictures: given as bytes in Python, kept as files in a folder."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.steps.photos import encoded, noise

from forwardpass import Golden, Misconfigured, Pipeline, use
from forwardpass.pipeline.golden_files import FILE_BYTES_MAX

PICTURE = encoded(Image.fromarray(noise(700, 600)), "PNG")
PHOTO = encoded(Image.fromarray(noise(9, 9)), "JPEG")


def cut(golden: list[Golden], **options: Any) -> Pipeline:
    steps = [use.decode_image(), use.crop_image(size=[1, 1]), use.image_tensor(size=[1, 1])]
    return Pipeline(steps, inputs={"picture": "image"}, golden=golden, **options)


def expected(picture: bytes | bytearray) -> dict[str, Any]:
    with cut([]) as made:
        return made.predict({"picture": picture}).outputs


def sizes(folder: Path) -> dict[str, int]:
    files = (place for place in folder.rglob("*") if place.is_file())
    return {place.relative_to(folder).as_posix(): place.stat().st_size for place in files}


def test_pictures_become_files_and_the_folder_loads_and_is_saved_again_as_it_is(tmp_path: Path) -> None:
    assert len(PICTURE) > 2**20
    examples = [Golden({"picture": each}, expected(each)) for each in (PICTURE, PHOTO, bytearray(PICTURE))]
    with cut(examples) as made:
        assert made.check().golden == 3
        made.save(tmp_path / "1")
        digest = made.predict({"picture": PICTURE}).digest
    assert sizes(tmp_path / "1").keys() == {"pipeline.toml", "golden/1.png", "golden/2.jpg"}
    with Pipeline.open(tmp_path / "1") as opened:
        assert opened.predict({"picture": PICTURE}).digest == digest
        opened.save(tmp_path / "2")
    assert (tmp_path / "2" / "pipeline.toml").read_text() == (tmp_path / "1" / "pipeline.toml").read_text()
    assert sizes(tmp_path / "2") == sizes(tmp_path / "1")


def test_a_picture_takes_no_name_of_another_file(tmp_path: Path) -> None:
    (tmp_path / "mine.png").write_bytes(PHOTO)
    examples = [
        Golden({"picture": {"file": "golden/1.png"}}, expected(PHOTO)),
        Golden({"picture": PICTURE}, expected(PICTURE)),
    ]
    with cut(examples, files={"golden/1.png": tmp_path / "mine.png"}) as made:
        assert sorted(made.files) == ["golden/1.png", "golden/2.png"]
        assert made.check().golden == 2


def test_a_picture_over_the_bound_is_refused_where_it_is_written() -> None:
    with pytest.raises(Misconfigured, match=rf"golden\[0\]\.request\.picture\.file: .*at most {FILE_BYTES_MAX} bytes"):
        cut([Golden({"picture": b"\x89PNG" + bytes(FILE_BYTES_MAX)}, {"tensor": [0.0]})])
