"""Made-up rows, always the same ones, to try a pipeline or a model on before any caller does."""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.pipeline import Field, Pipeline, Signature
from forwardpass.core.tensor import NUMPY_NAMES
from forwardpass.execution.media import png, wav
from forwardpass.steps.protocol import Column, object_column, text_column

Item = dict[str, Column]
"""One row, by column name."""

FREE_SIZES = (8, 64)
"""What a free dimension is tried with, in this order: images need the larger one."""

WORDS = [
    "the",
    "a",
    "small",
    "green",
    "café",
    "river",
    "sings",
    "because",
    "every",
    "Tuesday",
    "42",
    "letters,",
    "naïve",
    "東京",
    "go.",
    "Why",
    "not?",
]
WORD_COUNTS = (3, 1, 12, 40, 7, 2, 25, 5)
IMAGE_SIZES = ((320, 240), (200, 260), (64, 64), (640, 480))  # width, height
PATCHES = 8  # of one colour, along each side: a picture of noise is full of things to detectors
SAMPLES = (16_000, 8_000, 24_000, 4_000)
BYTE_COUNTS = (600, 64, 5000, 2048, 9000, 300, 4096, 1500)
SCALES = (1.0, 3.0, 0.3)  # rows of unlike size: scaling taken over the whole batch shows
_SEED = 20_240_229


def arrays(fields: Sequence[Field], rows: int, free: int = FREE_SIZES[0]) -> dict[str, NDArray[Any]]:
    """Rows for a model's own inputs, without its pipeline."""
    random = np.random.default_rng(_SEED)
    return {field.name: _tensor(field, _shape(field, free), rows, random) for field in fields}


def items(definition: Pipeline, signature: Signature, count: int, free: int) -> list[Item]:
    """``count`` rows as callers could send them, the pipeline's golden requests first.

    Padded inputs have rows of different length. A step may still refuse a row: what is right nobody knows here.
    """
    known = [row for golden in definition.golden if (row := _golden(golden.request, signature)) is not None][:count]
    padded = definition.batch.padding.fields if definition.batch.padding else {}
    maker = _Maker(definition, signature)
    made = list(known)
    for index in range(len(made), count):
        item: Item = {}
        for field in signature.columns:
            shape = known[0][field.name].shape[1:] if known else _shape(field, free)
            if field.name in padded and shape:
                shape = (shape[0] + index % 4, *shape[1:])
            item[field.name] = maker.column(field, shape, index)
        made.append(item)
    return [item for item in made if _alike(item, made[0], padded)]


class _Maker:
    """Values a pipeline's inputs may have, as far as its definition says."""

    def __init__(self, definition: Pipeline, signature: Signature) -> None:
        self._random = np.random.default_rng(_SEED)
        self._inputs = {given.name: given for given in signature.inputs}
        self._categories: dict[str, Sequence[str]] = {}
        for step in definition.steps:  # a step's own table of categories names those that it knows
            table = step.options.get("categories")
            if isinstance(table, dict):
                self._categories |= {name: [str(each) for each in names] for name, names in table.items() if names}

    def column(self, field: Field, shape: tuple[int, ...], index: int) -> Column:
        match field.kind:
            case "text":
                words = self._random.choice(WORDS, WORD_COUNTS[index % len(WORD_COUNTS)])
                return text_column([" ".join(words)])
            case "texts":
                counts = WORD_COUNTS[index % len(WORD_COUNTS) :][:3]
                return object_column([[" ".join(self._random.choice(WORDS, count)) for count in counts]])
            case "image":
                width, height = IMAGE_SIZES[index % len(IMAGE_SIZES)]
                patches = self._random.integers(0, 256, (PATCHES, PATCHES, 3), dtype=np.uint8)
                across, down = np.arange(width) * PATCHES // width, np.arange(height) * PATCHES // height
                return text_column([png(patches[down][:, across])])
            case "audio":
                return text_column([wav(self._random.normal(0.0, 3000.0, SAMPLES[index % len(SAMPLES)]))])
            case "bytes":
                return text_column([self._random.bytes(BYTE_COUNTS[index % len(BYTE_COUNTS)])])
            case "category":
                return text_column([str(self._random.choice(self._categories.get(field.name, ["a", "b", "c"])))])
            case "number":
                given = self._inputs.get(field.name)
                low = -math.inf if given is None or given.min is None else given.min
                high = math.inf if given is None or given.max is None else given.max
                return np.clip(self._random.uniform(0.0, 100.0, 1), low, high)
            case "tensor" | "ragged" | "json":  # a caller sends none of the last two
                row = _tensor(field, shape, 1, self._random)
                return row * row.dtype.type(SCALES[index % len(SCALES)]) if row.dtype.kind == "f" else row


def _tensor(field: Field, shape: tuple[int, ...], rows: int, random: np.random.Generator) -> NDArray[Any]:
    size = (rows, *shape)
    match field.datatype:
        case "BYTES":
            return random.choice(WORDS, size).astype(object)
        case "BOOL":
            return random.integers(0, 2, size).astype(bool)
        case "UINT8":
            return random.integers(0, 256, size, dtype=np.uint8)
        case "FP16" | "FP32" | "FP64":
            return random.normal(size=size).astype(NUMPY_NAMES[field.datatype])
        case _:  # small and not 0: indices, lengths, divisors
            return random.integers(1, 10, size).astype(NUMPY_NAMES.get(field.datatype, "uint16"))


def _shape(field: Field, free: int) -> tuple[int, ...]:
    return tuple(free if size < 0 else size for size in field.shape)


def _alike(item: Item, first: Item, padded: Mapping[str, float]) -> bool:
    """Whether the two rows can be in one array each."""
    return all(
        column.shape == first[name].shape or (name in padded and column.shape[2:] == first[name].shape[2:])
        for name, column in item.items()
    )


def _golden(request: Mapping[str, Any], signature: Signature) -> Item | None:
    """A golden request as one row; None when it does not fit, which whoever replays golden requests reports."""
    flat = dict(request)
    for given in signature.inputs:
        if given.type == "record" and isinstance(request.get(given.name), Mapping):
            flat.update(request[given.name])
    try:
        return {field.name: _value(field, flat.get(field.name)) for field in signature.columns}
    except (TypeError, ValueError):
        return None


def _value(field: Field, value: Any) -> Column:
    match field.kind:
        case "text" | "category":
            return text_column([None if value is None else str(value)])
        case "texts":
            return object_column([[str(text) for text in value]])
        case "bytes" | "image" | "audio":
            return text_column([base64.b64decode(value)])
        case "number":
            return np.array([math.nan if value is None else value], dtype=np.float64)
        case "tensor" | "ragged" | "json":
            dtype = object if field.datatype == "BYTES" else NUMPY_NAMES[field.datatype]
            array = np.array(value, dtype=dtype)
            if len(array.shape) != len(field.shape):
                raise ValueError("another number of dimensions")
            return array[np.newaxis]
