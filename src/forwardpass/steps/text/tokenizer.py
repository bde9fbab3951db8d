"""A tokenizer.json at work, for the steps that cut text into tokens: loading, encoding, columns of what came out."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from forwardpass.core.errors import Code, Refused
from forwardpass.core.tokens import TokenIds
from forwardpass.steps.kind import invalid, library_missing, missing
from forwardpass.steps.options import Trouble
from forwardpass.steps.protocol import Column, Context
from forwardpass.steps.text.given_ids import GivenTokens, special_around

TOKENS_MAX = 1_000_000
Cut = Literal["longest", "first", "second"]
_USUAL_PADDING = ("[PAD]", "<pad>", "<|endoftext|>", "</s>")


@dataclass(frozen=True, slots=True)
class LoadedTokenizer:
    """The library's tokenizer with its baked-in padding and truncation off, and what these said."""

    library: Any
    padding_id: int
    padding_type: int
    pads_left: bool
    cuts: str  # the side that is cut off: right or left
    around: tuple[tuple[int, ...], tuple[int, ...]]  # the special tokens before and behind one text

    def encode(self, name: str, text: str | TokenIds | None) -> Any:
        """The text's encoding without special tokens, offsets in characters. Raises Refused, naming the field."""
        if text is None:
            raise missing(name)
        if isinstance(text, TokenIds):
            return GivenTokens.of(self.library, name, text, self.around)
        try:
            return self.library.encode(text, add_special_tokens=False)
        except TypeError:  # a str that has no UTF-8 form
            raise Refused(Code.INVALID_UTF8, f"{name}: is not valid Unicode text", field=name) from None

    def finished(self, parts: Sequence[Any]) -> Any:
        """One text's or a pair's tokens, which ``encode`` gave, with the special ones."""
        return self.library.post_process(
            *(part.encoding() if isinstance(part, GivenTokens) else part for part in parts)
        )

    def special_tokens(self, texts: int) -> int:
        """How many are put around one text or a pair."""
        count: int = self.library.num_special_tokens_to_add(texts == 2)
        return count

    def columns(self, encodings: Sequence[Any], length: int) -> dict[str, Column]:
        """What a model takes, each row padded to ``length``; a row that is None is all padding."""
        ids = np.full((len(encodings), length), self.padding_id, dtype=np.int64)
        mask = np.zeros((len(encodings), length), dtype=np.int64)
        types = np.full((len(encodings), length), self.padding_type, dtype=np.int64)
        for row, encoding in enumerate(encodings):
            if encoding is not None:
                place = self._place(len(encoding), length)
                ids[row, place] = encoding.ids
                mask[row, place] = 1
                types[row, place] = encoding.type_ids
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}

    def offsets(self, encodings: Sequence[Any], length: int, *, texts: int) -> Column:
        """Where each token of the last text stands in it, [start, end) in characters; 0, 0 for all other tokens."""
        offsets = np.zeros((len(encodings), length, 2), dtype=np.int64)
        for row, encoding in enumerate(encodings):
            if encoding is not None:
                own = np.array([number == texts - 1 for number in encoding.sequence_ids], dtype=bool)
                there = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
                offsets[row, self._place(len(encoding), length)] = np.where(own[:, np.newaxis], there, 0)
        return offsets

    def words(self, encodings: Sequence[Any], length: int, *, texts: int) -> Column:
        """Which of the last text's words each token belongs to, from 0; -1 for all other tokens."""
        words = np.full((len(encodings), length), -1, dtype=np.int64)
        for row, encoding in enumerate(encodings):
            if encoding is not None:
                pairs = zip(encoding.word_ids, encoding.sequence_ids, strict=True)
                found = [-1 if word is None or number != texts - 1 else word for word, number in pairs]
                words[row, self._place(len(encoding), length)] = found
        return words

    def _place(self, count: int, length: int) -> slice:
        return slice(length - count, length) if self.pads_left else slice(0, count)


def load_tokenizer(context: Context, file: str, step: str) -> LoadedTokenizer:
    """Raises Misconfigured: without the library, or when the file is no tokenizer."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise library_missing(step, "tokenizers", "text", error) from None
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
    around = special_around(tokenizer)
    return LoadedTokenizer(tokenizer, padding_id, padding.get("pad_type_id", 0), side == "left", cuts, around)


def room_for_text(tokenizer: LoadedTokenizer, tokens_max: int, texts: int, beside: int = 0) -> int:
    """How many tokens of the texts fit beside the special ones. Raises Misconfigured when not one of each does."""
    special = tokenizer.special_tokens(texts)
    least = special + texts + beside
    if tokens_max < least:
        raise invalid("tokens_max", str(tokens_max), f"at least {least}: {special} tokens are special ones")
    return tokens_max - special


def bucket_problems(buckets: tuple[int, ...], tokens_max: int) -> list[Trouble]:
    ascending = all(a < b for a, b in pairwise(buckets))
    if ascending and all(bucket <= tokens_max for bucket in buckets):
        return []
    return [("buckets", str(list(buckets)), f"ascending lengths up to tokens_max ({tokens_max})")]


def name_problems(taken: Sequence[str], **names: str | None) -> list[Trouble]:
    """Fields a step is to make under a name that another one has."""
    troubles: list[Trouble] = []
    seen = set(taken)
    for key, name in names.items():
        if name in seen:
            troubles.append((key, name, "a name that no other field of this step has"))
        elif name is not None:
            seen.add(name)
    return troubles


def padded(longest: int, buckets: tuple[int, ...], tokens_max: int) -> int:
    """The length to pad to: the least bucket that holds the longest row, beyond the last one ``tokens_max``."""
    if not buckets or not longest:
        return longest
    return next((bucket for bucket in buckets if bucket >= longest), tokens_max)


def kept_of_pair(first: int, second: int, most: int, cut: Cut) -> tuple[int, int] | None:
    """How many tokens of each of two texts, too long together, stay; None where the one to cut would have none left.

    ``longest`` takes from the longer one until both are equal, then from both, as the tokenizers library does.
    """
    if cut == "first":
        return (most - second, second) if second < most else None
    if cut == "second":
        return (first, most - first) if first < most else None
    shorter, longer = sorted((first, second))
    longer = max(shorter, most - shorter) if shorter <= most else shorter
    if shorter + longer > most:
        shorter, longer = most // 2, most - most // 2
    return (longer, shorter) if first > second else (shorter, longer)
