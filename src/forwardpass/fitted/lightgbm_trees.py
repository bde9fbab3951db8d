"""The trees of LightGBM, from its own JSON dump. It compares in FP64."""

from collections.abc import Mapping, Sequence
from typing import Any

from forwardpass.fitted.learned import (
    Learned,
    Link,
    exponent,
    identity,
    scaled,
    sigmoid,
    signed_square,
    softmax,
    softplus,
    two_classes,
)
from forwardpass.fitted.refusal import listed, refused
from forwardpass.fitted.trees import Forest

LINKS: Mapping[str, Link] = {
    "multiclass": softmax, "multiclassova": sigmoid, "cross_entropy": sigmoid, "cross_entropy_lambda": softplus,
    "poisson": exponent, "gamma": exponent, "tweedie": exponent, "regression": identity, "regression_l1": identity,
    "huber": identity, "fair": identity, "quantile": identity, "mape": identity, "lambdarank": identity,
    "rank_xendcg": identity,
}  # fmt: skip


def read(estimator: Any) -> Learned:
    """``estimator``: a wrapper of the scikit-learn kind, or a Booster. Raises Misconfigured for what has no equal."""
    booster = getattr(estimator, "booster_", estimator)
    model = booster.dump_model()
    targets = model["num_tree_per_iteration"]
    forest = Forest(targets)
    for place, tree in enumerate(model["tree_info"]):
        forest.tree()
        nodes: list[dict[str, Any]] = []
        _flatten(tree["tree_structure"], nodes)
        _add(forest, nodes, place % targets)
    link = _link(model, classes=hasattr(estimator, "classes_"))
    if model["average_output"]:
        link = scaled(len(model["tree_info"]) / targets, link, divide=True)
    return Learned(forest, link, rounds=False)


def categories(estimator: Any) -> Sequence[Sequence[Any]]:
    """What it learned of each pandas column of the dtype category, in the order of these columns."""
    return getattr(estimator, "booster_", estimator).pandas_categorical or ()


def _link(model: Mapping[str, Any], *, classes: bool) -> Link:
    name, *parameters = model.get("objective", "custom").split()
    if name == "binary":
        steepness = float(dict(each.split(":") for each in parameters).get("sigmoid", 1.0))
        return scaled(steepness, two_classes if classes else sigmoid)
    if name == "regression" and "sqrt" in parameters:
        return signed_square
    if name == "multiclassova":
        return scaled(float(dict(each.split(":") for each in parameters).get("sigmoid", 1.0)), sigmoid)
    if name not in LINKS:
        raise refused(("objective", name, f"binary, {listed(LINKS)}"))
    return LINKS[name]


def _flatten(node: dict[str, Any], nodes: list[dict[str, Any]]) -> int:
    """Puts a node and what is below it into one list; returns its place. A split by categories becomes several nodes."""
    if "split_feature" not in node:
        if "leaf_coeff" in node:
            raise refused(("linear_tree", "true", "leaves that are numbers"))
        nodes.append({"value": node["leaf_value"]})
        return len(nodes) - 1
    among = node["threshold"].split("||") if node["decision_type"] == "==" else (node["threshold"],)
    first = len(nodes)
    nodes += [{"of": node, "threshold": float(each)} for each in among]
    yes, no = _flatten(node["left_child"], nodes), _flatten(node["right_child"], nodes)
    for place in range(first, first + len(among)):
        last = place == first + len(among) - 1
        nodes[place] |= {"yes": yes, "no": no if last else place + 1}
    return first


def _add(forest: Forest, nodes: Sequence[Mapping[str, Any]], target: int) -> None:
    for node in nodes:
        if "value" in node:
            forest.leaf([(target, node["value"])])
            continue
        split, threshold = node["of"], node["threshold"]
        equal = split["decision_type"] == "=="
        forest.split(
            split["split_feature"], "BRANCH_EQ" if equal else "BRANCH_LEQ", threshold, node["yes"], node["no"],
            missing_yes=not equal and _missing_yes(split, threshold),
        )  # fmt: skip


def _missing_yes(split: Mapping[str, Any], threshold: float) -> bool:
    """Where a missing number goes: the learned way, or where zero goes when none was missing in training."""
    zero_yes = threshold >= 0.0
    if split["missing_type"] == "NaN":
        return bool(split["default_left"])
    if split["missing_type"] == "Zero" and bool(split["default_left"]) != zero_yes:
        raise refused(("zero_as_missing", "true", "false: in a graph zero is a number like any other"))
    return zero_yes
