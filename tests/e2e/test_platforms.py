"""A server as scoring platforms start it and ask it: nothing but environment, settings, and paths of their own."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import fixtures_onnx
from tests.e2e.pipelines import OWN_STEP, write_own
from tests.serving import Reply, Server, forwardpass, serving, wait_until

VERTEX = {"AIP_MODE": "PREDICTION", "AIP_HEALTH_ROUTE": "/v1/endpoints/1/deployedModels/2",
          "AIP_PREDICT_ROUTE": "/v1/endpoints/1/deployedModels/2:predict", "AIP_HTTP_PORT": "8080"}  # fmt: skip
JSON = {"Content-Type": "application/json"}
BAD_LOADS: list[Any] = [
    {"model_name": "shout", "url": "/opt/ml/models/1/other"}, {"model_name": "shout", "url": "/opt/ml/models/other/model"}, {"model_name": "../x"}, {}, [], {"name": "a"},
]  # fmt: skip
ROWS = [[0.5, 1, 2, 3], [4, 5, 6, 7]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    root = tmp_path_factory.mktemp("platform") / "model"
    fixtures_onnx.identity(root / "copy" / "1" / "model.onnx")
    write_own(root / "shout" / "1", OWN_STEP)
    forwardpass("trust", root, data=data)
    return root


@pytest.fixture(scope="module")
def container(models: Path, data: Path) -> Iterator[Server]:
    """Started with no source named, open to the network, in an environment of Vertex AI's."""
    settings = {"run.source": models, "data.pipeline": "copy", "data.model_control": "true", "data.host": "0.0.0.0",
                "data.open_to_network": "true"}  # fmt: skip
    with serving(data=data, settings=settings, environment=VERTEX) as running:
        yield running


def post(server: Server, path: str, body: Any, **headers: str) -> Reply:
    named = {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return server.call("POST", path, body.encode() if isinstance(body, str) else json.dumps(body).encode(), named)


def test_what_is_served_when_nothing_is_named_is_a_setting(container: Server) -> None:
    assert {version["pipeline"] for version in container.status()["versions"]} == {"copy", "shout"}


def test_a_server_that_is_open_to_the_network_answers_at_every_address(container: Server) -> None:
    # 127.0.0.2 is an address of this machine at which a server that listens on 127.0.0.1 is not reached.
    with socket.create_connection(("127.0.0.2", container.port), timeout=10) as client:
        client.sendall(b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert client.recv(15) == b"HTTP/1.1 200 OK"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", container.admin_port), timeout=10)


@pytest.mark.parametrize("path", ["/ping", "/health", VERTEX["AIP_HEALTH_ROUTE"]])
def test_a_container_says_that_it_is_well(container: Server, path: str) -> None:
    assert container.get(path).status == 200


def test_kserve_v1_and_mlflow_find_their_words(container: Server) -> None:
    assert container.get("/").json == {"status": "alive"}
    version = container.get("/version")
    assert version.headers["content-type"].startswith("text/plain") and version.body.count(b".") == 2


@pytest.mark.parametrize("path", ["/invocations", VERTEX["AIP_PREDICT_ROUTE"], "/models/copy/invoke"])
def test_rows_are_answered_at_every_path_that_asks_for_predictions(container: Server, path: str) -> None:
    reply = post(container, path, {"instances": ROWS, "parameters": {}})
    assert (reply.status, reply.json) == (200, {"predictions": ROWS})


def test_csv_goes_in_and_out(container: Server) -> None:
    reply = post(container, "/invocations", "0.5,1,2,3\n4,5,6,7\n", Content_Type="text/csv", Accept="text/csv")
    assert (reply.headers["content-type"], reply.body) == (
        "text/csv; charset=utf-8",
        b"0.5,1.0,2.0,3.0\n4.0,5.0,6.0,7.0\n",
    )


def test_the_target_model_is_the_pipeline(container: Server) -> None:
    reply = post(container, "/invocations", {"inputs": "hi"}, X_Amzn_SageMaker_Target_Model="shout.tar.gz")
    assert (reply.json, reply.headers["x-pipeline"]) == ({"predictions": ["HI"]}, "shout")


def test_a_refusal_at_invocations_has_the_shape_of_mlflow(container: Server) -> None:
    refused = post(container, "/invocations", {"instance": ROWS})
    assert (refused.status, refused.json["error_code"]) == (400, "BAD_REQUEST")
    parquet = post(container, "/invocations", "PAR1", Content_Type="application/vnd.apache.parquet")
    assert (parquet.status, "text/csv" in parquet.json["message"]) == (415, True)
    no_form = post(container, "/invocations", {"instances": ROWS}, Accept="text/html")
    assert (no_form.status, no_form.json["code"]) == (406, "not_acceptable")


def test_kserve_v1_predicts(container: Server) -> None:
    reply = post(container, "/v1/models/shout:predict", {"instances": ["a", {"text": "b"}]})
    assert reply.json == {"predictions": ["A", "B"]}
    asked = {"instances": ["a"], "signature_name": "serving_default"}
    assert post(container, "/v1/models/shout/versions/1:predict", asked).json == {"predictions": ["A"]}
    assert post(container, "/v1/models/shout/versions/2:predict", asked).status == 404
    bad = post(container, "/v1/models/shout:predict", {"instances": ["bad", "b"]})
    assert bad.status == 400 and isinstance(bad.json["error"], str) and bad.json["error"].startswith("row 0: ")
    assert post(container, "/v1/models/none:predict", {"instances": ["a"]}).status == 404


@pytest.mark.parametrize("path", ["/v2/models/shout", "/v2/models/shout/versions/1"])
def test_generate_answers_at_once_and_as_a_stream(container: Server, path: str) -> None:
    named = {"id": "7", "model_name": "shout", "model_version": "1", "shout": "HI", "text_output": "HI"}
    assert post(container, f"{path}/generate", {"id": "7", "text_input": "hi"}).json == named
    stream = post(container, f"{path}/generate_stream", {"id": "7", "text_input": "hi"})
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert stream.body == b"data: " + json.dumps(named, separators=(",", ":")).encode() + b"\n\n"


def test_a_stream_that_fails_before_its_first_event_is_a_plain_error(container: Server) -> None:
    failed = post(container, "/v2/models/shout/generate_stream", {"text_input": "bad"})
    assert (failed.status, failed.headers["content-type"]) == (400, "application/json")
    assert isinstance(failed.json["error"], str)


def test_sagemaker_lists_loads_and_unloads_models(container: Server) -> None:
    named = {"modelName": "shout", "modelUrl": "/models/shout"}
    assert named in container.get("/models").json["models"]
    assert container.call("DELETE", "/models/shout").status == 200
    assert (container.get("/models/shout").status, container.call("DELETE", "/models/shout").status) == (404, 404)
    asked = {"model_name": "shout", "url": "/opt/ml/models/shout/model"}
    assert post(container, "/models", asked).json == named
    assert (post(container, "/models", asked).status, container.get("/models/shout").json) == (409, named)
    for bad in BAD_LOADS:
        assert post(container, "/models", bad).status == 400


def test_models_are_loaded_only_where_a_setting_allows_it(server: Server) -> None:
    assert (post(server, "/models", {"model_name": "rows"}).status, server.call("DELETE", "/models/rows").status) == (
        403,
        403,
    )
    assert server.get("/models/rows").status == 200


def test_a_container_that_loads_is_not_well_yet(models: Path, data: Path, tmp_path: Path) -> None:
    slow = OWN_STEP.replace("steps:checked", "steps:slow")
    write_own(tmp_path / "late" / "1", slow)
    code = tmp_path / "late" / "1" / "steps.py"
    code.write_text(f"import os\nimport time\n\nwhile not os.path.exists({str(tmp_path / 'go')!r}):\n    time.sleep(0.01)\n"
                    "\n\ndef slow(text: str) -> str:\n    return text\n")  # fmt: skip
    forwardpass("trust", tmp_path / "late", data=data)
    with serving(tmp_path / "late", data=data, ready=False) as starting:
        assert [starting.get(path).status for path in ("/ping", "/info", "/v2/models/late")] == [503] * 3
        threading.Thread(target=(tmp_path / "go").touch).start()
        wait_until(lambda: starting.get("/ping").status == 200)
