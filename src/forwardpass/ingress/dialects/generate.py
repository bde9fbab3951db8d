"""V2's generate and generate_stream: one record by the names of its inputs, and the answer by the names of its outputs.

``text_input`` stands for the only text among the inputs and ``text_output`` for the only one among the outputs. The
parameters that mean something may stand beside them as well as in the object ``parameters``.
"""

from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

import orjson

from forwardpass.core.errors import Code, Refused, show
from forwardpass.core.pipeline import Signature
from forwardpass.core.request import Answer, Parameter, Request
from forwardpass.ingress import strict_json
from forwardpass.ingress.dialect import Call
from forwardpass.ingress.dialects.envelope import answer_headers, raise_first, receipt_asked
from forwardpass.ingress.dialects.turns import NAMES as SEQUENCE_NAMES
from forwardpass.ingress.dialects.v2 import ID_CHARACTERS_MAX
from forwardpass.ingress.dialects.v2_parameters import apply_parameters
from forwardpass.ingress.message import HttpAnswer
from forwardpass.pipeline import fields
from forwardpass.pipeline.bounds import refuse, unknown_field

TEXT_INPUT, TEXT_OUTPUT = "text_input", "text_output"
OWN_INPUTS = ("id", "parameters")
PARAMETERS = ("stream", "priority", "timeout", "receipt", *SEQUENCE_NAMES)
HARMLESS = ("temperature", "top_p", "max_tokens", "stop", "details")
"""Accepted and without effect: how text is sampled, which no pipeline does."""
OWN_OUTPUTS = ("id", "model_name", "model_version", "parameters", "receipt")
EVENTS = b"text/event-stream; charset=utf-8"


def decode(call: Call, signature: Signature) -> Request:
    """The request of one row that a generate body makes. Raises Refused."""
    _check_names(signature)
    body = strict_json.decode(call.http.body)
    if not isinstance(body, dict):
        raise Refused(Code.WRONG_TYPE, f"the body must be a JSON object with {', '.join(_names(signature))}")
    given = _split(body, signature)
    request = Request(call.id, [], 1, call.timeline, receipt=receipt_asked(call.http.query), single=True)
    try:
        _apply_id(request, body.get("id"))
        _check_parameters(given.parameters, call)
        apply_parameters(request, given.parameters)
        request.columns, request.rows = fields.encode(signature, [given.record])
    except Refused as refused:
        raise _placed(refused, given.places) from None
    return request


class _Given(NamedTuple):
    """What a body says. ``places``: proper pointers of values that stand elsewhere in it, and where."""

    record: dict[str, object]
    parameters: dict[str, Parameter]
    places: dict[str, str]


def encode(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    """The whole answer as one JSON object. Raises the row's failure."""
    return HttpAnswer(
        200, message(answer, request), headers=answer_headers(request.id, answer.version, request.sequence)
    )


def encode_stream(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    """The same as the only event of a stream, which then ends. A failure before the first event is a plain error."""
    headers = answer_headers(request.id, answer.version, request.sequence)
    return HttpAnswer(200, _events(message(answer, request)), EVENTS, [*headers, (b"Cache-Control", b"no-cache")])


def message(answer: Answer, request: Request) -> bytes:
    """The object that an answer or an event of one is. Raises the row's failure."""
    raise_first(answer)
    (outputs,) = fields.decode(answer, arrays=True)
    assert isinstance(outputs, dict), "a row without a failure has outputs"
    version = answer.version
    body: dict[str, object] = {
        "id": request.client_id or request.id,
        "model_name": version.pipeline,
        "model_version": str(version.number),
        **outputs,
    }
    texts = [output.name for output in answer.signature.outputs if output.kind == "text" and output.name in outputs]
    if len(texts) == 1 and TEXT_OUTPUT not in outputs:
        body[TEXT_OUTPUT] = outputs[texts[0]]
    if answer.notes:
        body["parameters"] = {"notes": [{"name": note.name, "value": note.value} for note in answer.notes]}
    if answer.receipt is not None:
        body["receipt"] = answer.receipt
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)


async def _events(event: bytes) -> AsyncIterator[bytes]:
    yield b"data: %b\n\n" % event


def _split(body: Mapping[str, object], signature: Signature) -> _Given:
    names = _names(signature)
    texts = [given.name for given in signature.inputs if given.type == "text"]
    record: dict[str, object] = {}
    beside: dict[str, object] = {}
    places: dict[str, str] = {}
    for name, value in body.items():
        if name in names:
            record[name] = value
        elif name == TEXT_INPUT and len(texts) == 1:
            if texts[0] in body:
                raise refuse(Code.INVALID_INPUT, f"/{TEXT_INPUT}", f"is '{texts[0]}', which is given too")
            record[texts[0]] = value
            places[f"/{texts[0]}"] = f"/{TEXT_INPUT}"
        elif name in PARAMETERS:
            beside[name] = value
            places[f"/parameters/{name}"] = f"/{name}"
        elif name not in OWN_INPUTS and name not in HARMLESS:
            raise unknown_field(name, (*names, *OWN_INPUTS, *PARAMETERS, *HARMLESS))
    return _Given(record, _parameters(body.get("parameters"), beside), places)


def _placed(refused: Refused, places: Mapping[str, str]) -> Refused:
    for proper, place in places.items():
        if refused.field == proper or refused.field.startswith(f"{proper}/"):
            field = place + refused.field.removeprefix(proper)
            return Refused(refused.code, refused.text.replace(refused.field, field, 1), field=field)
    return refused


def _parameters(inside: object, beside: Mapping[str, object]) -> dict[str, Parameter]:
    if inside is not None and not isinstance(inside, dict):
        raise refuse(Code.WRONG_TYPE, "/parameters", "expected an object")
    parameters: dict[str, Parameter] = {}
    for place, given in (("/parameters", inside or {}), ("", beside)):
        for name, value in given.items():
            if name in HARMLESS:
                continue
            if not isinstance(value, str | int | float | bool):
                raise refuse(Code.WRONG_TYPE, f"{place}/{show(name)}", "expected a string, a number or a boolean")
            if name in parameters:
                raise refuse(Code.INVALID_INPUT, f"/{show(name)}", "is given in parameters too")
            parameters[name] = value
    return parameters


def _apply_id(request: Request, id: object) -> None:
    if id is None or id == "":
        return
    if not isinstance(id, str) or len(id) > ID_CHARACTERS_MAX:
        raise refuse(Code.WRONG_TYPE, "/id", f"expected a string of at most {ID_CHARACTERS_MAX} characters")
    request.client_id = id


def _check_parameters(parameters: dict[str, Parameter], call: Call) -> None:
    """``stream`` only says again what the path says; on a stream false is one event with the whole answer."""
    if "binary_data_output" in parameters:
        raise refuse(Code.UNKNOWN_FIELD, "/parameters/binary_data_output", "an answer here is JSON")
    stream = parameters.pop("stream", False)
    if not isinstance(stream, bool):
        raise refuse(Code.WRONG_TYPE, "/parameters/stream", "expected a boolean")
    if stream and not call.match.route.pattern.endswith("/generate_stream"):
        raise refuse(Code.INVALID_INPUT, "/parameters/stream", "an answer in events comes from generate_stream")


def _names(signature: Signature) -> list[str]:
    return [given.name for given in signature.inputs]


def _check_names(signature: Signature) -> None:
    """Raises Refused where a name of the pipeline's own is one of these bodies'."""
    taken = [name for name in _names(signature) if name in OWN_INPUTS]
    taken += [name for name in signature.output_names if name in OWN_OUTPUTS]
    if taken:
        text = f"'{taken[0]}' is a name of this pipeline's and of generate's own; ask with infer"
        raise Refused(Code.NOT_IMPLEMENTED, text)
