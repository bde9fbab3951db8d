"""What the work of a request comes to: at most, before it is done, and what it was, for quotas and receipts."""

from collections.abc import Iterable

from forwardpass.admit.quotas import Use
from forwardpass.core.errors import Failed, Failure
from forwardpass.core.pipeline import Pipeline, Price, Signature
from forwardpass.core.request import Answer, Request
from forwardpass.core.tensor import unpack_bytes, unpack_texts

COUNTING = ("tokenize", "token_windows")
"""The kinds of step that count tokens."""
SPECIAL_TOKENS = 2  # around a text
OF_A_PAIR = 3


def most(pipeline: Pipeline, signature: Signature, request: Request) -> Use:
    """The most it can come to. Windows that overlap may come to more tokens: then the answer's own count says so."""
    tokens = _tokens(pipeline, signature, request)
    return Use(request.rows, tokens, price_of(pipeline.price, request.rows, tokens))


def used(answer: Answer) -> Use:
    """What it came to: rows that failed by our fault cost nothing, nor does a request that has no other."""
    rows = answer.rows - ours(answer.failures.values())
    if answer.rows and not rows:
        return Use()
    return Use(rows, answer.tokens, price_of(answer.version.definition.price, rows, answer.tokens))


def ours(failures: Iterable[Failure]) -> int:
    """How many of these are our own fault."""
    return sum([isinstance(failure, Failed) for failure in failures])


def price_of(price: Price, rows: int, tokens: int) -> float:
    return price.request + price.row * rows + price.token * tokens


def _tokens(pipeline: Pipeline, signature: Signature, request: Request) -> int:
    """At most one for each byte of a text, and the special ones; of a list of texts each may be paired with each text."""
    counting = sum([step.use in COUNTING for step in pipeline.steps])
    if not counting:
        return 0
    texts_bytes = listed_bytes = listed = longest = 0
    for column, tensor in zip(signature.columns, request.columns, strict=False):
        if column.kind == "text":
            texts_bytes += tensor.bytes_total + SPECIAL_TOKENS * request.rows
        elif column.kind == "texts":
            counts = [len(unpack_texts(row)) for row in unpack_bytes(tensor.data, request.rows) if row is not None]
            listed_bytes += tensor.bytes_total
            listed += sum(counts)
            longest = max(longest, *counts, 1)
    return counting * (texts_bytes * max(1, longest) + listed_bytes + OF_A_PAIR * listed)
