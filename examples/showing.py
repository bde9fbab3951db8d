"""What the demo's stories stand on: a screen, a server of their own and many clients at once."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forwardpass.core.clock import monotonic_s

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100
BAR_WIDTH = 40
STOP_LIMIT_S = 15.0


class Screen:
    """Lines on standard output: in colours on a terminal when rich is installed, else plain text."""

    def __init__(self) -> None:
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="replace")  # an output that knows only ASCII must not end the show
        self._console = _console()

    def say(self, text: str = "", style: str = "") -> None:
        """A line, cut at the width."""
        self.paste(text[:WIDTH], style)

    def paste(self, text: str, style: str = "green") -> None:
        """A line, whole whatever its length."""
        if self._console is None:
            print(text, flush=True)
        else:
            self._console.print(text, style=style or None, markup=False, highlight=not style, soft_wrap=True)

    def bars(self, rows: Sequence[tuple[str, float, str]]) -> None:
        """One line each: a name, what to read beside it, and a bar as long as its number."""
        most = max(number for _, number, _ in rows) or 1
        width = max(len(name) for name, _, _ in rows)
        block = "#" if self._console is None else "█"
        for name, number, text in rows:
            length = max(round(BAR_WIDTH * number / most), 1 if number > 0 else 0)
            self.say(f"  {name:{width}} {text:>9}  {block * length}")

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """``text`` while the block runs, on a terminal with a moving sign."""
        if self._console is None:
            self.say(text)
            yield
        else:
            with self._console.status(text):
                yield


def _console() -> "Console | None":
    if not sys.stdout.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console()


@dataclass(frozen=True, slots=True)
class Server:
    process: "subprocess.Popen[bytes]"
    port: int
    url: str
    admin_url: str
    log: Path


@contextmanager
def serving(sources: Sequence[Path], data: Path) -> Iterator[Server]:
    """The server as a process of its own; asked to end when the block is left, and made to if it does not."""
    data.mkdir(parents=True, exist_ok=True)
    port, grpc_port, admin_port = _port(8000), _port(8001), _port(8002)
    command = [sys.executable, "-m", "forwardpass", "serve", *map(str, sources), "--port", str(port)]
    command += ["--grpc-port", str(grpc_port), "--admin-port", str(admin_port), "--set", f"run.data={data}"]
    command += ["--set", "run.ready_grace_s=0", "--set", "run.log=text"]
    log = data / "server.log"
    with log.open("wb") as sink:  # in a session of its own: Ctrl-C here is not a Ctrl-C there
        process = subprocess.Popen(command, stdout=sink, stderr=sink, start_new_session=True)
    try:
        yield Server(process, port, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{admin_port}", log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _port(preferred: int) -> int:
    """The preferred port, or any free one when somebody has it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", preferred))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Reply:
    """To one of the records that were sent; ``outputs`` is empty for an error."""

    record: int
    request_id: str
    sent_s: float
    came_s: float
    outputs: dict[str, Any]


async def hammer(
    port: int,
    pipeline: str,
    records: Sequence[object],
    *,
    clients: int,
    seconds: float,
    midway: Callable[[], None] | None,
) -> list[Reply]:
    """Clients that each send a record as soon as they have the answer to their last one; ``midway`` is called after a quarter.

    They are plain: a comfortable client, 64 times in this one process, would be the slowest part of what is measured.
    """
    end_s = monotonic_s() + seconds
    replies: list[Reply] = []

    async def one(first: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for turn in count():
            if monotonic_s() > end_s:
                break
            record = (first + 7 * turn) % len(records)
            body = json.dumps(records[record]).encode()
            head = f"POST /predict/{pipeline} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            sent_s = monotonic_s()
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")[1:-2]
            headers = dict(line.split(": ", 1) for line in lines)
            answer = json.loads(await reader.readexactly(int(headers["content-length"])))
            outputs = answer.get("outputs", {})
            replies.append(Reply(record, headers["x-request-id"], sent_s, monotonic_s(), outputs))
        writer.close()

    async with asyncio.TaskGroup() as group:
        for first in range(clients):
            group.create_task(one(first))
        if midway is not None:
            await asyncio.sleep(seconds / 4)
            midway()
    return replies
