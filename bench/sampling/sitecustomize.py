"""Loaded by Python itself, before the server, when bench/stages.py has put this folder on its path.

SAMPLED_INTO: SIGUSR2 begins to look, at each millisecond of CPU, which function of the server runs, or was called from;
what was seen is written into that folder at the end. WAYS_INTO: each SIGUSR2 writes into that file how many requests went
by which way since the last one. UNDER_VALGRIND: pidfd_open by a thread,
as valgrind does not know it. The product has no part in this.
"""

import atexit
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

PACKAGE = f"{os.sep}forwardpass{os.sep}"
LOOP = "the event loop"
RESUME = 151
EVERY_S = 0.001
SEEN: Counter[str] = Counter()
WAYS = ("Bundles.join", "Direct.alone", "Exchange.begun", "DataPlane.respond")
"""Called once for a request: joined with others, not answered with them after all, begun by itself, the long way."""


def look(_: int, frame: FrameType | None) -> None:
    """A signal that arrives while the loop itself runs is told of by the function that the loop calls next."""
    if frame is not None and frame.f_code.co_code[frame.f_lasti] == RESUME and not _within(frame.f_back):
        frame = None
    while frame is not None and PACKAGE not in frame.f_code.co_filename:
        frame = frame.f_back
    if frame is None:
        SEEN[LOOP] += 1
    else:
        SEEN[f"{frame.f_code.co_filename.rpartition(PACKAGE)[2]}:{frame.f_code.co_name}"] += 1


def _within(frame: FrameType | None) -> bool:
    """Whether the server's own code, other than what starts the loop, is on the stack."""
    while frame is not None:
        name = frame.f_code.co_filename
        if "uvloop" in name or name.endswith(("runners.py", "base_events.py")):
            return False
        if PACKAGE in name:
            return True
        frame = frame.f_back
    return False


def begin(_: int, frame: FrameType | None) -> None:
    SEEN.clear()
    signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)


def write(folder: str) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    if SEEN:
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(SEEN))


def ways(_: int, frame: FrameType | None) -> None:
    Path(f"{os.environ['WAYS_INTO']}.part").write_text(json.dumps(SEEN))
    os.replace(f"{os.environ['WAYS_INTO']}.part", os.environ["WAYS_INTO"])
    SEEN.clear()
    sys.setprofile(count)


def count(frame: FrameType, event: str, _: object) -> None:
    """A coroutine that goes on is not called again: it resumes elsewhere than at its beginning, which is 0."""
    code = frame.f_code
    if event == "call" and code.co_qualname in WAYS and code.co_code[frame.f_lasti + 1] == 0:
        SEEN[code.co_qualname] += 1


def watched(pid: int, flags: int = 0) -> int:
    """A descriptor that can be read from when the process has ended."""
    readable, writable = os.pipe()

    def wait() -> None:
        state = Path(f"/proc/{pid}/stat")
        try:
            while state.read_text().rpartition(")")[2].split()[0] not in "ZX":
                time.sleep(1.0)
        except OSError:
            pass
        os.close(writable)

    threading.Thread(target=wait, daemon=True).start()
    return readable


if os.environ.get("SAMPLED_INTO"):
    signal.signal(signal.SIGUSR2, begin)
    atexit.register(write, os.environ["SAMPLED_INTO"])
if os.environ.get("WAYS_INTO"):
    signal.signal(signal.SIGUSR2, ways)
if os.environ.get("UNDER_VALGRIND"):
    os.pidfd_open = watched
