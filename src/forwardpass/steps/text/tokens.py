"""Steps on text: ``normalize_text`` and ``tokenize``."""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.kind import TEXT, Kind, pick
from forwardpass.steps.options import Trouble, choice, field_name, file_name, flag, option, several, whole
from forwardpass.steps.protocol import Batch, Column, Context, FieldMap, Prepared, object_column, text_column
from forwardpass.steps.text.tokenizer import (
    TOKENS_MAX,
    Cut,
    bucket_problems,
    kept_of_pair,
    load_tokenizer,
    name_problems,
    padded,
    room_for_text,
)

MODEL_FIELDS = ("input_ids", "attention_mask", "token_type_ids")
MARKS_MAX = 256
_SPACES = re.compile(r"\s+")
_BECOME_MARKS = re.compile("[\u0f73\u0f75\u0f81\uff9e\uff9f]")
"""Characters that are no combining ones, yet begin with one in their decomposition: of all of Unicode these."""
_LONG_RUN = re.compile(rb"[^\0]{%d}" % (MARKS_MAX + 1))


@dataclass(frozen=True, kw_only=True)
class NormalizeText:
    """Brings text into one form: Unicode form, then lower case, then white space. A missing value stays missing.

    More than 256 combining characters in a row, which no writing has, fail the row with ``invalid_input`` where there
    is a form to bring them into: putting them in order takes time that grows with the square of their number.
    """

    input: str | None = option(field_name(), "the text; without it the latest text field", None)
    output: str | None = option(field_name(), "where the result goes; without it, in place", None)
    form: Literal["NFC", "NFKC", "none"] = option(choice("NFC", "NFKC", "none"), "the Unicode form", "NFC")
    lower: bool = option(flag(), "turn capitals into small letters", False)
    strip: bool = option(flag(), "remove white space at both ends", False)
    collapse_spaces: bool = option(flag(), "make every run of white space one space", False)


def _normalized_fields(options: NormalizeText, known: FieldMap) -> list[Field]:
    source = pick(known, options.input, TEXT)
    return [Field(options.output or source.name, "BYTES", (), source.kind)]


def _normalize(options: NormalizeText, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, TEXT)
    acts: list[Callable[[str], str]] = []
    if options.form != "none":
        acts.append(partial(unicodedata.normalize, options.form))
    if options.lower:
        acts.append(str.lower)
    if options.collapse_spaces:
        acts.append(partial(_SPACES.sub, " "))
    if options.strip:
        acts.append(str.strip)

    def normalized(value: str | None) -> str | None:
        if value is not None:
            for act in acts:
                value = act(value)
        return value

    def run(batch: Batch) -> None:
        texts: list[str | None] = [None] * batch.rows
        for row, value in enumerate(batch.columns[source.name]):
            if options.form != "none" and value is not None and _has_long_run(value):
                text = f"{source.name}: has more than {MARKS_MAX} combining characters in a row"
                batch.fail(row, Refused(Code.INVALID_INPUT, text, field=source.name))
            else:
                texts[row] = normalized(value)
        batch.columns[options.output or source.name] = text_column(texts)

    return run


def _has_long_run(text: str) -> bool:
    """Whether there are too many combining characters in a row, in time linear in the text."""
    if text.isascii():
        return False
    classes = bytes(map(unicodedata.combining, _BECOME_MARKS.sub("\u0301", text)))
    return _LONG_RUN.search(classes) is not None


def _without_effect(options: NormalizeText) -> list[Trouble]:
    if options.form != "none" or options.lower or options.strip or options.collapse_spaces:
        return []
    return [("form", "this step changes nothing", "a form, lower, strip or collapse_spaces")]


@dataclass(frozen=True, kw_only=True)
class Tokenize:
    """Cuts text into the token ids of a tokenizer.json, with its special tokens, padded to the batch's longest row.

    Makes ``input_ids``, ``attention_mask`` and ``token_type_ids``, INT64 [tokens]. With ``pad = "row"`` they are ragged,
    each row as long as it is alone (up to its own bucket): the model takes rows of equal length together, and a short
    text does not cost what a long one beside it costs. With ``pair`` both texts go in, as
    cross-encoders and readers take (query, document); special tokens stand where the file says.

    Padding and truncation written in that file are not applied, only their side and padding id. A special token's
    name inside the text is plain text. Cutting leaves a note "truncated" (of a pair one for each text that was cut,
    in its own tokens); a text without any token fails its row, and so does a pair of which the text that may not be
    cut leaves no room. A text is cut only when all of it is tokens: what bounds that work is its input's ``bytes_max``.

    An input that only ``tokenize`` without ``offsets`` and ``words`` reads takes ids of this file's tokens too, where
    the protocol has them (``/v1/embeddings``), four bytes of ``bytes_max`` each. They are used as they are, get the
    special tokens, and are cut or refused as a text's; ids that already stand between all special tokens of one text
    get none again. An id that the file does not have fails its row with ``out_of_range``.

    All tokens but padding, special ones too and after cutting, are what the answer's count of tokens counts.
    """

    input: str | None = option(field_name(), "the text; without it the latest text field, but pair", None)
    pair: str | None = option(field_name(), "the second text of a pair", None)
    tokenizer: str = option(file_name(), "a tokenizer.json of the tokenizers library")
    tokens_max: int = option(whole(1, TOKENS_MAX), "the most tokens the model takes, special ones counted")
    overflow: Literal["truncate", "refuse"] = option(
        choice("truncate", "refuse"), "what a longer text gets", "truncate"
    )
    cut: Cut | None = option(
        choice("longest", "first", "second"), 'which text of a pair is cut, by default the "longest"', None
    )
    buckets: tuple[int, ...] = option(
        several(whole(1, TOKENS_MAX)), "lengths to pad up to, ascending; beyond the last it is tokens_max", ()
    )
    pad: Literal["batch", "row"] = option(
        choice("batch", "row"), "what a row is padded for: the batch's longest, or nothing but its own bucket", "batch"
    )
    offsets: str | None = option(
        field_name(),
        "where each token's place in the text goes, INT64 [tokens, 2]: start and end in characters; 0, 0 for special "
        "tokens and, of a pair, for the first text's",
        None,
    )
    words: str | None = option(
        field_name(),
        "where the number of each token's word goes, INT64 [tokens]; -1 for special tokens and, of a pair, for the "
        "first text's",
        None,
    )


def _tokenize_problems(options: Tokenize) -> list[Trouble]:
    troubles = bucket_problems(options.buckets, options.tokens_max)
    troubles += name_problems(MODEL_FIELDS, offsets=options.offsets, words=options.words)
    if options.cut is not None and (options.pair is None or options.overflow == "refuse"):
        troubles.append(("cut", options.cut, 'only with pair and overflow = "truncate"'))
    if options.pair is not None and options.input == options.pair:
        troubles.append(("pair", options.pair, "another field than input"))
    return troubles


def text_sources(known: FieldMap, first: str | None, pair: str | None) -> list[str]:
    """The fields of the text or the pair."""
    if pair is None:
        return [pick(known, first, TEXT).name]
    return [pick(known, first, TEXT, besides=(pair,)).name, pick(known, pair, TEXT, "pair").name]


def token_fields(offsets: str | None, words: str | None) -> list[Field]:
    fields = [Field(each, "INT64", (-1,)) for each in MODEL_FIELDS]
    if offsets is not None:
        fields.append(Field(offsets, "INT64", (-1, 2)))
    if words is not None:
        fields.append(Field(words, "INT64", (-1,)))
    return fields


def _token_fields(options: Tokenize, known: FieldMap) -> list[Field]:
    text_sources(known, options.input, options.pair)
    fields = token_fields(options.offsets, options.words)
    return [replace(field, kind="ragged") for field in fields] if options.pad == "row" else fields


def _tokenize(options: Tokenize, known: FieldMap, context: Context) -> Prepared:
    names = text_sources(known, options.input, options.pair)
    loaded = load_tokenizer(context, options.tokenizer, "tokenize")
    room = room_for_text(loaded, options.tokens_max, len(names))
    special = options.tokens_max - room

    def encode(batch: Batch, row: int) -> Any:
        parts = [loaded.encode(name, batch.columns[name][row]) for name in names]
        count = sum(map(len, parts)) + special
        if count > options.tokens_max:
            if options.overflow == "refuse":
                raise _too_long(names, count, options.tokens_max)
            kept = _kept(names, [len(part) for part in parts], room, options.cut or "longest")
            for name, part, left in zip(names, parts, kept, strict=True):
                if left < len(part):
                    counted = special if len(names) == 1 else 0
                    told = {"field": name, "tokens": len(part) + counted, "kept": left + counted}
                    if loaded.cuts == "left":
                        told["from"] = "left"  # the beginning is gone, not the end as everywhere else
                    batch.note(row, "truncated", told)
                    part.truncate(left, direction=loaded.cuts)
        if count == 0:
            raise Refused(Code.INVALID_INPUT, f"{names[0]}: holds no token", field=names[0])
        encoding = loaded.finished(parts)
        batch.count_tokens(row, len(encoding))
        return encoding

    def encoded(batch: Batch, row: int) -> Any:
        """The row's encoding, or None when the row was failed."""
        try:
            return encode(batch, row)
        except Refused as refusal:
            return batch.fail(row, refusal)

    def columns(batch: Batch, encodings: Sequence[Any]) -> dict[str, Column]:
        """Of rows that are padded for each other."""
        lengths = [len(e) for e in encodings if e is not None]
        length = padded(max(lengths, default=0), options.buckets, options.tokens_max)
        batch.count_padding(lengths, length)
        made = loaded.columns(encodings, length)
        if options.offsets is not None:
            made[options.offsets] = loaded.offsets(encodings, length, texts=len(names))
        if options.words is not None:
            made[options.words] = loaded.words(encodings, length, texts=len(names))
        return made

    def run(batch: Batch) -> None:
        # Row by row on purpose: the library's own batch call starts a pool of threads beside the engine's.
        encodings = [encoded(batch, row) for row in range(batch.rows)]
        if options.pad == "batch":
            batch.columns.update(columns(batch, encodings))
            return
        rows = [columns(batch, [encoding]) for encoding in encodings]
        batch.columns.update({name: object_column([row[name][0] for row in rows]) for name in rows[0]})

    return run


def _takes_ids(options: Tokenize) -> bool:
    """Ids have no places in a text."""
    return options.offsets is None and options.words is None


def _kept(names: Sequence[str], lengths: Sequence[int], room: int, cut: Cut) -> Sequence[int]:
    """How many tokens of each text stay. Raises Refused when a text that is not to be cut leaves no room."""
    if len(names) == 1:
        return (room,)
    kept = kept_of_pair(lengths[0], lengths[1], room, cut)
    if kept is None:
        whole_text = 1 if cut == "first" else 0
        raise too_long_beside(names[whole_text], lengths[whole_text], room - 1, names[1 - whole_text])
    return kept


def too_long_beside(name: str, count: int, most: int, other: str) -> Refused:
    text = f"{name}: is {count} tokens long; at most {most} are allowed beside {other}"
    return Refused(Code.INPUT_TOO_LARGE, text, field=name)


def _too_long(names: Sequence[str], count: int, most: int) -> Refused:
    what = f"{names[0]}: is" if len(names) == 1 else f"{names[0]} and {names[1]}: are together"
    text = f"{what} {count} tokens long; at most {most} are allowed"
    return Refused(Code.INPUT_TOO_LARGE, text, field=names[-1])


NORMALIZE_TEXT = Kind("normalize_text", NormalizeText, _normalized_fields, _normalize, _without_effect)
TOKENIZE = Kind("tokenize", Tokenize, _token_fields, _tokenize, _tokenize_problems, ids=_takes_ids)
