"""Text Embeddings Inference's own routes ``/embed`` and ``/predict``; its ``/rerank`` is in ``rerank``.

They name no pipeline: the one of the setting data.pipeline answers, or the only one that has the task.
"""

from functools import partial

import msgspec
import numpy as np
import orjson

from forwardpass.core.errors import Code, show
from forwardpass.core.pipeline import Signature
from forwardpass.core.request import Answer, Request
from forwardpass.ingress.dialect import Call, Dialect, Target
from forwardpass.ingress.dialects.classified import scores_of
from forwardpass.ingress.dialects.envelope import raise_first
from forwardpass.ingress.dialects.task_body import TEXTS_MAX, GivenInput, end_of, place_of, read, texts_of
from forwardpass.ingress.dialects.task_request import (
    check_dimensions,
    cut,
    headers_of,
    made_unit,
    refuse_cut,
    refuse_other_cut,
    request_of,
    task_of,
    vectors_of,
)
from forwardpass.ingress.message import HttpAnswer
from forwardpass.pipeline.bounds import At, refuse

INPUTS = "/inputs"


class EmbedMessage(msgspec.Struct, forbid_unknown_fields=True):
    """``normalize``: at length 1, else as the pipeline gives them; ``truncate`` false refuses what would be cut.

    ``truncation_direction`` refuses what would be cut at the other end.
    """

    inputs: GivenInput
    normalize: bool | None = None
    truncate: bool | None = None
    truncation_direction: str | None = None
    dimensions: int | None = None
    prompt_name: str | None = None


class PredictMessage(msgspec.Struct, forbid_unknown_fields=True):
    """``parameters`` is what Hugging Face's client sends: empty, as there are none here."""

    inputs: str | list[str | list[str]]
    raw_scores: bool | None = None
    truncate: bool | None = None
    truncation_direction: str | None = None
    parameters: dict[str, object] | None = None


def _embed_target(call: Call) -> Target:
    message = call.message = read(call.http, EmbedMessage)
    end_of(message.truncation_direction)
    if message.prompt_name is not None:
        raise refuse(Code.INVALID_INPUT, "/prompt_name", "is not supported: pipelines have no named prompts")
    return Target("", None, ("embed",))


def _embed_decode(call: Call, signature: Signature) -> Request:
    message: EmbedMessage = call.message
    task = task_of(signature, "embed")
    check_dimensions(message.dimensions, task, signature)
    texts = texts_of(message.inputs, INPUTS, Code.INPUT_TOO_LARGE)
    return request_of(
        call, signature, task, len(texts), {task.input: (texts, partial(place_of, message.inputs, INPUTS))}
    )


def _embed_encode(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    message: EmbedMessage = call.message
    at = partial(place_of, message.inputs, INPUTS)
    _raise_any(answer, message, at)
    vectors = cut(vectors_of(answer, task_of(answer.signature, "embed")), message.dimensions)
    if message.normalize is not False:
        vectors = made_unit(vectors)
    body = orjson.dumps(np.ascontiguousarray(vectors), option=orjson.OPT_SERIALIZE_NUMPY)
    return HttpAnswer(200, body, headers=headers_of(answer, request))


def _raise_any(answer: Answer, message: EmbedMessage | PredictMessage, at: At) -> None:
    """Raises the failure of the first row, and Refused for a text that was cut as it may not be."""
    raise_first(answer, at)
    if message.truncate is False:
        refuse_cut(answer, at)
    if message.truncation_direction is not None:
        refuse_other_cut(answer, end_of(message.truncation_direction), at)


def _predict_target(call: Call) -> Target:
    message = call.message = read(call.http, PredictMessage)
    end_of(message.truncation_direction)
    for name in message.parameters or ():
        raise refuse(Code.UNKNOWN_FIELD, f"/parameters/{show(name)}", "is unknown; there are none here")
    if message.raw_scores:
        raise refuse(Code.INVALID_INPUT, "/raw_scores", "is not supported: a pipeline gives its scores in one form")
    return Target("", None, ("classify",))


def _texts(message: PredictMessage) -> list[str]:
    """One text, or of each list in a list the only one. Raises Refused."""
    given = message.inputs
    if isinstance(given, str):
        return [_one([given], INPUTS)]
    if given and all(isinstance(each, str) for each in given):
        return [_one([each for each in given if isinstance(each, str)], INPUTS)]
    if not given:
        raise refuse(Code.MISSING_FIELD, INPUTS, "is empty; at least one text is needed")
    if len(given) > TEXTS_MAX:
        raise refuse(Code.INPUT_TOO_LARGE, INPUTS, f"has {len(given)} elements; at most {TEXTS_MAX} are allowed")
    return [_one(each, f"{INPUTS}/{row}") for row, each in enumerate(given)]


def _one(texts: str | list[str], where: str) -> str:
    if isinstance(texts, str):
        raise refuse(Code.WRONG_TYPE, where, "expected a list of one text, as the others are")
    if len(texts) != 1:
        text = f"holds {len(texts)} texts; this pipeline takes one, no pair (several: a list of lists of one text)"
        raise refuse(Code.INVALID_INPUT, where, text)
    if not texts[0]:
        raise refuse(Code.MISSING_FIELD, where, "is empty")
    return texts[0]


def _is_single(message: PredictMessage) -> bool:
    return isinstance(message.inputs, str) or isinstance(message.inputs[0], str)


def _predict_place(message: PredictMessage, row: int) -> str:
    return INPUTS if _is_single(message) else f"{INPUTS}/{row}"


def _predict_decode(call: Call, signature: Signature) -> Request:
    message: PredictMessage = call.message
    task = task_of(signature, "classify")
    if not any(given.name == task.input and given.type == "text" for given in signature.inputs):
        raise refuse(Code.INVALID_INPUT, INPUTS, "the pipeline takes a picture, which this path has no place for")
    texts = _texts(message)
    return request_of(call, signature, task, len(texts), {task.input: (texts, partial(_predict_place, message))})


def _predict_encode(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    message: PredictMessage = call.message
    at = partial(_predict_place, message)
    _raise_any(answer, message, at)
    rows = [
        [{"label": label, "score": score} for label, score in scores.items()]
        for scores in scores_of(answer, task_of(answer.signature, "classify"))
    ]
    body = orjson.dumps(rows[0] if _is_single(message) else rows)
    return HttpAnswer(200, body, headers=headers_of(answer, request))


EMBED = Dialect(_embed_decode, _embed_encode, _embed_target)
PREDICT = Dialect(_predict_decode, _predict_encode, _predict_target)
