"""``make faults``: every group of faults, its cases and how they ended, then the figures that were measured.

A case's group is the letter of the catalogue in its name (``J1 65 deep``, ``test_h21_...``), else that of its file. Cases
that measure time run after the others, by themselves. The last line says it all; the exit status is 0 when all is well.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
OVERLOAD = ROOT / "bench" / "overload.py"
GROUPS = {
    "A": "who may ask, secrets",
    "B": "strangers in a batch",
    "D": "models, engines, boxes",
    "G": "observability",
    "H": "HTTP and gRPC",
    "J": "JSON",
    "M": "media and text",
    "O": "memory and cost of all",
    "R": "guards",
    "S": "start and shutdown",
    "T": "tensors",
    "V": "overload and limits",
}
FILES = {
    "audio": "M", "auth": "A", "memory": "O", "batch": "B", "box": "D", "deadlines": "V", "engine": "D", "grpc": "H", "guards": "R",
    "http": "H", "identity": "A", "image": "M", "json": "J", "model": "D", "observability": "G",
    "overload": "V", "queue": "V", "quotas": "V", "secrets": "A", "shutdown": "S", "sign": "D", "supply": "D",
    "tensor": "T", "text": "M", "watchdog": "V", "worker": "V",
}  # fmt: skip
"""The first word after ``test_fault_`` in a file's name."""
ALSO = {
    "tests/ingress/test_strict_json.py": "J",
    "tests/ingress/test_v2_decode.py": "T",
    "tests/ingress/test_http_rules.py": "H",
    "tests/ingress/test_http_splitter.py": "H",
    "tests/ingress/test_unpacking.py": "H",
    "tests/observe/test_redaction.py": "A",
}
"""Cases of the parts themselves, which need no server."""
ROWS = {
    "A": (1, 2, 3, 5, 6, 7, 9, 10, 11),
    "G": (1, 2, 3, 5, 6, 7, 9, 10),
    "H": (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26, 27, 29, 30, 31),
    "J": (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17),
    "T": (1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23),
    "V": (1, 2, 3, 5, 6, 7, 9, 10, 11, 13),
}
"""Of the catalogue: whose groups must be whole."""
LATER = ("G7 trace exporter down: with tracing", "G10 burn-rate rules: with the alert rules")
_NAMED = re.compile(r"(?:^test_|\[(?:[^\]]*-)?)((?:[A-Za-z][0-9]{1,2}[ _\]-])+)")


@dataclass(slots=True)
class Group:
    """What became of a group's cases."""

    ends: "Counter[str]" = field(default_factory=Counter)
    seconds: float = 0.0


@dataclass(slots=True)
class Case:
    group: str
    rows: frozenset[str]  # of the catalogue, by its name: "J1"
    end: str  # passed | failed | skipped
    seconds: float
    figures: list[str]


def cases(report: Path) -> Iterator[Case]:
    """Those of one run of pytest."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        bad = any(case.find(tag) is not None for tag in ("failure", "error"))
        end = "failed" if bad else "passed" if case.find("skipped") is None else "skipped"
        figures = [each.get("value", "") for each in case.iter("property") if each.get("name") == "figure"]
        file, name = case.get("classname", "").replace(".", "/") + ".py", case.get("name", "")
        rows = rows_of(name) if file not in ALSO or ALSO[file] in "JA" else frozenset()
        yield Case(group_of(file, rows), rows, end, float(case.get("time", "0")), figures)


def rows_of(name: str) -> frozenset[str]:
    """Rows of the catalogue that a case names: ``test_v1_v2_...`` and ``test_...[J1 65 deep]``."""
    return frozenset(
        row.upper()
        for named in _NAMED.findall(name)
        for row in re.findall("[A-Za-z][0-9]+", named)
        if row[0].upper() in GROUPS
    )


def group_of(file: str, rows: frozenset[str]) -> str:
    """A letter of GROUPS; "?" for a file that no line of FILES knows."""
    if file in ALSO:
        return ALSO[file]
    stem = Path(file).stem.removeprefix("test_fault_").split("_")[0]
    return min(rows)[0] if rows else FILES.get(stem, "?")


def run(folder: Path, *options: str) -> list[Case]:
    report = folder / f"{len(list(folder.iterdir()))}.xml"
    places = [str(ROOT / "tests" / "faults"), *(str(ROOT / file) for file in ALSO)]
    command = [sys.executable, "-m", "pytest", *places, f"--junitxml={report}", *options]
    done = subprocess.run(command, cwd=ROOT, check=False)
    if not report.exists():
        sys.exit(f"pytest ended with status {done.returncode} and no report")
    return list(cases(report))


def table(groups: dict[str, Group]) -> Iterator[str]:
    yield f"\n{'group':30} {'cases':>6} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}"
    for letter, group in sorted(groups.items()):
        named = f"{letter}  {GROUPS.get(letter, 'without a group')}"
        ends = group.ends
        yield (
            f"{named:30} {ends.total():6} {ends['passed']:7} {ends['failed']:7} {ends['skipped']:8} "
            f"{group.seconds:8.1f}"
        )
    yield from (f"-  {line}" for line in LATER)


def missing(found: list[Case]) -> list[str]:
    """Rows of the catalogue that no case names."""
    named = frozenset[str]().union(*(case.rows for case in found))
    named |= {line.split(" ")[0] for line in LATER}
    return [f"{letter}{row}" for letter, rows in ROWS.items() for row in rows if f"{letter}{row}" not in named]


def overload() -> tuple[list[str], bool]:
    """What the bench of overload prints in its quick form, and whether its bars were met."""
    if not OVERLOAD.exists():
        return ["overload: bench/overload.py is not there"], False
    done = subprocess.run(
        [sys.executable, str(OVERLOAD), "--quick"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return (done.stdout or done.stderr).splitlines(), done.returncode == 0


def summed(found: Iterable[Case]) -> dict[str, Group]:
    groups: dict[str, Group] = defaultdict(Group)
    for case in found:
        groups[case.group].ends[case.end] += 1
        groups[case.group].seconds += case.seconds
    return groups


def main() -> int:
    started = time.monotonic()
    os.environ.setdefault("CI", "true")  # what is missing here fails, so that no case is left out unseen
    with tempfile.TemporaryDirectory() as folder:
        found = run(Path(folder), "-n", "2", "--dist", "loadfile", "-m", "not alone")
        found += run(Path(folder), "-m", "alone")
    lines, met = overload()
    groups = summed(found)
    print(*table(groups), sep="\n")
    print(f"rows of {', '.join(ROWS)} that no case names: {' '.join(missing(found)) or 'none'}\n\nfigures:")
    print(*(f"  {figure}" for case in found for figure in case.figures), *(f"  {line}" for line in lines), sep="\n")
    failed = sum(group.ends["failed"] for group in groups.values())
    minutes = (time.monotonic() - started) / 60
    bars = "the bars of overload are met" if met else "THE BARS OF OVERLOAD ARE NOT MET"
    print(f"\nfaults: {len(found)} cases, {failed} failed; {bars}; {minutes:.1f} minutes")
    return 1 if failed or not met or not found else 0


if __name__ == "__main__":
    sys.exit(main())
