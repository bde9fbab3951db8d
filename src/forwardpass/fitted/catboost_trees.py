"""The trees of CatBoost, from its own JSON form. It keeps rows and borders in FP32; numbers only."""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from forwardpass.fitted.learned import Learned, Link, exponent, identity, sigmoid, softmax, two_classes
from forwardpass.fitted.refusal import listed, refused
from forwardpass.fitted.trees import Forest

LINKS: Mapping[str, Link] = {
    "Logloss": two_classes, "CrossEntropy": two_classes, "MultiClass": softmax, "MultiClassOneVsAll": sigmoid,
    "RMSE": identity, "MAE": identity, "Quantile": identity, "MAPE": identity, "Huber": identity, "Lq": identity,
    "Expectile": identity, "LogCosh": identity, "MultiRMSE": identity, "Poisson": exponent, "Tweedie": exponent,
    "LogLinQuantile": identity,
}  # fmt: skip


def read(estimator: Any) -> Learned:
    """Raises Misconfigured for categories, text and whatever else has no equal in a graph."""
    _refuse(estimator)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.json"
        estimator.save_model(str(file), format="json")
        model = json.loads(file.read_text("utf-8"))
    parameters = model["model_info"]["params"]
    if isinstance(parameters, str):  # older versions write it as text
        parameters = json.loads(parameters)
    loss = parameters["loss_function"]["type"]
    if loss not in LINKS:
        raise refused(("loss_function", loss, listed(LINKS)))
    if "oblivious_trees" not in model:
        raise refused(("grow_policy", "trees that are not symmetric", "SymmetricTree"))
    scale, bias = model["scale_and_bias"]
    forest = Forest(len(bias), base=[float(each) for each in bias])
    features = model["features_info"]["float_features"]
    for tree in model["oblivious_trees"]:
        _add(forest, tree, features, float(scale))
    return Learned(forest, LINKS[loss], rounds=True)


def _refuse(estimator: Any) -> None:
    names = estimator.feature_names_
    for kind, found in (
        ("cat_features", estimator.get_cat_feature_indices()),
        ("text_features", estimator.get_text_feature_indices()),
        ("embedding_features", estimator.get_embedding_feature_indices()),
    ):
        if len(found):
            allowed = "numbers: CatBoost's own encoding has no equal in a graph; encode these columns before it"
            raise refused((kind, listed(names[place] for place in found), allowed))


def _add(forest: Forest, tree: Mapping[str, Any], features: Any, scale: float) -> None:
    """All rows of a level ask the same question: the tree is written out, level by level."""
    splits = tree["splits"] or []
    values = np.asarray(tree["leaf_values"]).reshape(2 ** len(splits), -1) * scale
    forest.tree()
    for level, split in enumerate(splits):
        feature = features[split["float_feature_index"]]
        missing_yes = feature["nan_value_treatment"] != "AsTrue"
        border = float(np.float32(split["border"]))
        for place in range(2**level):
            first_below = 2 ** (level + 1) - 1 + 2 * place
            forest.split(
                feature["flat_feature_index"], "BRANCH_LEQ", border, first_below, first_below + 1,
                missing_yes=missing_yes,
            )  # fmt: skip
    for place in range(len(values)):
        # The path to a leaf, from the root: the first question is the lowest bit of the leaf's number.
        number = int(f"{place:0{len(splits)}b}"[::-1], 2) if splits else 0
        forest.leaf(list(enumerate(values[number])))
