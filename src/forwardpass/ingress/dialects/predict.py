"""Our own dialect: ``POST /predict/{pipeline}[/{version}]`` with plain values, or with the bare bytes of one input."""

from collections.abc import Mapping, Sequence

import orjson

from forwardpass.core.errors import Code, Failure, Refused
from forwardpass.core.pipeline import ENCODED, Input, Signature
from forwardpass.core.request import Answer, Note, Request
from forwardpass.core.timeline import Timeline
from forwardpass.ingress import strict_json
from forwardpass.ingress.dialects import multipart
from forwardpass.ingress.dialects.envelope import answer_headers, deadline_of_header, media_type, receipt_asked
from forwardpass.ingress.dialects.media_file import accepted_file
from forwardpass.ingress.dialects.turns import end_of_headers, turn_of_headers
from forwardpass.ingress.message import HttpAnswer, HttpRequest
from forwardpass.ingress.status import error_body
from forwardpass.ingress.strict_json import LIMITS, JsonLimits
from forwardpass.pipeline import fields
from forwardpass.pipeline.bounds import refuse, unknown_field

INSTANCES_MAX = 10_000

Record = Mapping[str, object]


def decode(
    http: HttpRequest, signature: Signature, id: str, timeline: Timeline, limits: JsonLimits = LIMITS
) -> Request:
    """The request a predict call makes: one record, or many as ``{"instances": [...]}``. Raises Refused.

    The Content-Type decides: JSON, text/plain for the only text input, multipart/form-data by names, anything else of
    a raw kind for the only bytes input.
    """
    receipt = receipt_asked(http.query)
    records, single = _records(http, signature.inputs, limits)
    columns, rows = fields.encode(signature, records, root=None if single else "/instances")
    return Request(
        id,
        columns,
        rows,
        timeline,
        receipt=receipt,
        single=single,
        accept=_file_accepted(http),
        sequence=turn_of_headers(http),
    )


def decode_end(http: HttpRequest, id: str, timeline: Timeline) -> Request:
    """A request without a record, which only ends its sequence. Raises Refused, also for what has no meaning here."""
    if http.body:
        raise Refused(Code.BAD_REQUEST, "a request that only ends a sequence has no body")
    if http.query:
        raise Refused(Code.UNKNOWN_FIELD, "a request that only ends a sequence has no query", field="?")
    for shown in ("X-Request-Priority", "X-Priority"):
        if shown.lower().encode() not in http.headers:
            continue
        raise Refused(Code.UNKNOWN_FIELD, f"{shown} has no meaning where only a sequence ends", field=shown)
    return Request(id, [], 0, timeline, deadline_s=deadline_of_header(http), sequence=end_of_headers(http))


def encode(answer: Answer, request: Request) -> HttpAnswer:
    """``{"outputs"}`` of one record or ``{"results", "failed"}`` of many, in their order.

    Of one record that has a single image or sound among its outputs: that file, if the caller accepts just its type.
    Raises the failure of the only record, or the first one when every record failed.
    """
    if len(answer.failures) == answer.rows:
        raise answer.failures[min(answer.failures)]
    headers = answer_headers(request.id, answer.version, request.sequence)
    if request.accept and request.single and answer.receipt is None:
        accepted = accepted_file(answer, request.accept)
        if accepted is not None:
            headers.append((b"X-Content-Type-Options", b"nosniff"))
            return HttpAnswer(200, accepted.content, accepted.media, headers)
    notes: dict[int, list[Note]] = {}
    for note in answer.notes:
        notes.setdefault(note.row, []).append(note)
    results = [_result(outcome, notes.get(row, ())) for row, outcome in enumerate(fields.decode(answer, arrays=True))]
    body: dict[str, object] = results[0] if request.single else {"results": results, "failed": len(answer.failures)}
    if answer.receipt is not None:
        body["receipt"] = answer.receipt
    return HttpAnswer(200, orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY), headers=headers)


def _result(outcome: dict[str, object] | Failure, notes: Sequence[Note]) -> dict[str, object]:
    if isinstance(outcome, Failure):
        return {"error": error_body(outcome)}
    result: dict[str, object] = {"outputs": outcome}
    if notes:
        result["notes"] = [{**note.value, "name": note.name} for note in notes]
    return result


def _file_accepted(http: HttpRequest) -> str:
    """The Accept header where it names an image's or a sound's media type and nothing else, perhaps."""
    accept = http.headers.get(b"accept", b"").lower()
    return accept.decode("latin-1").strip() if accept.startswith((b"image/", b"audio/")) else ""


def _records(http: HttpRequest, inputs: Sequence[Input], limits: JsonLimits) -> tuple[Sequence[Record], bool]:
    """The records a body holds, and whether it is one by itself."""
    given = http.headers.get(b"content-type", b"").decode("latin-1")
    media, parameters = media_type(given)
    texts = [i.name for i in inputs if i.type == "text"]
    raws = [i.name for i in inputs if i.type in ENCODED]
    if media != "multipart/form-data" and parameters.get("charset", "utf-8").lower() != "utf-8":
        raise Refused(Code.UNSUPPORTED_MEDIA_TYPE, "the only charset allowed is utf-8", field="Content-Type")
    if media == "application/json":
        return _json(http.body, inputs, limits)
    if media == "multipart/form-data":
        return [_form(http.body, parameters.get("boundary", ""), inputs, limits)], True
    if media == "text/plain" and len(texts) == 1:
        return [{texts[0]: _utf8(http.body, f"/{texts[0]}")}], True
    if (media == "application/octet-stream" or media.startswith(("image/", "audio/"))) and len(raws) == 1:
        return [{raws[0]: http.body}], True
    allowed = ["application/json", "multipart/form-data"]
    allowed += ["text/plain"] * (len(texts) == 1)
    allowed += ["application/octet-stream", "image/*", "audio/*"] * (len(raws) == 1)
    text = f"Content-Type must be one of {', '.join(allowed)}"
    raise Refused(Code.UNSUPPORTED_MEDIA_TYPE, text, field="Content-Type")


def _json(body: bytes, inputs: Sequence[Input], limits: JsonLimits) -> tuple[Sequence[Record], bool]:
    value = strict_json.decode(body, limits)
    if not isinstance(value, dict):
        names = ", ".join(given.name for given in inputs)
        raise Refused(Code.WRONG_TYPE, f"the body must be a JSON object with {names}, or with instances")
    if "instances" not in value or any(given.name == "instances" for given in inputs):
        return [value], True
    if unknown := [key for key in value if key != "instances"]:
        raise unknown_field(unknown[0], ("instances",))
    instances = value["instances"]
    if not isinstance(instances, list) or not instances:
        raise refuse(Code.WRONG_TYPE, "/instances", "expected a list of at least one object")
    if len(instances) > INSTANCES_MAX:
        text = f"at most {INSTANCES_MAX} are allowed, got {len(instances)}"
        raise refuse(Code.BATCH_TOO_LARGE, "/instances", text)
    return instances, False


def _form(body: bytes, boundary: str, inputs: Sequence[Input], limits: JsonLimits) -> Record:
    """A part is the input of its name: raw for bytes, plain text for text and category, JSON text for the rest."""
    types = {given.name: given.type for given in inputs}
    record: dict[str, object] = {}
    for part in multipart.parse(body, boundary):
        match types.get(part.name):
            case None:
                raise unknown_field(part.name, tuple(types))
            case "bytes" | "image" | "audio":
                record[part.name] = part.content
            case "text" | "category":
                record[part.name] = _utf8(bytes(part.content), f"/{part.name}")
            case _:
                record[part.name] = _json_part(bytes(part.content), f"/{part.name}", limits)
    return record


def _json_part(content: bytes, where: str, limits: JsonLimits) -> object:
    try:
        return strict_json.decode(content, limits)
    except Refused as refused:
        raise refuse(refused.code, where, refused.text) from None


def _utf8(content: bytes, where: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise refuse(Code.INVALID_UTF8, where, f"is not UTF-8 at byte {error.start}") from None
