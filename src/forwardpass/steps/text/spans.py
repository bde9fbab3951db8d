"""Steps on labelled tokens: ``spans`` and ``merge_spans``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failed, Failure
from forwardpass.core.pipeline import Field
from forwardpass.steps.by_token import MASK, OFFSETS, SCORES, WORDS, require_alike, require_equal
from forwardpass.steps.files import read_lines
from forwardpass.steps.kind import TEXT, Fit, Kind, describe, invalid, missing, not_finite, pick, unfit
from forwardpass.steps.options import Trouble, choice, field_name, file_name, number, option, several
from forwardpass.steps.options import text as any_text
from forwardpass.steps.plain import least_of, shortest
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, object_column

PLACE = Fit("one INT64 per row", lambda field: field.datatype == "INT64" and field.shape == ())
_JSON = Fit("a json field", lambda field: field.kind == "json" and not field.shape)

Span = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Spans:
    """The pieces of text that a token classifier finds: a json list of {start, end, label, score, text} in the text's
    order, places in characters, [start, end).

    Put ``softmax`` before it where the model's scores are logits. The scheme is read from the labels: B- and I- begin
    and go on; L- or E- end and U- or S- stand alone where the same name has B- or I- too; without prefixes,
    neighbours of one label are one piece. The answers are those of the TokenClassificationPipeline of transformers with
    aggregation_strategy "simple" (``none`` here: every token has its own label), "first", "average" (``mean``) and
    "max", by which the tokens of a word agree. A score that is not a finite number, at a token of the text, fails the
    row. All of a token's fields may be ragged (``tokenize`` with ``pad = "row"``).
    """

    input: str | None = option(field_name(), "the scores [tokens, labels]; without it the latest such field", None)
    text: str | None = option(field_name(), "the text; without it the latest text field", None)
    offsets: str = option(field_name(), "the tokens' places in the text, from tokenize", "offsets")
    mask: str = option(field_name(), "[tokens], 0 where a token does not count", "attention_mask")
    words: str | None = option(
        field_name(), "the tokens' words, from tokenize; without it a token that touches the one before goes on", None
    )
    file: str | None = option(file_name(), "a UTF-8 file with one label a line", None)
    names: tuple[str, ...] | None = option(several(any_text()), "the labels, instead of a file", None)
    outside: str | None = option(any_text(), 'the label of what is no piece, by default "O" where there is one', None)
    aggregate: Literal["none", "first", "mean", "max"] = option(
        choice("none", "first", "mean", "max"), "how the tokens of a word become one label", "first"
    )
    score_min: float | None = option(number(), "the least score of a piece", None)
    shift: str | None = option(field_name(), "INT64, added to start and end, such as a window's start", None)
    output: str = option(field_name(), "where the pieces go", "spans")


def _span_problems(options: Spans) -> list[Trouble]:
    troubles: list[Trouble] = []
    if (options.file is None) == (options.names is None):
        troubles.append(("file", "none or both of file and names", "one of file and names"))
    if options.aggregate == "none" and options.words is not None:
        troubles.append(("words", options.words, 'only where the tokens of a word agree, not with aggregate = "none"'))
    return troubles


def _span_fields(options: Spans, known: FieldMap) -> list[Field]:
    source = pick(known, options.input, SCORES)
    pick(known, options.text, TEXT, "text")
    require_alike(source, "offsets", pick(known, options.offsets, OFFSETS, "offsets"))
    require_alike(source, "mask", pick(known, options.mask, MASK, "mask"))
    if options.words is not None:
        require_alike(source, "words", pick(known, options.words, WORDS, "words"))
    if options.shift is not None:
        pick(known, options.shift, PLACE, "shift")
    if options.names is not None:
        _same_number(len(options.names), source, "names")
    return [Field(options.output, "BYTES", (), "json")]


def _same_number(count: int, source: Field, key: str) -> None:
    if source.shape[-1] not in (-1, count):
        raise invalid(key, f"{count} labels", f"{source.shape[-1]}, the size of {describe(source)}")


@dataclass(frozen=True, slots=True)
class _Tag:
    """What a label says of its token."""

    name: str
    begins: bool = False
    ends: bool = False


def _tags(labels: Sequence[str]) -> list[_Tag]:
    marked = {label[2:] for label in labels if label.startswith(("B-", "I-"))}
    tags: list[_Tag] = []
    for label in labels:
        mark, name = label[:2], label[2:]
        if mark in ("B-", "I-"):
            tags.append(_Tag(name, begins=mark == "B-"))
        elif mark in ("L-", "E-", "U-", "S-") and name in marked:
            tags.append(_Tag(name, begins=mark in ("U-", "S-"), ends=True))
        else:
            tags.append(_Tag(label))
    return tags


@dataclass(frozen=True, slots=True)
class _Labelled:
    """A token or a word with its label."""

    tag: _Tag
    score: float
    start: int
    end: int


def _spans(options: Spans, known: FieldMap, context: Context) -> Prepared:
    _span_fields(options, known)
    source, places = pick(known, options.input, SCORES), known[options.offsets]
    text_field = pick(known, options.text, TEXT, "text").name
    names = list(options.names or ()) if options.file is None else read_lines(context.folder, options.file, "one label")
    _same_number(len(names), source, "file" if options.names is None else "names")
    if options.outside is not None and options.outside not in names:
        raise invalid("outside", options.outside, "one of the labels")
    tags, outside = _tags(names), options.outside or "O"
    least = least_of(options.score_min, "FP32")

    def labelled(batch: Batch, row: int, text: str) -> list[_Labelled]:
        offsets, scores = batch.columns[options.offsets][row], batch.columns[source.name][row]
        require_equal(source, scores, places, offsets)
        if scores.shape[1] != len(names):
            raise unfit(source, Code.BAD_OUTPUT_SHAPE, f"has {scores.shape[1]} scores a token for {len(names)} labels")
        counts = np.flatnonzero((batch.columns[options.mask][row] != 0) & (offsets[:, 1] > offsets[:, 0]))
        scores, offsets = scores[counts].astype(np.float64), offsets[counts]
        if not np.isfinite(scores.max(axis=-1)).all():
            raise not_finite(source)
        firsts = list(range(len(counts)))
        if options.aggregate != "none":
            words = None if options.words is None else batch.columns[options.words][row][counts]
            firsts = [place for place in firsts if not _goes_on(place, text, offsets, words)]
        found: list[_Labelled] = []
        for first, behind in pairwise([*firsts, len(counts)]):
            best, score = _agreed(scores[first:behind], options.aggregate)
            found.append(_Labelled(tags[best], score, int(offsets[first, 0]), int(offsets[behind - 1, 1])))
        return found

    def spans(batch: Batch, row: int, text: str) -> list[Span]:
        shift = 0 if options.shift is None else int(batch.columns[options.shift][row])
        found: list[Span] = []
        for group in _groups(labelled(batch, row, text)):
            score = sum(each.score for each in group) / len(group)
            name, start, end = group[0].tag.name, group[0].start, group[-1].end
            if name == outside or np.float32(score) < least:
                continue
            place = {"start": start + shift, "end": end + shift}
            found.append({**place, "label": name, "score": shortest(score), "text": text[start:end]})
        return found

    def run(batch: Batch) -> None:
        found: list[list[Span] | None] = [None] * batch.rows
        for row, value in enumerate(batch.columns[text_field]):
            if value is None:
                batch.fail(row, missing(text_field))
                continue
            try:
                found[row] = spans(batch, row, value)
            except Failure as failure:
                batch.fail(row, failure)
        batch.columns[options.output] = object_column(found)

    return run


def _goes_on(place: int, text: str, offsets: NDArray[np.int64], words: NDArray[np.int64] | None) -> bool:
    """Whether the token is of the same word as the one before."""
    if place == 0:
        return False
    if words is not None:
        return bool(words[place] == words[place - 1])
    start = int(offsets[place, 0])
    return start > 0 and " " not in text[start - 1 : start + 1]


def _agreed(scores: NDArray[np.float64], aggregate: str) -> tuple[int, float]:
    """The label of a word of these tokens, and its score."""
    match aggregate:
        case "max":
            chosen = scores[scores.max(axis=-1).argmax()]
        case "mean":
            chosen = scores.mean(axis=0)
        case _:
            chosen = scores[0]
    best = int(chosen.argmax())
    return best, float(chosen[best])


def _groups(labelled: Sequence[_Labelled]) -> Iterator[list[_Labelled]]:
    """Neighbours that are one piece."""
    group: list[_Labelled] = []
    for each in labelled:
        if group and (each.tag.name != group[-1].tag.name or each.tag.begins or group[-1].tag.ends):
            yield group
            group = []
        group.append(each)
    if group:
        yield group


@dataclass(frozen=True, kw_only=True)
class MergeSpans:
    """One list of the lists of spans that the windows of a text gave, in the text's order.

    Of spans that overlap, as in the part that two windows share, the longer stays, of equally long ones that of the
    greater score: as the TokenClassificationPipeline of transformers does. JSON that is no list of lists of spans
    fails its row (`step_failed`).
    """

    input: str | None = option(field_name(), "a json list of lists of spans; without it the latest json field", None)
    output: str | None = option(field_name(), "where the list goes; without it, in place", None)


def _merge_fields(options: MergeSpans, known: FieldMap) -> list[Field]:
    return [Field(options.output or pick(known, options.input, _JSON).name, "BYTES", (), "json")]


def _merge(options: MergeSpans, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, _JSON).name

    def run(batch: Batch) -> None:
        merged: list[list[Span] | None] = [None] * batch.rows
        for row, lists in enumerate(batch.columns[source]):
            try:
                merged[row] = _without_overlaps([span for spans in lists for span in spans])
            except (TypeError, KeyError) as error:
                text = f"{source}: is no list of lists of spans"
                batch.fail(row, Failed(Code.STEP_FAILED, text, field=source, detail=repr(error)))
        batch.columns[options.output or source] = object_column(merged)

    return run


def _without_overlaps(spans: list[Span]) -> list[Span]:
    kept: list[Span] = []
    for span in sorted(spans, key=lambda span: span["start"]):
        if not kept or span["start"] >= kept[-1]["end"]:
            kept.append(span)
        elif (span["end"] - span["start"], span["score"]) > (kept[-1]["end"] - kept[-1]["start"], kept[-1]["score"]):
            kept[-1] = span
    return kept


SPANS = Kind("spans", Spans, _span_fields, _spans, _span_problems)
MERGE_SPANS = Kind("merge_spans", MergeSpans, _merge_fields, _merge)
