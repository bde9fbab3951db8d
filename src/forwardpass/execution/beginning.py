"""How a worker process begins: what it is given, what is known of it then, and the plain way, a new interpreter."""

import asyncio
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

LOG_LINE_BYTES_MAX = 4096
_ENVIRONMENT_KEPT = (
    "PATH", "LANG", "LC_ALL", "TZ", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE",
)  # fmt: skip
_ENVIRONMENT_SET = {
    "ORT_DISABLE_TELEMETRY": "1",  # a server does not report to anybody
    "OPENCV_FOR_THREADS_NUM": "1",  # the worker's threads are its engine's
    "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait for work leave the cores to those at work
}


@dataclass(frozen=True, slots=True)
class Order:
    """``end`` becomes the worker's standard input; ``marks`` is the descriptor of its board, which it maps."""

    end: socket.socket
    marks: int
    memory_max_bytes: int
    folder: str


class Process(Protocol):
    """A process that leads a session of its own, as asyncio has it."""

    @property
    def pid(self) -> int: ...
    @property
    def stdout(self) -> asyncio.StreamReader | None: ...
    @property
    def returncode(self) -> int | None: ...
    async def wait(self) -> int:
        """Until it has ended and its output was read. Returns its status, negative for a signal."""
        ...


Begin = Callable[[Order], Awaitable[Process]]
"""Starts a worker process; raises OSError when it cannot. The order's descriptors stay the caller's, to be closed."""


async def spawned(order: Order) -> Process:
    """A Begin: Python is started anew, and imports everything."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-m", "forwardpass.execution.boxed",
        str(os.getpid()), str(order.memory_max_bytes), str(order.marks),
        order.folder,  # the last, after all other arguments: boxed.py reads it there
        start_new_session=True, pass_fds=(order.marks,), stdin=order.end.fileno(),  # inheritable, it would reach others started meanwhile
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, limit=LOG_LINE_BYTES_MAX,
        env=environment(),
    )  # fmt: skip


def environment() -> dict[str, str]:
    """Of a worker: nothing of the server's but what is harmless."""
    return _ENVIRONMENT_SET | {name: os.environ[name] for name in _ENVIRONMENT_KEPT if name in os.environ}
