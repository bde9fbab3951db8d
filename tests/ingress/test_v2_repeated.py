"""A body of which only the numbers are read is read as the whole of it would be, or not at all."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.ingress.calls import VERSION, answer

from forwardpass.core.errors import Refused
from forwardpass.core.pipeline import Field, Input, Signature, Version
from forwardpass.core.request import Answer, Request
from forwardpass.core.tensor import Tensor
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialects.v2 import decode_infer
from forwardpass.ingress.dialects.v2_answer import encode_infer
from forwardpass.ingress.dialects.v2_repeated import Repeated, texts_of
from forwardpass.ingress.message import HttpRequest

X = Signature((Input("x", "tensor", datatype="FP32", shape=(2,)),), ())
FORMS = (
    '{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[%s]}]}',
    '{ "inputs": [ {"data": [%s], "datatype": "FP32", "shape": [1, 2], "name": "x"} ] }',
    '{"model_name":"p","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[%s]}],"parameters":{}}',
)
PIECES = (
    "1",
    "2.5",
    "-3e-1",
    "1e39",
    "1e400",
    "01",
    "NaN",
    "null",
    "true",
    '"1"',
    ",",
    ",",
    ", ",
    "[",
    "]",
    "],[",
    " ",
    "}",
    '"x":',
    "é",
)
MIDDLES = st.lists(st.sampled_from(PIECES), max_size=7).map("".join)


class Kept:
    """Of a head."""

    def __init__(self) -> None:
        self.repeated: Repeated | None = None


def read(body: bytes, kept: Kept | None = None) -> Any:
    """The columns, or the code of the refusal."""
    http = HttpRequest(b"POST", "/", "", {}, body, 0.0)
    try:
        return decode_infer(http, X, "id", Timeline(), pipeline="p", asked=kept)
    except Refused as refused:
        return refused.code, refused.text


def known(form: str) -> Kept:
    kept = Kept()
    read((form % "7,8").encode(), kept)
    assert kept.repeated is not None
    return kept


@given(st.sampled_from(FORMS), MIDDLES)
def test_whatever_stands_for_the_numbers_is_read_as_if_nothing_were_known(form: str, middle: str) -> None:
    body = (form % middle).encode()
    assert read(body, known(form)) == read(body)


@given(st.sampled_from(FORMS), st.lists(MIDDLES | st.just("1,2"), min_size=2, max_size=5))
def test_rows_are_those_of_the_bodies_one_by_one_or_none_at_all(form: str, middles: list[str]) -> None:
    repeated = known(form).repeated
    assert repeated is not None
    texts = [repeated.numbers((form % middle).encode()) for middle in middles]
    column = repeated.rows([text for text in texts if text is not None])
    if column is not None:
        rows = [read((form % middle).encode()) for middle in middles]
        assert all(isinstance(each, Request) for each in rows)
        assert column == Tensor("FP32", (len(rows), 2), b"".join(bytes(each.columns[0].data) for each in rows))


@given(
    st.lists(
        st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=2),
        min_size=2,
        max_size=5,
    )
)
def test_flat_lists_of_numbers_are_always_rows(rows: list[list[float]]) -> None:
    repeated = known(FORMS[0]).repeated
    assert repeated is not None
    column = repeated.rows([json.dumps(row).encode() for row in rows])
    assert column is not None and column.shape == (len(rows), 2)


def test_what_says_more_than_its_numbers_is_not_remembered() -> None:
    more = (
        '{"id":"a","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[%s]}]}',
        '{"parameters":{"priority":1},"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[%s]}]}',
        '{"parameters":{"sequence_id":"s"},"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[%s]}]}',
        '{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[[%s]]}]}',
    )
    for form in more:
        kept = Kept()
        read((form % "7,8").encode(), kept)
        assert kept.repeated is None, form


def test_a_body_known_for_one_version_is_read_anew_for_the_next() -> None:
    kept, body = known(FORMS[0]), (FORMS[0] % "7,8").encode()
    other = Signature((Input("x", "tensor", datatype="FP32", shape=(3,)),), ())
    http = HttpRequest(b"POST", "/", "", {}, body, 0.0)
    try:
        decode_infer(http, other, "id", Timeline(), asked=kept)
    except Refused as refused:
        assert refused.code.value == "shape_mismatch"
    else:
        raise AssertionError("it was read by the shape of another version")


NUMBERS = st.floats(width=32) | st.just(0.0)


@given(
    st.lists(
        st.tuples(st.tuples(NUMBERS, NUMBERS), st.integers(-(2**63), 2**63 - 1), st.booleans()), min_size=1, max_size=5
    )
)
def test_each_answer_is_the_one_it_would_be_alone(rows: list[tuple[tuple[float, float], int, bool]]) -> None:
    fields = (Field("y", "FP32", (2,)), Field("n", "INT64"), Field("b", "BOOL", (1, 1)))
    columns: list[list[Any]] = [[list(y) for y, _, _ in rows], [n for _, n, _ in rows], [[[b]] for _, _, b in rows]]
    together = answer(dict(zip(fields, columns, strict=True)))
    ids = [f"id-{place}" for place in range(len(rows))]
    alone = [_alone(fields, columns, place, id, together.version) for place, id in enumerate(ids)]
    assert texts_of(together, VERSION, ids) == alone


def _alone(fields: tuple[Field, ...], columns: list[Any], place: int, id: str, version: Version) -> bytes:
    made: Answer = answer({field: [column[place]] for field, column in zip(fields, columns, strict=True)})
    body = encode_infer(made, Request(id, [], 1, Timeline())).body
    assert isinstance(body, bytes)
    return body
