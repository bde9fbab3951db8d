"""Records to answers in this process, in the form and with the errors that a client of a server gets."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

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

_MANY = "/instances"


def one(session: Session, record: Record, sequence: Turn | None) -> Prediction:
    """Raises ForwardpassError."""
    request = None
    try:
        request = _request(session, [record], sequence, single=True)
        return _read(wire.predict("_", {}, None, False), session.told(request, predict.encode))
    except Failure as failure:
        raise _error(failure, request) from failure


def many(session: Session, records: Sequence[Record], sequence: Turn | None) -> list[Outcome]:
    """One outcome per record, in order. Raises ForwardpassError when all fail, or one does not fit the inputs."""
    outcomes: list[Outcome] = []
    for some in _parts(session, records, sequence):
        outcomes += _together(session, some, sequence)
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


def _parts(session: Session, records: Sequence[Record], sequence: Turn | None) -> list[Sequence[Record]]:
    """What is asked at once: one execution's rows, so that a deadline is that of one; all, where rows may depend on
    each other. Raises ForwardpassError for a record that does not fit the inputs, before any of many is run."""
    variant = session.variant
    size = min(variant.batch.rows_cut, variant.version.definition.queue.rows_max)
    if len(records) <= size or sequence is not None or not (variant.batch.enabled and variant.signature.batched):
        return [records]
    try:
        fields.encode(variant.signature, [_sent(each, variant.signature) for each in records], root=_MANY)
    except Failure as failure:
        raise _error(failure, None) from failure
    return [records[start : start + size] for start in range(0, len(records), size)]


def _together(session: Session, records: Sequence[Record], sequence: Turn | None) -> list[Outcome]:
    """What ends the request is the outcome of each of its rows, and of no others."""
    request = None
    try:
        request = _request(session, records, sequence, single=False)
        return session.told(request, _outcomes)
    except Failure as failure:
        return [_error(failure, request) for _ in records]


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
        name: value
        if isinstance(value, np.ndarray) and value.dtype.name == wanted.get(name)
        else wire.plain(value, wire.as_it_is)
        for name, value in record.items()
    }


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
