"""A worker inside this process: a version's steps run in one thread beside the event loop.

For tests, and for a pipeline that whoever runs this process wrote or trusts: there is no box around it, no limit on its
memory, and what kills it kills this process. All else is as in ``worker.py``: the same plan, the same answers.
"""

import asyncio
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from forwardpass.batching.executor import Outcome
from forwardpass.batching.ticket import Item, Part
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Failed, Failure, Misconfigured, Problem
from forwardpass.core.pipeline import Version
from forwardpass.execution import wire
from forwardpass.execution.apart import reply_apart
from forwardpass.execution.choosing import tried
from forwardpass.execution.exchange import outcome_of, run_of
from forwardpass.execution.overdue import late
from forwardpass.execution.plan import Plan, build
from forwardpass.execution.process import State
from forwardpass.execution.replies import Reply, columns_of, merged, reply_of
from forwardpass.execution.states import States
from forwardpass.execution.wire import Done, Frame, Kind, Loaded
from forwardpass.steps.protocol import Column, StepKind


class LocalWorker:
    """Stands where a ``WorkerProcess`` does. ``own`` holds kinds of step that only this process has, by their ``use``.

    Each item runs by itself, so that one that fails as a whole is nobody else's failure. A row that hangs hangs for
    ever: a thread cannot be ended.
    """

    def __init__(
        self,
        version: Version,
        index: int,
        *,
        threads: int,
        clock: Clock,
        own: Mapping[str, StepKind] | None = None,
    ) -> None:
        self.index = index
        self.state = State.STARTING
        self.loaded: Loaded | None = None
        self.pid: int | None = None
        self.deaths = self.abandoned = 0
        self.given_up: list[int] = []
        self._version = version
        self._threads = threads
        self._clock = clock
        self._own = own or {}
        self._plan: Plan | None = None
        self._states = States(version.definition.sequence)
        self._refusal: Misconfigured | None = None
        self._settled = asyncio.Event()
        self._last: asyncio.Future[Outcome] | None = None
        self._thread = ThreadPoolExecutor(1, f"forwardpass-{version.pipeline}")

    @property
    def ready(self) -> bool:
        """Whether a batch sent now would run."""
        return self.state is State.READY

    @property
    def idle(self) -> bool:
        """Whether a batch sent now would run at once."""
        return self.ready and (self._last is None or self._last.done())

    @property
    def returning(self) -> bool:
        """It never goes away, so it never comes back."""
        return False

    async def run(self) -> None:
        """Its whole life: ends when cancelled, or when the version cannot be loaded."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._load)
            self.state = State.REFUSED if self._refusal else State.READY
            self._settled.set()
            if self._refusal is None:
                await asyncio.Event().wait()
        finally:
            if self.state is not State.REFUSED:
                self.state = State.STOPPED
            try:
                self._thread.submit(self._close)  # after what runs there now
            except RuntimeError:  # the interpreter is ending, and has ended its thread before
                self._close()
            self._thread.shutdown(wait=False)

    async def first_load(self) -> Loaded:
        """Until the version has loaded. Raises Misconfigured when it cannot."""
        await self._settled.wait()
        if self._refusal is not None:
            raise self._refusal
        assert self.loaded is not None, "it has settled, and not by a refusal"
        return self.loaded

    async def vacant(self, ahead_at: float | None) -> None:
        """Until it is idle: nothing is prepared ahead here."""
        await self._settled.wait()
        if self._last is not None:
            await asyncio.wait((self._last,))

    def submit(self, items: Sequence[Item]) -> "asyncio.Future[Outcome]":
        """Run a batch now; see batching.Executor."""
        self._last = asyncio.get_running_loop().run_in_executor(self._thread, self._outcome, items, self.given_up)
        self.given_up = []
        return self._last

    def forget(self, items: Sequence[Item]) -> None:
        """Nobody waits for these any more; each is looked at before its turn, so there is nothing to be told."""

    def _load(self) -> None:
        started = self._clock()
        try:
            plan = self._plan = build(self._version, threads=self._threads, own=self._own)
            rows_max = self._version.definition.batch.rows_cut
            bare = plan.unguarded()
            _, tested = tried(bare, rows_max)
            plan.independent = tested.independent
        except Misconfigured as refusal:
            self._refusal = refusal
        except BaseException as error:  # a border: whatever is raised, sys.exit() too, is the answer to its load
            code = error.code if isinstance(error, Failure) else Code.LOAD_FAILED
            problem = Problem("", "", f"the model could not be loaded: {type(error).__name__}: {error}", "")
            self._refusal = Misconfigured(code, (problem,), detail=traceback.format_exc())
        else:
            self.loaded = Loaded(
                plan.signature,
                plan.platform,
                tested.independent,
                tested.bitwise,
                tested.max_difference,
                tested.reason,
                plan.warnings,
                plan.settings,
                self._clock() - started,
            )

    def _close(self) -> None:
        if self._plan is not None:
            self._plan.close()

    def _outcome(self, items: Sequence[Item], given_up: Sequence[int]) -> Outcome:
        started = self._clock()
        self._states.forget(given_up)
        parts = [self._part(item) for item in items]
        return Outcome(parts, 0.0, self._clock() - started, 0.0, started)

    def _part(self, item: Item) -> Part:
        """There and back in the wire's own form: so a value has the bytes it would have had from a worker."""
        assert self._plan is not None, "nothing is sent to a worker that has not loaded"
        if not item.live or (item.ticket.deadline <= self._clock() and not item.alone):
            return Part(0, [], {}, (), late())
        try:
            reply = _reply(self._plan, self._states, item)
        except BaseException:  # a border: what would end a process (sys.exit) is the answer of this item
            failed = Failed(Code.INTERNAL, "the pipeline failed on this request", detail=traceback.format_exc())
            reply = merged([failed], self._plan.signature.outputs)
        meta = wire.encode(Done(0, reply.parts, reply.outputs, 0.0, 0.0, 0.0))
        frame = Frame(Kind.DONE, meta, memoryview(b"".join(reply.buffers)))
        (part,) = outcome_of(frame, (item,), self._plan.signature.outputs).parts
        return part


def _reply(plan: Plan, states: States, item: Item) -> Reply:
    run, buffers = run_of(0, (item,))
    staged = states.stage(run)
    columns: dict[str, Column] = {}
    try:
        columns = columns_of(plan.signature.columns, run, memoryview(b"".join(buffers)), plan.padding)
        batch = staged.batch(columns)
        plan.preprocess(batch)
        plan.execute(batch)
        plan.postprocess(batch)
        reply = reply_of(batch, plan.signature.outputs, run, plan.padding)
        staged.keep(batch)
        return reply
    except Exception as error:  # a border: it becomes the answer of this item
        return reply_apart(plan, staged, columns, error)
    finally:
        staged.commit()
