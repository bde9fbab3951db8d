"""What cloud platforms and MLflow expect of a container: its health route, its predict route, and rows in their shapes.

Everything here asks a server of the table pipeline alone, started with Vertex AI's environment variables.
"""

from typing import Any

import pandas as pd
import requests
from mlflow.pyfunc.scoring_server.client import ScoringServerClient
from tests.clients.checks import Served, Suite, near, refused, run, same, says
from tests.clients.expected import table

of_mlflow = Suite("mlflow.ScoringServerClient", "invocations")
of_shapes = Suite("MLflow-shaped", "invocations")
of_sagemaker = Suite("SageMaker-shaped", "ping and invocations")
of_vertex = Suite("Vertex-AI-shaped", "health and predict")

ROWS = [[1.0, 2.0, 3.0], [0.5, 0.0, -1.0], [4.0, 5.0, 6.0]]
WANTED = [table(row) for row in ROWS]
RECORDS = [dict(zip("abc", row, strict=True)) for row in ROWS]
COLUMNS = {name: [row[place] for row in ROWS] for place, name in enumerate("abc")}


def client(served: Served) -> ScoringServerClient:
    host, port = served.alone["table"].split(":")
    return ScoringServerClient(host, int(port))


def sent(served: Served, body: Any, media: str = "application/json", path: str = "/invocations") -> requests.Response:
    named: dict[str, Any] = (
        {"json": body} if media == "application/json" else {"data": body, "headers": {"Content-Type": media}}
    )
    return requests.post(f"http://{served.alone['table']}{path}", timeout=30, **named)


def predicted(answer: requests.Response) -> list[float]:
    same((answer.status_code, answer.text[:200] if answer.status_code != 200 else ""), (200, ""))
    predictions = answer.json()["predictions"]
    return [float(each["prediction"] if isinstance(each, dict) else each) for each in predictions]


@of_mlflow("it is ready, and says its version")
def _(served: Served) -> None:
    client(served).wait_server_ready(timeout=10)
    client(served).ping()
    same(bool(client(served).get_version()), True)


@of_mlflow("a data frame")
def _(served: Served) -> None:
    answer = client(served).invoke(pd.DataFrame(ROWS, columns=list("abc")))
    near([float(value) for value in answer.get_predictions().to_numpy().ravel()], WANTED)


@of_mlflow("a column that is not there: the client's own exception, readable")
def _(served: Served) -> None:
    error = refused(Exception, lambda: client(served).invoke(pd.DataFrame(ROWS, columns=list("abd"))))
    says(error, "400", "d")


@of_shapes("dataframe_split, dataframe_records, instances and inputs")
def _(served: Served) -> None:
    for body in (
        {"dataframe_split": {"columns": ["c", "a", "b"], "data": [[row[2], row[0], row[1]] for row in ROWS]}},
        {"dataframe_split": {"index": [7, 8, 9], "columns": list("abc"), "data": ROWS}},
        {"dataframe_records": RECORDS},
        {"instances": RECORDS},
        {"inputs": COLUMNS},
    ):
        near(predicted(sent(served, body)), WANTED)


@of_shapes("CSV with a header")
def _(served: Served) -> None:
    lines = ["a,b,c", *(",".join(map(str, row)) for row in ROWS)]
    near(predicted(sent(served, "\n".join(lines) + "\n", "text/csv")), WANTED)


@of_shapes("none of them, two of them, an unknown type: refused in MLflow's shape")
def _(served: Served) -> None:
    for body in ({}, {"instances": RECORDS, "inputs": COLUMNS}, {"dataframe_record": RECORDS}):
        answer = sent(served, body)
        same((answer.status_code, answer.json()["error_code"]), (400, "BAD_REQUEST"))
        says(answer.json()["message"], "dataframe_split")
    same(sent(served, "a", "application/x-nothing").status_code, 415)


@of_sagemaker("ping within its two seconds")
def _(served: Served) -> None:
    answer = requests.get(f"http://{served.alone['table']}/ping", timeout=2)
    same(answer.status_code, 200)


@of_sagemaker("JSON lines, CSV without a header, JSON")
def _(served: Served) -> None:
    import json

    lines = "\n".join(json.dumps(record) for record in RECORDS)
    answer = sent(served, lines, "application/jsonlines")
    same(answer.status_code, 200)
    found = [json.loads(line) for line in answer.text.splitlines()]
    near([float(each["prediction"] if isinstance(each, dict) else each) for each in found], WANTED)
    headers = {"X-Amzn-SageMaker-Custom-Attributes": "trace=1"}
    answer = requests.post(
        f"http://{served.alone['table']}/invocations", json={"instances": RECORDS}, headers=headers, timeout=30
    )
    near(predicted(answer), WANTED)


@of_vertex("the routes that its environment variables name")
def _(served: Served) -> None:
    same(requests.get(f"http://{served.alone['table']}/vertex/health", timeout=10).status_code, 200)
    near(predicted(sent(served, {"instances": RECORDS, "parameters": {}}, path="/vertex/predict")), WANTED)


@of_vertex("a bad instance is refused and named")
def _(served: Served) -> None:
    answer = sent(served, {"instances": [{**RECORDS[0], "b": "two"}]}, path="/vertex/predict")
    same(answer.status_code, 400)
    says(answer.text, "/instances/0/b")


if __name__ == "__main__":
    run(of_mlflow, of_shapes, of_sagemaker, of_vertex)
