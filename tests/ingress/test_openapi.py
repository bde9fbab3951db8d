"""The OpenAPI document: every route described, every input and output as the pipeline's signature has it."""

import json
from dataclasses import replace
from math import inf
from typing import Any

import orjson
import pytest
from tests.json_schema import problems, references, referred

from forwardpass.core.errors import Code, Failed, Refused
from forwardpass.core.pipeline import Field, Golden, Input, Pipeline, Sequences, Signature, Step, Task
from forwardpass.ingress.openapi.document import document
from forwardpass.ingress.openapi.operations import OPERATIONS
from forwardpass.ingress.openapi.served import Served
from forwardpass.ingress.route_table import routes_of
from forwardpass.ingress.routes import Route
from forwardpass.ingress.status import STATUSES, error_answer

ROUTES = routes_of("data")
TEXT = Input("text", "text", bytes_max=100, bytes_min=5)
VECTOR = Field("vector", "FP32", (3,))
EMBED = Task("embed", input="text", output="vector")


def served(*inputs: Input, name: str = "p", number: int = 1, current: bool = True, **definition: Any) -> Served:
    signature = Signature(inputs or (TEXT,), (VECTOR, Field("label", "BYTES", (), "text")))
    return Served(name, number, Pipeline((Step("model"),), inputs, **definition), signature, current)


def made(*versions: Served, routes: tuple[Route, ...] = ROUTES) -> Any:
    """The document as a client reads it."""
    return orjson.loads(orjson.dumps(document(routes, versions, "1.2.3")))


def record_of(*inputs: Input) -> Any:
    return made(served(*inputs))["components"]["schemas"]["p.1.Record"]


def value_of(given: Input) -> Any:
    return record_of(given)["properties"][given.name]


def test_every_route_of_the_data_plane_is_described_and_nothing_else() -> None:
    assert {route.endpoint for route in ROUTES} == OPERATIONS.keys()


def test_every_reference_leads_somewhere() -> None:
    whole = made(served(), served(name="q"))
    assert [referred(whole, {"$ref": reference}) for reference in set(references(whole))]


def test_no_two_operations_have_one_name() -> None:
    whole = made(served(name="a-b"), served(name="a.b"), served(name="a-b", number=2, current=False))
    names = [each["operationId"] for path in whole["paths"].values() for each in path.values()]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() for name in names)


def test_each_pipeline_has_paths_of_its_own_and_each_version_too() -> None:
    whole = made(served(number=2), served(number=1, current=False))
    assert {"/predict/p", "/predict/p/1", "/predict/p/2", "/v2/models/p/infer"} <= whole["paths"].keys()
    body = whole["paths"]["/predict/p"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["anyOf"][0] == {"$ref": "#/components/schemas/p.2.Record"}


def test_a_path_for_any_pipeline_lists_those_there_are() -> None:
    whole = made(served(name="a"), served(name="b", number=7))
    (pipeline, version) = whole["paths"]["/v2/models/{pipeline}/versions/{version}"]["get"]["parameters"][:2]
    assert pipeline["schema"]["enum"] == ["a", "b"]
    (model, *_) = whole["paths"]["/v1/models/{model}"]["get"]["parameters"]
    assert model["schema"]["enum"] == ["a", "a:1", "b", "b:7"]
    assert version["schema"]["enum"] == ["1", "7"]


def test_a_document_of_no_pipeline_has_the_server_s_own_routes() -> None:
    paths = made()["paths"]
    assert "/v2/health/live" in paths
    assert not [path for path in paths if path.startswith("/predict/")]


def test_routes_of_a_task_are_there_only_with_a_pipeline_that_has_it() -> None:
    plain = served()
    embedder = replace(plain, signature=replace(plain.signature, task=EMBED))
    assert "/v1/embeddings" not in made(plain)["paths"]
    schema = made(embedder)["paths"]["/v1/embeddings"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"]["model"] == {"enum": ["p", "p:1"]}
    assert schema["properties"]["dimensions"] == {"enum": [3, None]}


def test_only_pipelines_with_sequences_have_what_belongs_to_them() -> None:
    stepwise = made(served(sequence=Sequences()))["paths"]["/predict/p"]
    alone = made(served())["paths"]["/predict/p"]
    steps = {"$ref": "#/components/parameters/sequence_id"}
    assert "delete" in stepwise
    assert steps in stepwise["post"]["parameters"]
    assert "delete" not in alone
    assert steps not in alone["post"]["parameters"]


def test_a_text_has_its_bounds_in_bytes() -> None:
    wanted = {
        "type": "string",
        "maxLength": 100,
        "minLength": 2,
        "description": "at most 100 and at least 5 bytes of UTF-8",
    }
    assert value_of(TEXT) == wanted


def test_a_number_has_its_bounds_and_may_be_missing() -> None:
    given = Input("n", "number", min=0.5, max=2.0, missing=True)
    assert value_of(given) == {"type": ["number", "null"], "minimum": 0.5, "maximum": 2.0}
    assert "required" not in record_of(given)
    assert record_of(replace(given, missing=False))["required"] == ["n"]


def test_a_record_is_an_object_of_its_columns() -> None:
    schema = value_of(Input("r", "record", columns={"amount": "number", "country": "category"}))
    assert schema["properties"]["amount"] == {"type": ["number", "null"]}
    assert schema["properties"]["country"]["type"] == ["string", "null"]
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("kind", "media"), [("image", "image/*"), ("audio", "audio/*"), ("bytes", "application/octet-stream")]
)
def test_files_are_base64_in_json_and_bare_as_a_body(kind: Any, media: str) -> None:
    whole = made(served(Input("file", kind, bytes_max=10)))
    value = whole["components"]["schemas"]["p.1.Record"]["properties"]["file"]
    assert (value["contentEncoding"], value["contentMediaType"], value["maxLength"]) == ("base64", media, 16)
    assert media in whole["paths"]["/predict/p"]["post"]["requestBody"]["content"]


def test_a_tensor_is_nested_lists_or_one_flat_list_where_no_size_is_free() -> None:
    item = {"type": "integer", "minimum": 0, "maximum": 255}
    row = {"type": "array", "items": item, "minItems": 3, "maxItems": 3}
    nested = {"type": "array", "items": row, "minItems": 2, "maxItems": 2}
    flat = {"type": "array", "items": item, "minItems": 6, "maxItems": 6}
    schema = value_of(Input("x", "tensor", datatype="UINT8", shape=(2, 3)))
    assert schema == {"anyOf": [nested, flat], "description": "UINT8 of shape [2, 3]"}


def test_a_free_size_has_no_bound() -> None:
    schema = value_of(Input("x", "tensor", datatype="FP64", shape=(-1,)))
    assert schema == {
        "type": "array", "items": {"type": "number"}, "description": "FP64 of shape [-1], where -1 is any size"
    }  # fmt: skip


def test_the_examples_are_the_golden_ones() -> None:
    golden = (Golden({"text": "first text"}, {}), Golden({"text": "second text"}, {}))
    content = made(served(TEXT, golden=golden))["paths"]["/predict/p"]["post"]["requestBody"]["content"]
    examples = content["application/json"]["examples"]
    assert [each["value"] for each in examples.values()] == [{"text": "first text"}, {"text": "second text"}]


def test_an_example_that_is_long_is_left_out() -> None:
    large = Golden({"text": "x" * 20_000}, {})
    given = Input("text", "text")
    content = made(served(given, golden=(large,)))["paths"]["/predict/p"]["post"]["requestBody"]["content"]
    (example,) = content["application/json"]["examples"].values()
    assert example["summary"] == "made up"


def test_numbers_that_json_has_not_are_left_out() -> None:
    given = Input("n", "number", min=-inf, max=2.0)
    content = made(served(given, golden=(Golden({"n": 10**30}, {}),)))["paths"]["/predict/p"]["post"]["requestBody"]
    assert value_of(given) == {"type": "number", "maximum": 2.0}
    assert "golden_1" not in content["content"]["application/json"]["examples"]


def test_an_example_of_v2_says_the_same_as_the_plain_one() -> None:
    inputs = (Input("n", "number"), Input("x", "tensor", datatype="INT8", shape=(2,)), Input("t", "texts"))
    golden = (Golden({"n": 1.5, "x": [3, 4], "t": ["a", "b"]}, {}),)
    content = made(served(*inputs, golden=golden))["paths"]["/v2/models/p/infer"]["post"]["requestBody"]["content"]
    assert content["application/json"]["examples"]["golden_1"]["value"] == {
        "inputs": [
            {"name": "n", "shape": [1], "datatype": "FP64", "data": [1.5]},
            {"name": "x", "shape": [1, 2], "datatype": "INT8", "data": [3, 4]},
            {"name": "t", "shape": [1, 2], "datatype": "BYTES", "data": ["a", "b"]},
        ]
    }


def test_a_record_that_is_made_up_keeps_to_its_schema() -> None:
    inputs = (
        TEXT, Input("n", "number", max=-1.0), Input("i", "image"), Input("a", "audio"), Input("c", "category"),
        Input("r", "record", columns={"k": "number"}), Input("x", "tensor", datatype="BOOL", shape=(2, -1)),
    )  # fmt: skip
    whole = made(served(*inputs))
    content = whole["paths"]["/predict/p"]["post"]["requestBody"]["content"]["application/json"]
    (example,) = content["examples"].values()
    assert list(problems(whole, content["schema"], example["value"])) == []


@pytest.mark.parametrize("family", sorted({route.family for route in ROUTES}))
def test_every_refusal_has_the_body_and_headers_that_are_documented(family: Any) -> None:
    plain = served()
    able = [
        replace(plain, pipeline=k, signature=replace(plain.signature, task=replace(EMBED, kind=k)))
        for k in ("embed", "classify")
    ]
    whole = made(*able)
    for code in (code for code in Code if f"{family}_{STATUSES[code]}" in whole["components"]["responses"]):
        failure = (Refused if STATUSES[code] < 500 else Failed)(code, "a text", field="/x")
        answer = error_answer(failure, family, "id")
        told = whole["components"]["responses"][f"{family}_{answer.status}"]
        body = json.loads(bytes(answer.body))  # type: ignore[arg-type]  # an error is never a stream
        assert list(problems(whole, told["content"]["application/json"]["schema"], body)) == []
        assert {name.decode() for name, _ in answer.headers} & {"Retry-After", "X-Error-Code"} <= told["headers"].keys()


@pytest.mark.parametrize("status", sorted({STATUSES[code] for code in Code} - {499}))
def test_every_status_that_a_request_can_meet_is_documented_for_inference(status: int) -> None:
    place = "/invocations" if status == 406 else "/predict/p"  # the only one that has several forms of answer
    assert str(status) in made(served(sequence=Sequences()))["paths"][place]["post"]["responses"]
