"""Records to answers in this process, in the form and with the errors that a client of a server gets."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from forwardpass import client_wire as wire
from forwardpass.building.session import DEADLINE_S, Session
from forwardpass.client_retry import ForwardpassError
from forwardpass.client_wire import Prediction
from forwardpass.core.clock import monotonic_s, random_id
from forwardpass.core.errors import Failure
from forwardpass.core.pipeline import Signature
from forwardpass.core.request import Answer, Request, Turn
from forwardpass.core.tensor import NUMPY_NAMES
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialects import predict
from forwardpass.ingress.message import HttpAnswer
from forwardpass.ingress.status import error_answer
from forwardpass.pipeline import fields

T = TypeVar("T")
Record = Mapping[str, object]
Outcome = Prediction | ForwardpassError

ROWS_TOGETHER_MAX = 4096
"""Of more records than these the rest waits here: a queue is bounded."""
_MANY = "/instances"


def one(session: Session, record: Record, sequence: Turn | None) -> Prediction:
    """Raises ForwardpassError."""
    request = None
    try:
        request = _request(session, [record], sequence, single=True)
        return _read(wire.predict("_", {}, None, False), predict.encode(session.answer(request), request))
    except Failure as failure:
        raise _error(failure, request) from failure


def many(session: Session, records: Sequence[Record], sequence: Turn | None) -> list[Outcome]:
    """One outcome per record, in order. Raises ForwardpassError when all fail, or one does not fit the inputs."""
    outcomes: list[Outcome] = []
    request = None
    try:
        for some in _parts(session, records):
            request = _request(session, some, sequence, single=False)
            outcomes += _outcomes(session.answer(request), request)
    except Failure as failure:
        raise _error(failure, request) from failure
    failed = [outcome for outcome in outcomes if isinstance(outcome, ForwardpassError)]
    if len(failed) == len(outcomes):
        raise failed[0]
    return outcomes


def body(session: Session, records: Record | Sequence[Record]) -> bytes:
    """The body of the answer in the predict dialect. Raises Failure."""
    single = isinstance(records, Mapping)
    request = _request(session, [records] if isinstance(records, Mapping) else records, None, single=single)
    answer = predict.encode(session.answer(request), request)
    assert isinstance(answer.body, bytes), "the predict dialect answers whole"
    return answer.body


def as_json(record: Record) -> dict[str, Any]:
    """A record as a client sends it: bytes as base64, arrays as lists."""
    return {name: _plain(value) for name, value in record.items()}


def _parts(session: Session, records: Sequence[Record]) -> list[Sequence[Record]]:
    """What is asked at once: all, where rows may depend on each other."""
    variant = session.variant
    size = min(ROWS_TOGETHER_MAX, variant.version.definition.queue.rows_max)
    if len(records) <= size or not variant.batch.enabled:
        return [records]
    fields.encode(variant.signature, [_sent(each, variant.signature) for each in records], root=_MANY)  # names the row
    return [records[start : start + size] for start in range(0, len(records), size)]


def _request(session: Session, records: Sequence[Record], sequence: Turn | None, *, single: bool) -> Request:
    signature = session.variant.signature
    given = [_sent(record, signature) for record in records]
    columns, rows = fields.encode(signature, given, root=None if single else _MANY)
    now = monotonic_s()
    timeline = Timeline(now, now)
    return Request(random_id(), columns, rows, timeline, deadline_s=DEADLINE_S, single=single, sequence=sequence)


def _sent(record: Record, signature: Signature) -> Record:
    """The record with an array of another datatype than its input's as lists, which is how it would be sent."""
    if not isinstance(record, Mapping):
        return record
    wanted = {column.name: NUMPY_NAMES.get(column.datatype) for column in signature.columns if column.kind == "tensor"}
    return {
        name: value if isinstance(value, np.ndarray) and value.dtype.name == wanted.get(name) else _listed(value)
        for name, value in record.items()
    }


def _listed(value: Any) -> Any:
    match value:
        case np.ndarray() | np.generic():
            return value.tolist()
        case Mapping():
            return {name: _listed(each) for name, each in value.items()}
    return value


def _plain(value: Any) -> Any:
    match value:
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode("ascii")
        case np.ndarray() | np.generic():
            return value.tolist()
        case Mapping():
            return {name: _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return value


def _outcomes(answer: Answer, request: Request) -> list[Outcome]:
    if len(answer.failures) == answer.rows:
        return [_error(answer.failures[row], request) for row in range(answer.rows)]
    call = wire.predict_many("_", [{}] * answer.rows, None)
    outcomes = _read(call, predict.encode(answer, request))
    for row, failure in answer.failures.items():
        outcome = outcomes[row]
        assert isinstance(outcome, ForwardpassError), "what failed is read as an error"
        _explain(outcome, failure)
    return outcomes


def _read(call: "wire.Call[T]", answer: HttpAnswer) -> T:
    assert isinstance(answer.body, bytes), "the predict dialect answers whole"
    headers = {name.decode(): value.decode() for name, value in answer.headers}
    return wire.value(call, wire.Answer(answer.status, headers, answer.body))


def _error(failure: Failure, request: Request | None) -> ForwardpassError:
    """What a client would be told of it, and with it the detail that a server keeps in its log."""
    try:
        _read(wire.predict("_", {}, None, False), error_answer(failure, "predict", request.id if request else ""))
    except ForwardpassError as error:
        return _explain(error, failure)
    raise AssertionError("a failure is no answer")


def _explain(error: ForwardpassError, failure: Failure) -> ForwardpassError:
    if failure.detail:
        error.add_note(failure.detail.strip())
    return error
