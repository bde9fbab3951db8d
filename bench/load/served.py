"""One server under measurement: started, waited for until its first right answer, ended with all its processes."""

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from bench.load import tree

START_LIMIT_S = 60.0
ASK_EVERY_S = 0.01
LOG_TAIL = 300
LOG = "; its log ends: "
"""Between what went wrong and the end of the log, which may name this machine's paths: not for publishing."""

Right = Callable[[int, Mapping[str, str], bytes], str]
"""What is wrong with an answer of this status, headers and body; empty: nothing."""


class NotServed(Exception):
    """The server did not start, or its answers are wrong; the message says which, with the end of its log."""


@dataclass(frozen=True, slots=True)
class Question:
    """One request, and how to tell whether its answer is right."""

    path: str
    body: bytes
    headers: Mapping[str, str]
    wrong: Right

    def ask(self, port: int) -> str:
        """What is wrong with the answer; empty: nothing. Raises OSError where nobody listens."""
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("POST", self.path, self.body, dict(self.headers))
            answer = connection.getresponse()
            return self.wrong(answer.status, dict(answer.getheaders()), answer.read())
        except HTTPException as error:
            return f"not HTTP: {type(error).__name__}"
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class Served:
    """It answers right. ``cold_s``: from starting the process to the first right answer."""

    pid: int
    mark: str
    port: int
    cold_s: float

    def cpu_s(self) -> float:
        return tree.cpu_s(self.pid, self.mark)

    def memory_bytes(self) -> int:
        return tree.memory_bytes(self.pid, self.mark)


@contextmanager
def served(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    port: int,
    question: Question,
    log: Path,
    start_limit_s: float = START_LIMIT_S,
) -> Iterator[Served]:
    """Raises NotServed when there is no right answer within the limit."""
    mark = f"{os.getpid()}-{port}-{time.monotonic_ns()}"
    with log.open("wb") as sink:
        started_s = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd=folder,
            env={**os.environ, **environment, tree.MARK: mark},
            start_new_session=True,
        )
        try:
            _wait(process, port, question, started_s, log, start_limit_s)
            yield Served(process.pid, mark, port, time.perf_counter() - started_s)
        finally:
            tree.end(process, mark)


def _wait(
    process: "subprocess.Popen[bytes]", port: int, question: Question, started_s: float, log: Path, limit_s: float
) -> None:
    wrong = "nobody listens"
    while time.perf_counter() - started_s < limit_s:
        with suppress(OSError):
            wrong = question.ask(port)
        if not wrong:
            return
        if process.poll() is not None:
            wrong = f"it ended with status {process.returncode}"
            break
        time.sleep(ASK_EVERY_S)
    raise NotServed(f"{wrong}{LOG}{log.read_bytes()[-LOG_TAIL:].decode(errors='replace')!r}")


def together(questions: Sequence[Question], port: int) -> str:
    """What is wrong with one of the answers when all are asked at once, each by a client of its own; empty: nothing."""
    ready = threading.Barrier(len(questions))

    def asked(question: Question) -> str:
        ready.wait()
        try:
            return question.ask(port)
        except OSError as error:
            return f"no answer: {type(error).__name__}"

    with ThreadPoolExecutor(len(questions)) as clients:
        found = list(clients.map(asked, questions))
    wrong = [each for each in found if each]
    return f"{len(wrong)} of {len(found)} asked at once: {wrong[0]}" if wrong else ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
