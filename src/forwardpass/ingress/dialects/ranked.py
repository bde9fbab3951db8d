"""Documents ranked for a query, by whatever a pipeline makes: a ranking, scores, the score of a pair, or vectors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Signature, Task
from forwardpass.core.request import Answer, Request
from forwardpass.ingress.dialect import Call
from forwardpass.ingress.dialects.envelope import raise_first
from forwardpass.ingress.dialects.task_request import (
    cuts,
    made_unit,
    refuse_cut,
    refuse_other_cut,
    request_of,
    task_of,
    vectors_of,
)
from forwardpass.pipeline import fields
from forwardpass.pipeline.bounds import At, refuse

Ranking = Sequence[tuple[int, float]]
"""(index of a document, its score), the best first."""

QUERY = "/query"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be ranked. ``raw``: scores as the pipeline gives them; ``may_cut``: a long text may be cut.

    ``end``: where it may be, "" at either; ``tokens_max``: how many tokens of a document may count.
    """

    query: str
    documents: Sequence[str]
    where: str  # the documents stand in the body
    top: int | None = None
    raw: bool = False
    may_cut: bool = True
    end: str = ""
    tokens_max: int | None = None


def request_for(call: Call, signature: Signature, asked: Asked) -> Request:
    """One row with all documents, a row a document, or of an embedder a row for each text. Raises Refused."""
    task = task_of(signature, "rank", "embed")
    at, count = _at(asked, signature, task), len(asked.documents)
    if task.kind == "embed":
        return request_of(call, signature, task, count + 1, {task.input: ((asked.query, *asked.documents), at)})
    if _takes_lists(signature, task):
        return request_of(
            call,
            signature,
            task,
            1,
            {task.input: ([asked.query], _query), task.documents: ([list(asked.documents)], at)},
        )
    return request_of(
        call,
        signature,
        task,
        count,
        {task.input: ([asked.query] * count, _query), task.documents: (asked.documents, at)},
    )


def ranking_of(answer: Answer, asked: Asked) -> Ranking:
    """The best first, of equal ones the lower index. Raises the first row's failure, and Failed for a useless answer."""
    task = task_of(answer.signature, "rank", "embed")
    at = _at(asked, answer.signature, task)
    raise_first(answer, at)
    if not asked.may_cut:
        refuse_cut(answer, at)
    if asked.end:
        refuse_other_cut(answer, asked.end, at)
    _check_tokens(answer, asked, task, at)
    scores = _by_vectors(answer, task) if task.kind == "embed" else _by_scores(answer, task, len(asked.documents))
    best = sorted(scores, key=lambda each: (-each[1], each[0]))[: asked.top]
    return best if asked.raw else [(index, _relevance(score, task)) for index, score in best]


def _at(asked: Asked, signature: Signature, task: Task) -> At:
    """Names what a row is about."""
    if task.kind == "embed":
        return lambda row: f"{asked.where}/{row - 1}" if row else QUERY
    if _takes_lists(signature, task):
        return lambda _: asked.where
    return lambda row: f"{asked.where}/{row}"


def _query(_: int) -> str:
    return QUERY


def _check_tokens(answer: Answer, asked: Asked, task: Task, at: At) -> None:
    """Raises Refused unless no document can have counted with more tokens than asked for.

    That is: not with more than it has bytes, than were made of the whole request, or than were kept where one was cut.
    """
    if asked.tokens_max is None:
        return
    kept = [
        int(note.value.get("kept", 0))
        for note in cuts(answer)
        if at(note.row) != QUERY and (task.kind == "embed" or note.value.get("field") != task.input)
    ]
    longest = max(len(document.encode()) for document in asked.documents)
    used = min(longest, answer.tokens or longest, max(kept, default=longest))
    if asked.tokens_max < used:
        text = f"up to {used} tokens of a document counted here: the pipeline's own steps say how many, not a request"
        raise refuse(Code.OUT_OF_RANGE, "/max_tokens_per_doc", text)


def _takes_lists(signature: Signature, task: Task) -> bool:
    return any(given.name == task.documents and given.type == "texts" for given in signature.inputs)


def _by_vectors(answer: Answer, task: Task) -> Ranking:
    """The cosines of the first vector with the others."""
    vectors = made_unit(vectors_of(answer, task)).astype(np.float64)
    return list(enumerate((vectors[1:] @ vectors[0]).tolist()))


def _by_scores(answer: Answer, task: Task, count: int) -> Ranking:
    rows = [row[task.output] for row in fields.decode(answer) if isinstance(row, dict)]
    found = rows[0] if _takes_lists(answer.signature, task) else rows
    if not isinstance(found, list):
        raise _useless(task)
    pairs: list[tuple[Any, Any]] = [
        (each.get("index"), each.get("score")) if isinstance(each, dict) else (place, each)
        for place, each in enumerate(found)
    ]
    ranking = [(index, float(score)) for index, score in pairs if _is_place(index, count) and _is_number(score)]
    listed = len({index for index, _ in ranking}) == len(found)
    if not listed or (found and not isinstance(found[0], dict) and len(found) != count):
        raise _useless(task)
    return ranking


def _is_place(index: object, count: int) -> bool:
    return type(index) is int and 0 <= index < count


def _is_number(score: object) -> bool:
    return isinstance(score, int | float) and not isinstance(score, bool)


def _useless(task: Task) -> Failed:
    text = f"output '{task.output}' does not hold a score of each document, or index and score of some"
    return Failed(Code.BAD_OUTPUT_SHAPE, text, field=task.output)


def _relevance(score: float, task: Task) -> float:
    """What clients are told: from 0 to 1 where the task says what the scores are."""
    if task.kind == "embed" or task.scale == "cosine":
        return min(max(score, 0.0), 1.0)
    if task.scale == "logit":
        return 1 / (1 + math.exp(-score)) if score >= 0 else math.exp(score) / (1 + math.exp(score))
    return score
