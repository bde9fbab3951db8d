"""A process that is ours, from outside: whether it moves, and how it ends."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

from forwardpass.execution.beginning import Process

STOPPED = ("T", "t")  # states in /proc/PID/stat
LEAVE_TIME_S = 2.0


def pulse_of(pid: int | None) -> str:
    """What changes while a process moves: its CPU time. Of a stopped one its state, see STOPPED; "" when unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return fields[0] if fields[0] in STOPPED else f"{fields[11]} {fields[12]}"


def kill(group: int) -> None:
    """It leads a session of its own, so whatever it started goes with it."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


async def leave(process: Process) -> None:
    """Its socket is closed, so it leaves by itself; if it does not, it is killed."""
    try:
        await end_of(process)
    finally:
        kill(process.pid)
    await end_of(process)


async def end_of(process: Process) -> None:
    """At most LEAVE_TIME_S: asyncio goes on waiting while a child of the process, in a session of its own, holds its output."""
    if process.returncode is None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_TIME_S):
                await process.wait()


def signal_of(process: Process) -> str:
    """What ended it: "SIGSEGV"; "" for one that ended by itself."""
    status = process.returncode or 0
    names = {each.value: each.name for each in signal.Signals}
    return names.get(-status, str(-status)) if status < 0 else ""
