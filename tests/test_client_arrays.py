"""The Python client's arrays over a real socket, read and answered by the server's own V2 dialect."""

import asyncio
import json
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from forwardpass.client import AsyncClient, Client
from forwardpass.core.pipeline import Field, Input, Pipeline, Signature, Step, Version
from forwardpass.core.request import Answer
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialects import v2
from forwardpass.ingress.dialects.v2_answer import encode_infer
from forwardpass.ingress.message import HttpRequest

Array = NDArray[Any]

WIDE = np.arange(24, dtype="int64").reshape(2, 3, 4)
ARRAYS: dict[str, Array] = {
    "contiguous": WIDE.astype("float32"),
    "strided": WIDE[:, ::2, ::-1],
    "transposed": WIDE.astype("float64").swapaxes(1, 2),
    "big_endian": WIDE.astype(">i4"),
    "unaligned": np.frombuffer(bytes(1) + WIDE.astype("<f4").tobytes(), "<f4", offset=1).reshape(2, 12),
    "broadcast": np.broadcast_to(np.float16(0.5), (2, 3)),
    "bool": WIDE % 2 == 0,
    "not_finite": np.array([[np.nan], [-np.inf]]),
    "empty_rows": np.zeros((2, 0), "uint8"),
    "str": np.array([["ü", ""], ["日本", "a"]]).T,
    "bytes": np.array([b"\xff\x00\x01", b""], dtype=object),
    "fixed_bytes": np.array([b"ab", b"c"]),
}


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request to a pipeline whose outputs are its inputs: just enough HTTP around the server's own V2 dialect."""
    lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")[1:-2]
    headers = {name: value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    body = await reader.readexactly(int(headers[b"content-length"]))
    http = HttpRequest(b"POST", "/v2/models/echo/infer", "", headers, body, received_s=0.0)
    signature = signature_of(json.loads(body[: int(headers[b"inference-header-content-length"])]))
    request = v2.decode_infer(http, signature, "r1", Timeline())
    outputs = {made.name: column for made, column in zip(signature.outputs, request.columns, strict=True)}
    version = Version("echo", 1, "d" * 64, "", Pipeline((Step("model"),)))
    answer = encode_infer(Answer(version, signature, outputs, request.rows, {}, []), request)
    assert isinstance(answer.body, list), "a binary answer is a list of buffers"
    content = b"".join(answer.body)
    answer.headers += [(b"Connection", b"close"), (b"Content-Length", b"%d" % len(content))]
    head = b"".join(b"%s: %s\r\n" % header for header in answer.headers)
    writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + content)
    writer.close()
    await writer.wait_closed()


def signature_of(head: dict[str, Any]) -> Signature:
    """Of a pipeline that takes just what is sent. Bytes that are no text are only taken one per row."""
    inputs, outputs = [], []
    for given in head["inputs"]:
        name, datatype, shape = given["name"], given["datatype"], tuple(given["shape"][1:])
        raw = datatype == "BYTES" and not shape
        inputs.append(Input(name, "bytes") if raw else Input(name, "tensor", datatype=datatype, shape=shape))
        outputs.append(Field(name, datatype, shape, "bytes" if raw else "tensor"))
    return Signature(tuple(inputs), tuple(outputs))


def expected(array: Array) -> Array:
    """Text comes back as bytes, all else as it was, in this machine's byte order."""
    if array.dtype.kind not in "OSU":
        return array.astype(array.dtype.newbyteorder("="))
    elements = [element.encode() if isinstance(element, str) else element for element in array.ravel()]
    return np.array(elements, dtype=object).reshape(array.shape)


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_of_any_layout_arrives_unchanged_and_comes_back(name: str) -> None:
    inputs = {"x": ARRAYS[name], "text": ARRAYS["str"]}

    def blocking(url: str) -> dict[str, Array]:
        with Client(url, transport=httpx.HTTPTransport(verify=False)) as client:
            return client.infer("echo", inputs)

    async def run() -> list[dict[str, Array]]:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        url = "http://127.0.0.1:{1}".format(*server.sockets[0].getsockname())
        async with server, AsyncClient(url, transport=httpx.AsyncHTTPTransport(verify=False)) as client:
            only_x = await client.infer("echo", inputs, outputs=["x"])
            return [await asyncio.to_thread(blocking, url), await client.infer("echo", inputs), only_x]

    for answer in asyncio.run(run()):
        got, wanted = answer["x"], expected(ARRAYS[name])
        assert got.flags.writeable and got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
