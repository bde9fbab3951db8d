"""``token_windows``: a long text cut into windows that a model can take."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.kind import Kind
from forwardpass.steps.options import Trouble, choice, field_name, file_name, option, several, whole
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, text_column
from forwardpass.steps.text.tokenizer import (
    TOKENS_MAX,
    LoadedTokenizer,
    bucket_problems,
    load_tokenizer,
    name_problems,
    padded,
    room_for_text,
)
from forwardpass.steps.text.tokens import MODEL_FIELDS, text_sources, token_fields, too_long_beside

WINDOWS_MAX = 10_000
_WINDOW_FIELDS = ("window", "start", "end")


@dataclass(frozen=True, kw_only=True)
class TokenWindows:
    """Cuts a long text into windows of at most ``tokens_max`` tokens, each with its special tokens, and goes on with
    them as elements: ``stride`` tokens of one window are the first of the next. A short text is one window.

    Elements have ``input_ids``, ``attention_mask`` and ``token_type_ids`` as of ``tokenize``, the piece of text
    ``window`` and its place ``start``, ``end`` in the text, in characters, INT64. With ``pair`` the second text is cut
    into windows and the first, such as a question, stands whole in each; a first text that leaves no room fails its
    row. A text of more than ``windows_max`` windows is cut, with a note "truncated", or refused; always its end is
    left out, also where the file's truncation says the left side, which is meant for a text of one window. The answer's
    count of tokens counts those of every window, so what two share twice.
    """

    input: str | None = option(field_name(), "the text; without it the latest text field, but pair", None)
    pair: str | None = option(field_name(), "the text to cut, behind that of input", None)
    tokenizer: str = option(file_name(), "a tokenizer.json of the tokenizers library")
    tokens_max: int = option(whole(1, TOKENS_MAX), "the most tokens of a window, special ones counted")
    stride: int = option(whole(0, TOKENS_MAX), "tokens that a window shares with the one before", 0)
    windows_max: int = option(whole(1, WINDOWS_MAX), "the most windows of one text", 64)
    overflow: Literal["truncate", "refuse"] = option(
        choice("truncate", "refuse"), "what a text of more windows gets", "truncate"
    )
    buckets: tuple[int, ...] = option(
        several(whole(1, TOKENS_MAX)), "lengths to pad up to, ascending; beyond the last it is tokens_max", ()
    )
    offsets: str | None = option(
        field_name(), "where each token's place in the window's text goes, INT64 [tokens, 2], as of tokenize", None
    )
    words: str | None = option(field_name(), "where each token's word goes, INT64 [tokens], as of tokenize", None)


def _window_problems(options: TokenWindows) -> list[Trouble]:
    troubles = bucket_problems(options.buckets, options.tokens_max)
    troubles += name_problems((*MODEL_FIELDS, *_WINDOW_FIELDS), offsets=options.offsets, words=options.words)
    if options.stride >= options.tokens_max:
        troubles.append(("stride", str(options.stride), f"below tokens_max ({options.tokens_max})"))
    if options.pair is not None and options.input == options.pair:
        troubles.append(("pair", options.pair, "another field than input"))
    return troubles


def _window_fields(options: TokenWindows, known: FieldMap) -> list[Field]:
    text_sources(known, options.input, options.pair)
    own = [Field("window", "BYTES", (), "text"), Field("start", "INT64"), Field("end", "INT64")]
    return [*token_fields(options.offsets, options.words), *own]


@dataclass(frozen=True, slots=True)
class _Window:
    encoding: Any
    text: str
    start: int
    end: int


def _token_windows(options: TokenWindows, known: FieldMap, context: Context) -> Prepared:
    names = text_sources(known, options.input, options.pair)
    loaded = load_tokenizer(context, options.tokenizer, "token_windows")
    room = room_for_text(loaded, options.tokens_max, len(names), beside=options.stride)

    def windows(batch: Batch, row: int) -> list[_Window]:
        texts = [batch.columns[name][row] for name in names]
        *before, body = [loaded.encode(name, text) for name, text in zip(names, texts, strict=True)]
        left = room - sum(map(len, before))
        if left <= options.stride:
            raise too_long_beside(names[0], len(before[0]), room - options.stride - 1, f"windows of {names[-1]}")
        most = left + (options.windows_max - 1) * (left - options.stride)
        if len(body) > most:
            if options.overflow == "refuse":
                text = f"{names[-1]}: is {len(body)} tokens long; at most {most} fit {options.windows_max} windows"
                raise Refused(Code.INPUT_TOO_LARGE, text, field=names[-1])
            batch.note(row, "truncated", {"field": names[-1], "tokens": len(body), "kept": most})
            body.truncate(most)
        body.truncate(left, stride=options.stride)
        encodings = [loaded.finished((*before, part)) for part in (body, *body.overflowing)]
        if not len(encodings[0]):
            raise Refused(Code.INVALID_INPUT, f"{names[-1]}: holds no token", field=names[-1])
        batch.count_tokens(row, sum(map(len, encodings)))
        return [_window(encoding, texts[-1], len(names)) for encoding in encodings]

    def run(batch: Batch) -> None:
        found: list[list[_Window]] = []
        for row in range(batch.rows):
            try:
                found.append(windows(batch, row))
            except Refused as refusal:
                batch.fail(row, refusal)
        batch.settle()  # failures are of texts, and from now on rows are windows
        flat = [window for each in found for window in each]
        batch.expand([len(each) for each in found], _columns(options, loaded, batch, flat, texts=len(names)))

    return run


def _window(encoding: Any, text: str, texts: int) -> _Window:
    own = [place for place, number in zip(encoding.offsets, encoding.sequence_ids, strict=True) if number == texts - 1]
    start, end = (own[0][0], own[-1][1]) if own else (0, 0)
    return _Window(encoding, text[start:end], start, end)


def _columns(
    options: TokenWindows, loaded: LoadedTokenizer, batch: Batch, windows: list[_Window], *, texts: int
) -> dict[str, Any]:
    encodings = [window.encoding for window in windows]
    lengths = [len(encoding) for encoding in encodings]
    length = padded(max(lengths, default=0), options.buckets, options.tokens_max)
    batch.count_padding(lengths, length)
    columns = loaded.columns(encodings, length)
    starts = np.array([window.start for window in windows], dtype=np.int64)
    columns["window"] = text_column([window.text for window in windows])
    columns["start"] = starts
    columns["end"] = np.array([window.end for window in windows], dtype=np.int64)
    if options.offsets is not None:
        offsets = loaded.offsets(encodings, length, texts=texts)
        covers = offsets[..., 1:] > offsets[..., :1]
        columns[options.offsets] = np.where(covers, offsets - starts[:, np.newaxis, np.newaxis], 0)
    if options.words is not None:
        columns[options.words] = loaded.words(encodings, length, texts=texts)
    return columns


TOKEN_WINDOWS = Kind("token_windows", TokenWindows, _window_fields, _token_windows, _window_problems, level=1)
