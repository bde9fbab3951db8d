"""What the work of a request comes to: at most, before it is done, and what it was, for quotas and receipts."""

from collections.abc import Iterable, Mapping

from forwardpass.admit.quotas import Use
from forwardpass.core.errors import Failed, Failure
from forwardpass.core.pipeline import Pipeline, Price, Signature, Step
from forwardpass.core.request import Request
from forwardpass.core.tensor import unpack_bytes, unpack_texts

COUNTING = ("tokenize", "token_windows")
"""The kinds of step that count tokens."""
WINDOWS_MAX = 64  # of ``token_windows`` that does not say how many
SPECIAL_TOKENS = 2  # around a text
OF_A_PAIR = 3


def most(pipeline: Pipeline, signature: Signature, request: Request, *, tokens: bool = True) -> Use:
    """The most it can come to; without ``tokens`` these are none. What steps make elements of may come to more: then the
    answer's own count says so."""
    count = _tokens(pipeline, signature, request) if tokens else 0
    return Use(request.rows, count, price_of(pipeline.price, request.rows, count))


def price_of(price: Price, rows: int, tokens: float) -> float:
    """Nothing, where no row was answered."""
    return price.request + price.row * rows + price.token * tokens if rows else 0.0


def ours(failures: Iterable[Failure]) -> int:
    """How many of these are our own fault."""
    return sum([isinstance(failure, Failed) for failure in failures])


def _tokens(pipeline: Pipeline, signature: Signature, request: Request) -> int:
    """Of each step that counts, ``tokens_max`` for each row; fewer where it reads short texts as they were sent."""
    kinds = {column.name: column.kind for column in signature.columns}
    given = dict.fromkeys(name for name, kind in kinds.items() if kind in ("text", "texts"))
    listed: int | None = None  # texts that the rows were made into
    total = 0
    for place, step in enumerate(pipeline.steps):
        if step.use == "expand":
            over: Mapping[str, str] = step.options.get("over", {})
            if any(kinds.get(name) == "texts" for name in over):
                listed = _listed(signature, request, over)
                given.update(dict.fromkeys(own for name, own in over.items() if name in given))
        elif step.use == "fold":
            listed = None
        elif step.use in COUNTING:
            rows = request.rows if listed is None else listed
            windows = step.options.get("windows_max", WINDOWS_MAX) if step.use == "token_windows" else 1
            count = rows * step.options["tokens_max"] * windows
            if all(name in given for name in _read(step)) and _as_sent(step, pipeline.steps[:place]):
                count = min(count, _by_bytes(signature, request))
            total += count
    return total


def _read(step: Step) -> Iterable[str]:
    return [step.options[name] for name in ("input", "pair") if step.options.get(name)]


def _as_sent(step: Step, before: Iterable[Step]) -> bool:
    """Whether what it reads without a name is what came in: no step before it may have made a text."""
    return "input" in step.options or all(each.use in ("expand", *COUNTING) for each in before)


def _listed(signature: Signature, request: Request, names: Iterable[str]) -> int:
    return max(sum(_counts(signature, request, name)) for name in names)


def _counts(signature: Signature, request: Request, name: str) -> list[int]:
    """Of each row how many texts its list has; [] for what is no list."""
    for column, tensor in zip(signature.columns, request.columns, strict=False):
        if column.name == name and column.kind == "texts":
            rows = unpack_bytes(tensor.data, request.rows)
            return [len(unpack_texts(row)) if row is not None else 0 for row in rows]
    return []


def _by_bytes(signature: Signature, request: Request) -> int:
    """At most one for each byte of a text, and the special ones; each text of a list may be paired with each text."""
    texts_bytes = listed_bytes = listed = longest = 0
    for column, tensor in zip(signature.columns, request.columns, strict=False):
        if column.kind == "text":
            texts_bytes += tensor.bytes_total + SPECIAL_TOKENS * request.rows
        elif column.kind == "texts":
            counts = _counts(signature, request, column.name)
            listed_bytes += tensor.bytes_total
            listed += sum(counts)
            longest = max(longest, *counts, 1)
    return texts_bytes * max(1, longest) + listed_bytes + OF_A_PAIR * listed
