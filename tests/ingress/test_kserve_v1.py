"""KServe's V1 predict."""

import json
from typing import Any

import numpy as np
import pytest
from tests.ingress.calls import answer, call

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field, Input, Signature
from forwardpass.ingress.dialects import kserve_v1

IRIS = Signature((Input("x", "tensor", datatype="FP32", shape=(4,)),), ())
ROWS = [[6.8, 2.8, 4.8, 1.4], [6.0, 3.4, 4.5, 1.6]]  # as in KServe's own first example


@pytest.mark.parametrize(
    "body",
    [
        {"instances": ROWS}, {"inputs": ROWS}, {"inputs": {"x": ROWS}}, {"instances": ROWS, "signature_name": None},
        {"instances": ROWS, "signature_name": ""}, {"inputs": ROWS, "signature_name": "serving_default"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["application/json", "", "application/x-www-form-urlencoded"])
def test_instances_and_inputs_make_the_same_request_whatever_the_content_type(body: Any, kind: str) -> None:
    request = kserve_v1.decode(call(body, kind), IRIS)
    (column,) = request.columns
    assert (column.shape, bytes(column.data)) == ((2, 4), np.array(ROWS, "<f4").tobytes())


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({}, Code.MISSING_FIELD, ""), ({"instances": ROWS, "inputs": ROWS}, Code.MISSING_FIELD, ""),
        ({"instances": ROWS, "signature_name": "a"}, Code.OUT_OF_RANGE, "/signature_name"),
        ({"instances": ROWS, "signature_name": ["a"]}, Code.OUT_OF_RANGE, "/signature_name"),
        ({"instance": ROWS}, Code.UNKNOWN_FIELD, "/instance"), ({"dataframe_split": {}}, Code.UNKNOWN_FIELD, "/dataframe_split"),
        ({"instances": [[1, 2, 3]]}, Code.SHAPE_MISMATCH, "/instances/0"),
        ({"instances": [[1, 2, 3, "4"]]}, Code.WRONG_TYPE, "/instances/0/3"), (b"[", Code.JSON_INVALID, ""),
    ],
)  # fmt: skip
def test_a_refusal_names_the_place_in_the_body(body: Any, code: Code, field: str) -> None:
    with pytest.raises(Refused) as refusal:
        kserve_v1.decode(call(body), IRIS)
    assert (refusal.value.code, refusal.value.field) == (code, field)


def test_the_answer_is_one_prediction_a_row() -> None:
    asked = call({"instances": ROWS})
    given = kserve_v1.encode_answer(answer({Field("y", "INT64"): [1, 1]}), kserve_v1.decode(asked, IRIS), asked)
    assert isinstance(given.body, bytes)
    assert json.loads(given.body) == {"predictions": [1, 1]}
