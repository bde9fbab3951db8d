"""Steps on text: ``normalize_text`` and ``tokenize``."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from forwardpass.core.errors import Code, Misconfigured, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.kind import TEXT, Kind, invalid, missing, pick
from forwardpass.steps.options import Trouble, choice, field_name, file_name, flag, option, several, whole
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, text_column

TOKENS_MAX = 1_000_000
_SPACES = re.compile(r"\s+")
_USUAL_PADDING = ("[PAD]", "<pad>", "<|endoftext|>", "</s>")


@dataclass(frozen=True, kw_only=True)
class NormalizeText:
    """Brings text into one form: Unicode form, then lower case, then white space. A missing value stays missing."""

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
        batch.columns[options.output or source.name] = text_column([normalized(v) for v in batch.columns[source.name]])

    return run


def _without_effect(options: NormalizeText) -> list[Trouble]:
    if options.form != "none" or options.lower or options.strip or options.collapse_spaces:
        return []
    return [("form", "this step changes nothing", "a form, lower, strip or collapse_spaces")]


@dataclass(frozen=True, kw_only=True)
class Tokenize:
    """Cuts text into the token ids of a tokenizer.json, with its special tokens, padded to the batch's longest row.

    Padding and truncation written in that file are not applied, only their side and padding id. A special token's
    name inside the text is plain text. Cutting leaves a note "truncated"; a text without any token fails its row.
    """

    input: str | None = option(field_name(), "the text; without it the latest text field", None)
    tokenizer: str = option(file_name(), "a tokenizer.json of the tokenizers library")
    tokens_max: int = option(whole(1, TOKENS_MAX), "the most tokens the model takes, special ones counted")
    overflow: Literal["truncate", "refuse"] = option(
        choice("truncate", "refuse"), "what a longer text gets", "truncate"
    )
    buckets: tuple[int, ...] = option(
        several(whole(1, TOKENS_MAX)), "lengths to pad up to, ascending; beyond the last it is tokens_max", ()
    )


def _bucket_problems(options: Tokenize) -> list[Trouble]:
    ascending = all(a < b for a, b in zip(options.buckets, options.buckets[1:], strict=False))
    if ascending and all(bucket <= options.tokens_max for bucket in options.buckets):
        return []
    return [("buckets", str(list(options.buckets)), f"ascending lengths up to tokens_max ({options.tokens_max})")]


def _token_fields(options: Tokenize, known: FieldMap) -> list[Field]:
    pick(known, options.input, TEXT)
    return [Field(each, "INT64", (-1,)) for each in ("input_ids", "attention_mask", "token_type_ids")]


def _tokenize(options: Tokenize, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, TEXT).name
    tokenizer, padding_id, padding_type, pads_left, cuts = _load_tokenizer(context, options.tokenizer)
    special = tokenizer.num_special_tokens_to_add(False)
    if options.tokens_max <= special:
        raise invalid(
            "tokens_max", str(options.tokens_max), f"at least {special + 1}: {special} tokens are special ones"
        )

    def encode(batch: Batch, row: int, text: str | None) -> Any:
        """The row's encoding, or None when the row was failed."""
        if text is None:
            return batch.fail(row, missing(source))
        try:
            encoding = tokenizer.encode(text, add_special_tokens=False)
        except TypeError:  # a str that has no UTF-8 form
            return batch.fail(row, Refused(Code.INVALID_UTF8, f"{source}: is not valid Unicode text", field=source))
        count = len(encoding) + special
        if count > options.tokens_max:
            if options.overflow == "refuse":
                return batch.fail(row, _too_long(source, count, options.tokens_max))
            encoding.truncate(options.tokens_max - special, direction=cuts)
            batch.note(row, "truncated", {"field": source, "tokens": count, "kept": options.tokens_max})
        if count == 0:
            return batch.fail(row, Refused(Code.INVALID_INPUT, f"{source}: holds no token", field=source))
        return tokenizer.post_process(encoding)

    def run(batch: Batch) -> None:
        # Row by row on purpose: the library's own batch call starts a pool of threads beside the engine's.
        encodings = [encode(batch, row, text) for row, text in enumerate(batch.columns[source])]
        length = _padded(max((len(e) for e in encodings if e is not None), default=0), options)
        ids = np.full((batch.rows, length), padding_id, dtype=np.int64)
        mask = np.zeros((batch.rows, length), dtype=np.int64)
        types = np.full((batch.rows, length), padding_type, dtype=np.int64)
        for row, encoding in enumerate(encodings):
            if encoding is not None:
                place = slice(length - len(encoding), length) if pads_left else slice(0, len(encoding))
                ids[row, place] = encoding.ids
                mask[row, place] = 1
                types[row, place] = encoding.type_ids
        batch.columns.update(input_ids=ids, attention_mask=mask, token_type_ids=types)

    return run


def _load_tokenizer(context: Context, file: str) -> tuple[Any, int, int, bool, str]:
    """The tokenizer with its baked-in padding and truncation off, and what these said: id, type, side, cut side."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        advice = "the step tokenize needs the tokenizers library: pip install 'forwardpass[text]'"
        raise Misconfigured(Code.RUNTIME_MISSING, advice, detail=str(error)) from None
    try:
        tokenizer = Tokenizer.from_file(str(context.folder / file))
    except Exception as error:  # the library raises Exception itself
        refusal = invalid("tokenizer", "not a tokenizer.json that can be read", "a tokenizer.json", file=file)
        refusal.detail = str(error)
        raise refusal from None
    padding: dict[str, Any] = tokenizer.padding or {}
    truncation: dict[str, Any] = tokenizer.truncation or {}
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = True  # a caller's "[SEP]" is text, it opens no segment
    usual = (tokenizer.token_to_id(token) for token in _USUAL_PADDING)
    padding_id = padding.get("pad_id", next((found for found in usual if found is not None), 0))
    side, cuts = padding.get("direction", "right"), truncation.get("direction", "right")
    return tokenizer, padding_id, padding.get("pad_type_id", 0), side == "left", cuts


def _too_long(source: str, count: int, most: int) -> Refused:
    return Refused(Code.INPUT_TOO_LARGE, f"{source}: is {count} tokens long; at most {most} are allowed", field=source)


def _padded(longest: int, options: Tokenize) -> int:
    if not options.buckets or not longest:
        return longest
    lengths = (*options.buckets, options.tokens_max)
    return lengths[bisect_left(lengths, longest)]


NORMALIZE_TEXT = Kind("normalize_text", NormalizeText, _normalized_fields, _normalize, _without_effect)
TOKENIZE = Kind("tokenize", Tokenize, _token_fields, _tokenize, _bucket_problems)
