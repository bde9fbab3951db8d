"""``first_token``: a text's vector from the token that stands for all of it."""

from dataclasses import dataclass

from forwardpass.core.pipeline import Field
from forwardpass.steps.by_token import pooled_sources, pooling
from forwardpass.steps.kind import Kind
from forwardpass.steps.options import field_name, option
from forwardpass.steps.protocol import Column, Context, FieldMap, Prepared


@dataclass(frozen=True, kw_only=True)
class FirstToken:
    """The vector of a text's first token that its mask keeps, such as BERT's [CLS]; FP32 [hidden].

    It is what sentence-transformers calls pooling_mode_cls_token (BGE and others). A row that keeps no token fails.
    Vectors and mask may both be ragged (``tokenize`` with ``pad = "row"``).
    """

    input: str | None = option(field_name(), "[tokens, hidden]; without it the latest such tensor", None)
    mask: str = option(field_name(), "[tokens], 0 where a token does not count", "attention_mask")
    output: str = option(field_name(), "where the vector goes", "embedding")


def _first_fields(options: FirstToken, known: FieldMap) -> list[Field]:
    source, _ = pooled_sources(known, options.input, options.mask)
    return [Field(options.output, "FP32", source.shape[1:])]


def _first(options: FirstToken, known: FieldMap, context: Context) -> Prepared:
    def first(vectors: Column, kept: Column) -> Column:
        found: Column = vectors[kept.argmax()]
        return found

    return pooling(*pooled_sources(known, options.input, options.mask), options.output, first)


FIRST_TOKEN = Kind("first_token", FirstToken, _first_fields, _first)
