"""``answer_span``: where in a text a reader found the answer to a question."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failure, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.by_token import LOGITS, MASK, OFFSETS, require_alike, require_equal
from forwardpass.steps.kind import TEXT, Kind, missing, not_finite, pick
from forwardpass.steps.options import Trouble, field_name, option, whole
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, text_column
from forwardpass.steps.text.spans import PLACE
from forwardpass.steps.text.tokenizer import name_problems

TOKENS_MAX = 1024


@dataclass(frozen=True, kw_only=True)
class AnswerSpan:
    """The best answer of an extractive reader: the span of the text for which P(start) P(end) is greatest, of equal
    ones the earliest.

    P is the softmax of the logits over all tokens that count, so that what the model gives to "no answer" (its first
    token) and to the question makes the score small; the span itself lies in the text, of which ``tokenize`` or
    ``token_windows`` with ``pair`` and ``offsets`` gives the places. Makes the answer (text), its FP32 score and its
    place, INT64 [2], in characters. A logit that is not finite at a token that counts fails the row, and so does a text
    without a token. All of a token's fields may be ragged (``tokenize`` with ``pad = "row"``).
    """

    first: str = option(field_name(), "the logits of an answer's first token", "start_logits")
    last: str = option(field_name(), "the logits of an answer's last token", "end_logits")
    text: str | None = option(field_name(), "the text; without it the latest text field", None)
    offsets: str = option(field_name(), "the tokens' places in the text", "offsets")
    mask: str = option(field_name(), "[tokens], 0 where a token does not count", "attention_mask")
    tokens_max: int = option(whole(1, TOKENS_MAX), "the most tokens of an answer", 30)
    shift: str | None = option(field_name(), "INT64, added to the place, such as a window's start", None)
    output: str = option(field_name(), "where the answer goes", "answer")
    score: str = option(field_name(), "where its score goes", "score")
    place: str = option(field_name(), "where its place goes", "place")


def _answer_problems(options: AnswerSpan) -> list[Trouble]:
    return name_problems((), output=options.output, score=options.score, place=options.place)


def _answer_fields(options: AnswerSpan, known: FieldMap) -> list[Field]:
    first = pick(known, options.first, LOGITS, "first")
    require_alike(first, "last", pick(known, options.last, LOGITS, "last"))
    pick(known, options.text, TEXT, "text")
    require_alike(first, "offsets", pick(known, options.offsets, OFFSETS, "offsets"))
    require_alike(first, "mask", pick(known, options.mask, MASK, "mask"))
    if options.shift is not None:
        pick(known, options.shift, PLACE, "shift")
    place = Field(options.place, "INT64", (2,))
    return [Field(options.output, "BYTES", (), "text"), Field(options.score, "FP32"), place]


def _answer_span(options: AnswerSpan, known: FieldMap, context: Context) -> Prepared:
    _answer_fields(options, known)
    source = pick(known, options.text, TEXT, "text").name
    logits, places = (known[options.first], known[options.last]), known[options.offsets]

    def found(batch: Batch, row: int) -> tuple[int, int, float]:
        """Start and end in characters, and the score. Raises Failure."""
        if batch.columns[source][row] is None:
            raise missing(source)
        counts = batch.columns[options.mask][row] != 0
        offsets = batch.columns[options.offsets][row]
        for field in logits:
            require_equal(field, batch.columns[field.name][row], places, offsets)
        inside = counts & (offsets[:, 1] > offsets[:, 0])
        if not inside.any():
            raise Refused(Code.INVALID_INPUT, f"{source}: holds no token", field=source)
        first, last = (_shares(field, batch.columns[field.name][row], counts) for field in logits)
        begin, stop, score = _best(np.where(inside, first, 0), np.where(inside, last, 0), inside, options.tokens_max)
        return int(offsets[begin, 0]), int(offsets[stop, 1]), score

    def run(batch: Batch) -> None:
        answers = [""] * batch.rows
        scores = np.zeros(batch.rows, dtype=np.float32)
        spans = np.zeros((batch.rows, 2), dtype=np.int64)
        for row in range(batch.rows):
            try:
                start, end, scores[row] = found(batch, row)
            except Failure as failure:
                batch.fail(row, failure)
                continue
            answers[row], spans[row] = batch.columns[source][row][start:end], (start, end)
        if options.shift is not None:
            spans += batch.columns[options.shift][:, np.newaxis]
        batch.columns.update({options.output: text_column(answers), options.score: scores, options.place: spans})

    return run


def _shares(field: Field, of_row: NDArray[np.floating], counts: NDArray[np.bool_]) -> NDArray[np.float64]:
    logits = of_row.astype(np.float64)
    if not np.isfinite(logits[counts]).all():
        raise not_finite(field)
    powers = np.where(counts, np.exp(np.where(counts, logits, 0) - logits[counts].max()), 0)
    shares: NDArray[np.float64] = powers / powers.sum()
    return shares


def _best(
    first: NDArray[np.float64], last: NDArray[np.float64], inside: NDArray[np.bool_], tokens_max: int
) -> tuple[int, int, float]:
    """First and last token of the best span of up to ``tokens_max`` tokens, and its score."""
    best = (-1, -1, -1.0)
    for begin in np.flatnonzero(inside):
        ends = np.flatnonzero(inside[begin : begin + tokens_max]) + begin
        products = first[begin] * last[ends]
        place = int(products.argmax())
        if products[place] > best[2]:
            best = (int(begin), int(ends[place]), float(products[place]))
    return best


ANSWER_SPAN = Kind("answer_span", AnswerSpan, _answer_fields, _answer_span, _answer_problems)
