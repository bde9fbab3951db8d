"""Trees of every library in one form, and that form as an ONNX node with FP64 thresholds: no comparison changes.

Converters in use write FP32 thresholds. Where a library compares in FP64 (LightGBM, histogram boosting), a row near a
threshold then takes the other branch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from forwardpass.fitted.nodes import Nodes

Mode = Literal["BRANCH_LEQ", "BRANCH_LT", "BRANCH_EQ"]


@dataclass(slots=True)
class Forest:
    """Trees that are summed, written node by node. ``targets`` is how many sums a row gets."""

    targets: int
    base: Sequence[float] = ()  # what each sum starts with
    _nodes: dict[str, list[Any]] = field(default_factory=dict)
    _weights: dict[str, list[Any]] = field(default_factory=dict)
    _tree: int = -1
    _next: int = 0

    def tree(self) -> None:
        """What follows belongs to a new tree, whose first node is its root."""
        self._tree += 1
        self._next = 0

    def split(self, feature: int, mode: Mode, threshold: float, yes: int, no: int, *, missing_yes: bool) -> None:
        """The next node: rows for which feature ``mode`` threshold holds go on at place ``yes``, others at ``no``."""
        self._node(
            featureids=int(feature), modes=mode, values_as_tensor=float(threshold), truenodeids=int(yes),
            falsenodeids=int(no), missing_value_tracks_true=int(missing_yes),
        )  # fmt: skip

    def leaf(self, weights: Sequence[tuple[int, float]]) -> None:
        """The next node: each weight is added to the sum of its target."""
        for target, weight in weights:
            self._append(
                self._weights, treeids=self._tree, nodeids=self._next, ids=int(target), weights_as_tensor=float(weight)
            )
        self._node(
            featureids=0, modes="LEAF", values_as_tensor=0.0, truenodeids=0, falsenodeids=0,
            missing_value_tracks_true=0,
        )  # fmt: skip

    def sums(self, nodes: Nodes, row: str) -> str:
        """Adds the node; returns the name of its output, FP64 [rows, targets] (each sum was rounded to FP32)."""
        attributes = {f"nodes_{name}": values for name, values in self._nodes.items()}
        attributes |= {f"target_{name}": values for name, values in self._weights.items()}
        for name, values in attributes.items():
            if name.endswith("_as_tensor"):
                attributes[name] = nodes.tensor(values)
        if self.base:
            attributes["base_values_as_tensor"] = nodes.tensor(self.base)
        summed = nodes.add(
            "TreeEnsembleRegressor", row, domain="ai.onnx.ml", n_targets=self.targets, aggregate_function="SUM",
            post_transform="NONE", **attributes,
        )  # fmt: skip
        return nodes.cast(summed, "float64")

    def _node(self, **values: Any) -> None:
        self._append(self._nodes, treeids=self._tree, nodeids=self._next, **values)
        self._next += 1

    def _append(self, lists: dict[str, list[Any]], **values: Any) -> None:
        for name, value in values.items():
            lists.setdefault(name, []).append(value)
