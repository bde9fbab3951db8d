"""KServe's V1, which is TensorFlow Serving's predict: ``{"instances": [...]}`` or ``{"inputs": {...}}``.

A pipeline has one signature: ``signature_name`` may name it as TensorFlow does by default, or be empty.
"""

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Signature
from forwardpass.core.request import Answer, Request
from forwardpass.ingress import strict_json
from forwardpass.ingress.dialect import Call
from forwardpass.ingress.dialects.envelope import answer_headers, receipt_asked
from forwardpass.ingress.dialects.invocations import rows_of_object
from forwardpass.ingress.dialects.predictions import body_of
from forwardpass.ingress.dialects.rows import encode
from forwardpass.ingress.dialects.turns import turn_of_headers
from forwardpass.ingress.message import HttpAnswer
from forwardpass.pipeline.bounds import refuse

FORMS = ("instances", "inputs")
SIGNATURE = "signature_name"
SIGNATURES = ("", "serving_default")


def decode(call: Call, signature: Signature) -> Request:
    """Raises Refused; never for its Content-Type, which clients leave out."""
    receipt = receipt_asked(call.http.query)
    body = strict_json.decode(call.http.body)
    if isinstance(body, dict) and body.get(SIGNATURE) in (None, *SIGNATURES):
        body.pop(SIGNATURE, None)
    elif isinstance(body, dict):
        raise refuse(Code.OUT_OF_RANGE, f"/{SIGNATURE}", 'must be "serving_default" or empty; a pipeline has one')
    columns, rows = encode(signature, rows_of_object(body, signature, FORMS, ()))
    return Request(call.id, columns, rows, call.timeline, receipt=receipt, sequence=turn_of_headers(call.http))


def encode_answer(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    """``{"predictions": [...]}``, one a row. Raises the first row's failure."""
    body = body_of(answer, "application/json")
    return HttpAnswer(200, body, headers=answer_headers(request.id, answer.version, request.sequence))
