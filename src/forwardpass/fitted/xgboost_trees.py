"""The trees of XGBoost, from its own JSON form. It keeps rows and thresholds in FP32."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from forwardpass.fitted.learned import Learned, Link, exponent, identity, logit, sigmoid, softmax, two_classes
from forwardpass.fitted.refusal import listed, refused
from forwardpass.fitted.trees import Forest

IDENTITY = (
    "reg:squarederror", "reg:squaredlogerror", "reg:absoluteerror", "reg:pseudohubererror", "reg:quantileerror",
    "rank:pairwise", "rank:ndcg", "rank:map",
)  # fmt: skip
EXPONENT = ("count:poisson", "reg:gamma", "reg:tweedie", "survival:cox")
LOGISTIC = ("binary:logistic", "reg:logistic")
SOFTMAX = ("multi:softprob", "multi:softmax")


def read(estimator: Any) -> Learned:
    """``estimator``: a wrapper of the scikit-learn kind, or a Booster. Raises Misconfigured for what has no equal."""
    wrapped = hasattr(estimator, "get_booster")
    booster = estimator.get_booster() if wrapped else estimator
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    _refuse(learner, getattr(estimator, "missing", np.nan), wrapped)
    model = learner["gradient_booster"]["model"]
    objective, parameters = learner["objective"]["name"], learner["learner_model_param"]
    targets = max(int(parameters["num_class"]), int(parameters.get("num_target", 1)), 1)
    forest = Forest(targets, base=_base(parameters["base_score"], objective, targets))
    for place in range(_trees_used(learner, wrapped)):
        _add(forest, model["trees"][place], model["tree_info"][place])
    return Learned(forest, _link(objective, hasattr(estimator, "classes_")), rounds=True)


def _refuse(learner: Mapping[str, Any], missing: float, wrapped: bool) -> None:
    kind = learner["gradient_booster"]["name"]
    if kind != "gbtree":
        raise refused(("booster", kind, "gbtree"))
    if missing is not None and not np.isnan(missing):
        raise refused(("missing", str(missing), "NaN, the default: no number stands for a missing one"))
    names, types = learner["feature_names"], learner["feature_types"]
    categories = [name for name, kind in zip(names, types, strict=False) if kind == "c"]
    trees = learner["gradient_booster"]["model"]["trees"]
    if categories or any(any(tree["split_type"]) for tree in trees):
        allowed = "numbers: encode categories before it, with an OrdinalEncoder or OneHotEncoder in a Pipeline"
        raise refused(("enable_categorical", listed(categories) or "categories", allowed))
    if any(int(tree["tree_param"]["size_leaf_vector"]) > 1 for tree in trees):
        raise refused(("multi_strategy", "multi_output_tree", "one_output_per_tree"))
    known = (*IDENTITY, *EXPONENT, *LOGISTIC, *SOFTMAX)
    objective = learner["objective"]["name"]
    if objective not in known or (objective == "multi:softmax" and not wrapped):
        raise refused(("objective", objective, listed(known)))


def _base(written: str, objective: str, targets: int) -> list[float]:
    """What the sums start with, from the answer that they start with."""
    found = np.atleast_1d(np.asarray(json.loads(written), dtype=np.float32)).astype(np.float64)
    if objective in LOGISTIC:
        found = np.array([logit(each) for each in found])
    elif objective in EXPONENT:
        found = np.log(found)
    return [float(each) for each in (np.repeat(found, targets) if len(found) == 1 else found)]


def _trees_used(learner: Mapping[str, Any], wrapped: bool) -> int:
    """A wrapper stops at the best round of early stopping, a Booster does not."""
    rounds: list[int] = learner["gradient_booster"]["model"]["iteration_indptr"]
    best = learner["attributes"].get("best_iteration")
    return rounds[int(best) + 1] if wrapped and best is not None else rounds[-1]


def _link(objective: str, classes: bool) -> Link:
    if objective in LOGISTIC:
        return two_classes if classes else sigmoid
    if objective in SOFTMAX:
        return softmax
    return exponent if objective in EXPONENT else identity


def _add(forest: Forest, tree: Mapping[str, Any], target: int) -> None:
    forest.tree()
    for node, yes in enumerate(tree["left_children"]):
        number = float(np.float32(tree["split_conditions"][node]))
        if yes < 0:
            forest.leaf([(target, number)])
        else:
            forest.split(
                tree["split_indices"][node], "BRANCH_LT", number, yes, tree["right_children"][node],
                missing_yes=bool(tree["default_left"][node]),
            )  # fmt: skip
