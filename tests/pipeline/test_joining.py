"""Parts of one request, put together: rows of unlike shape keep theirs, for whoever can read them."""

import struct
from collections.abc import Sequence

import pytest

from forwardpass.batching.ticket import Part
from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field, Pipeline, Signature, Version
from forwardpass.core.request import Answer, Request
from forwardpass.core.tensor import Tensor, pack_bytes
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialects.v2_answer import encode_infer
from forwardpass.pipeline.fields import decode
from forwardpass.pipeline.joining import joined

FREE = Field("y", "FP32", (-1,))
TEXTS = Field("y", "BYTES", (-1,))


def floats(shape: tuple[int, ...], *values: float, shapes: Sequence[tuple[int, ...]] = ()) -> Part:
    return Part(shape[0], [Tensor("FP32", shape, struct.pack(f"<{len(values)}f", *values), shapes)], {}, ())


def texts(*values: bytes) -> Part:
    return Part(1, [Tensor("BYTES", (1, len(values)), pack_bytes(values))], {}, ())


def answer(field: Field, *parts: Part) -> Answer:
    tensor = joined(field, 0, parts)
    version = Version("p", 1, "0" * 64, "/", Pipeline(()))
    return Answer(version, Signature((), (field,)), {"y": tensor}, tensor.shape[0], {}, ())


@pytest.mark.parametrize(
    ("field", "parts", "rows"),
    [
        (FREE, [floats((2, 1), 1, 2), floats((1, 1), 3)], [[1], [2], [3]]),
        (FREE, [floats((2, 1), 1, 2), floats((1, 2), 3, 4)], [[1], [2], [3, 4]]),
        (FREE, [floats((2, -1), 1, 2, 3, shapes=[(1,), (2,)]), floats((1, 0))], [[1], [2, 3], []]),
        (TEXTS, [texts(b"a"), texts(b"bc", b"")], [["a"], ["bc", ""]]),
    ],
)
def test_rows_come_out_in_order_each_with_its_shape(field: Field, parts: list[Part], rows: list[object]) -> None:
    assert [row["y"] for row in decode(answer(field, *parts)) if isinstance(row, dict)] == rows


def test_one_tensor_of_v2_has_no_rows_of_unlike_shape() -> None:
    with pytest.raises(Refused) as refused:
        encode_infer(answer(FREE, floats((1, 1), 1), floats((1, 2), 2, 3)), Request("r", [], 2, Timeline()))
    assert refused.value.code is Code.SHAPE_MISMATCH
