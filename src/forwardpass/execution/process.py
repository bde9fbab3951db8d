"""A worker as the front sees it: one slot whose process is started, loaded, watched, used, and started again.

``run`` is the slot's whole life and ends only by cancellation or when the version is refused at its first load.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from itertools import count

import msgspec

from forwardpass.batching.executor import Outcome, WorkerLost
from forwardpass.batching.ticket import Item
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.core.pipeline import Version
from forwardpass.execution import wire
from forwardpass.execution.beginning import Begin, Order, Process, spawned
from forwardpass.execution.board import Board
from forwardpass.execution.ending import STOPPED, end_of, kill, leave, pulse_of, signal_of
from forwardpass.execution.exchange import outcome_of, run_of
from forwardpass.execution.first_load import FirstLoad
from forwardpass.execution.sent import Sent
from forwardpass.execution.wire import Kind, Load, Loaded

STALLED_AFTER_S = 4.0  # without a beat; the worker beats every second
HUNG_AFTER_S = 10.0  # silent: at once when stopped or idle, at work only when it uses no CPU either
RESTART_DELAY_MIN_S = 0.1
RESTART_DELAY_MAX_S = 30.0
DEATHS_WINDOW_S = 60.0
DEATHS_MAX = 5
RETURNING_LOADS = 2.0  # one that was ended for nobody is about to be back for so many times what loading took
RETURNING_MIN_S = 2.0
LOG_LINES_MAX = 200  # per process: a worker that prints for ever must not fill the log
_log = logging.getLogger("forwardpass.execution")


class State(StrEnum):
    """Where a slot is in its life."""

    STARTING = "starting"
    READY = "ready"
    STALLED = "stalled"
    RESTARTING = "restarting"
    DEGRADED = "degraded"
    REFUSED = "refused"
    STOPPED = "stopped"


class WorkerProcess:
    """One slot. ``loaded`` is set once the version has loaded; ``state`` says whether it can be used now."""

    def __init__(self, version: Version, index: int, *, threads: int, clock: Clock, begin: Begin = spawned) -> None:
        self.index = index
        self.state = State.STARTING
        self.loaded: Loaded | None = None
        self.refusal: Misconfigured | None = None
        self.pid: int | None = None
        self.deaths = 0
        self.abandoned = 0  # processes that were ended for the sake of a batch that nobody waited for
        self.given_up: list[int] = []
        self.first: FirstLoad | None = None  # shared by the workers of a version
        self._version = version
        self._threads = threads
        self._begin = begin
        self._clock = clock
        self._limits = version.definition.workers
        self._running = Sent(clock)
        self._board: Board | None = None
        self._ids = count(1)
        self._waiters: list[asyncio.Future[None]] = []
        self._seen_s = 0.0
        self._loading_since = 0.0
        self._end: socket.socket | None = None
        self._gone: asyncio.Future[Code] | None = None
        self._nobodys = False  # whether it was ended for the sake of a batch that nobody waits for
        self._returns_by = float("-inf")

    @property
    def ready(self) -> bool:
        """Whether a batch sent now would run."""
        return self.state is State.READY

    @property
    def idle(self) -> bool:
        """Whether a batch sent now would run at once."""
        return self.state is State.READY and not self._running

    @property
    def returning(self) -> bool:
        """It was ended for what nobody waited for, a moment ago, and is about to be ready again."""
        return self.state is State.RESTARTING and self._clock() < self._returns_by

    async def run(self) -> None:
        deaths: deque[float] = deque()
        try:
            while True:
                try:
                    code = await self._live()
                except OSError as error:  # no descriptors, no memory, gone before it was told what to load
                    code = Code.WORKER_CRASHED
                    self._note_end(f"could not be started ({error.strerror})", None)
                if self.refusal is not None:
                    self._enter(State.REFUSED)
                    return
                now = self._clock()
                if self._nobodys:  # no sign that the version cannot be run
                    self.abandoned += 1
                    self._nobodys = False
                    continue
                self.deaths += 1
                deaths.append(now)
                while deaths[0] < now - DEATHS_WINDOW_S:
                    deaths.popleft()
                degraded = len(deaths) >= DEATHS_MAX
                self._enter(State.DEGRADED if degraded else State.RESTARTING)
                delay_s = min(RESTART_DELAY_MAX_S, RESTART_DELAY_MIN_S * 2 ** (len(deaths) - 1))
                _log.warning("worker restarts", extra=self._event(code=code.value, delay_s=delay_s, deaths=len(deaths)))
                await asyncio.sleep(delay_s)
        finally:
            if self.state is not State.REFUSED:
                self._enter(State.STOPPED)

    async def first_load(self) -> Loaded:
        """Until the version has loaded once. Raises Misconfigured when it cannot."""
        while self.loaded is None:
            if self.refusal is not None:
                raise self.refusal
            await self._change()
        return self.loaded

    async def vacant(self, ahead_at: float | None) -> None:
        """Until a batch can be taken: ready and idle, or from ``ahead_at`` on with one batch running."""
        while True:
            left_s: float | None = None
            if self.state is State.READY and not self._running:
                return
            if self.state is State.READY and len(self._running) == 1 and ahead_at is not None:
                left_s = ahead_at - self._clock()
                if left_s <= 0.0:
                    return
            await self._change(left_s)

    def submit(self, items: Sequence[Item]) -> "asyncio.Future[Outcome]":
        """Send a batch now; see batching.Executor."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        batch = next(self._ids)
        run, buffers = run_of(batch, items, self.given_up)
        try:
            if self.state is not State.READY or self._end is None or self._board is None:
                raise BrokenPipeError
            self._board.clear(batch)
            wire.send(self._end, Kind.RUN, wire.encode(run), buffers)
        except OSError:
            future.set_exception(WorkerLost(Code.WORKER_CRASHED, started=False))
            return future
        except wire.WireError as error:  # more than a frame holds; its items may fit one by one
            _log.error("batch could not be sent", extra=self._event(reason=str(error), items=len(items)))
            future.set_exception(WorkerLost(Code.WORKER_CRASHED, started=True))
            return future
        self.given_up = []
        self._running.add(batch, items, future)
        return future

    def forget(self, items: Sequence[Item]) -> None:
        """Nobody waits for these any more: those whose batch the worker has not begun are not run."""
        self._running.forget(items, self._board)

    async def _live(self) -> Code:
        """One process from its start to its end; returns how it ended. OSError when it could not be started."""
        loop = asyncio.get_running_loop()
        end, childs_end = wire.pair()
        with end, Board() as board:
            with childs_end:
                process = await self._start(childs_end, board.descriptor)
            self._gone = loop.create_future()
            self._loading_since = self._seen_s = self._clock()
            self.pid, self._end, self._board = process.pid, end, board
            code = Code.WORKER_CRASHED
            try:
                load = await self._what_to_load()
                wire.send(end, Kind.LOAD, wire.encode(load))
                loop.add_reader(end.fileno(), self._readable)
                async with asyncio.TaskGroup() as watchers:
                    watching = watchers.create_task(self._watch())
                    logging_ = watchers.create_task(self._relay(process.stdout))
                    code = await self._gone
                    watching.cancel()
                    self._hang_up()
                    if self._nobodys and self.loaded is not None:
                        self._returns_by = self._clock() + max(RETURNING_MIN_S, RETURNING_LOADS * self.loaded.load_s)
                    if self.state in (State.READY, State.STALLED):
                        self._enter(State.RESTARTING)  # nothing is sent to it any more
                    kill(process.pid)
                    await end_of(process)
                    logging_.cancel()
            finally:
                self._hang_up()
                await leave(process)
                ran = self._running.told()
                self._running.lose(code, nobodys=self._nobodys)
                self.pid = self._board = None
        doing = "" if self.loaded else " while it loaded the model"
        self._note_end(f"ended with status {process.returncode}{doing}", process.pid, signal=signal_of(process), **ran)
        return code

    async def _start(self, childs_end: socket.socket, marks: int) -> Process:
        memory_max_bytes = self._limits.memory_max_mb * 1024 * 1024
        return await self._begin(Order(childs_end, marks, memory_max_bytes, self._version.folder))

    async def _what_to_load(self) -> Load:
        """By what is known of the version; where it is the first worker's to find that out, the others wait here."""
        known = self.loaded
        if known is None and self.first is not None:
            known = await self.first.known(self.index)
            self._loading_since = self._seen_s = self._clock()
        if known is None:
            careful = self.first is not None and self.first.careful
            return Load(self._version, self._threads, None, careful=careful)
        return Load(self._version, self._threads, known.settings, known.independent)

    def _note_end(self, how: str, pid: int | None, **ran: str) -> None:
        if self.loaded is None and self.refusal is None:
            if self.first is not None and self.first.again():
                _log.warning("worker died while it tried", extra=self._event(reason=how, pid=pid, **ran))
                return
            text = f"the worker {how}"
            self.refusal = Misconfigured(Code.LOAD_FAILED, (Problem("", "", text, "see the log"),))
        elif self.refusal is None:
            severity, text = logging.ERROR, "worker died"
            if self._nobodys:
                severity, text = logging.WARNING, "worker was ended: nobody waited for what it ran"
            _log.log(severity, text, extra=self._event(reason=how, pid=pid, **ran))

    def _readable(self) -> None:
        assert self._end is not None and self._gone is not None
        try:
            while (frame := wire.receive(self._end)) is not None:
                self._seen_s = self._clock()
                self._on_frame(frame)
            code = Code.WORKER_CRASHED
        except BlockingIOError:
            return
        except (OSError, wire.WireError, msgspec.MsgspecError) as error:
            _log.error("worker broke the protocol", extra=self._event(reason=repr(error)))
            code = Code.WORKER_CRASHED
        self._end_process(code)

    def _on_frame(self, frame: wire.Frame) -> None:
        match frame.kind:
            case Kind.BEAT:
                if self.state is State.STALLED:
                    self._enter(State.READY)
            case Kind.LOADED:
                loaded = wire.decode.loaded.decode(frame.meta)
                if self.loaded is None:
                    self.loaded = loaded if self.first is None else self.first.found(loaded)
                    chosen = [model["auto"] for model in self.loaded.settings if model.get("auto")]
                    if chosen and self.index == 0:
                        _log.info("engines were chosen", extra=self._event(models=chosen))
                self._enter(State.READY)
            case Kind.REFUSED:
                refused = wire.decode.refused.decode(frame.meta)
                problems = tuple(Problem(*problem) for problem in refused.problems)
                _log.error("version refused", extra=self._event(code=refused.code, detail=refused.detail))
                if self.loaded is None:
                    self.refusal = Misconfigured(Code(refused.code), problems, detail=refused.detail)
            case Kind.DONE:
                self._on_done(frame)
            case _:
                raise wire.WireError("a frame a worker never sends")

    def _on_done(self, frame: wire.Frame) -> None:
        batch = wire.decode.done.decode(frame.meta).batch
        running = self._running.pop(batch)
        if running is None or self.loaded is None:
            raise wire.WireError("an answer to a batch that was not sent")
        if running.future.done():  # the version is being unloaded
            return self._notify()
        try:
            running.future.set_result(outcome_of(frame, running.items, self.loaded.signature.outputs))
        except wire.WireError:
            running.future.set_exception(WorkerLost(Code.WORKER_CRASHED, started=True))
            raise
        self._notify()

    async def _watch(self) -> None:
        """Look every half second for a process that stopped moving."""
        before = moved_s = self._clock()
        pulse = ""
        while True:
            await asyncio.sleep(0.5)
            now = self._clock()
            if now - before > STALLED_AFTER_S / 2:  # this process itself was stopped: nobody else's fault
                moved_s = now
                self._forgive(now, now - before)
            before = now
            silent_s = now - self._seen_s
            last, pulse = pulse, pulse_of(self.pid) if silent_s > STALLED_AFTER_S else ""
            if pulse != last or not pulse:
                moved_s = now
            keeps = self._version.definition.sequence is not None  # then strangers would lose their sequences
            limit_s = self._limits.batch_limit_s
            if self.loaded is not None and not keeps and self._running.abandoned(now, self.loaded.load_s, limit_s):
                self._nobodys = True
                self._end_process(Code.WORKER_HUNG)
            elif self._hangs(now, silent_s, now - moved_s, pulse):
                self._end_process(Code.WORKER_HUNG)
            elif silent_s > STALLED_AFTER_S and self.state is State.READY:
                _log.warning("worker is silent", extra=self._event(silent_s=round(silent_s, 1)))
                self._enter(State.STALLED)

    def _hangs(self, now: float, silent_s: float, still_s: float, pulse: str) -> bool:
        """Own code that holds the interpreter's lock silences a worker that works: what it is at has a limit then."""
        loading = self.state is not State.READY and self.state is not State.STALLED
        if loading and now - self._loading_since > self._limits.load_limit_s:
            return True
        if self._running.over(now, self._limits.batch_limit_s):
            return True
        busy = loading or bool(self._running)
        return silent_s > HUNG_AFTER_S and (not busy or pulse in STOPPED or still_s > HUNG_AFTER_S)

    def _forgive(self, now: float, gap_s: float) -> None:
        """What the front slept through counts against nobody's limit."""
        self._seen_s = now
        self._loading_since = min(now, self._loading_since + gap_s)
        self._running.forgive(now, gap_s)

    async def _relay(self, output: asyncio.StreamReader | None) -> None:
        """What the worker prints becomes log lines, at most LOG_LINES_MAX of them; the rest is read and dropped."""
        assert output is not None
        for number in count(1):
            try:
                line = await output.readline()
            except ValueError:  # longer than a line may be; asyncio has dropped what was buffered of it
                continue
            if not line:
                return
            if number <= LOG_LINES_MAX:
                _log.info("worker output", extra=self._event(line=line.decode("utf-8", "replace").rstrip()))

    def _hang_up(self) -> None:
        if self._end is not None:
            asyncio.get_running_loop().remove_reader(self._end.fileno())
            self._end.close()
            self._end = None

    def _end_process(self, code: Code) -> None:
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(code)

    def _enter(self, state: State) -> None:
        self.state = state
        self._notify()

    def _notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _change(self, timeout_s: float | None = None) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        if timeout_s is None:
            await waiter
        else:
            await asyncio.wait((waiter,), timeout=timeout_s)
            if not waiter.done():
                self._waiters.remove(waiter)

    def _event(self, **fields: object) -> dict[str, object]:
        names = {"pipeline": self._version.pipeline, "version": self._version.number, "worker": self.index}
        return {"event": {**names, "pid": self.pid, **fields}}
