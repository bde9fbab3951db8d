"""TEI's ``POST /``: its clients that are given a bare address ask there for whatever its model does."""

from collections.abc import Mapping

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Signature, TaskKind
from forwardpass.core.request import Answer, Request
from forwardpass.ingress import strict_json
from forwardpass.ingress.dialect import Call, Dialect, Target
from forwardpass.ingress.dialects.rerank import TEI_RERANK, Rerank, TeiRerankMessage
from forwardpass.ingress.dialects.task_request import task_of
from forwardpass.ingress.dialects.tei import EMBED, PREDICT, EmbedMessage, PredictMessage
from forwardpass.ingress.message import HttpAnswer

_KEYS: Mapping[TaskKind, tuple[str, ...]] = {
    "rank": TeiRerankMessage.__struct_fields__,
    "embed": EmbedMessage.__struct_fields__,
    "classify": PredictMessage.__struct_fields__,
}
_ASKS: Mapping[TaskKind, tuple[TaskKind, ...]] = {
    "rank": ("rank", "embed"), "embed": ("embed",), "classify": ("classify",)
}  # fmt: skip
"""Which tasks a pipeline may have that answers a body of each kind."""
_OF_KIND: Mapping[TaskKind, Dialect] = {"rank": TEI_RERANK, "embed": EMBED, "classify": PREDICT}
_OF_MESSAGE: Mapping[type, Dialect] = {Rerank: TEI_RERANK, EmbedMessage: EMBED, PredictMessage: PREDICT}


def _target(call: Call) -> Target:
    """Whoever does what the body's keys ask for; one with ``inputs`` alone may be of an embedder or a classifier."""
    body = strict_json.decode(call.http.body)
    if not isinstance(body, dict):
        raise Refused(Code.WRONG_TYPE, "the body must be a JSON object with inputs, or with query and texts")
    kinds: list[TaskKind]
    if "query" in body or "texts" in body:
        kinds = ["rank"]
    else:
        kinds = [kind for kind in ("embed", "classify") if body.keys() <= set(_KEYS[kind])] or ["embed", "classify"]
    call.message = kinds
    return Target("", None, tuple(dict.fromkeys(task for kind in kinds for task in _ASKS[kind])))


def _decode(call: Call, signature: Signature) -> Request:
    kinds: list[TaskKind] = call.message
    task = task_of(signature, *(task for kind in kinds for task in _ASKS[kind]))
    dialect = _OF_KIND["rank" if kinds == ["rank"] else task.kind]
    dialect.target(call)
    return dialect.decode(call, signature)


def _encode(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    return _OF_MESSAGE[type(call.message)].encode(answer, request, call)


TEI_ANY = Dialect(_decode, _encode, _target)
