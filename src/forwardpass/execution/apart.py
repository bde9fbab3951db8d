"""What failed as a whole, run again in parts: one request's fault is never another's, nor one row's its neighbours'.

Items always run apart, as they are strangers. The rows of an item do only where they were proved independent: else what
they are with each other may be just what their sender wants to know. They do so for a share of the time a batch may
take, so that a slow failure of many rows does not become the death of the worker: what is left then fails as the item did.
"""

import traceback
from collections.abc import Callable
from functools import partial

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.execution.overdue import Overdue, late
from forwardpass.execution.plan import Plan
from forwardpass.execution.replies import Reply, joined_rows, merged, per_item, reply_of, too_large
from forwardpass.execution.states import Staged
from forwardpass.execution.wire import ANSWER_BYTES_MAX, Run
from forwardpass.steps.protocol import Batch, Column

DETAIL_BYTES_MAX = 4096
ROWS_SHARE = 0.25  # of batch_limit_s


def reply_apart(
    plan: Plan, staged: Staged, columns: dict[str, Column], error: Exception, overdue: Overdue | None = None
) -> Reply:
    """The reply of a batch that ended with ``error``; without columns there is nothing to run, and it stands.

    An item that is overdue when its turn comes, or a row's of it, is not run again.
    """
    failure, count = failure_of(error), len(staged.run.rows)
    until = monotonic_s() + ROWS_SHARE * plan.definition.workers.batch_limit_s
    if not columns:
        return merged([failure] * count, plan.signature.outputs)
    replies: list[Reply | Failure] = []
    overdue = overdue or Overdue()
    for item, (rows, own) in enumerate(per_item(columns, staged.run, plan.padding)):
        over = partial(_over, overdue, staged.run, item)
        if over():
            replies.append(late())
            continue
        reply = _item(plan, staged, own, item) if count > 1 else failure
        if isinstance(reply, Failure) and plan.independent and rows > 1 and reply.code is not Code.OUTPUT_TOO_LARGE:
            reply = _rows(plan, own, rows, reply, until, over)
        replies.append(reply)
    return merged(replies, plan.signature.outputs)


def failure_of(error: Exception) -> Failure:
    """What a caller is told of whatever a step or a model raised."""
    if isinstance(error, Failure):
        return error
    detail = "".join(traceback.format_exception(error))[-DETAIL_BYTES_MAX:]
    if isinstance(error, MemoryError):
        return Failed(Code.ENGINE_OUT_OF_MEMORY, "the worker's memory limit was reached", detail=detail)
    return Failed(Code.INTERNAL, "the pipeline failed on this request", detail=detail)


def _item(plan: Plan, staged: Staged, columns: dict[str, Column], item: int) -> Reply | Failure:
    batch = staged.batch(columns, item)
    reply = _run(plan, batch, staged.run.rows[item])
    if isinstance(reply, Reply):
        staged.keep(batch, item)
    return reply


def _over(overdue: Overdue, run: Run, item: int) -> bool:
    return item in overdue.items(run, monotonic_s())


def _rows(
    plan: Plan, columns: dict[str, Column], rows: int, failure: Failure, until: float, over: Callable[[], bool]
) -> Reply | Failure:
    """Each by itself, unless nobody waits; never of a sequence, as an item of one has a single row."""
    replies: list[Reply | Failure] = []
    for row in range(rows):
        if over():
            return late()
        own = {name: column[row : row + 1] for name, column in columns.items()}
        replies.append(_run(plan, Batch(own, 1, [0]), 1) if monotonic_s() < until else failure)
    joined = joined_rows(replies, plan.signature.outputs)
    size = sum(map(len, joined.buffers))
    return too_large(size) if size > ANSWER_BYTES_MAX else joined


def _run(plan: Plan, batch: Batch, rows: int) -> Reply | Failure:
    try:
        plan.preprocess(batch)
        plan.execute(batch)
        plan.postprocess(batch)
        return reply_of(batch, plan.signature.outputs, Run(0, [rows], [], []), None)
    except Exception as error:  # a border: the answer of what was run
        return failure_of(error)
