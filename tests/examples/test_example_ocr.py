"""The ocr example: the text on pages drawn here, upright or not, alone or beside others, by every way in."""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from examples.ocr.build import LINES, page
from tests.examples.ways import outputs_by_every_way
from tests.serving import Server

from forwardpass.core.errors import Code
from forwardpass.steps.protocol import Batch

Ask = Callable[[str, Sequence[Mapping[str, object]]], Batch]


def texts(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    return [line["text"] for line in lines]


def blank() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (400, 300), "white").save(file, "JPEG")
    return file.getvalue()


@pytest.mark.parametrize("turned", [False, True])
def test_every_line_of_a_page_is_read_exactly(ask: Ask, turned: bool) -> None:
    # Of the last line, upside down, the network is not sure enough to turn it; the package does not read it either.
    written = LINES[:-1] if turned else LINES
    (lines,) = ask("ocr", [{"page": page(written, turned=turned)}]).columns["lines"]
    assert texts(lines) == list(written[::-1] if turned else written)
    assert all(line["score"] > 0.9 for line in lines)


def test_a_line_is_where_it_was_drawn(ask: Ask) -> None:
    from PIL import Image, ImageDraw, ImageFont

    pen = ImageDraw.Draw(Image.new("RGB", (900, 145)))
    drawn = pen.textbbox((40, 40), "Here", font=ImageFont.load_default(32))
    (lines,) = ask("ocr", [{"page": page(["Here"])}]).columns["lines"]
    first, _, third, _ = lines[0]["quad"]
    assert [*first, *third] == pytest.approx(drawn, abs=12)


def test_pages_with_unlike_lines_are_read_together_as_they_are_alone(ask: Ask) -> None:
    pages = [page(["One line, and rather a long one it is"]), blank(), page(LINES[:2])]
    together = ask("ocr", [{"page": each} for each in pages]).columns["lines"]
    assert list(together) == [ask("ocr", [{"page": each}]).columns["lines"][0] for each in pages]


def test_a_page_without_text_has_no_lines(ask: Ask) -> None:
    assert ask("ocr", [{"page": blank()}]).columns["lines"].tolist() == [[]]


def test_a_page_that_is_no_picture_fails_alone(ask: Ask) -> None:
    batch = ask("ocr", [{"page": b"no picture"}, {"page": page(LINES[:1])}])
    assert [texts(lines) for lines in batch.columns["lines"]] == [[LINES[0]]]
    assert {row: failure.code for row, failure in batch.failures.items()} == {0: Code.IMAGE_INVALID}


def test_every_way_in_gives_the_same_bytes(
    served: Callable[[str], Server], folder_of: Callable[[str], Path], data: Path, tmp_path: Path
) -> None:
    (tmp_path / "page.png").write_bytes(page(LINES[:2]))
    answers = outputs_by_every_way(served("ocr"), folder_of("ocr"), {"page": tmp_path / "page.png"}, data)
    assert b'"text":"The quick brown fox"' in answers["http"]
    assert len(set(answers.values())) == 1, answers
