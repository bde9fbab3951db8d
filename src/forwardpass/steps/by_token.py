"""Fields with something for each token of a text: tensors padded to the batch's longest row, or ragged.

``tokenize`` makes the one or, with ``pad = "row"``, the other; a model's outputs follow its inputs.
"""

from collections.abc import Callable, Sized

import numpy as np

from forwardpass.core.errors import Code, Failure, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.kind import FLOATS, Fit, describe, invalid, pick, unfit
from forwardpass.steps.protocol import Batch, Column, FieldMap, Prepared


def _is_by_token(field: Field, axes: int) -> bool:
    return field.kind in ("tensor", "ragged") and len(field.shape) == axes


VECTORS = Fit(
    "floating vectors [tokens, hidden], in a tensor or ragged",
    lambda field: _is_by_token(field, 2) and field.datatype in FLOATS,
)
SCORES = Fit("floating scores [tokens, labels], in a tensor or ragged", VECTORS.test)
LOGITS = Fit(
    "floating logits [tokens], in a tensor or ragged",
    lambda field: _is_by_token(field, 1) and field.datatype in FLOATS,
)
MASK = Fit(
    "an integer mask [tokens]",
    lambda field: _is_by_token(field, 1) and (field.datatype == "BOOL" or "INT" in field.datatype),
)
WORDS = Fit("INT64 [tokens]", lambda field: _is_by_token(field, 1) and field.datatype == "INT64")
OFFSETS = Fit(
    "places of tokens, INT64 [tokens, 2], which tokenize makes with offsets",
    lambda field: _is_by_token(field, 2) and field.datatype == "INT64" and field.shape[1] == 2,
)


def require_alike(field: Field, key: str, other: Field) -> None:
    """Raise Misconfigured where one is ragged and the other padded: they would have as many tokens by chance only."""
    if field.kind != other.kind:
        raise invalid(key, f"{describe(other)}, a {other.kind}", f"a {field.kind}, as {describe(field)} is")


def require_equal(field: Field, of_row: Sized, other: Field, of_other: Sized) -> None:
    """Raise a Failure of the row in which the field has not as many tokens as the other one."""
    if len(of_row) != len(of_other):
        why = f"has {len(of_row)} tokens where {other.name} has {len(of_other)}"
        raise unfit(field, Code.BAD_OUTPUT_SHAPE, why)


def pooled_sources(known: FieldMap, vectors: str | None, mask: str) -> tuple[Field, Field]:
    """The vectors and the mask of a step that makes one vector of each row. Raises Misconfigured."""
    source, kept = pick(known, vectors, VECTORS), pick(known, mask, MASK, "mask")
    require_alike(source, "mask", kept)
    return source, kept


def pooling(source: Field, mask: Field, output: str, pool: Callable[[Column, Column], Column]) -> Prepared:
    """A step that makes one vector of each row's, by ``pool``, which gets them and which of them the mask keeps.

    Row by row: a sum over a batch padded to equal length may round in another order than the row's alone.
    """

    def pooled(vectors: Column, kept: Column, hidden: int) -> Column:
        require_equal(source, vectors, mask, kept)
        if vectors.shape[1:] != (hidden,):
            raise unfit(source, Code.BAD_OUTPUT_SHAPE, f"has shape {list(vectors.shape)}; [tokens, {hidden}] is needed")
        if not kept.any():
            raise Refused(Code.INVALID_INPUT, f"{mask.name}: keeps no token", field=mask.name)
        return pool(vectors, kept)

    def run(batch: Batch) -> None:
        vectors, masks = batch.columns[source.name], batch.columns[mask.name]
        hidden = source.shape[1]
        if hidden < 0:
            hidden = vectors[0].shape[1] if batch.rows else 0
        made = np.zeros((batch.rows, hidden), dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # infinities become NaN, for the pipeline's own checks
            for row in range(batch.rows):
                try:
                    made[row] = pooled(vectors[row], masks[row] != 0, hidden)
                except Failure as failure:
                    batch.fail(row, failure)
        batch.columns[output] = made

    return run
