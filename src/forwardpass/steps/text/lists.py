"""``join_texts``: the texts of a row's windows, lines or pages made one text."""

from dataclasses import dataclass

from forwardpass.core.pipeline import Field
from forwardpass.steps.kind import Fit, Kind, pick
from forwardpass.steps.options import field_name, option, text
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, text_column

_TEXTS = Fit("a list of text", lambda field: field.kind == "texts")


@dataclass(frozen=True, kw_only=True)
class JoinTexts:
    """Makes one text of a list of texts, such as ``fold`` makes of the windows of a sound or the lines of a page.

    Takes texts; makes ``output``, a text: all that are not empty, in their order, with ``separator`` between. Of a list
    without any it is the empty text. No row fails.
    """

    input: str | None = option(field_name(), "the texts; without it the latest field of this kind", None)
    output: str = option(field_name(), "where the text goes", "text")
    separator: str = option(text(), "what stands between two", " ")


def _joined_fields(options: JoinTexts, known: FieldMap) -> list[Field]:
    pick(known, options.input, _TEXTS)
    return [Field(options.output, "BYTES", (), "text")]


def _join(options: JoinTexts, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, _TEXTS).name

    def run(batch: Batch) -> None:
        batch.columns[options.output] = text_column(
            [options.separator.join(filter(None, texts)) for texts in batch.columns[source]]
        )

    return run


JOIN_TEXTS = Kind("join_texts", JoinTexts, _joined_fields, _join)
