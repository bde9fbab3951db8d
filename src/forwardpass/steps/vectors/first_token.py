"""``first_token``: a text's vector from the token that stands for all of it."""

from dataclasses import dataclass

import numpy as np

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.kind import Fit, Kind, is_float, pick
from forwardpass.steps.options import field_name, option
from forwardpass.steps.outputs import wrong_shape
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared

_VECTORS = Fit("a floating tensor [tokens, hidden]", lambda field: is_float(field) and len(field.shape) == 2)
_MASK = Fit("an INT64 mask [tokens]", lambda field: field.datatype == "INT64" and len(field.shape) == 1)


@dataclass(frozen=True, kw_only=True)
class FirstToken:
    """The vector of a text's first token that its mask keeps, such as BERT's [CLS]; FP32 [hidden].

    It is what sentence-transformers calls pooling_mode_cls_token (BGE, E5 and others). A row that keeps no token fails.
    """

    input: str | None = option(field_name(), "[tokens, hidden]; without it the latest such tensor", None)
    mask: str = option(field_name(), "[tokens], 0 where a token does not count", "attention_mask")
    output: str = option(field_name(), "where the vector goes", "embedding")


def _first_fields(options: FirstToken, known: FieldMap) -> list[Field]:
    source = pick(known, options.input, _VECTORS)
    pick(known, options.mask, _MASK, "mask")
    return [Field(options.output, "FP32", source.shape[1:])]


def _first(options: FirstToken, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, _VECTORS).name

    def run(batch: Batch) -> None:
        vectors, kept = batch.columns[source], batch.columns[options.mask] != 0
        if vectors.shape[:2] != kept.shape:
            raise wrong_shape(source, f"has {vectors.shape[1]} tokens where {options.mask} has {kept.shape[1]}")
        for row in np.flatnonzero(~kept.any(axis=1)):
            batch.fail(int(row), Refused(Code.INVALID_INPUT, f"{options.mask}: keeps no token", field=options.mask))
        first = vectors[np.arange(batch.rows), kept.argmax(axis=1)]
        batch.columns[options.output] = first.astype(np.float32, copy=False)

    return run


FIRST_TOKEN = Kind("first_token", FirstToken, _first_fields, _first)
