"""What all processes of a server use together: those it started, those these started, and those that have ended."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MARK = "BENCH_TREE"
"""A variable in the environment of a server: who inherits it is of its tree, even when its parent has ended."""


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int
    session: int
    ticks: int  # of itself, and of the children that have ended and were waited for


def processes() -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if fields[0] not in "ZX":
                    ticks = sum(int(field) for field in fields[11:15])
                    yield Process(int(entry.name), int(fields[1]), int(fields[3]), ticks)


def _marked(pid: int, mark: bytes) -> bool:
    with suppress(OSError):
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def tree_of(root: int, mark: str = "") -> list[Process]:
    """The process, its session, all who descend from these, and who carries the mark."""
    every = {process.pid: process for process in processes()}
    wanted = f"{MARK}={mark}".encode()
    within = {
        process.pid
        for process in every.values()
        if root in (process.pid, process.session) or (mark and _marked(process.pid, wanted))
    }
    grown = True
    while grown:
        more = {process.pid for process in every.values() if process.parent in within} - within
        within |= more
        grown = bool(more)
    return [every[pid] for pid in sorted(within) if pid in every]


def cpu_s(root: int, mark: str = "") -> float:
    """CPU seconds so far, user and system; a child that ends moves from its own account to its parent's."""
    return sum(process.ticks for process in tree_of(root, mark)) / TICKS_PER_S


def memory_bytes(root: int, mark: str = "") -> int:
    """Proportional set sizes, which count shared pages once; resident ones where the system does not tell."""
    return sum(_memory_of(process.pid) for process in tree_of(root, mark))


def _memory_of(pid: int) -> int:
    with suppress(OSError, StopIteration, ValueError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) * 1024
    with suppress(OSError, ValueError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    return 0


def end(process: "subprocess.Popen[bytes]", mark: str = "", patience_s: float = 10.0) -> None:
    """Asks it to stop; whoever of its tree still runs after ``patience_s``, or when it has gone, is made to.

    Raises TimeoutError where even that does not end them.
    """
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)
    until = time.monotonic() + patience_s
    while left := tree_of(process.pid, mark):
        if time.monotonic() > until:
            raise TimeoutError(f"{len(left)} processes of the server cannot be ended")
        for each in left:
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        process.poll()
        time.sleep(0.02)
