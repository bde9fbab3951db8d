"""``calibrate``: a model's scores become probabilities that mean what they say."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Field
from forwardpass.steps.decide.label_files import read_json
from forwardpass.steps.kind import Fit, Kind, describe, fail_nan, invalid, is_float, pick, unfit
from forwardpass.steps.options import Trouble, Wrong, choice, either, field_name, file_name, number, option, several
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared

Scores = NDArray[np.float64]
_FLOAT = Fit("a floating tensor", is_float)
_PARAMETERS = either(number(), several(number()))
_TABLE = 'a table {"x": [ascending numbers], "y": [as many, not descending, from 0 to 1]}'


@dataclass(frozen=True, kw_only=True)
class Calibrate:
    """Turns scores into calibrated FP32 probabilities, in one of three ways that were fitted beforehand.

    ``temperature``: logits divided by it (Guo et al. 2017); of probabilities the logarithm counts as the logit.
    ``a`` and ``b``: 1 / (1 + exp(a * score + b)) (Platt 1999), as scikit-learn's sigmoid calibration. ``isotonic_file``:
    ``{"x": [...], "y": [...]}``, X_thresholds_ and y_thresholds_ of scikit-learn's IsotonicRegression; linear between
    them, constant outside.

    ``form`` "softmax": the last axis holds classes of which one is right; they sum to one. "sigmoid": each score stands
    for itself. With a and b or a table, softmax calibrates each class, by the pair or table of its own or the only one,
    and divides by their sum (all zero: all alike); of two classes with one pair or table the second is calibrated and
    the first is the rest. A NaN among the scores fails the row.
    """

    input: str | None = option(field_name(), "the scores; without it the latest floating tensor", None)
    temperature: float | None = option(number(), "what logits are divided by, above 0", None)
    of: str = option(choice("logits", "probabilities"), "what temperature is applied to", "logits")
    a: float | tuple[float, ...] | None = option(_PARAMETERS, "the slope, or one for each class", None)
    b: float | tuple[float, ...] | None = option(_PARAMETERS, "the offset, or one for each class", None)
    isotonic_file: str | None = option(file_name(), "a JSON file of one table, or a list of one for each class", None)
    form: str | None = option(choice("softmax", "sigmoid"), "by default softmax; of one number per row sigmoid", None)
    output: str = option(field_name(), "where the probabilities go", "probabilities")


def _problems(options: Calibrate) -> list[Trouble]:
    troubles: list[Trouble] = []
    ways = [options.temperature is not None, options.a is not None or options.b is not None]
    if sum([*ways, options.isotonic_file is not None]) != 1:
        troubles.append(("temperature", "none or more than one way", "one of temperature, a with b, isotonic_file"))
    if (options.a is None) != (options.b is None):
        troubles.append(("b" if options.b is None else "a", "missing", "a and b belong together"))
    elif len(_several(options.a)) != len(_several(options.b)):
        troubles.append(("b", f"{len(_several(options.b))} numbers", f"{len(_several(options.a))}, as many as in a"))
    if options.temperature is not None and options.temperature <= 0:
        troubles.append(("temperature", f"{options.temperature:g}", "above 0"))
    if options.temperature is None and options.of != "logits":
        troubles.append(("of", options.of, "only with temperature"))
    return troubles


def _several(value: float | tuple[float, ...] | None) -> tuple[float, ...]:
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _fields(options: Calibrate, known: FieldMap) -> list[Field]:
    source = pick(known, options.input, _FLOAT)
    if options.form == "softmax" and not source.shape:
        raise invalid("form", "softmax", f"sigmoid: {describe(source)} is one number per row")
    if _is_softmax(options, source) and source.shape[-1] == 1:
        raise invalid("form", "softmax", f"sigmoid: {describe(source)} has one class")
    if len(_several(options.a)) > 1:
        _check_count(len(_several(options.a)), source, "a")
    return [Field(options.output, "FP32", source.shape)]


def _is_softmax(options: Calibrate, source: Field) -> bool:
    return options.form == "softmax" or (options.form is None and bool(source.shape))


def _check_count(count: int, source: Field, key: str, *, file: str = "") -> None:
    """One for all classes, or one each."""
    size = source.shape[-1] if source.shape else 1
    if count > 1 and size not in (-1, count):
        where = {"file": file} if file else {}
        raise invalid(key, f"{count} for {size} classes", "one, or one for each class", **where)


def _load(options: Calibrate, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, _FLOAT)
    softmax = _is_softmax(options, source)
    if options.temperature is not None:
        calibrate, count = _by_temperature(options.temperature, options.of, softmax=softmax), 1
    elif options.isotonic_file is not None:
        curves = _tables(context.folder, options.isotonic_file)
        _check_count(len(curves), source, "", file=options.isotonic_file)
        calibrate, count = _by_class(curves, softmax=softmax), len(curves)
    else:
        sigmoids = [_platt(a, b) for a, b in zip(_several(options.a), _several(options.b), strict=True)]
        calibrate, count = _by_class(sigmoids, softmax=softmax), len(sigmoids)

    def run(batch: Batch) -> None:
        scores = batch.columns[source.name]
        if count > 1 and scores.shape[-1] != count:
            raise unfit(source, Code.BAD_OUTPUT_SHAPE, f"has {scores.shape[-1]} scores for {count} calibrations")
        fail_nan(batch, source, scores)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # infinities may become NaN
            batch.columns[options.output] = calibrate(scores.astype(np.float64)).astype(np.float32)

    return run


def _by_temperature(temperature: float, of: str, *, softmax: bool) -> Callable[[Scores], Scores]:
    def calibrate(scores: Scores) -> Scores:
        if softmax:
            logits = np.log(scores) if of == "probabilities" else scores
            powers = np.exp((logits - logits.max(axis=-1, keepdims=True, initial=-np.inf)) / temperature)
            return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
        logits = np.log(scores) - np.log1p(-scores) if of == "probabilities" else scores
        return _sigmoid(logits / temperature)

    return calibrate


def _sigmoid(logits: Scores) -> Scores:
    small = np.exp(-np.abs(logits))  # never overflows, whatever the sign
    return np.where(logits >= 0, 1 / (1 + small), small / (1 + small))


def _platt(a: float, b: float) -> Callable[[Scores], Scores]:
    return lambda scores: _sigmoid(-(a * scores + b))


def _by_class(curves: list[Callable[[Scores], Scores]], *, softmax: bool) -> Callable[[Scores], Scores]:
    def calibrate(scores: Scores) -> Scores:
        if softmax and scores.shape[-1] == 2 and len(curves) == 1:
            second = curves[0](scores[..., 1])
            return np.stack([1 - second, second], axis=-1)
        if len(curves) == 1:
            each = curves[0](scores)
        else:
            each = np.stack([curve(scores[..., place]) for place, curve in enumerate(curves)], axis=-1)
        if not softmax:
            return each
        total = each.sum(axis=-1, keepdims=True)
        shares: Scores = np.full_like(each, 1 / each.shape[-1])
        np.divide(each, total, out=shares, where=total != 0)
        return shares

    return calibrate


def _tables(folder: Path, file: str) -> list[Callable[[Scores], Scores]]:
    found = read_json(folder, file)
    tables = found if isinstance(found, list) else [found]
    if not tables:
        raise invalid("", "an empty list", _TABLE, file=file)
    try:
        return [_curve(table, f"[{place}]" if isinstance(found, list) else "") for place, table in enumerate(tables)]
    except Wrong as wrong:
        raise invalid(wrong.at.removeprefix("."), wrong.found, wrong.allowed, file=file) from None


def _curve(table: Any, at: str) -> Callable[[Scores], Scores]:
    if not isinstance(table, dict) or table.keys() != {"x", "y"}:
        raise Wrong("no such table", _TABLE, at)
    xs, ys = (np.array(several(number()).read(table[key])) for key in ("x", "y"))
    if len(xs) != len(ys) or not (np.diff(xs) > 0).all():
        raise Wrong(f"{len(xs)} x and {len(ys)} y, or x that do not ascend", _TABLE, at)
    if not (np.diff(ys) >= 0).all() or ys[0] < 0 or ys[-1] > 1:
        raise Wrong("y that descend or are outside 0 to 1", _TABLE, at)
    return lambda scores: np.asarray(np.interp(scores, xs, ys))


CALIBRATE = Kind("calibrate", Calibrate, _fields, _load, _problems)
