"""The ONNX file of what follows the steps: trees by our own writer, everything else by skl2onnx.

Not every converter is right (skl2onnx 1.20 gives other probabilities for LinearDiscriminantAnalysis), and not every one
knows FP64. So there are several ways to write a graph, tried in order of their precision; only the comparison with the
estimator itself decides.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from forwardpass.fitted import catboost_trees, lightgbm_trees, sklearn_trees, xgboost_trees
from forwardpass.fitted.learned import Learned, label_of
from forwardpass.fitted.nodes import ML_OPSET, OPSET, ROW, Nodes
from forwardpass.fitted.preparation import Preparation
from forwardpass.fitted.refusal import needed, refused

Precision = Literal["FP64", "FP32"]
PRECISIONS: tuple[Precision, ...] = ("FP64", "FP32")
LINEAR = (
    "LinearSVC",
    "RidgeClassifier",
    "RidgeClassifierCV",
    "SGDClassifier",
    "Perceptron",
)  # if without probabilities
LIBRARIES: dict[str, Callable[[Any], Learned]] = {
    "lightgbm": lightgbm_trees.read,
    "xgboost": xgboost_trees.read,
    "catboost": catboost_trees.read,
}


@dataclass(frozen=True, slots=True)
class Way:
    """One way to write the graph: ``content`` does it, for a row of ``precision``. Raises Misconfigured."""

    precision: Precision
    how: str
    content: Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a graph is to answer: ``sizes`` is output = numbers in a row of it, 0 = one by itself."""

    sizes: Mapping[str, int]
    classes: tuple[Any, ...]

    @property
    def label_type(self) -> Any:
        return None if self.classes and isinstance(self.classes[0], str) else np.int64


def ways(preparation: Preparation, wanted: Wanted) -> Iterator[Way]:
    """The most exact one first. Raises Misconfigured for trees that have no equal in a graph."""
    final = preparation.final
    read = LIBRARIES.get(type(final).__module__.split(".")[0]) or sklearn_trees.reader(final)
    for precision in PRECISIONS:
        if read is not None or (type(final).__name__ in LINEAR and "scores" in wanted.sizes):
            how = "trees" if read is not None else "linear"
            answer = _trees(read(final), wanted) if read is not None else _linear(final, wanted)
            yield Way(precision, f"{how}, {precision} rows", partial(_own, preparation, answer, wanted, precision))
            if not preparation.rest:
                return
            continue
        for place in (-1, 0) if wanted.sizes.get("scores") == 0 else (-1,):
            content = partial(_converted, preparation, wanted, precision, place)
            yield Way(precision, f"skl2onnx, {precision} rows", content)


Answer = Callable[[Nodes, str], dict[str, str]]
"""Adds nodes that make each output of the joined row, FP64."""


def _own(preparation: Preparation, answer: Answer, wanted: Wanted, precision: Precision) -> bytes:
    model = _skl2onnx(preparation.rest, preparation.width, precision) if preparation.rest else None
    nodes = Nodes(preparation.width, model)
    return _finished(nodes, answer(nodes, nodes.cast(nodes.last[0], np.float64)), wanted)


def _trees(learned: Learned, wanted: Wanted) -> Answer:
    def answer(nodes: Nodes, row: str) -> dict[str, str]:
        found = learned.answers(nodes, row)
        if not wanted.classes:
            return {"prediction": found}
        return {"label": label_of(nodes, found, wanted.classes), "probabilities": found}

    return answer


def _linear(final: Any, wanted: Wanted) -> Answer:
    """Classifiers that are a matrix and know no probabilities: their converters differ in sign and take no FP64."""

    def answer(nodes: Nodes, row: str) -> dict[str, str]:
        product = nodes.add("MatMul", row, nodes.constant(np.atleast_2d(final.coef_).T))
        scores = nodes.add("Add", product, nodes.constant(np.atleast_1d(final.intercept_)))
        if wanted.sizes["scores"]:
            return {"label": label_of(nodes, scores, wanted.classes), "scores": scores}
        second = nodes.add("Greater", nodes.add("Squeeze", scores, nodes.constant([1], np.int64)), nodes.constant(0.0))
        return {"label": nodes.labels(nodes.cast(second, np.int64), wanted.classes), "scores": scores}

    return answer


def _converted(preparation: Preparation, wanted: Wanted, precision: Precision, score: int) -> bytes:
    model = _skl2onnx([*preparation.rest, ("final", preparation.final)], preparation.width, precision)
    nodes = Nodes(preparation.width, model)
    found = dict(zip(wanted.sizes, nodes.last, strict=False))
    if wanted.sizes.get("scores") == 0:  # one for each class, in either order, or one for both
        found["scores"] = nodes.add("Gather", found["scores"], nodes.constant(score, np.int64), axis=1)
    return _finished(nodes, found, wanted)


def _finished(nodes: Nodes, found: Mapping[str, str], wanted: Wanted) -> bytes:
    types = {"label": wanted.label_type}
    return nodes.finish({name: (found[name], types.get(name, np.float64), size) for name, size in wanted.sizes.items()})


def _skl2onnx(steps: list[tuple[str, Any]], width: int, precision: Precision) -> Any:
    """What skl2onnx makes of fitted steps. Raises Misconfigured naming what it cannot do."""
    skl2onnx = needed("skl2onnx", "skl2onnx", "sklearn")
    types = needed("skl2onnx.common.data_types", "skl2onnx", "sklearn")
    from sklearn.pipeline import Pipeline

    whole = Pipeline(steps) if len(steps) > 1 else steps[0][1]
    given = types.DoubleTensorType if precision == "FP64" else types.FloatTensorType
    final = steps[-1][1]
    options: dict[int, Any] | None = {id(final): {"zipmap": False}} if hasattr(final, "classes_") else None
    arguments: dict[str, Any] = {
        "initial_types": [(ROW, given([None, width]))],
        "target_opset": {"": OPSET, "ai.onnx.ml": ML_OPSET},
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return skl2onnx.convert_sklearn(whole, options=options, **arguments)
            except NameError:  # it knows no zipmap for this one, which then has none
                return skl2onnx.convert_sklearn(whole, **arguments)
    except Exception as error:  # a converter raises what it likes
        found = " → ".join(type(each).__name__ for _, each in steps)
        raise refused(("estimator", f"skl2onnx cannot convert {found}", ""), detail=str(error)) from error
