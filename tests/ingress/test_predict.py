"""The predict dialect: every content type decodes to the same request; answers keep the order of the rows."""

import base64
import json
import struct
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwardpass.core.errors import Code, Failed, Failure, Refused
from forwardpass.core.pipeline import Field, FieldKind, Input, Pipeline, Signature, Version
from forwardpass.core.request import Answer, Note, Request
from forwardpass.core.tensor import Tensor, pack_bytes, unpack_bytes
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialects import predict
from forwardpass.ingress.message import HttpAnswer, HttpRequest

OUTPUTS = (Field("score", "FP64"), Field("label", "BYTES", (), "text"))
TEXT = Signature((Input("text", "text", bytes_max=100_000),), OUTPUTS)
PICTURE = Signature((Input("picture", "bytes"),), OUTPUTS)
MIXED = Signature(
    (
        Input("picture", "bytes"),
        Input("title", "text"),
        Input("age", "number", missing=True),
        Input("x", "tensor", datatype="INT8", shape=(2,)),
    ),
    OUTPUTS,
)
JSON = "application/json"


def call(body: Any, signature: Signature = TEXT, kind: str = JSON, query: str = "", **headers: str) -> Request:
    given_ = {name.replace("_", "-").encode(): value.encode("latin-1") for name, value in headers.items()}
    if kind:
        given_[b"content-type"] = kind.encode()
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return predict.decode(HttpRequest(b"POST", "/predict/p", query, given_, raw, 0.0), signature, "id-1", Timeline())


def refused(*arguments: Any, **named: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        call(*arguments, **named)
    return caught.value


def texts(request: Request, column: int = 0) -> list[bytes | None]:
    return unpack_bytes(request.columns[column].data, request.rows)


def test_one_record_or_many_become_rows() -> None:
    assert (texts(call({"text": "a: b"})), call({"text": "a"}).single) == ([b"a: b"], True)
    request = call({"instances": [{"text": "a"}, {"text": "b"}]})
    assert (texts(request), request.rows, request.single) == ([b"a", b"b"], 2, False)


def test_an_input_may_be_named_instances() -> None:
    assert call({"instances": "a"}, Signature((Input("instances", "text"),), ())).single


@pytest.mark.parametrize("kind", ["text/plain", "text/plain; charset=utf-8", 'Text/Plain;charset="UTF-8"'])
def test_plain_text_is_the_only_text_input(kind: str) -> None:
    assert texts(call("schön".encode(), TEXT, kind)) == ["schön".encode()]
    assert refused(b"\xff", TEXT, kind).code == Code.INVALID_UTF8


@pytest.mark.parametrize("kind", ["application/octet-stream", "image/png", "audio/wav"])
def test_raw_bytes_are_the_only_bytes_input(kind: str) -> None:
    assert texts(call(b"\0\xff", PICTURE, kind)) == [b"\0\xff"]


@pytest.mark.parametrize(
    ("signature", "kind", "allowed"),
    [
        (TEXT, "", "application/json, multipart/form-data, text/plain"), (TEXT, "image/png", "text/plain"),
        (PICTURE, "text/plain", "application/octet-stream, image/*, audio/*"), (TEXT, "text/csv", "text/plain"),
        (TEXT, "application/json; charset=utf-16", "utf-8"), (TEXT, "application/json, application/json", "text/plain"),
    ],
)  # fmt: skip
def test_another_content_type_is_refused_saying_what_is_allowed(signature: Signature, kind: str, allowed: str) -> None:
    failure = refused({"text": "a"}, signature, kind)
    assert (failure.code, failure.field) == (Code.UNSUPPORTED_MEDIA_TYPE, "Content-Type")
    assert failure.text.endswith(allowed)


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        (b"", Code.JSON_INVALID, ""), (b"null", Code.WRONG_TYPE, ""), (b"[]", Code.WRONG_TYPE, ""),
        (b'{"text":"a","text":"b"}', Code.JSON_DUPLICATE_KEY, ""), ({"text": 1}, Code.WRONG_TYPE, "/text"),
        ({}, Code.MISSING_FIELD, "/text"), ({"text": "a", "txt": 1}, Code.UNKNOWN_FIELD, "/txt"),
        ({"instances": []}, Code.WRONG_TYPE, "/instances"), ({"instances": {}}, Code.WRONG_TYPE, "/instances"),
        ({"instances": [{"text": "a"}, 1]}, Code.WRONG_TYPE, "/instances/1"),
        ({"instances": [{"text": "a"}, {"text": None}]}, Code.WRONG_TYPE, "/instances/1/text"),
        ({"instances": [{"text": "a"}], "parameters": {}}, Code.UNKNOWN_FIELD, "/parameters"),
        ({"instances": [{"text": "a"}] * 10_001}, Code.BATCH_TOO_LARGE, "/instances"),
    ],
)  # fmt: skip
def test_a_body_that_does_not_fit_is_refused_by_name(body: Any, code: Code, field: str) -> None:
    failure = refused(body)
    assert (failure.code, failure.field) == (code, field)


def test_ten_thousand_records_are_allowed() -> None:
    assert call({"instances": [{"text": "a"}] * 10_000}).rows == 10_000


def test_the_query_asks_for_a_receipt() -> None:
    request = call({"text": "a"}, query="receipt=full")
    assert (request.receipt, request.deadline_s, request.priority, request.id) == (True, None, 0, "id-1")
    assert not call({"text": "a"}).receipt


@pytest.mark.parametrize("query", ["receipt=short", "recipt=full", "x=1", "receipt"])
def test_an_unknown_query_is_refused(query: str) -> None:
    assert refused({"text": "a"}, query=query).code in (Code.UNKNOWN_FIELD, Code.OUT_OF_RANGE, Code.BAD_REQUEST)


def form(*parts: tuple[str, bytes], boundary: str = "B") -> bytes:
    return b"".join(b"--%s\r\n%s\r\n\r\n%s\r\n" % (boundary.encode(), head.encode(), body) for head, body in parts) + (
        b"--%s--\r\n" % boundary.encode()
    )


def named(name: str, more: str = "") -> str:
    return f'Content-Disposition: form-data; name="{name}"{more}'


def posted(body: bytes, signature: Signature = MIXED, boundary: str = "B") -> Request:
    return call(body, signature, f"multipart/form-data; boundary={boundary}")


def test_parts_of_a_form_are_inputs_by_name() -> None:
    request = posted(
        form(
            (named("title"), "schön".encode()),
            (named("picture", '; filename="a.png"') + "\r\nContent-Type: image/png", b"\r\n--\xff\0"),
            (named("x"), b"[1, 2]"),
            ("content-disposition: form-data; name=age", b"4.5"),
        )
    )
    assert (texts(request, 0), texts(request, 1)) == ([b"\r\n--\xff\0"], ["schön".encode()])
    assert (request.columns[2].data, request.columns[3].data) == (struct.pack("<d", 4.5), b"\1\2")
    assert request.single


@given(st.binary(max_size=200).filter(lambda content: b"\r\n--B" not in content))
def test_any_bytes_come_through_a_form(content: bytes) -> None:
    assert texts(posted(form((named("picture"), content)), PICTURE)) == [content]


@pytest.mark.parametrize(
    ("parts", "code", "field"),
    [
        ([(named("age"), b"x")], Code.JSON_INVALID, "/age"), ([(named("age"), b'"4"'), (named("title"), b""), (named("x"), b"[1,2]")], Code.WRONG_TYPE, "/age"),
        ([(named("title"), b"\xff")], Code.INVALID_UTF8, "/title"), ([(named("titel"), b"a")], Code.UNKNOWN_FIELD, "/titel"),
        ([(named("title"), b"a"), (named("title"), b"b")], Code.INVALID_INPUT, "/title"),
        ([(named("title"), b"a")], Code.MISSING_FIELD, "/picture"), ([], Code.MISSING_FIELD, "/picture"),
    ],
)  # fmt: skip
def test_a_part_that_does_not_fit_is_refused_by_name(parts: list[tuple[str, bytes]], code: Code, field: str) -> None:
    whole = [(named("picture"), b""), *parts] if code != Code.MISSING_FIELD else parts
    failure = refused(form(*whole), MIXED, "multipart/form-data; boundary=B")
    assert (failure.code, failure.field) == (code, field)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"--B", b"--B--x", b"x--B--", b"--B\r\n" + named("picture").encode() + b"\r\n\r\nabc",
        b"--B\n" + named("picture").encode() + b"\n\nabc\n--B--", form((named("picture"), b""))[:-4],
        form((named("picture"), b"")) + b"more", form(("X-A: b", b"")), form(("Content-Disposition: attachment", b"")),
        form((named("picture") + "\r\n" + named("picture"), b"")), form((named("picture") + "\r\nX-A: b", b"")),
        form((named("picture") + "\r\nContent-Type: multipart/mixed; boundary=C", b"")), form(("", b"a")),
        form((named("picture") + "\r\nContent-Transfer-Encoding: base64", b"AAE=")), form((named("pic\\ture"), b"")),
        form((named("picture"), b"a\r\n--Bogus")), form((named("picture", '; filename="' + "x" * 1024 + '"'), b"")),
        form((named("a" * 65), b"")), b"--B\r\n" * 10_000, form(*((named(f"p{i}"), b"") for i in range(33))),
        b"--B\r\n" + b"a" * 1_000_000, form(("Content-Disposition: form-data; name=\"p\"\xff", b"")),
    ],
)  # fmt: skip
def test_a_malformed_form_is_refused(body: bytes) -> None:
    failure = refused(body, PICTURE, "multipart/form-data; boundary=B")
    assert failure.code == Code.BAD_REQUEST
    assert failure.text.startswith("multipart/form-data: ")


@pytest.mark.parametrize("boundary", ["", "x" * 71, "a\tb", 'a"b', "é"])
def test_a_boundary_outside_the_rules_is_refused(boundary: str) -> None:
    http = HttpRequest(
        b"POST", "/", "", {b"content-type": f"multipart/form-data; boundary={boundary}".encode()}, b"", 0.0
    )
    with pytest.raises(Refused) as caught:
        predict.decode(http, PICTURE, "id", Timeline())
    assert caught.value.code == Code.BAD_REQUEST


def test_a_form_of_near_boundaries_costs_linear_time() -> None:
    def seconds(count: int) -> float:
        body = form((named("picture"), b"\r\n--" * count), boundary="B" * 70)
        started = time.perf_counter()
        posted(body, PICTURE, "B" * 70)
        return time.perf_counter() - started

    # Quadratic would be 10,000 times.
    assert min(seconds(500_000) for _ in range(2)) < 1000 * min(seconds(5_000) for _ in range(3))


def answer(rows: int = 1, failures: dict[int, Failure] | None = None, **more: Any) -> Answer:
    alive = rows - len(failures or {})
    outputs = {
        "score": Tensor("FP64", (alive,), struct.pack(f"<{alive}d", *range(alive))),
        "label": Tensor("BYTES", (alive,), pack_bytes([b"good"] * alive)),
    }
    version = Version("p", 2, "cd" * 32, "/secret", Pipeline(()))
    return Answer(version, TEXT, outputs, rows, failures or {}, more.get("notes", []), more.get("receipt"))


def request(single: bool) -> Request:
    return Request("id-1", [], 1, Timeline(), single=single)


def told(http: HttpAnswer) -> Any:
    assert isinstance(http.body, bytes)
    return json.loads(http.body)


def test_one_record_is_answered_with_its_outputs_and_who_answered() -> None:
    http = predict.encode(answer(), request(True))
    assert told(http) == {"outputs": {"score": 0.0, "label": "good"}}
    assert (http.status, http.content_type) == (200, b"application/json")
    assert http.headers == [
        (b"X-Request-Id", b"id-1"), (b"X-Pipeline", b"p"), (b"X-Pipeline-Version", b"2"), (b"X-Pipeline-Digest", b"cd" * 32),
    ]  # fmt: skip


def test_notes_and_receipt_stand_beside_the_outputs() -> None:
    notes = [Note(0, "truncated", {"tokens": 300, "kept": 256})]
    body = told(predict.encode(answer(notes=notes, receipt={"batch": 1}), request(True)))
    assert body["notes"] == [{"tokens": 300, "kept": 256, "name": "truncated"}]
    assert body["receipt"] == {"batch": 1}


def test_a_bad_row_fails_alone_and_in_its_place() -> None:
    failure = Refused(Code.INVALID_INPUT, "no", field="text", detail="secret")
    body = told(predict.encode(answer(3, {1: failure}, notes=[Note(2, "filled", {})]), request(False)))
    assert body == {
        "results": [
            {"outputs": {"score": 0.0, "label": "good"}},
            {"error": {"code": "invalid_input", "message": "no", "field": "text"}},
            {"outputs": {"score": 1.0, "label": "good"}, "notes": [{"name": "filled"}]},
        ],
        "failed": 1,
    }


@pytest.mark.parametrize("single", [True, False])
def test_when_every_row_failed_the_first_failure_is_the_answer(single: bool) -> None:
    first = Failed(Code.STEP_FAILED, "first")
    with pytest.raises(Failed) as caught:
        predict.encode(
            answer(1, {0: first}) if single else answer(2, {1: Failed(Code.INTERNAL, "x"), 0: first}), request(single)
        )
    assert caught.value is first


PNG, JPEG = b"\x89PNG\r\n\x1a\nrest", b"\xff\xd8\xff\xe0rest"
SOUNDS = {
    "audio/wav": b"RIFF\x04\x00\x00\x00WAVEfmt ",
    "audio/flac": b"fLaC\x00",
    "audio/ogg": b"OggS\x00",
    "audio/mpeg": b"\xff\xfb\x90\x00",
}


def pictured(*files: bytes | None, kind: FieldKind = "image", **more: Any) -> Answer:
    fields_ = tuple(Field(f"file{place}", "BYTES", (), kind) for place in range(len(files)))
    outputs = {
        field.name: Tensor("BYTES", (1,), pack_bytes([file])) for field, file in zip(fields_, files, strict=True)
    }
    given = answer(**more)
    signature = Signature(TEXT.inputs, (*OUTPUTS, *fields_))
    return Answer(given.version, signature, given.outputs | outputs, 1, {}, (), given.receipt)


def accepting(accept: str) -> Request:
    return call({"text": "a"}, accept=accept)


@pytest.mark.parametrize(
    ("accept", "file", "kind", "media"),
    [
        ("image/png", PNG, "image", b"image/png"), ("Image/PNG", PNG, "image", b"image/png"),
        ("image/jpeg", JPEG, "image", b"image/jpeg"), ("image/*", PNG, "image", b"image/png"),
        *((media, file, "audio", media.encode()) for media, file in SOUNDS.items()),
        *(("audio/*", file, "audio", media.encode()) for media, file in SOUNDS.items()),
    ],
)  # fmt: skip
def test_who_accepts_only_a_file_gets_the_file_itself(accept: str, file: bytes, kind: FieldKind, media: bytes) -> None:
    http = predict.encode(pictured(file, kind=kind), accepting(accept))
    assert (http.status, http.body, http.content_type) == (200, file, media)
    assert http.headers[0] == (b"X-Request-Id", b"id-1")
    assert (b"X-Content-Type-Options", b"nosniff") in http.headers


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "application/json",
        "image/jpeg",
        "audio/*",
        "image/png, */*",
        "image/png;q=0.9",
        "text/html",
    ],
)
def test_whatever_else_is_accepted_the_answer_is_json(accept: str) -> None:
    http = predict.encode(pictured(PNG), accepting(accept))
    assert http.content_type == b"application/json"
    assert base64.b64decode(told(http)["outputs"]["file0"]) == PNG


@pytest.mark.parametrize("files", [(), (PNG, PNG), (None,), (b"no picture",)])
def test_where_no_single_file_is_among_the_outputs_the_answer_is_json(files: tuple[bytes | None, ...]) -> None:
    assert predict.encode(pictured(*files), accepting("image/png")).content_type == b"application/json"


def test_many_records_and_a_receipt_are_answered_in_json() -> None:
    many = call({"instances": [{"text": "a"}]}, accept="image/png")
    assert predict.encode(pictured(PNG), many).content_type == b"application/json"
    assert "receipt" in told(predict.encode(pictured(PNG, receipt={"batch": 1}), accepting("image/png")))


def ending(body: bytes = b"", query: str = "", **headers: str) -> Request:
    given_ = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return predict.decode_end(HttpRequest(b"DELETE", "/predict/p", query, given_, body, 0.0), "id-1", Timeline())


def test_ending_a_sequence_takes_its_id_alone() -> None:
    turn = ending(x_sequence_id="a").sequence
    assert turn is not None
    assert (turn.id, turn.end) == ("a", True)


@pytest.mark.parametrize(
    ("given_", "field"),
    [({"body": b"{}"}, ""), ({"query": "receipt=full"}, "?"), ({"x_request_priority": "1"}, "X-Request-Priority")],
)
def test_ending_a_sequence_refuses_what_has_no_meaning_then(given_: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as caught:
        ending(x_sequence_id="a", **given_)
    assert caught.value.field == field
