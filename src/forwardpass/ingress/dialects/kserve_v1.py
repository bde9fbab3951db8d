"""KServe's V1, which is TensorFlow Serving's predict: ``{"instances": [...]}`` or ``{"inputs": {...}}``."""

from forwardpass.core.pipeline import Signature
from forwardpass.core.request import Answer, Request
from forwardpass.ingress.dialect import Call
from forwardpass.ingress.dialects.envelope import answer_headers, receipt_asked
from forwardpass.ingress.dialects.invocations import rows_of_json
from forwardpass.ingress.dialects.predictions import body_of
from forwardpass.ingress.dialects.rows import encode
from forwardpass.ingress.dialects.turns import turn_of_headers
from forwardpass.ingress.message import HttpAnswer

FORMS = ("instances", "inputs")


def decode(call: Call, signature: Signature) -> Request:
    """Raises Refused; never for its Content-Type, which clients leave out."""
    receipt = receipt_asked(call.http.query)
    columns, rows = encode(signature, rows_of_json(call.http.body, signature, FORMS, ()))
    return Request(call.id, columns, rows, call.timeline, receipt=receipt, sequence=turn_of_headers(call.http))


def encode_answer(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    """``{"predictions": [...]}``, one a row. Raises the first row's failure."""
    body = body_of(answer, "application/json")
    return HttpAnswer(200, body, headers=answer_headers(request.id, answer.version, request.sequence))
