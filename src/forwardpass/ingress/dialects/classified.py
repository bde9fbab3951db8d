"""What a pipeline that classifies says of each row: labels and their scores."""

from collections.abc import Sequence

from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Task
from forwardpass.core.request import Answer
from forwardpass.pipeline import fields

Scores = dict[str, float]
"""Score by label, the greatest first; of equal ones as the pipeline has them."""


def scores_of(answer: Answer, task: Task) -> list[Scores]:
    """Of each row, none of which failed. What a rule withheld is left out. Raises Failed for unlike numbers of both."""
    return [_scores(row, task) for row in fields.decode(answer) if isinstance(row, dict)]


def _scores(row: dict[str, object], task: Task) -> Scores:
    scores = _listed(row[task.output])
    labels = _listed(row[task.label]) if task.label else task.labels
    if len(labels) != len(scores):
        text = f"output '{task.output}' has {len(scores)} scores for {len(labels)} labels"
        raise Failed(Code.BAD_OUTPUT_SHAPE, text, field=task.output)
    found = [
        (label, float(score))
        for label, score in zip(labels, scores, strict=True)
        if isinstance(label, str) and isinstance(score, int | float)
    ]
    return dict(sorted(found, key=lambda each: -each[1]))


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else [value]
