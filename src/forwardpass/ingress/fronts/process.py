"""One front as the owner sees it: started, watched, begun anew when it dies, let finish at the end."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum

from forwardpass.core.clock import Clock
from forwardpass.ingress.fronts.board import Board
from forwardpass.ingress.fronts.channel import Channel
from forwardpass.ingress.fronts.desk import Desk
from forwardpass.ingress.fronts.wire import Asked, BrokenWire, Drain, GivenUp, Opening, Ready, Said, Taken, pair
from forwardpass.ingress.listeners import Listeners
from forwardpass.ingress.message import FrontStatistics

START_TIME_S = 30.0
SILENT_S = 2.0  # then the owner accepts in its place
SILENT_MAX_S = 10.0  # then it hangs, and is ended
LOOK_S = 0.5
RESTART_DELAY_MIN_S, RESTART_DELAY_MAX_S = 0.1, 5.0
CALM_S = 60.0  # who lived so long begins anew at once
LEAVE_TIME_S = 2.0
_ENVIRONMENT_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")
_log = logging.getLogger("forwardpass.ingress")


class FrontState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    STOPPED = "stopped"


class FrontProcess:
    """``sock`` is accepted on by the owner while the front is not there. ``desk`` makes who answers it."""

    def __init__(
        self,
        opening: Opening,
        sock: socket.socket,
        listeners: Listeners,
        board: Board,
        clock: Clock,
        desk: Callable[[Channel], Desk],
    ) -> None:
        self.state = FrontState.STARTING
        self.pid: int | None = None
        self.deaths = 0
        self._opening = opening
        self._sock = sock
        self._listeners = listeners
        self._board = board
        self._clock = clock
        self._make_desk = desk
        self._channel: Channel | None = None
        self._desk: Desk | None = None
        self._gone = asyncio.Event()
        self._broken = ""
        self._ending = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def status(self) -> FrontStatistics:
        told = self._board.statistics(self._opening.row)
        return FrontStatistics(self.state.value, self.pid, self.deaths, told.connections, told.running)

    def say(self, message: Said) -> None:
        """To the process there is, if there is one."""
        if self._channel is not None:
            self._channel.say(message)

    async def drain(self, grace_s: float) -> None:
        """Let its requests end within the grace, then end it. May be called again with less."""
        self._ending = True
        self.say(Drain(0, grace_s))
        if self._channel is None:  # it is not there, and need not come back
            self._task.cancel()
        await asyncio.wait((self._task,), timeout=grace_s + LEAVE_TIME_S)
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _run(self) -> None:
        delay_s = RESTART_DELAY_MIN_S
        try:
            while not self._ending:
                how, began_s = "could not be started", self._clock()
                try:
                    how = await self._live()
                except OSError as error:
                    how = f"could not be started ({error.strerror})"
                if self._ending:
                    return
                self.deaths += 1
                self.state = FrontState.RESTARTING
                self._listeners.take_back(self._sock)
                delay_s = (
                    RESTART_DELAY_MIN_S if self._clock() - began_s > CALM_S else min(RESTART_DELAY_MAX_S, 2 * delay_s)
                )
                event = {"front": self._opening.row, "reason": how, "deaths": self.deaths, "delay_s": delay_s}
                _log.error("a front ended, and with it its connections; it restarts", extra={"event": event})
                await asyncio.sleep(delay_s)
        finally:
            self.state = FrontState.STOPPED

    async def _live(self) -> str:
        """One process from its start to its end; returns how it ended. Raises OSError when it could not be started."""
        end, childs_end = pair()
        with end:
            with childs_end:
                process = await self._start(childs_end)
            self.pid = process.pid
            self._gone.clear()
            self._broken = ""
            self._channel = Channel(end, self._take, self._lost, asked=True)
            self._desk = self._make_desk(self._channel)
            self._channel.say(self._opening)
            watching = asyncio.create_task(self._watch(process))
            try:
                await self._gone.wait()
            finally:
                watching.cancel()
                self._channel.close()
                self._channel = None
                await self._desk.close()
                await self._leave(process)
                self.pid = None
                self._board.clear(self._opening.row)
        return self._broken or f"ended with status {process.returncode}"

    def _lost(self, error: Exception | None) -> None:
        if isinstance(error, BrokenWire):
            self._broken = f"said what no front says: {error}"
        self._gone.set()

    async def _start(self, childs_end: socket.socket) -> asyncio.subprocess.Process:
        listener, board = self._sock.fileno(), self._board.descriptor
        return await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-m", "forwardpass.ingress.fronts.live", str(os.getpid()), str(listener), str(board),
            start_new_session=True, pass_fds=(listener, board), stdin=childs_end.fileno(),
            stdout=asyncio.subprocess.DEVNULL,  # its log goes where ours does: standard error
            env={name: os.environ[name] for name in _ENVIRONMENT_KEPT if name in os.environ},
        )  # fmt: skip

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Accept in its place while it says nothing, and end it when it has for too long.

        What the owner itself slept through does not count.
        """
        seen_s = before_s = self._clock()
        while True:
            await asyncio.sleep(LOOK_S)
            now_s = self._clock()
            if now_s - before_s > 2 * LOOK_S:
                seen_s = now_s
            before_s = now_s
            seen_s = max(seen_s, min(now_s, self._board.beat_s(self._opening.row)))
            ready = self.state is FrontState.READY
            if ready and not self._ending:
                accepts = self._listeners.take_back if now_s - seen_s > SILENT_S else self._listeners.lend
                accepts(self._sock)
            if now_s - seen_s > (SILENT_MAX_S if ready else START_TIME_S):
                _log.error("a front hangs", extra={"event": {"front": self._opening.row, "pid": process.pid}})
                with suppress(ProcessLookupError):
                    process.kill()
                return

    async def _leave(self, process: asyncio.subprocess.Process) -> None:
        try:
            async with asyncio.timeout(LEAVE_TIME_S):
                await process.wait()
        except TimeoutError:
            pass
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
        await process.wait()

    def _take(self, said: Said, memory: int) -> None:
        match said:
            case Asked() | GivenUp() | Taken() if self._desk is not None:
                self._desk.take(said, memory)
            case Ready():
                self.state = FrontState.READY
                if not self._ending:
                    self._listeners.lend(self._sock)
            case _:
                raise BrokenWire("a message that no front sends")
