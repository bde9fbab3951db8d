"""``ctc_decode``: what a recogniser of text lines or of speech reads, step by step, made a text."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Field
from forwardpass.steps.files import read_lines
from forwardpass.steps.kind import FLOATS, Fit, Kind, describe, invalid, not_finite, pick, unfit
from forwardpass.steps.options import Trouble, field_name, file_name, flag, option, text, whole
from forwardpass.steps.protocol import Batch, Column, Context, FieldMap, Prepared, text_column
from forwardpass.steps.text.tokenizer import name_problems

CLASSES_MAX = 1_000_000
_STEPS = Fit(
    "floating scores [steps, classes], in a tensor or ragged",
    lambda field: field.kind in ("tensor", "ragged") and field.datatype in FLOATS and len(field.shape) == 2,
)


@dataclass(frozen=True, kw_only=True)
class CtcDecode:
    """The text of CTC scores [steps, classes]: the best class of each step, of equal ones the lower; repeats and then
    blanks left out.

    This is the best path of Graves and others, 2006. Makes the text and its FP32 score, the mean of the scores of the
    steps that wrote something, 0 of a text without any: as PaddleOCR and RapidOCR do. The alphabet holds what the
    classes write, in the model's order and without the blank; class and alphabet must agree in number. A score that is
    not finite fails the row.
    """

    input: str | None = option(field_name(), "the scores; without it the latest [steps, classes]", None)
    file: str | None = option(file_name(), "the alphabet: a UTF-8 file with one character a line", None)
    characters: str | None = option(text(), "the alphabet in one text, instead of a file", None)
    space: bool = option(flag(), "the alphabet ends with a space that it does not list, as PP-OCR's does", False)
    blank: int = option(whole(-1, CLASSES_MAX), "the class that writes nothing; -1 is the last", 0)
    word_break: str | None = option(text(), "what in the alphabet stands for a space, such as | of wav2vec 2.0", None)
    softmax: bool = option(flag(), "the scores are logits and first become probabilities", False)
    output: str = option(field_name(), "where the text goes", "text")
    score: str = option(field_name(), "where its score goes", "score")


def _ctc_problems(options: CtcDecode) -> list[Trouble]:
    troubles = name_problems((), output=options.output, score=options.score)
    if (options.file is None) == (options.characters is None):
        troubles.append(("file", "none or both of file and characters", "one of file and characters"))
    if options.characters == "":
        troubles.append(("characters", "none", "one character or more"))
    return troubles


def _ctc_fields(options: CtcDecode, known: FieldMap) -> list[Field]:
    pick(known, options.input, _STEPS)
    return [Field(options.output, "BYTES", (), "text"), Field(options.score, "FP32")]


def _ctc_decode(options: CtcDecode, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, _STEPS)
    written = _written(options, context)
    if source.shape[1] not in (-1, len(written)):
        parts = f"{len(written)} classes: the alphabet, the blank{' and the space' if options.space else ''}"
        key = "file" if options.characters is None else "characters"
        raise invalid(key, parts, f"{source.shape[1]}, the size of {describe(source)}")
    blank = range(len(written))[options.blank]

    def read(scores: NDArray[np.floating]) -> tuple[str, float]:
        best = scores.argmax(axis=1)
        kept = best != blank
        kept[1:] &= best[1:] != best[:-1]
        if not kept.any():
            return "", 0.0
        chosen = scores[kept, best[kept]].astype(np.float64)
        if options.softmax:
            chosen = 1 / np.exp(scores[kept].astype(np.float64) - chosen[:, np.newaxis]).sum(axis=1)
        return "".join(written[each] for each in best[kept]), float(chosen.mean())

    def run(batch: Batch) -> None:
        column = batch.columns[source.name]
        texts = [""] * batch.rows
        found = np.zeros(batch.rows, dtype=np.float32)
        for row, scores in enumerate(column):
            if scores.shape[1] != len(written):
                why = f"has {scores.shape[1]} classes for an alphabet of {len(written)}"
                batch.fail(row, unfit(source, Code.BAD_OUTPUT_SHAPE, why))
            elif not _best_are_finite(scores):
                batch.fail(row, not_finite(source))
            else:
                texts[row], found[row] = read(scores)
        batch.columns[options.output], batch.columns[options.score] = text_column(texts), found

    return run


def _best_are_finite(scores: Column) -> bool:
    """Whether each step has a best class: no NaN, no infinity but -inf for a class that cannot be."""
    return bool(np.isfinite(scores.max(axis=1)).all())


def _written(options: CtcDecode, context: Context) -> list[str]:
    """What each class writes. Raises Misconfigured."""
    if options.file is None:
        alphabet = list(options.characters or "")
    else:
        alphabet = read_lines(context.folder, options.file, "one character")
    if options.word_break is not None:
        if options.word_break not in alphabet:
            raise invalid("word_break", options.word_break, "one of the alphabet")
        alphabet = [" " if each == options.word_break else each for each in alphabet]
    if options.space:
        alphabet.append(" ")
    if options.blank > len(alphabet):
        raise invalid("blank", str(options.blank), f"at most {len(alphabet)}, the size of the alphabet")
    place = len(alphabet) if options.blank == -1 else options.blank
    return [*alphabet[:place], "", *alphabet[place:]]


CTC_DECODE = Kind("ctc_decode", CtcDecode, _ctc_fields, _ctc_decode, _ctc_problems)
