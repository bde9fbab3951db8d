"""/invocations: every form of a body makes the same request, and a refusal says where in the body the fault is."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.ingress.calls import answer, call

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field, Input, Signature
from forwardpass.core.request import Note, Request, Turn
from forwardpass.core.tensor import NUMPY_NAMES, unpack_bytes
from forwardpass.ingress.dialect import Target
from forwardpass.ingress.dialects import invocations

NAMED = Signature((Input("age", "number"), Input("city", "category", missing=True)), ())
RECORD = Signature((Input("row", "record", columns={"age": "number", "city": "category"}),), ())
FLOWER = Signature((Input("x", "tensor", datatype="FP32", shape=(4,)),), ())
TEXT = Signature((Input("text", "text"),), ())
IMAGE = Signature((Input("image", "image"),), ())
FRAME = pd.DataFrame({"age": [30.0, 41.5], "city": ["Bern", None]})
LENGTHS = pd.DataFrame([[5.1, 3.5, 1.4, 0.2], [6.2, 3.4, 5.4, 2.3]])
CSV, LINES = "text/csv", "application/jsonlines"


def decoded(body: Any, signature: Signature, kind: str = "application/json", **headers: str) -> list[list[Any]]:
    """The values of each column, in the signature's order."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return values(invocations.decode(call(body, kind, named), signature))


def values(request: Request) -> list[list[Any]]:
    columns: list[list[Any]] = []
    for tensor in request.columns:
        if tensor.datatype == "BYTES":
            columns.append([b if b is None else b.decode() for b in unpack_bytes(tensor.data, request.rows)])
        else:
            columns.append(np.frombuffer(tensor.data, NUMPY_NAMES[tensor.datatype]).reshape(tensor.shape).tolist())
    return columns


def refused(body: Any, signature: Signature, kind: str = "application/json", **headers: str) -> Refused:
    with pytest.raises(Refused) as caught:
        decoded(body, signature, kind, **headers)
    return caught.value


def split(frame: pd.DataFrame) -> dict[str, Any]:
    """As MLflow's client writes a DataFrame."""
    return {"dataframe_split": json.loads(frame.to_json(orient="split"))}


def records(frame: pd.DataFrame) -> dict[str, Any]:
    return {"dataframe_records": json.loads(frame.to_json(orient="records"))}


FORMS: dict[str, tuple[Any, str]] = {
    "split": (split(FRAME), "application/json"),
    "split, columns in another order": (split(FRAME[["city", "age"]]), "application/json; charset=utf-8"),
    "records": (records(FRAME), "application/json"),
    "instances": ({"instances": json.loads(FRAME.to_json(orient="records"))}, "application/json"),
    "inputs": ({"inputs": {"age": [30.0, 41.5], "city": ["Bern", None]}},
               "application/json"),
    "CSV": (FRAME.to_csv(index=False), CSV),
    "CSV with quotes and CR LF": ('"age","city"\r\n30,"Bern"\r\n41.5,\r\n', CSV),
    "CSV without a header": ("30,Bern\n41.5,", f"{CSV}; header=absent"),
    "CSV without a header, which is not said": ("30,Bern\n41.5,", CSV),
    "JSON lines": (FRAME.to_json(orient="records", lines=True), LINES),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("signature", [NAMED, RECORD], ids=["inputs", "record"])
def test_every_form_of_a_table_makes_the_same_request(form: str, signature: Signature) -> None:
    assert decoded(FORMS[form][0], signature, FORMS[form][1]) == [[30.0, 41.5], ["Bern", None]]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (split(LENGTHS), "application/json"), (records(LENGTHS), "application/json"),
        (split(LENGTHS.set_axis(["a", "b", "c", "d"], axis=1)), "application/json"),
        ({"instances": LENGTHS.to_numpy().tolist()}, "application/json"),
        ({"instances": [{"x": row} for row in LENGTHS.to_numpy().tolist()]}, "application/json"),
        ({"inputs": LENGTHS.to_numpy().tolist()}, "application/json"),
        ({"inputs": {"x": LENGTHS.to_numpy().tolist()}, "params": {}}, "application/json"),
        (LENGTHS.to_csv(index=False, header=False), CSV), (LENGTHS.to_csv(index=False), f"{CSV}; header=present"),
        (LENGTHS.set_axis(["a", "b", "c", "d"], axis=1).to_csv(index=False), CSV),
        ("[5.1, 3.5, 1.4, 0.2]\n[6.2, 3.4, 5.4, 2.3]\n", LINES),
    ],
)  # fmt: skip
def test_the_columns_of_a_table_are_the_elements_of_the_only_tensor(body: Any, kind: str) -> None:
    (rows,) = decoded(body, FLOWER, kind)
    assert rows == np.asarray(LENGTHS, np.float32).tolist()


@pytest.mark.parametrize("first", ["0,1,2,3", "0,1,2,3\n5,6,7,8"])
def test_a_first_line_that_may_be_a_header_or_a_row_is_refused(first: str) -> None:
    failure = refused(first, FLOWER, CSV)
    assert (failure.code, failure.field) == (Code.UNSUPPORTED_MEDIA_TYPE, "Content-Type")
    assert "header=absent" in failure.text
    assert decoded("0,1,2,3", FLOWER, f"{CSV}; header=absent") == [[[0, 1, 2, 3]]]


@pytest.mark.parametrize(
    ("first", "code"),
    [
        ("Alter,Stadt", Code.UNKNOWN_FIELD), (",Bern", Code.UNKNOWN_FIELD), ("30,Bern,1", Code.UNKNOWN_FIELD),
        ("0,1", Code.UNSUPPORTED_MEDIA_TYPE),
    ],
)  # fmt: skip
def test_a_first_line_that_may_be_a_header_without_a_known_name_is_not_lost(first: str, code: Code) -> None:
    failure = refused(f"{first}\n41,Basel\n", NAMED, CSV)
    assert (failure.code, "header=absent" in failure.text) == (code, True)


@pytest.mark.parametrize("digits", ["1{}x", "1.{}x", ".{}x", "1e{}x", "-{}-"])
def test_a_cell_of_digits_that_is_no_number_takes_no_longer_than_its_length(digits: str) -> None:
    """Were it the square of that, this would not end."""
    cell = digits.format("1" * 200_000)
    assert refused(f"age,city\n{cell},Bern", NAMED, CSV).field == "/0/age"
    assert refused(f"1,2,3,4\n1,2,3,{cell}", FLOWER, f"{CSV}; header=absent").field == "/1/3"


WHOLE = Signature((Input("n", "tensor", datatype="INT64", shape=()), Input("age", "number")), ())
GAP = pd.DataFrame({"n": pd.array([1, None], dtype="Int64"), "age": [1.0, 2.0]})


@pytest.mark.parametrize(
    ("body", "kind", "field"),
    [
        (split(GAP), "application/json", "/dataframe_split/data/1/0"),
        (records(GAP), "application/json", "/dataframe_records/1/n"), (GAP.to_csv(index=False), CSV, "/1/n"),
        ({"instances": [{"n": None, "age": 1}]}, "application/json", "/instances/0/n"),
        ({"inputs": {"n": [None], "age": [1]}}, "application/json", "/inputs/n/0"),
        (GAP.to_json(orient="records", lines=True), LINES, "/1/n"),
    ],
)  # fmt: skip
def test_an_integer_that_is_missing_has_the_same_clear_error_in_every_form(body: Any, kind: str, field: str) -> None:
    failure = refused(body, WHOLE, kind)
    assert (failure.code, failure.field) == (Code.WRONG_TYPE, field)
    assert failure.text == f"{field}: expected an integer, got null"


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({}, Code.MISSING_FIELD, ""), ([], Code.WRONG_TYPE, ""), (b"{", Code.JSON_INVALID, ""),
        ({"instances": [], "inputs": []}, Code.MISSING_FIELD, ""), ({"instance": []}, Code.UNKNOWN_FIELD, "/instance"),
        ({"instances": []}, Code.MISSING_FIELD, "/instances"), ({"instances": {}}, Code.WRONG_TYPE, "/instances"),
        ({"instances": [1]}, Code.WRONG_TYPE, "/instances/0"),
        ({"instances": [{"age": 1, "town": "a"}]}, Code.UNKNOWN_FIELD, "/instances/0/town"),
        ({"instances": [{"city": "a"}]}, Code.MISSING_FIELD, "/instances/0/age"),
        ({"inputs": {"age": [1, 2], "city": ["a"]}}, Code.SHAPE_MISMATCH, "/inputs"),
        ({"inputs": {"age": 1}}, Code.WRONG_TYPE, "/inputs/age"), ({"inputs": {}}, Code.MISSING_FIELD, "/inputs"),
        ({"inputs": {"age": ["old"]}}, Code.WRONG_TYPE, "/inputs/age/0"),
        ({"dataframe_split": {"columns": ["age"]}}, Code.WRONG_TYPE, "/dataframe_split/data"),
        ({"dataframe_split": {"columns": ["age"], "data": [[1, 2]]}}, Code.SHAPE_MISMATCH, "/dataframe_split/data/0"),
        ({"dataframe_split": {"columns": ["age", "age"], "data": [[1, 2]]}}, Code.INVALID_INPUT,
         "/dataframe_split/columns"),
        ({"dataframe_split": {"columns": ["age"], "data": [[1]], "index": []}}, Code.SHAPE_MISMATCH,
         "/dataframe_split/index"),
        ({"dataframe_split": {"colums": ["age"], "data": [[1]]}}, Code.UNKNOWN_FIELD, "/dataframe_split/colums"),
        ({"dataframe_split": {"columns": ["age"], "data": [["x"]]}}, Code.WRONG_TYPE, "/dataframe_split/data/0/0"),
        ({"dataframe_records": [3]}, Code.WRONG_TYPE, "/dataframe_records/0"),
        ({"instances": [{"age": 1}], "params": {"top_k": 1}}, Code.UNKNOWN_FIELD, "/params/top_k"),
        ({"instances": [{"age": 1}], "parameters": [1]}, Code.WRONG_TYPE, "/parameters"),
        ({"instances": [{"age": 1}] * 10_001}, Code.BATCH_TOO_LARGE, "/instances"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_place_in_the_body(body: Any, code: Code, field: str) -> None:
    failure = refused(body, NAMED)
    assert (failure.code, failure.field) == (code, field)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("", Code.MISSING_FIELD), ("age,city\n", Code.MISSING_FIELD), ("age,city\n1\n", Code.SHAPE_MISMATCH),
        ("age,city\n1,a\n\n2,b\n", Code.BAD_REQUEST), ('age,city\n1,"a', Code.BAD_REQUEST),
        ('age,city\n1,"a"b\n', Code.BAD_REQUEST), ("age,city\r1,a\r", Code.BAD_REQUEST), ("age,age\n1,2\n", Code.INVALID_INPUT),
        (b"age,city\n1,\xff\n", Code.INVALID_UTF8), ("age,city\n1e400,a\n", Code.WRONG_TYPE),
        ("age,city\n1_0,a\n", Code.WRONG_TYPE), ("age,city\nTrue,a\n", Code.WRONG_TYPE), ("age,town\n1,a\n", Code.UNKNOWN_FIELD),
        ("age,city\n" + "1,a\n" * 10_001, Code.BATCH_TOO_LARGE), ("a,b,c\n" + "," * 2_000_001, Code.INPUT_TOO_LARGE),
    ],
)  # fmt: skip
def test_what_is_no_table_is_refused(body: Any, code: Code) -> None:
    assert refused(body, NAMED, CSV).code is code


def test_as_many_rows_as_are_allowed_may_have_a_header() -> None:
    assert len(decoded("age,city\n" + "1,a\n" * 10_000, NAMED, CSV)[0]) == 10_000


def test_a_record_may_stand_under_its_name_and_not_twice() -> None:
    given = {"age": 1, "city": "a"}
    assert decoded({"instances": [{"row": given}]}, RECORD) == [[1.0], ["a"]]
    failure = refused({"instances": [{"row": given, "age": 1}]}, RECORD)
    assert (failure.code, failure.field) == (Code.INVALID_INPUT, "/instances/0/row")
    assert refused({"instances": [{"agee": 1}]}, RECORD).text.endswith("did you mean 'age'? (allowed: age, city)")
    assert refused({"instances": [{"age": "1"}]}, RECORD).field == "/instances/0/age"


def test_a_request_may_be_a_turn_of_a_sequence_and_ask_for_a_receipt() -> None:
    asked = call(ONE_ROW, headers={"X-Sequence-Id": "s"})
    asked.http.query = "receipt=full"
    request = invocations.decode(asked, NAMED)
    assert (request.sequence, request.receipt) == (Turn("s"), True)


def test_a_cell_is_read_as_its_column_says() -> None:
    body = '\ufeffcity,age\n"01, Main ""St""\nCorner",+1e3\n"",-.5\n'
    assert decoded(body, NAMED, CSV) == [[1000.0, -0.5], ['01, Main "St"\nCorner', ""]]


def test_bytes_may_stand_in_an_object_as_tensorflow_serving_has_them() -> None:
    for instance in ({"b64": "aGk="}, {"image": {"b64": "aGk="}}, {"image": "aGk="}, "aGk="):
        assert decoded({"instances": [instance]}, IMAGE) == [["hi"]]


@pytest.mark.parametrize(
    ("body", "kind", "signature"),
    [("hi", "text/plain", TEXT), ("hi", "image/png", IMAGE), ("hi", "application/x-image", IMAGE),
     ({"inputs": "hi"}, "application/json", TEXT), ({"inputs": ["hi"]}, "application/json", TEXT)],
)  # fmt: skip
def test_a_bare_value_is_the_only_input(body: Any, kind: str, signature: Signature) -> None:
    assert decoded(body, signature, kind) == [["hi"]]


@pytest.mark.parametrize(
    "kind",
    ["", "application/vnd.apache.parquet", "application/json; charset=utf-16", "application/json; format=pandas-split",
     "text/csv; header=maybe", "application/x-npy", "image/png", "text/plain"],
)  # fmt: skip
def test_another_content_type_is_refused_saying_what_is_taken(kind: str) -> None:
    failure = refused("{}", NAMED, kind)
    assert (failure.code, failure.field) == (Code.UNSUPPORTED_MEDIA_TYPE, "Content-Type")


def test_the_header_of_sagemaker_names_the_pipeline() -> None:
    for header, name in (("", ""), ("fraud", "fraud"), ("fraud.tar.gz", "fraud"), ("/fraud.tar.gz", "fraud")):
        asked = call({}, headers={"X-Amzn-SageMaker-Target-Model": header} if header else {})
        assert invocations.target(asked) == Target(name)
    assert refused({}, NAMED, X_Amzn_SageMaker_Session_Id="a").code is Code.UNKNOWN_FIELD


SCORE, LABEL, VECTOR = Field("score", "FP32"), Field("label", "BYTES", (), "text"), Field("v", "FP32", (2,))
ONE_ROW = {"instances": [{"age": 1}]}


def answered(outputs: dict[Field, list[Any]], accept: str = "", kind: str = "application/json", **more: Any) -> Any:
    asked = call(
        ONE_ROW if kind == "application/json" else '{"age": 1}', kind, {"Accept": accept, **more.pop("headers", {})}
    )
    request = invocations.decode(asked, NAMED)
    return invocations.encode_answer(answer(outputs, **more), request, asked)


def test_one_output_is_a_list_of_its_values_and_several_a_list_of_objects() -> None:
    one = answered({VECTOR: [[0.1, 2], [3, 4]]})
    assert json.loads(one.body) == {"predictions": [[0.1, 2.0], [3.0, 4.0]]}
    several = answered({SCORE: [0.1], LABEL: [None]})
    assert json.loads(several.body) == {"predictions": [{"score": 0.1, "label": None}]}


@pytest.mark.parametrize(
    ("accept", "kind", "body"),
    [
        ("text/csv", "application/json", b'0.1,a\n2.5,"b, ""c"""\n'),
        ("application/jsonlines", "application/json", b'{"score":0.1,"label":"a"}\n{"score":2.5,"label":"b, \\"c\\""}\n'),
        ("application/x-jsonlines", "application/json", b'{"score":0.1,"label":"a"}\n{"score":2.5,"label":"b, \\"c\\""}\n'),
        ("*/*", LINES, b'{"score":0.1,"label":"a"}\n{"score":2.5,"label":"b, \\"c\\""}\n'),
    ],
)  # fmt: skip
def test_accept_chooses_the_form_of_the_answer(accept: str, kind: str, body: bytes) -> None:
    given = answered({SCORE: [0.1, 2.5], LABEL: ["a", 'b, "c"']}, accept, kind)
    assert (given.status, given.body) == (200, body)


def test_the_elements_of_a_list_take_a_cell_each_and_what_is_deeper_is_refused() -> None:
    assert answered({SCORE: [1.5], VECTOR: [[0.1, np.nan]]}, "text/csv").body == b"1.5,0.1,\n"
    with pytest.raises(Refused, match="ask for application/json") as refusal:
        answered({Field("j", "BYTES", (), "json"): [{"a": 1}]}, "text/csv")
    assert refusal.value.code is Code.NOT_ACCEPTABLE


@pytest.mark.parametrize(
    "accept", ["application/x-npy", "application/json;q=0", "text/html, */*;q=0", "text/*;q=0.0, application/*; q=0"]
)
def test_an_answer_that_cannot_be_given_is_refused_before_anything_runs(accept: str) -> None:
    failure = refused(ONE_ROW, NAMED, Accept=accept)
    assert (failure.field, failure.code) == ("Accept", Code.NOT_ACCEPTABLE)


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("text/csv;q=0, */*", "application/json"), ("text/csv;q=0.5, application/json;q=0.4", "text/csv; charset=utf-8"),
        ("*/*;q=0.1, text/csv", "text/csv; charset=utf-8"), ("text/html, text/*", "text/csv; charset=utf-8"),
        ("application/json;q=0, application/*", "application/jsonlines"), ("*/*, application/json; q=0", "application/jsonlines"),
        ("application/x-ndjson", "application/x-ndjson"), ("application/json;charset=utf-8", "application/json"),
    ],
)  # fmt: skip
def test_accept_is_weighed(accept: str, kind: str) -> None:
    assert answered({SCORE: [0.5]}, accept).content_type.decode() == kind


def test_a_row_that_failed_fails_the_request_and_is_named() -> None:
    with pytest.raises(Refused, match="row 1: too dark"):
        answered({SCORE: [1.0]}, failures={1: Refused(Code.IMAGE_INVALID, "too dark")})


def test_what_was_done_to_a_row_is_told_beside_the_predictions() -> None:
    given = answered({SCORE: [1.0]}, notes=[Note(0, "truncated", {"tokens": 3, "kept": 2})])
    assert json.loads(given.body)["notes"] == [{"row": 0, "name": "truncated", "value": {"tokens": 3, "kept": 2}}]


def test_the_attributes_of_sagemaker_come_back() -> None:
    name = "X-Amzn-SageMaker-Custom-Attributes"
    assert (name.encode(), b"trace=1") in answered({SCORE: [1.0]}, headers={name: "trace=1"}).headers
