"""What a library's trees answer with once they are summed: the functions from sums to probabilities or numbers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from forwardpass.fitted.nodes import Nodes
from forwardpass.fitted.trees import Forest

Link = Callable[[Nodes, str], str]
"""Adds nodes that turn the sums, FP64 [rows, targets], into what the library answers with."""


@dataclass(frozen=True, slots=True)
class Learned:
    """``rounds``: the library keeps its rows in FP32, so the graph rounds them before it compares."""

    forest: Forest
    link: Link
    rounds: bool

    def answers(self, nodes: Nodes, row: str) -> str:
        return self.link(nodes, self.forest.sums(nodes, nodes.rounded(row) if self.rounds else row))


def identity(nodes: Nodes, sums: str) -> str:
    return sums


def exponent(nodes: Nodes, sums: str) -> str:
    return nodes.add("Exp", sums)


def sigmoid(nodes: Nodes, sums: str) -> str:
    return nodes.add("Sigmoid", sums)


def softmax(nodes: Nodes, sums: str) -> str:
    return nodes.add("Softmax", sums, axis=1)


def signed_square(nodes: Nodes, sums: str) -> str:
    return nodes.add("Mul", nodes.add("Abs", sums), sums)


def softplus(nodes: Nodes, sums: str) -> str:
    return nodes.add("Log", nodes.add("Add", nodes.constant([1.0]), nodes.add("Exp", sums)))


def two_classes(nodes: Nodes, sums: str) -> str:
    """One sum: the second class's. Its probability, and before it the first one's."""
    second = nodes.add("Sigmoid", sums)
    return nodes.add("Concat", nodes.add("Sub", nodes.constant([1.0]), second), second, axis=1)


def scaled(factor: float, link: Link = identity, *, divide: bool = False) -> Link:
    """``link`` of the sums times (or divided by) a factor."""

    def apply(nodes: Nodes, sums: str) -> str:
        return link(nodes, nodes.add("Div" if divide else "Mul", sums, nodes.constant([factor])))

    return apply


def label_of(nodes: Nodes, probabilities: str, classes: tuple[object, ...]) -> str:
    """The class of the greatest probability; of equal ones the first, as all these libraries have it."""
    return nodes.labels(nodes.add("ArgMax", probabilities, axis=1, keepdims=0), classes)


def logit(chance: float) -> float:
    return float(np.log(chance) - np.log1p(-chance))
