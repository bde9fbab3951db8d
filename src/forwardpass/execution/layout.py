"""How many workers a version is best run by, on the threads there are: found out at its first load, if that is left open.

One run of the pipeline with all threads takes turns with as many runs at once, of one thread each. More workers must be
clearly quicker: each is a process with the model in its memory, and a lone row waits longer where it has one thread.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from forwardpass.core.clock import Clock, monotonic_s
from forwardpass.core.errors import Failure
from forwardpass.core.pipeline import Version
from forwardpass.execution.plan import Plan, build
from forwardpass.execution.selftest import Alone, run_rows
from forwardpass.execution.synthetic import Item

ROWS = 8  # of each run
GAIN_MIN = 1.1
TURNS = 5
TRIED_MAX_S = 20.0  # what would take longer is not tried
LOAD_SHARE_MAX = 0.25  # nor what would take so much of workers.load_limit_s


def best_layout(
    version: Version, plan: Plan, alone: Alone, threads: int, *, clock: Clock = monotonic_s
) -> tuple[int, str]:
    """How many workers, and why. ``plan`` has all ``threads``."""
    if threads < 2:
        return 1, "1 worker: there is 1 thread"
    items = [item for item, _ in alone.rows]
    if not items:
        return 1, "1 worker: no row to try others with; give golden examples"
    together = plan.batched and plan.definition.batch.enabled
    rows = [items[place % len(items)] for place in range(ROWS if together else 1)]
    settings = [{**model, "threads": 1} for model in plan.settings]
    limit_s = min(TRIED_MAX_S, LOAD_SHARE_MAX * version.definition.workers.load_limit_s)
    started = clock()
    single: list[Plan] = []
    with ExitStack() as stack:
        try:
            whole_s = _took_s(lambda: run_rows(plan, rows), clock)
            for number in range(threads):
                single.append(build(version, threads=1, settings=settings).unguarded())
                stack.callback(single[-1].close)
                loads_s = (clock() - started) * (threads / (number + 1))
                # A run of one thread takes at most ``threads`` times as long as one of all of them.
                if loads_s + TURNS * whole_s * (1 + threads) > limit_s:
                    return 1, f"1 worker: others were not tried: that would have taken more than {limit_s:g} s"
            gain = _gain(plan, single, rows, clock)
        except (Failure, MemoryError) as error:  # such rows cannot be together, or there is no memory for so many
            why = error.text if isinstance(error, Failure) else "there is no memory for so many"
            return 1, f"1 worker: others were not tried: {why}"
    found = f"{threads} workers of 1 thread are {gain:.2f} times as quick as 1 worker of {threads}"
    return (threads if gain >= GAIN_MIN else 1), found


def _gain(whole: Plan, single: Sequence[Plan], rows: Sequence[Item], clock: Clock) -> float:
    """In rows a second, the quickest turn of each."""
    with ThreadPoolExecutor(len(single)) as pool:

        def at_once() -> None:
            for run in [pool.submit(run_rows, plan, rows) for plan in single]:
                run.result()

        def one() -> None:
            run_rows(whole, rows)

        turns = [(_took_s(one, clock), _took_s(at_once, clock)) for _ in range(TURNS)][1:]
    return min(took for took, _ in turns) * len(single) / min(took for _, took in turns)


def _took_s(run: Callable[[], object], clock: Clock) -> float:
    started = clock()
    run()
    return clock() - started
