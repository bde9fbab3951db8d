"""The trees of scikit-learn: decision trees, forests, gradient boosting, histogram gradient boosting."""

from collections.abc import Callable
from typing import Any

import numpy as np

from forwardpass.fitted.learned import Learned, Link, exponent, identity, scaled, softmax, two_classes
from forwardpass.fitted.refusal import refused
from forwardpass.fitted.trees import Forest


def reader(estimator: Any) -> Callable[[Any], Learned] | None:
    """What reads this estimator's trees. Estimators made of others (AdaBoost, Bagging ...) are none of these."""
    kind = type(estimator)
    return READERS.get(kind.__name__) if kind.__module__.startswith("sklearn.") else None


def _one(estimator: Any) -> Learned:
    return _averaged([estimator])


def _forest(estimator: Any) -> Learned:
    return _averaged(estimator.estimators_)


def _averaged(trees: list[Any]) -> Learned:
    """Not divided before they are summed: so equal sums stay equal, and the first class wins as in the library."""
    values = [tree.tree_.value for tree in trees]
    if hasattr(trees[0], "classes_") and values[0].shape[1] > 1:
        raise refused(("", "a classifier with several outputs", "one label for each row"))
    constant_axis = 1 if hasattr(trees[0], "classes_") else 2  # a value is [nodes, outputs, classes]
    weights = [value.take(0, axis=constant_axis) for value in values]
    forest = Forest(weights[0].shape[1])
    for tree, weight in zip(trees, weights, strict=True):
        _add(forest, tree.tree_, weight)
    return Learned(forest, scaled(len(trees), divide=True), rounds=True)


def _add(forest: Forest, tree: Any, weights: Any) -> None:
    """One tree; ``weights`` [nodes, targets] is what its leaves add."""
    forest.tree()
    missing = getattr(tree, "missing_go_to_left", np.zeros(tree.node_count, dtype=bool))
    for node, (yes, no) in enumerate(zip(tree.children_left, tree.children_right, strict=True)):
        if yes < 0:
            forest.leaf(list(enumerate(weights[node])))
        else:
            forest.split(
                tree.feature[node], "BRANCH_LEQ", tree.threshold[node], yes, no, missing_yes=bool(missing[node])
            )


def _boosting(estimator: Any) -> Learned:
    if type(estimator.init_).__name__ not in ("str", "DummyClassifier", "DummyRegressor"):
        raise refused(("init", "an estimator of its own", "the default init"))
    width = estimator.n_features_in_
    base = np.asarray(estimator._raw_predict_init(np.zeros((1, width), dtype=np.float32))).ravel()
    targets = estimator.estimators_.shape[1]
    forest = Forest(targets, base=[float(each) for each in base])
    for stage in estimator.estimators_:
        for target, tree in enumerate(stage):
            weights = np.zeros((tree.tree_.node_count, targets))
            weights[:, target] = tree.tree_.value[:, 0, 0] * estimator.learning_rate
            _add(forest, tree.tree_, weights)
    link: Link = identity
    if hasattr(estimator, "classes_"):
        link = softmax if targets > 1 else two_classes
        if estimator.loss == "exponential":
            link = scaled(2.0, two_classes)
    return Learned(forest, link, rounds=True)


def _histogram(estimator: Any) -> Learned:
    if estimator.is_categorical_ is not None and np.any(estimator.is_categorical_):
        allowed = (
            "categories encoded before it: an OrdinalEncoder in a ColumnTransformer, and categorical_features=None"
        )
        raise refused(("categorical_features", "categories of its own", allowed))
    targets = len(estimator._predictors[0]) if estimator._predictors else 1
    forest = Forest(targets, base=[float(each) for each in np.ravel(estimator._baseline_prediction)])
    for stage in estimator._predictors:
        for target, predictor in enumerate(stage):
            _add_histogram(forest, predictor.nodes, target)
    logarithm = type(estimator._loss.link).__name__ == "LogLink"
    link: Link = exponent if logarithm else identity
    if hasattr(estimator, "classes_"):
        link = softmax if targets > 1 else two_classes
    return Learned(forest, link, rounds=False)


def _add_histogram(forest: Forest, nodes: Any, target: int) -> None:
    forest.tree()
    for node in nodes:
        if node["is_leaf"]:
            forest.leaf([(target, node["value"])])
        else:
            forest.split(
                node["feature_idx"], "BRANCH_LEQ", node["num_threshold"], node["left"], node["right"],
                missing_yes=bool(node["missing_go_to_left"]),
            )  # fmt: skip


READERS: dict[str, Callable[[Any], Learned]] = {
    **dict.fromkeys(
        ("DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor"), _one
    ),
    **dict.fromkeys(
        ("RandomForestClassifier", "RandomForestRegressor", "ExtraTreesClassifier", "ExtraTreesRegressor"), _forest
    ),
    **dict.fromkeys(("GradientBoostingClassifier", "GradientBoostingRegressor"), _boosting),
    **dict.fromkeys(("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"), _histogram),
}
