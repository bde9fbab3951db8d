"""Token ids come in by the dialects that have them only: nobody forges them with the bytes of a text."""

import json
import struct
from typing import Any

import pytest

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Input, Signature
from forwardpass.core.request import Request
from forwardpass.core.timeline import Timeline
from forwardpass.core.tokens import pack_token_ids
from forwardpass.ingress.dialects import predict
from forwardpass.ingress.dialects.v2 import decode_infer
from forwardpass.ingress.message import HttpRequest

SIGNATURE = Signature((Input("text", "text"),), (), token_inputs=frozenset({"text"}))
IDS = pack_token_ids([4, 5], "/text")
FORM = b'--b\r\nContent-Disposition: form-data; name="text"\r\n\r\n' + IDS + b"\r\n--b--\r\n"


def predicted(body: bytes, media: str) -> Request:
    headers = {b"content-type": media.encode()}
    return predict.decode(HttpRequest(b"POST", "/predict/p", "", headers, body, 0.0), SIGNATURE, "id", Timeline())


def inferred(given: dict[str, Any], raw: bytes = b"") -> Request:
    body = json.dumps({"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", **given}]}).encode()
    headers = {b"inference-header-content-length": b"%d" % len(body)} if raw else {}
    http = HttpRequest(b"POST", "/v2/models/m/infer", "", headers, body + raw, 0.0)
    return decode_infer(http, SIGNATURE, "id", Timeline())


@pytest.mark.parametrize("element", [IDS, IDS[:1], IDS[:3]])
def test_v2_bytes_that_look_like_ids_are_no_utf8(element: bytes) -> None:
    raw = struct.pack("<I", len(element)) + element
    with pytest.raises(Refused) as refused:
        inferred({"parameters": {"binary_data_size": len(raw)}}, raw)
    assert refused.value.code is Code.INVALID_UTF8


@pytest.mark.parametrize("media", ["text/plain", "multipart/form-data; boundary=b"])
def test_a_plain_text_that_looks_like_ids_is_no_utf8(media: str) -> None:
    with pytest.raises(Refused) as refused:
        predicted(IDS if media == "text/plain" else FORM, media)
    assert refused.value.code is Code.INVALID_UTF8


@pytest.mark.parametrize("value", [[4, 5], [[4, 5]], 4, {"ids": [4, 5]}])
def test_numbers_are_no_text(value: object) -> None:
    with pytest.raises(Refused):
        inferred({"data": value})
    with pytest.raises(Refused) as refused:
        predicted(json.dumps({"text": value}).encode(), "application/json")
    assert refused.value.code is Code.WRONG_TYPE
