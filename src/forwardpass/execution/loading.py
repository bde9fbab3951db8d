"""How a worker loads its version: build, warm up, test that rows are independent, and tell the front either way."""

import traceback
from collections.abc import Callable
from dataclasses import replace

from forwardpass.core.clock import monotonic_s
from forwardpass.core.errors import Code, Failure, Misconfigured, encodable
from forwardpass.execution import wire
from forwardpass.execution.choosing import tried
from forwardpass.execution.layout import best_layout
from forwardpass.execution.plan import Plan, build
from forwardpass.execution.selftest import SelfTest, rows_alone, warm_up
from forwardpass.execution.wire import Kind, Load, Loaded, RefusedLoad

DETAIL_BYTES_MAX = 4096


def loaded_plan(load: Load, send: Callable[[Kind, bytes], None]) -> Plan | None:
    """The plan, once the front was told LOADED; None when it was told REFUSED."""
    started = monotonic_s()
    try:
        plan = build(load.version, threads=load.threads, settings=load.settings)
        rows_max = load.version.definition.batch.rows_cut
        again = load.settings is not None
        bare = plan.unguarded()
        if again:  # the front goes by the first load
            alone = rows_alone(bare, 1)
            tested = SelfTest(load.independent, load.independent, 0.0, "tested at the first load", 0)
        else:
            alone, tested = tried(bare, rows_max, careful=load.careful)
        plan.independent = tested.independent
        workers, layout = load.version.definition.workers.count, ""
        if not workers and load.careful:
            workers, layout = 1, "1 worker: others are not tried: a worker ended when they were"
        elif not workers:
            workers, layout = best_layout(load.version, bare, alone, load.threads)
        warnings = [*plan.warnings, *warm_up(bare, alone, tested, 1 if again else rows_max)]
    except Misconfigured as error:
        problems = [(p.file, p.key, p.found, p.allowed, p.line) for p in error.problems]
        send(Kind.REFUSED, wire.encode(RefusedLoad(error.code, problems, error.detail[-DETAIL_BYTES_MAX:])))
        return None
    except Exception as error:  # a border: whatever a model file makes a library raise is the operator's answer
        code = error.code if isinstance(error, Failure) else Code.LOAD_FAILED
        problems = [("", "", f"the model could not be loaded ({code}); the log has the details", "", None)]
        send(
            Kind.REFUSED,
            wire.encode(RefusedLoad(code, problems, encodable(traceback.format_exc())[-DETAIL_BYTES_MAX:])),
        )
        return None
    signature = replace(plan.signature, batched=plan.batched, fixed_rows=plan.fixed_rows)
    loaded = Loaded(
        signature, plan.platform, tested.independent, tested.bitwise, tested.max_difference, tested.reason,
        warnings, plan.settings, monotonic_s() - started, workers, layout,
    )  # fmt: skip
    send(Kind.LOADED, wire.encode(loaded))
    return plan
