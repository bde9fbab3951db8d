"""A worker's whole life, in the child process: close the box, load one version, answer batches until the front goes.

Two threads take turns: whoever holds the wire receives a batch and preprocesses it, then waits for the engine and lets
the other have the wire. So the next batch is prepared while the current one runs, and a lone batch is never handed from
thread to thread. A third says every second that the process is alive. A batch that fails as a whole is run again in
parts, so that one request's fault is never its neighbours' (``apart``, FAULTS R11).
"""

import os
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.execution import wire
from forwardpass.execution.apart import failure_of, reply_apart
from forwardpass.execution.board import Marks
from forwardpass.execution.loading import loaded_plan
from forwardpass.execution.overdue import Overdue, told
from forwardpass.execution.plan import Plan
from forwardpass.execution.replies import Reply, columns_of, count_padding, merged, reply_of, too_large
from forwardpass.execution.states import Staged, States
from forwardpass.execution.wire import Done, Kind, Load
from forwardpass.steps.protocol import Batch, Column

BEAT_S = 1.0


@dataclass(slots=True)
class Job:
    """A batch that was preprocessed: ``batch`` is None when that failed as a whole."""

    staged: Staged
    columns: dict[str, Column]
    batch: Batch | None
    preprocess_s: float
    failure: Failure | None = None
    left_out: set[int] = field(default_factory=set)  # items that nobody waits for


class Worker:
    """``serve`` returns when the front is gone."""

    def __init__(self, end: socket.socket, marks: Marks | None = None) -> None:
        self._end = end
        self._overdue = Overdue(marks)
        self._sending = threading.Lock()
        self._stopping = threading.Event()
        self._wire = threading.Lock()
        self._engine = threading.Lock()

    def send(self, kind: Kind, meta: bytes = b"", columns: Sequence[bytes | memoryview] = ()) -> None:
        with self._sending:
            wire.send(self._end, kind, meta, columns)

    def serve(self, load: Load) -> None:
        plan = loaded_plan(load, self.send)
        if plan is None:
            return
        self._states = States(plan.definition.sequence)
        second = threading.Thread(target=self._take_turns, args=(plan,), name="turns")
        second.start()
        self._take_turns(plan)
        second.join()
        self._stopping.set()
        plan.close()

    def _take_turns(self, plan: Plan) -> None:
        try:
            while self._turn(plan):
                pass
        except BaseException:  # a border: a process with a dead thread would look alive and answer nothing
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def _turn(self, plan: Plan) -> bool:
        with self._wire:
            job = self._next(plan)
            if job is None:
                return False
            self._engine.acquire()  # before the wire is let go: batches run in the order they came in
        try:
            self._execute(plan, job)
        finally:
            self._engine.release()
        return True

    def _next(self, plan: Plan) -> Job | None:
        """The next batch, preprocessed; None when there will be none."""
        if self._stopping.is_set():
            return None
        try:
            frame = wire.receive(self._end)
        except wire.NoRoom as error:
            failure = Failed(Code.ENGINE_OUT_OF_MEMORY, "the batch does not fit into the worker's memory limit")
            return Job(self._states.stage(wire.decode.run.decode(error.meta)), {}, None, 0.0, failure)
        if frame is None:
            self._stopping.set()
            return None
        return self._preprocess(plan, self._states.stage(wire.decode.run.decode(frame.meta)), frame.payload)

    def beat(self) -> None:
        while not self._stopping.wait(BEAT_S):
            try:
                self.send(Kind.BEAT)
            except OSError:
                return

    def _preprocess(self, plan: Plan, staged: Staged, payload: memoryview) -> Job:
        started = monotonic_s()
        columns: dict[str, Column] = {}
        try:
            columns = columns_of(plan.signature.columns, staged.run, payload, plan.padding)
            batch = staged.batch(columns)
            count_padding(batch, staged.run, plan.padding)
            left_out = self._overdue.leave_out(staged.run, batch, started)
            plan.preprocess(batch)
            return Job(staged, columns, batch, monotonic_s() - started, left_out=left_out)
        except Exception as error:  # a border: it becomes the answer of this batch
            return Job(staged, columns, None, monotonic_s() - started, failure_of(error))

    def _execute(self, plan: Plan, job: Job) -> None:
        begun = executed = monotonic_s()
        run, staged = job.staged.run, job.staged
        try:
            if job.batch is None:
                raise job.failure or Failed(Code.INTERNAL, "preprocessing left nothing")
            job.left_out |= self._overdue.leave_out(run, job.batch, begun)
            plan.execute(job.batch)
            executed = monotonic_s()
            plan.postprocess(job.batch)
            reply = told(reply_of(job.batch, plan.signature.outputs, run, plan.padding), job.left_out)
            staged.keep(job.batch)
        except Exception as error:  # a border: find out whose fault it is
            reply = reply_apart(plan, staged, job.columns, error, self._overdue)
            executed = monotonic_s()
        padding = (0, 0) if job.batch is None else (job.batch.elements, job.batch.padding)
        said = (job.preprocess_s, executed - begun, monotonic_s() - executed, begun, *padding)
        undo = staged.commit()  # before the answer: the next request of a sequence may follow it at once
        try:
            self._answer(run.batch, reply, said)
        except wire.WireError:  # all answers together are more than a frame holds
            undo()
            failure = too_large(sum(map(len, reply.buffers)))
            self._answer(run.batch, merged([failure] * len(run.rows), plan.signature.outputs), said)

    def _answer(self, batch: int, reply: Reply, said: tuple[float, float, float, float, int, int]) -> None:
        self.send(Kind.DONE, wire.encode(Done(batch, reply.parts, reply.outputs, *said)), reply.buffers)


def live() -> None:
    """The life of a worker process, in its box; ``boxed.py`` has what its command line says.

    Its end of the wire comes as standard input and is moved away from there, out of reach of what reads that.
    """
    marks = int(sys.argv[3])
    end = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    frame = wire.receive(end)
    if frame is None:
        return
    load = wire.decode.load.decode(frame.meta)
    worker = Worker(end, Marks(marks))
    threading.Thread(target=worker.beat, name="beat", daemon=True).start()
    worker.serve(load)
    sys.stderr.flush()
    os._exit(0)  # runtimes with threads of their own do not always end well by themselves
