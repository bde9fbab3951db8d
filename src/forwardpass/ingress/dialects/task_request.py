"""A request made of what a task's client sends, and what every answer to one has in common."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Failed, Refused
from forwardpass.core.pipeline import Signature, Task, TaskKind
from forwardpass.core.request import Answer, Note, Request
from forwardpass.core.tensor import NUMPY_NAMES
from forwardpass.core.tokens import TokenIds
from forwardpass.ingress.dialect import Call
from forwardpass.ingress.dialects.envelope import answer_headers
from forwardpass.pipeline import fields
from forwardpass.pipeline.bounds import At, refuse

_DOES: dict[TaskKind, str] = {"embed": "embeds texts", "rank": "ranks documents", "classify": "classifies"}


def task_of(signature: Signature, *kinds: TaskKind) -> Task:
    """The pipeline's task, which must be one of these. Raises Refused that says what it does instead."""
    task = signature.task
    if task is not None and task.kind in kinds:
        return task
    does = f"it {_DOES[task.kind]}" if task is not None else "its steps do not say what its task is"
    wanted = " or ".join(f'kind = "{kind}"' for kind in kinds)
    text = f"/model: this pipeline cannot answer here: {does}; [task] with {wanted} in its pipeline.toml is needed"
    raise Refused(Code.INVALID_INPUT, text, field="/model")


def request_of(
    call: Call, signature: Signature, task: Task, rows: int, values: Mapping[str, tuple[Sequence[object], At]]
) -> Request:
    """A request of so many rows: ``values`` has those of each input that the task names. Raises Refused."""
    for name, (given, at) in values.items():
        if name not in signature.token_inputs:
            for row, value in enumerate(given):
                if isinstance(value, TokenIds):
                    raise refuse(Code.WRONG_TYPE, at(row), "this pipeline takes texts only, no token ids")
    missing = [None] * rows
    columns = [
        fields.encode_column(signature, given, *values.get(given.name, (missing, str))) for given in signature.inputs
    ]
    outputs = (task.output, task.label) if task.label else (task.output,)
    return Request(call.id, columns, rows, call.timeline, outputs=outputs)


def refuse_cut(answer: Answer, at: At) -> None:
    """Raises Refused where a text was cut."""
    for note in cuts(answer):
        text = f"has {note.value.get('tokens')} tokens; at most {note.value.get('kept')} are used"
        raise refuse(Code.INPUT_TOO_LARGE, at(note.row), text)


def refuse_other_cut(answer: Answer, end: str, at: At) -> None:
    """Raises Refused where a text was cut at another end than ``left`` or ``right``, which is asked for."""
    for note in cuts(answer):
        cut_end = note.value.get("from", "right")
        if cut_end != end:
            text = f"has more tokens than the {note.value.get('kept')} used; the pipeline cuts at the {cut_end}"
            raise refuse(Code.INPUT_TOO_LARGE, at(note.row), text)


def cuts(answer: Answer) -> list[Note]:
    """The notes on texts of which not all tokens were used: ``tokens``, ``kept`` and which ``field``."""
    return [note for note in answer.notes if note.name == "truncated"]


def headers_of(answer: Answer, request: Request) -> list[tuple[bytes, bytes]]:
    """Who answered, and in X-Notes how many notes of each name there are: these bodies have no place for them."""
    headers = answer_headers(request.id, answer.version)
    if answer.notes:
        counted = Counter(note.name for note in answer.notes)
        told = ", ".join(f"{name}={count}" for name, count in counted.items())
        headers.append((b"X-Notes", told.encode("ascii", "replace")[:1024]))
    return headers


def vectors_of(answer: Answer, task: Task) -> NDArray[np.float32]:
    """The vectors of all rows, none of which failed. Raises Failed for one that has no length or is not finite."""
    tensor = answer.outputs[task.output]
    vectors = np.frombuffer(tensor.data, np.dtype(NUMPY_NAMES[tensor.datatype]).newbyteorder("<"))
    if tensor.shapes or not len(vectors):
        raise Failed(Code.BAD_OUTPUT_SHAPE, f"output '{task.output}' is no vector of one length", field=task.output)
    if not np.isfinite(vectors).all():
        text = f"output '{task.output}' holds a number that is not finite"
        raise Failed(Code.NON_FINITE_OUTPUT, text, field=task.output)
    return vectors.reshape(answer.rows, -1).astype("<f4", copy=False)


def made_unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vectors at length 1; one that has no length stays as it is."""
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1, keepdims=True))
    unit: NDArray[np.float32] = (vectors / np.where(lengths == 0, 1.0, lengths)).astype("<f4")
    return unit


def cut(vectors: NDArray[np.float32], length: int | None) -> NDArray[np.float32]:
    """The vectors' first numbers; the same vectors where that is as many as there are or not said."""
    return vectors if length is None or length == vectors.shape[1] else vectors[:, :length]


def check_dimensions(asked: int | None, task: Task, signature: Signature) -> None:
    """Raises Refused for a length that the vectors do not have and cannot be cut to."""
    if asked is None:
        return
    full = next(output.shape[0] for output in signature.outputs if output.name == task.output)
    allowed = sorted({*task.dimensions, *([full] if full > 0 else [])})
    if asked not in allowed:
        text = f"this pipeline's vectors have {', '.join(map(str, allowed))} numbers, got {asked}"
        raise refuse(Code.OUT_OF_RANGE, "/dimensions", text if allowed else "its vectors cannot be cut")
