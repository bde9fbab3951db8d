"""The states a version goes through in the server, and the only moves between them."""

from enum import StrEnum

from forwardpass.core.errors import Code, Failed


class Stage(StrEnum):
    """``ready`` is the only one that takes traffic; ``failed`` and ``unloaded`` are ends."""

    LOADING = "loading"  # workers start, load, warm up, test that rows are independent
    VERIFYING = "verifying"  # golden examples run through the path that requests take
    READY = "ready"
    DRAINING = "draining"  # takes nothing new, finishes what it has
    UNLOADED = "unloaded"
    FAILED = "failed"


MOVES: dict[Stage, frozenset[Stage]] = {
    Stage.LOADING: frozenset({Stage.VERIFYING, Stage.FAILED, Stage.UNLOADED}),
    Stage.VERIFYING: frozenset({Stage.READY, Stage.FAILED, Stage.UNLOADED}),
    Stage.READY: frozenset({Stage.DRAINING}),
    Stage.DRAINING: frozenset({Stage.UNLOADED}),
    Stage.UNLOADED: frozenset(),
    Stage.FAILED: frozenset({Stage.UNLOADED}),
}


def move(current: Stage, wanted: Stage) -> Stage:
    """The new stage. Raises Failed conflict for a move that is not in MOVES."""
    if wanted not in MOVES[current]:
        raise Failed(Code.CONFLICT, f"a version that is {current} cannot become {wanted}")
    return wanted
