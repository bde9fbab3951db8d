"""Fitted preprocessing of scikit-learn as steps: SimpleImputer, StandardScaler, OneHotEncoder, OrdinalEncoder.

Text, missing values and unseen categories are the steps' work, because there a row is refused alone and with a reason;
a graph that meets an unknown category fails the whole batch. Arithmetic on numbers is as exact in either.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forwardpass.core.pipeline import Step
from forwardpass.fitted.refusal import refused
from forwardpass.fitted.sample import ColumnKind, is_missing


@dataclass
class Block:
    """A column on its way: what it holds now, and which places of it go on (an encoder may drop a category)."""

    name: str
    kind: ColumnKind
    size: int = 1
    kept: tuple[int, ...] = (0,)
    encoded: bool = False


@dataclass
class Encoding:
    """The steps found so far for a chain of transformers on these columns."""

    blocks: list[Block]
    steps: list[Step] = field(default_factory=list)

    def take(self, transformer: Any) -> bool:
        """Whether steps can do what the transformer does; if so they are added. Raises Misconfigured."""
        translate = _TRANSLATORS.get(type(transformer).__name__)
        if translate is None or any(block.size > 1 or block.encoded for block in self.blocks):
            return False
        return translate(transformer, self)

    def add(self, use: str, options: Mapping[str, Any]) -> None:
        self.steps.append(Step(use, dict(options)))


def encodes(transformer: Any) -> bool:
    """Whether it looks values up, so that it must become a step whatever its columns hold."""
    return type(transformer).__name__ in ("OneHotEncoder", "OrdinalEncoder")


def _fill(imputer: Any, encoding: Encoding) -> bool:
    """Not where a number stands for missing, or where the imputer makes more or fewer columns."""
    learned = imputer.statistics_
    if not is_missing(imputer.missing_values) or imputer.add_indicator or any(is_missing(each) for each in learned):
        return False
    values: dict[str, Any] = {}
    for block, value in zip(encoding.blocks, learned, strict=True):
        if isinstance(value, str) != (block.kind == "category"):
            return False
        values[block.name] = str(value) if block.kind == "category" else float(value)
    encoding.add("fill", {"values": values})
    return True


def _scale(scaler: Any, encoding: Encoding) -> bool:
    if any(block.kind == "category" for block in encoding.blocks):
        return False
    names = [block.name for block in encoding.blocks]
    mean = scaler.mean_ if scaler.with_mean else np.zeros(len(names))
    std = scaler.scale_ if scaler.with_std else np.ones(len(names))
    pairs = {"mean": mean, "std": std}
    encoding.add("scale", {key: dict(zip(names, map(float, value), strict=True)) for key, value in pairs.items()})
    return True


def _one_hot(encoder: Any, encoding: Encoding) -> bool:
    _refuse_infrequent(encoder, encoding.blocks)
    unknown = "refuse" if encoder.handle_unknown == "error" else "zeros"
    dropped = encoder.drop_idx_ if encoder.drop_idx_ is not None else [None] * len(encoding.blocks)
    by_missing: dict[str, dict[str, Any]] = {}
    for block, learned, drop in zip(encoding.blocks, encoder.categories_, dropped, strict=True):
        categories, own = _categories(block, learned)
        by_missing.setdefault("own" if own else unknown, {})[block.name] = categories
        block.size = len(categories) + own
        block.kept = tuple(place for place in range(block.size) if place != drop)
        block.encoded = True
    for missing, categories_of in by_missing.items():
        encoding.add("one_hot", {"categories": categories_of, "unknown": unknown, "missing": missing})
    return True


def _ordinal(encoder: Any, encoding: Encoding) -> bool:
    _refuse_infrequent(encoder, encoding.blocks)
    unknown = "refuse" if encoder.handle_unknown == "error" else _number_or_missing(encoder.unknown_value)
    by_missing: dict[Any, dict[str, Any]] = {}
    for block, learned in zip(encoding.blocks, encoder.categories_, strict=True):
        categories, own = _categories(block, learned)
        missing = _number_or_missing(encoder.encoded_missing_value) if own else unknown
        by_missing.setdefault(missing, {})[block.name] = categories
        block.kind = "number"
        block.encoded = True
    for missing, categories_of in by_missing.items():
        encoding.add("ordinal", {"categories": categories_of, "unknown": unknown, "missing": missing})
    return True


def _number_or_missing(value: Any) -> float | str:
    return "missing" if is_missing(value) else float(value)


def _categories(block: Block, learned: Sequence[Any]) -> tuple[list[Any], bool]:
    """The categories as a step takes them, and whether missing is one of them (then it is the last)."""
    known = [value for value in learned if not is_missing(value)]
    if len(learned) - len(known) > 1:
        raise refused((block.name, "None and NaN as two categories", "one of them for what is missing"))
    if len(learned) > len(known) and not is_missing(learned[-1]):
        raise refused((block.name, "missing as a category before others", "missing as the last category"))
    if not known:
        raise refused((block.name, "no category but missing", "a column with values, or leave it out"))
    if any(isinstance(value, str) != (block.kind == "category") for value in known):
        wanted = "text" if block.kind == "category" else "numbers"
        raise refused((block.name, f"learned categories that are no {wanted}", f"{wanted}, as in the sample"))
    plain = [str(value) if block.kind == "category" else float(value) for value in known]
    return plain, len(learned) > len(known)


def _refuse_infrequent(encoder: Any, blocks: Sequence[Block]) -> None:
    grouped = getattr(encoder, "_infrequent_indices", None) or ()
    for block, infrequent in zip(blocks, grouped, strict=False):
        if infrequent is not None:
            allowed = "every category by itself: leave out min_frequency and max_categories"
            raise refused((block.name, f"{type(encoder).__name__} groups infrequent categories", allowed))


_TRANSLATORS: Mapping[str, Callable[[Any, Encoding], bool]] = {
    "SimpleImputer": _fill,
    "StandardScaler": _scale,
    "OneHotEncoder": _one_hot,
    "OrdinalEncoder": _ordinal,
}
