"""``POST /invocations`` as MLflow, SageMaker and Vertex AI ask it: JSON in four forms, JSON lines, CSV, or bare bytes.

A JSON body has exactly one of FORMS. It may have ``params`` or ``parameters``, which must be empty: a pipeline's
answer depends on its inputs alone. ``Accept`` chooses the form of the answer; lines are answered with lines, all else
with JSON, if it leaves the choice.
"""

import re
from collections.abc import Callable, Sequence

from forwardpass.core.errors import Code, Refused, show
from forwardpass.core.pipeline import ENCODED, Signature
from forwardpass.core.request import Answer, Request
from forwardpass.ingress import strict_json
from forwardpass.ingress.dialect import Call, Target
from forwardpass.ingress.dialects import csv_text, dataframe, instances
from forwardpass.ingress.dialects.envelope import answer_headers, media_type, receipt_asked
from forwardpass.ingress.dialects.predictions import LINES, Form, body_of, form_of
from forwardpass.ingress.dialects.rows import ROWS_MAX, Rows, check_count, encode
from forwardpass.ingress.dialects.task_body import target_of
from forwardpass.ingress.dialects.turns import turn_of_headers
from forwardpass.ingress.message import HttpAnswer
from forwardpass.pipeline.bounds import refuse, unknown_field

FORMS: dict[str, Callable[[object, Signature, str], Rows]] = {
    "dataframe_split": dataframe.split,
    "dataframe_records": dataframe.records,
    "instances": instances.by_row,
    "inputs": instances.by_column,
}
PARAMETERS = ("params", "parameters")
CUSTOM_ATTRIBUTES = b"x-amzn-sagemaker-custom-attributes"
_ARCHIVE = ".tar.gz"
_VISIBLE = re.compile(rb"[ -~]{0,1024}")


def target(call: Call) -> Target:
    """Who the path names, else X-Amzn-SageMaker-Target-Model, else who answers by default.

    That header names a model as it is named anywhere, or as ``NAME.tar.gz``. Raises Refused version_not_found.
    """
    if call.match.pipeline:
        return Target(call.match.pipeline)
    name = call.http.headers.get(b"x-amzn-sagemaker-target-model", b"").decode("latin-1")
    return target_of(name.removeprefix("/").removesuffix(_ARCHIVE))


def decode(call: Call, signature: Signature) -> Request:
    """The request that a body of any of the forms makes. Raises Refused; for another Content-Type 415."""
    http = call.http
    if b"x-amzn-sagemaker-session-id" in http.headers:
        raise Refused(Code.UNKNOWN_FIELD, "X-Amzn-SageMaker-Session-Id is not supported; X-Sequence-Id is")
    media, parameters = media_type(http.headers.get(b"content-type", b"").decode("latin-1"))
    default: Form = next((form for form in LINES if form == media), "application/json")
    form = form_of(http.headers.get(b"accept", b""), default)
    receipt = receipt_asked(http.query)
    if receipt and form != "application/json":
        raise refuse(Code.NOT_ACCEPTABLE, "Accept", "a receipt comes with application/json only")
    columns, count = encode(signature, _rows(http.body, media, parameters, signature))
    call.message = form
    return Request(call.id, columns, count, call.timeline, receipt=receipt, sequence=turn_of_headers(http))


def encode_answer(answer: Answer, request: Request, call: Call) -> HttpAnswer:
    """One prediction a row, in the form asked for. Raises the first row's failure; SageMaker's attributes come back."""
    form: Form = call.message
    headers = answer_headers(request.id, answer.version, request.sequence)
    attributes = call.http.headers.get(CUSTOM_ATTRIBUTES)
    if attributes is not None and _VISIBLE.fullmatch(attributes):
        headers.append((b"X-Amzn-SageMaker-Custom-Attributes", attributes))
    body = body_of(answer, form)
    content_type = b"text/csv; charset=utf-8" if form == "text/csv" else form.encode()
    return HttpAnswer(200, body, content_type, headers)


def rows_of_object(value: object, signature: Signature, forms: Sequence[str], parameters: Sequence[str]) -> Rows:
    """The rows of a JSON object with exactly one of ``forms``; of ``parameters`` each must be empty. Raises Refused."""
    if not isinstance(value, dict):
        raise Refused(Code.WRONG_TYPE, f"the body must be a JSON object with one of {', '.join(forms)}")
    for key in value:
        if key not in forms and key not in parameters:
            raise unknown_field(key, (*forms, *parameters))
    for name in parameters:
        given = value.get(name)
        if isinstance(given, dict) and given:
            raise refuse(Code.UNKNOWN_FIELD, f"/{name}/{show(next(iter(given)))}", "is unknown; there are none here")
        if given not in (None, {}):
            raise refuse(Code.WRONG_TYPE, f"/{name}", "expected an object without members")
    found = [form for form in forms if form in value]
    if len(found) != 1:
        came = f"got {' and '.join(found)}" if found else "got none"
        raise Refused(Code.MISSING_FIELD, f"the body must have exactly one of {', '.join(forms)}; {came}")
    return FORMS[found[0]](value[found[0]], signature, f"/{found[0]}")


def _rows(body: bytes, media: str, parameters: dict[str, str], signature: Signature) -> Rows:
    raw = _raw(media, body, signature)
    if raw is not None:
        return raw
    if media == "application/json":
        _check_parameters(parameters, ())
        return rows_of_object(strict_json.decode(body), signature, tuple(FORMS), PARAMETERS)
    if media == "text/csv":
        _check_parameters(parameters, ("header",))
        header = parameters.get("header", "").lower()
        if header not in ("", "present", "absent"):
            raise refuse(Code.UNSUPPORTED_MEDIA_TYPE, "Content-Type", "header must be present or absent")
        return csv_text.rows(body, signature, header)
    if media in LINES:
        _check_parameters(parameters, ())
        return _lines(body, signature)
    allowed = "application/json, application/jsonlines, text/csv"
    allowed += ", text/plain" * _has(signature, frozenset({"text"}))
    allowed += ", application/octet-stream, image/*, audio/*" * _has(signature, ENCODED)
    raise Refused(Code.UNSUPPORTED_MEDIA_TYPE, f"Content-Type must be one of {allowed}", field="Content-Type")


def _check_parameters(parameters: dict[str, str], allowed: Sequence[str]) -> None:
    for name, value in parameters.items():
        if name == "charset" and value.lower() in ("utf-8", "utf8"):
            continue
        if name not in allowed:
            text = f"the only parameters allowed are {', '.join(['charset=utf-8', *allowed])}"
            raise refuse(Code.UNSUPPORTED_MEDIA_TYPE, "Content-Type", text)


def _lines(body: bytes, signature: Signature) -> Rows:
    """One JSON text a line, each what an element of ``instances`` is."""
    strict_json.check_size(body)
    lines = body.removesuffix(b"\n").split(b"\n", ROWS_MAX + 1)
    check_count(len(lines) if body else 0, "the body")
    values: list[object] = []
    for place, line in enumerate(lines):
        try:
            values.append(strict_json.decode(line))
        except Refused as refused:
            raise refuse(refused.code, f"/{place}", refused.text) from None
    return instances.by_row(values, signature, "")


def _raw(media: str, body: bytes, signature: Signature) -> Rows | None:
    """A body that is the value of the only input, where its type says so."""
    kind = "text" if media == "text/plain" else "bytes"
    if kind == "bytes" and not (media.startswith(("image/", "audio/")) or media in _BYTES):
        return None
    if not _has(signature, frozenset({"text"}) if kind == "text" else ENCODED):
        return None
    name = signature.inputs[0].name
    try:
        value = body.decode() if kind == "text" else body
    except UnicodeDecodeError as error:
        raise Refused(Code.INVALID_UTF8, f"the body is not UTF-8 at byte {error.start}") from None
    return Rows([{name: value}], lambda row, column: f"/{column}")


_BYTES = ("application/octet-stream", "application/x-image")


def _has(signature: Signature, types: frozenset[str]) -> bool:
    return len(signature.inputs) == 1 and signature.inputs[0].type in types
