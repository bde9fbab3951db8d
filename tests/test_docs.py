"""The documentation says what the code does: the reference is written from it, every code is explained, links resolve."""

import re
from pathlib import Path
from typing import Any

import pytest
from docs import make_reference, make_steps

from forwardpass.core.errors import Code
from forwardpass.execution.kinds import kinds
from forwardpass.ingress.status import STATUSES

ROOT = Path(__file__).parents[1]
ERRORS = ROOT / "docs" / "errors.md"
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_ERROR_LINE = re.compile(r"^\| `(\w+)` \| (\d{3}) \| .+ \|$", re.MULTILINE)


def markdown_files() -> list[Path]:
    folders = (ROOT, ROOT / "docs", ROOT / "docs" / "decisions", ROOT / "bench")
    return [file for folder in folders for file in sorted(folder.glob("*.md"))] + sorted(ROOT.glob("examples/*/*.md"))


def anchors(text: str) -> set[str]:
    """What a heading is linked by: small letters, digits and dashes."""
    headings = re.findall(r"^#+ (.+)$", _CODE_BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("made", [make_reference, make_steps])
def test_what_is_written_from_the_code_says_what_the_code_says(made: Any) -> None:
    assert made.PAGE.read_text("utf-8") == made.page(), f"docs/{made.PAGE.name} is out of date: run make docs"


@pytest.mark.parametrize("made", [make_reference, make_steps])
def test_every_table_written_from_the_code_says_something(made: Any) -> None:
    lines = made.page().splitlines()
    empty = [
        lines[i - 1] for i, line in enumerate(lines) if line.startswith("| ---") and not lines[i + 1].startswith("|")
    ]
    assert not empty


def test_every_error_code_is_explained_with_its_status() -> None:
    explained = {code: int(status) for code, status in _ERROR_LINE.findall(ERRORS.read_text("utf-8"))}
    assert explained == {code.value: STATUSES[code] for code in Code}


@pytest.mark.parametrize("file", markdown_files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(file: Path) -> None:
    for link in _LINK.findall(_CODE_BLOCK.sub("", file.read_text("utf-8"))):
        if re.match(r"https?:|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        assert target.exists(), f"{file.name}: {link}"
        assert not anchor or anchor in anchors(target.read_text("utf-8")), f"{file.name}: {link}"


def test_a_newcomer_reads_the_front_page_in_a_minute() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


@pytest.mark.parametrize("name", sorted(kinds()))
def test_the_page_of_a_step_says_how_a_row_can_fail(name: str) -> None:
    section = make_steps.PAGE.read_text("utf-8").split(f"\n## `{name}`\n")[1].split("\n## ")[0]
    assert re.search(r"fail|refus", section), f"{name} does not say which rows fail, or that none does"
