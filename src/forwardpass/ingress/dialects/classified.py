"""What a pipeline that classifies says of each row: labels and their scores."""

from collections.abc import Sequence

from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Task
from forwardpass.core.request import Answer, Note
from forwardpass.pipeline import fields

Scores = dict[str, float]
"""Score by label, the greatest first; of equal ones as the pipeline has them."""


def scores_of(answer: Answer, task: Task) -> list[Scores]:
    """Of each row, none of which failed. What a rule withheld is left out.

    Raises Failed for unlike numbers of both, and for a score that is not finite: it must not look like a low one.
    """
    withheld = {note.row for note in answer.notes if _withholds(note, task.output)}
    rows = enumerate(fields.decode(answer))
    return [_scores(row, task, withheld=place in withheld) for place, row in rows if isinstance(row, dict)]


def _withholds(note: Note, output: str) -> bool:
    return note.name == "rule" and note.value.get("did") == "drop" and output in note.value.get("names", ())


def _scores(row: dict[str, object], task: Task, *, withheld: bool) -> Scores:
    scores = _listed(row[task.output])
    labels = _listed(row[task.label]) if task.label else task.labels
    if len(labels) != len(scores):
        text = f"output '{task.output}' has {len(scores)} scores for {len(labels)} labels"
        raise Failed(Code.BAD_OUTPUT_SHAPE, text, field=task.output)
    if not withheld and None in scores:
        text = f"output '{task.output}' holds a number that is not finite"
        raise Failed(Code.NON_FINITE_OUTPUT, text, field=task.output)
    found = [
        (label, float(score))
        for label, score in zip(labels, scores, strict=True)
        if isinstance(label, str) and isinstance(score, int | float)
    ]
    return dict(sorted(found, key=lambda each: -each[1]))


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else [value]
