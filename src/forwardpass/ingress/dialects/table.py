"""Every dialect, by the name that its routes have in the table."""

from forwardpass.core.pipeline import Signature
from forwardpass.core.request import Answer, Request
from forwardpass.ingress.dialect import Call, Dialect, work_of_tensors
from forwardpass.ingress.dialects import generate, invocations, kserve_v1, predict, v2, v2_answer
from forwardpass.ingress.dialects.openai_embeddings import EMBEDDINGS
from forwardpass.ingress.dialects.openai_moderations import MODERATIONS
from forwardpass.ingress.dialects.rerank import COHERE_RERANK, RERANK, TEI_RERANK
from forwardpass.ingress.dialects.tei import EMBED, PREDICT
from forwardpass.ingress.dialects.tei_any import TEI_ANY
from forwardpass.ingress.message import HttpAnswer


def _decode_v2(call: Call, signature: Signature) -> Request:
    return v2.decode_infer(call.http, signature, call.id, call.timeline, pipeline=call.match.pipeline, asked=call.asked)


def _encode_v2(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    return v2_answer.encode_infer(answer, request)


def _decode_predict(call: Call, signature: Signature) -> Request:
    return predict.decode(call.http, signature, call.id, call.timeline)


def _encode_predict(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    return predict.encode(answer, request)


DIALECTS: dict[str, Dialect] = {
    "v2_infer": Dialect(_decode_v2, _encode_v2, work=work_of_tensors),
    "predict": Dialect(_decode_predict, _encode_predict),
    "generate": Dialect(generate.decode, generate.encode, work=work_of_tensors),
    "generate_stream": Dialect(generate.decode, generate.encode_stream, work=work_of_tensors),
    "invocations": Dialect(invocations.decode, invocations.encode_answer, invocations.target),
    "openai_embeddings": EMBEDDINGS,
    "openai_moderations": MODERATIONS,
    "rerank": RERANK,
    "cohere_rerank": COHERE_RERANK,
    "tei_rerank": TEI_RERANK,
    "tei_embed": EMBED,
    "tei_predict": PREDICT,
    "tei_any": TEI_ANY,
    "kserve_v1_predict": Dialect(kserve_v1.decode, kserve_v1.encode_answer),
}
