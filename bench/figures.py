"""How a benchmark says what it found: one line a figure with its bar, and a summary as the last line."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnxruntime

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "examples" / ".work" / "models"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line: what was measured, in which unit, against which bar."""

    name: str
    value: float
    unit: str
    bar: float
    lower_is_better: bool
    spread: str

    @property
    def met(self) -> bool:
        return self.value <= self.bar if self.lower_is_better else self.value >= self.bar

    def line(self) -> str:
        sign = "<=" if self.lower_is_better else ">="
        verdict = "met" if self.met else "MISSED"
        return f"{self.name}: {self.value:.3g} {self.unit} (bar {sign} {self.bar:g}): {verdict}  [{self.spread}]"


def say(figure: Figure) -> Figure:
    print(figure.line(), flush=True)
    return figure


def summarise(figures: Sequence[Figure]) -> None:
    met = sum(figure.met for figure in figures)
    cores = len(os.sched_getaffinity(0))
    print(f"summary: {met} of {len(figures)} bars met ({onnxruntime.__version__=}, {cores} cores)")
