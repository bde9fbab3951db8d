"""``POST /v1/moderations``: OpenAI's form over a pipeline that classifies a text, or a picture.

A label is a category; those of OpenAI's that the pipeline does not have are false and 0, as its typed clients want all.
A category is true from the task's threshold on, unless it is harmless, and a result is flagged when one is true.
"""

from collections.abc import Sequence
from functools import partial

import msgspec
import orjson

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Signature, Task
from forwardpass.core.request import Answer, Request
from forwardpass.ingress.dialect import Call, Dialect, Target
from forwardpass.ingress.dialects.classified import Scores, scores_of
from forwardpass.ingress.dialects.envelope import raise_first
from forwardpass.ingress.dialects.task_body import TEXTS_MAX, read, target_of
from forwardpass.ingress.dialects.task_request import headers_of, request_of, task_of
from forwardpass.ingress.message import HttpAnswer
from forwardpass.pipeline.bounds import refuse

HARMLESS = ("user", "metadata", "safety_identifier")
"""Accepted and without effect: they name the caller."""

CATEGORIES = (
    "harassment", "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent", "self-harm",
    "self-harm/instructions", "self-harm/intent", "sexual", "sexual/minors", "violence", "violence/graphic",
)  # fmt: skip


class ImageUrl(msgspec.Struct, forbid_unknown_fields=True):
    url: str


class Part(msgspec.Struct, forbid_unknown_fields=True):
    """A text or a picture, by ``type``."""

    type: str
    text: str | None = None
    image_url: ImageUrl | None = None


class ModerationsMessage(msgspec.Struct, forbid_unknown_fields=True):
    input: str | list[str | Part]
    model: str | None = None


_PARTS = {"/input/*": Part.__struct_fields__, "/input/*/image_url": ImageUrl.__struct_fields__}


def _target(call: Call) -> Target:
    message = call.message = read(call.http, ModerationsMessage, HARMLESS, _PARTS)
    return target_of(message.model, "classify")


def _decode(call: Call, signature: Signature) -> Request:
    message: ModerationsMessage = call.message
    task = task_of(signature, "classify")
    takes_text = any(given.name == task.input and given.type == "text" for given in signature.inputs)
    given = [message.input] if isinstance(message.input, str) else message.input
    if not given:
        raise refuse(Code.MISSING_FIELD, "/input", "is empty; at least one text is needed")
    if len(given) > TEXTS_MAX:
        raise refuse(Code.BATCH_TOO_LARGE, "/input", f"has {len(given)} elements; at most {TEXTS_MAX} are allowed")
    if isinstance(given[0], Part) and len(given) > 1:
        raise refuse(Code.INVALID_INPUT, "/input", "parts make one input, and this pipeline takes one part")
    at = partial(_place, message)
    values = [_value(each, at(row), takes_text=takes_text) for row, each in enumerate(given)]
    return request_of(call, signature, task, len(values), {task.input: (values, at)})


def _place(message: ModerationsMessage, row: int) -> str:
    return "/input" if isinstance(message.input, str) else f"/input/{row}"


def _value(given: str | Part, where: str, *, takes_text: bool) -> str:
    """A text, or a picture as base64."""
    part = Part("text", given) if isinstance(given, str) else given
    _check_part(part, where)
    if takes_text:
        if part.text is None:
            raise refuse(Code.INVALID_INPUT, where, "this pipeline takes a text, got a picture")
        if not part.text:
            raise refuse(Code.MISSING_FIELD, where, "is empty")
        return part.text
    url = part.image_url.url if part.image_url is not None else ""
    head, comma, content = url.partition(";base64,")
    if not (comma and head.startswith("data:image/")):
        wanted = 'a part of type image_url whose url is "data:image/TYPE;base64,…"; nothing is fetched'
        raise refuse(Code.INVALID_INPUT, where, f"this pipeline takes a picture: {wanted}")
    return content


def _check_part(part: Part, where: str) -> None:
    """Raises Refused unless the part holds what its type says, and nothing else."""
    held = {"text": part.text, "image_url": part.image_url}
    if part.type not in held:
        raise refuse(Code.OUT_OF_RANGE, f"{where}/type", 'must be "text" or "image_url"')
    if held.pop(part.type) is None:
        raise refuse(Code.MISSING_FIELD, f"{where}/{part.type}", "is required")
    for name, value in held.items():
        if value is not None:
            raise refuse(Code.INVALID_INPUT, f"{where}/{name}", f"does not go with a part of type {part.type}")


def _encode(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    message: ModerationsMessage = call.message
    task = task_of(answer.signature, "classify")
    raise_first(answer, partial(_place, message))
    kind = next(given.type for given in answer.signature.inputs if given.name == task.input)
    body = {
        "id": f"modr-{request.id}",
        "model": message.model or answer.version.pipeline,
        "results": [_result(scores, task, [kind]) for scores in scores_of(answer, task)],
    }
    return HttpAnswer(200, orjson.dumps(body), headers=headers_of(answer, request))


def _result(scores: Scores, task: Task, types: Sequence[str]) -> dict[str, object]:
    known = dict.fromkeys((*CATEGORIES, *sorted(task.labels), *scores), 0.0) | scores
    categories = {label: label not in task.harmless and _flags(scores, label, task) for label in known}
    applied = {label: types if label in scores or label in task.labels else [] for label in known}
    return {
        "flagged": any(categories.values()),
        "categories": categories,
        "category_scores": known,
        "category_applied_input_types": applied,
    }


def _flags(scores: Scores, label: str, task: Task) -> bool:
    return label in scores and scores[label] >= task.threshold


MODERATIONS = Dialect(_decode, _encode, _target)
