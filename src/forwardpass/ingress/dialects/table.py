"""Every dialect, by the name that its routes have in the table."""

from forwardpass.core.pipeline import Signature
from forwardpass.core.request import Answer, Request
from forwardpass.ingress.dialect import Call, Dialect
from forwardpass.ingress.dialects import predict, v2, v2_answer
from forwardpass.ingress.message import HttpAnswer


def _decode_v2(call: Call, signature: Signature) -> Request:
    return v2.decode_infer(call.http, signature, call.id, call.timeline)


def _encode_v2(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    return v2_answer.encode_infer(answer, request)


def _decode_predict(call: Call, signature: Signature) -> Request:
    return predict.decode(call.http, signature, call.id, call.timeline)


def _encode_predict(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    return predict.encode(answer, request)


DIALECTS: dict[str, Dialect] = {
    "v2_infer": Dialect(_decode_v2, _encode_v2),
    "predict": Dialect(_decode_predict, _encode_predict),
}
