"""Reranking in the forms of Cohere, of Jina and vLLM, and of TEI, over a pipeline that ranks or one that embeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import msgspec
import orjson

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Signature
from forwardpass.core.request import Answer, Request
from forwardpass.ingress.dialect import Call, Dialect, Target
from forwardpass.ingress.dialects.ranked import Asked, ranking_of, request_for
from forwardpass.ingress.dialects.task_body import TEXTS_MAX, end_of, positive, read, target_of
from forwardpass.ingress.dialects.task_request import headers_of
from forwardpass.ingress.message import HttpAnswer
from forwardpass.pipeline.bounds import refuse

DOCUMENTS_PER_UNIT = 100
"""Of Cohere's search units, in which its clients count."""

HARMLESS = ("user",)
COHERE_HARMLESS = ("priority",)
"""Accepted and without effect: who asks, and how urgent it is to Cohere's own service."""


class Document(msgspec.Struct, forbid_unknown_fields=True):
    text: str


class RerankMessage(msgspec.Struct, forbid_unknown_fields=True):
    query: str
    documents: list[str | Document]
    model: str | None = None
    top_n: int | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: int | None = None
    truncation: bool | None = None


class TeiRerankMessage(msgspec.Struct, forbid_unknown_fields=True):
    query: str
    texts: list[str]
    raw_scores: bool | None = None
    return_text: bool | None = None
    truncate: bool | None = None
    truncation_direction: str | None = None


@dataclass(frozen=True, slots=True)
class Rerank:
    """What the message said, beside what is ranked."""

    asked: Asked
    model: str | None
    returns_documents: bool


def _target_of(call: Call, returns_documents: bool, harmless: Sequence[str]) -> Target:
    message = read(call.http, RerankMessage, harmless, {"/documents/*": Document.__struct_fields__})
    documents = [each if isinstance(each, str) else each.text for each in message.documents]
    _check(message.query, documents, "/documents", Code.BATCH_TOO_LARGE)
    asked = Asked(
        message.query,
        documents,
        "/documents",
        positive(message.top_n, "/top_n"),
        may_cut=message.truncation is not False,
        tokens_max=positive(message.max_tokens_per_doc, "/max_tokens_per_doc"),
    )
    told = returns_documents if message.return_documents is None else message.return_documents
    call.message = Rerank(asked, message.model, told)
    return target_of(message.model, "rank", "embed")


def _target(call: Call) -> Target:
    return _target_of(call, True, HARMLESS)


def _cohere_target(call: Call) -> Target:
    return _target_of(call, False, COHERE_HARMLESS)


def _tei_target(call: Call) -> Target:
    message = read(call.http, TeiRerankMessage)
    _check(message.query, message.texts, "/texts", Code.INPUT_TOO_LARGE)
    asked = Asked(
        message.query,
        message.texts,
        "/texts",
        raw=message.raw_scores is True,
        may_cut=message.truncate is not False,
        end=end_of(message.truncation_direction),
    )
    call.message = Rerank(asked, None, message.return_text is True)
    return Target("", None, ("rank", "embed"))


def _check(query: str, documents: Sequence[str], where: str, too_many: Code) -> None:
    if not query:
        raise refuse(Code.MISSING_FIELD, "/query", "is empty")
    if not documents:
        raise refuse(Code.MISSING_FIELD, where, "is empty; at least one is needed")
    if len(documents) > TEXTS_MAX:
        raise refuse(too_many, where, f"has {len(documents)} elements; at most {TEXTS_MAX} are allowed")


def _decode(call: Call, signature: Signature) -> Request:
    said: Rerank = call.message
    return request_for(call, signature, said.asked)


def _results(said: Rerank, answer: Answer) -> list[dict[str, object]]:
    results: list[dict[str, object]] = []
    for index, score in ranking_of(answer, said.asked):
        document = {"document": {"text": said.asked.documents[index]}} if said.returns_documents else {}
        results.append({"index": index, "relevance_score": score, **document})
    return results


def _meta(said: Rerank, answer: Answer, version: str) -> Mapping[str, object]:
    units = ceil(len(said.asked.documents) / DOCUMENTS_PER_UNIT)
    return {
        "api_version": {"version": version},
        "billed_units": {"search_units": units},
        "tokens": {"input_tokens": answer.tokens},
    }


def _cohere_encode(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    said: Rerank = call.message
    body = {"id": request.id, "results": _results(said, answer), "meta": _meta(said, answer, "2")}
    return HttpAnswer(200, orjson.dumps(body), headers=headers_of(answer, request))


def _encode(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    """With ``meta``, so that clients of Cohere's first version read it too."""
    said: Rerank = call.message
    body = {
        "id": request.id,
        "object": "list",
        "model": said.model or answer.version.pipeline,
        "usage": {"prompt_tokens": answer.tokens, "total_tokens": answer.tokens},
        "results": _results(said, answer),
        "meta": _meta(said, answer, "1"),
    }
    return HttpAnswer(200, orjson.dumps(body), headers=headers_of(answer, request))


def _tei_encode(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    said: Rerank = call.message
    body: list[dict[str, object]] = []
    for index, score in ranking_of(answer, said.asked):
        text = {"text": said.asked.documents[index]} if said.returns_documents else {}
        body.append({"index": index, **text, "score": score})
    return HttpAnswer(200, orjson.dumps(body), headers=headers_of(answer, request))


RERANK = Dialect(_decode, _encode, _target)
COHERE_RERANK = Dialect(_decode, _cohere_encode, _cohere_target)
TEI_RERANK = Dialect(_decode, _tei_encode, _tei_target)
