"""Workers forked from a process that has imported what they need: they begin in milliseconds, and share its memory.

What is forked has the template's layout of memory. So a crash, which may have been somebody's try at guessing it, ends
the template: workers from then on come from a new one with a layout of its own.
"""

import asyncio
import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import IO, Self

from forwardpass.execution.beginning import LOG_LINE_BYTES_MAX, Order, Process, environment, spawned
from forwardpass.execution.ending import end_of, kill
from forwardpass.execution.forking import PID

ANSWER_TIME_S = 10.0  # the first order waits for the template's imports
CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS)
UNKNOWN = 255  # as asyncio has it
_PR_SET_CHILD_SUBREAPER = 36
_log = logging.getLogger("forwardpass.execution")


class Template:
    """``begin`` is a Begin, which spawns where forking fails. Entered, it starts at once and makes this process the
    parent of what its children leave behind, so it is for a program of ours and not for a library in somebody else's.
    """

    def __init__(self, answer_time_s: float = ANSWER_TIME_S) -> None:
        self._answer_time_s = answer_time_s
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._stale = False  # one of its workers has crashed
        self._asking = asyncio.Lock()
        self._left: list[int] = []  # groups of ended templates that may have children here

    def __enter__(self) -> Self:
        with suppress(OSError):  # then it is tried again for the first worker
            self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        with suppress(OSError):
            _adopt(False)

    @property
    def pid(self) -> int | None:
        """Of the process that forks; None while there is none."""
        return self._process.pid if self._process is not None else None

    async def begin(self, order: Order) -> Process:
        """Raises OSError when no process can be had, forked or spawned."""
        beginning = asyncio.ensure_future(self._begun(order))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:  # what was ordered comes all the same
            with suppress(OSError):
                process = await beginning
                kill(process.pid)
                await end_of(process)
            raise

    async def _begun(self, order: Order) -> Process:
        async with self._asking:
            with ExitStack() as descriptors:  # all that it takes, before there is a process
                read, write = os.pipe()
                output = descriptors.enter_context(open(read, "rb", 0))
                with open(write, "wb", 0):
                    pid = await self._forked(order, write)
                if pid is not None:
                    descriptors.pop_all()
                    return await _Forked.of(pid, output, self._ended)
        _log.warning("no template of workers answers: this one is spawned")
        return await spawned(order)

    async def _forked(self, order: Order, output: int) -> int | None:
        """The pid; None when there is no template or it does not answer. Raises OSError when it cannot fork."""
        control = self._running()
        if control is None:
            return None
        told = b"\0".join((b"%d" % os.getpid(), b"%d" % order.memory_max_bytes, os.fsencode(order.folder)))
        try:
            socket.send_fds(control, [told], [order.end.fileno(), order.marks, output])
            answer = await self._answer(control)
        except OSError:
            answer = b""
        except asyncio.CancelledError:
            self._end()  # its answer would be taken for that to the next order
            raise
        if not answer:
            self._end()
            return None
        (pid,) = PID.unpack(answer)
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return int(pid)

    async def _answer(self, control: socket.socket) -> bytes:
        """Of one that is silent too long, what it has done of the order all the same, when it was ended for that."""
        answering = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(control, PID.size))
        try:
            await asyncio.wait((answering,), timeout=self._answer_time_s)
            if self._process is not None and not answering.done():
                self._process.kill()
            return await answering
        finally:
            answering.cancel()
            await asyncio.wait((answering,))  # nothing watches the descriptor when it is closed

    def _running(self) -> socket.socket | None:
        if self._stale or self._process is None or self._process.poll() is not None:
            self._renew()
        self._reap()
        return self._control

    def _renew(self) -> None:
        self._end()
        with suppress(OSError):
            self._start()

    def _start(self) -> None:
        """Raises OSError, also where the kernel could not tell how a worker ends that was not started from here."""
        os.close(os.pidfd_open(os.getpid()))
        _adopt(True)
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here.setblocking(False)
        with there:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-m", "forwardpass.execution.forking"],
                    stdin=there.fileno(), stdout=subprocess.DEVNULL, start_new_session=True, env=environment(),
                )  # fmt: skip
            except OSError:
                here.close()
                raise
        self._control = here

    def _end(self) -> None:
        """It holds nothing, and its workers are not its children."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._left.append(self._process.pid)
        self._process = self._control = None
        self._stale = False

    def _reap(self) -> None:
        """What a template had begun to fork when it was ended sees that and ends, as a child of this process."""
        for group in tuple(self._left):
            try:
                while os.waitpid(-group, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                self._left.remove(group)

    def _ended(self, returncode: int) -> None:
        """A worker ended so."""
        if -returncode in CRASHES:
            self._stale = True
            if not self._asking.locked():
                self._renew()


def _adopt(yes: bool) -> None:
    """Whether this process becomes the parent of those that its children leave behind. Raises OSError."""
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(yes), 0, 0, 0) != 0:
        raise OSError("this kernel lets nobody be the parent of orphans")


class _Forked:
    """A Process that is a child of this one, though it was not started by it."""

    def __init__(self, pid: int, ended: Callable[[int], None]) -> None:
        self.pid = pid
        self.stdout = asyncio.StreamReader(limit=LOG_LINE_BYTES_MAX)
        self.returncode: int | None = None
        self.read: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gone: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ended = ended

    @classmethod
    async def of(cls, pid: int, output: IO[bytes], ended: Callable[[int], None]) -> Self:
        made = cls(pid, ended)
        loop = asyncio.get_running_loop()
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:  # no descriptor left: nobody would see it end
            output.close()
            kill(pid)
            os.waitpid(pid, 0)
            raise
        loop.add_reader(descriptor, made._reap, descriptor)
        await loop.connect_read_pipe(lambda: _Output(made.stdout, made.read), output)
        return made

    async def wait(self) -> int:
        await asyncio.wait((self._gone, self.read))
        return self._gone.result()

    def _reap(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        try:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        except ChildProcessError:  # somebody else took it
            self.returncode = UNKNOWN
        self._gone.set_result(self.returncode)
        self._ended(self.returncode)


class _Output(asyncio.StreamReaderProtocol):
    """Whoever waits for the process waits for the end of its output too, as asyncio has it."""

    def __init__(self, reader: asyncio.StreamReader, read: "asyncio.Future[None]") -> None:
        super().__init__(reader)
        self._read = read

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        if not self._read.done():
            self._read.set_result(None)

    def eof_received(self) -> bool:
        super().eof_received()
        return False  # it is closed then
