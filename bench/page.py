"""Parts of docs/benchmarks.md that programs write: each between two comments; the rest is written by hand."""

from pathlib import Path

from bench.figures import ROOT

PAGE = ROOT / "docs" / "benchmarks.md"


def put(part: str, text: str, page: Path = PAGE) -> None:
    """Replaces what stands between the part's comments. Raises ValueError where the page lacks them."""
    begin, end = f"<!-- {part}: begin, written by a program -->\n", f"<!-- {part}: end -->"
    before, found, rest = page.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found and found_end):
        raise ValueError(f"{page.name} has no part {part!r}")
    page.write_text(f"{before}{begin}\n{text.strip()}\n\n{end}{after}")
