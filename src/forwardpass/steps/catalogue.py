"""All built-in kinds of step but ``model``, which needs the engines and so lives above, in ``execution/``."""

from collections.abc import Mapping

from forwardpass.steps.bytes import BYTE_WINDOWS
from forwardpass.steps.kind import invalid
from forwardpass.steps.labels import LABELS, THRESHOLD
from forwardpass.steps.options import did_you_mean
from forwardpass.steps.outputs import ARGMAX, L2_NORM, MEAN_POOL, SIGMOID, SOFTMAX, TAKE
from forwardpass.steps.own import own_kind
from forwardpass.steps.protocol import StepKind
from forwardpass.steps.tabular import COLUMNS, FILL, ONE_HOT, ORDINAL, SCALE
from forwardpass.steps.text import NORMALIZE_TEXT, TOKENIZE

OWN_PREFIX = "steps:"


def kinds() -> dict[str, StepKind]:
    """The built-in kinds by name."""
    built_in: tuple[StepKind, ...] = (
        NORMALIZE_TEXT,
        TOKENIZE,
        BYTE_WINDOWS,
        FILL,
        SCALE,
        ONE_HOT,
        ORDINAL,
        COLUMNS,
        SOFTMAX,
        SIGMOID,
        ARGMAX,
        TAKE,
        MEAN_POOL,
        L2_NORM,
        LABELS,
        THRESHOLD,
    )
    return {kind.name: kind for kind in built_in}


def kind_of(use: str, kinds: Mapping[str, StepKind]) -> StepKind:
    """The kind a step's ``use`` names, built-in or ``steps:NAME``. Raises Misconfigured when there is none."""
    if use in kinds:
        return kinds[use]
    function = use.removeprefix(OWN_PREFIX)
    if function != use and function.isidentifier() and not function.startswith("_"):
        return own_kind(function)
    allowed = f"one of {', '.join(sorted(kinds))} or {OWN_PREFIX}NAME, a function of steps.py"
    raise invalid("use", f"no kind of step is named {use[:64]!r}", allowed + did_you_mean(use, kinds))
