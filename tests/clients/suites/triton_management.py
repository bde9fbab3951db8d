"""tritonclient: statistics, configuration, the model repository and the log, over HTTP and gRPC."""

from typing import Any

import numpy as np
from tests.clients.checks import Served, Suite, refused, run, same, says
from tests.clients.suites.triton_clients import WAYS, Asking, Way, asking, sixteen
from tritonclient.utils import InferenceServerException


def told(client: Asking, method: str, *given: Any, **named: Any) -> Any:
    """The answer as plain values, whichever client."""
    return client.call(method, *given, **named, **({"as_json": True} if client.way.grpc else {}))


def statistics(way: Way) -> Suite:
    suite = Suite(way.name, "statistics")

    def counted(client: Asking, model: str) -> dict[str, Any]:
        [about] = told(client, "get_inference_statistics", model)["model_stats"]
        return dict(about)

    def number(about: dict[str, Any], *path: str) -> int:
        """gRPC's JSON leaves out what is 0, and prints 64 bits as text."""
        value: Any = about
        for key in path:
            value = value.get(key, 0) if isinstance(value, dict) else 0
        return int(value)

    @suite("rows, successes and failures add up; times grow")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            before = counted(client, "simple_int8")
            for rows in (1, 3):
                given = {name: np.repeat(array.astype(np.int8), rows, axis=0) for name, array in sixteen().items()}
                client.infer("simple_int8", given)
            after = counted(client, "simple_int8")
            grown = {
                path: number(after, *path) - number(before, *path)
                for path in (("inference_count",), ("execution_count",), ("inference_stats", "success", "count"))
            }
            same(grown, {("inference_count",): 4, ("execution_count",): 2, ("inference_stats", "success", "count"): 2})
            same((after["name"], after["version"]), ("simple_int8", "1"))
            for stage in ("success", "queue", "compute_infer"):
                same(number(after, "inference_stats", stage, "ns") > number(before, "inference_stats", stage, "ns"), True)
            batches = {number(each, "batch_size"): number(each, "compute_infer", "count") for each in after["batch_stats"]}
            same(sum(size * count for size, count in batches.items()), number(after, "inference_count"))

    @suite("of all models, of one version, and refused of none")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            names = {each["name"] for each in told(client, "get_inference_statistics")["model_stats"]}
            same({"simple", "wide", "table"} <= names, True)
            told(client, "get_inference_statistics", "simple", "1")
            says(refused(InferenceServerException, lambda: told(client, "get_inference_statistics", "simpel")), "simpel")

    return suite


def configuration(way: Way) -> Suite:
    suite = Suite(way.name, "configuration")

    def config(client: Asking, model: str) -> dict[str, Any]:
        answer = told(client, "get_model_config", model)
        return dict(answer["config"] if client.way.grpc else answer)

    @suite("types and dims without the batch dimension, which has its own place")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            about = config(client, "simple")
            same((about["name"], int(about["max_batch_size"]) > 0), ("simple", True))
            inputs = [(each["name"], each["data_type"], [int(size) for size in each["dims"]]) for each in about["input"]]
            same(inputs, [("INPUT0", "TYPE_INT32", [16]), ("INPUT1", "TYPE_INT32", [16])])
            same([each["name"] for each in about["output"]], ["OUTPUT0", "OUTPUT1"])

    @suite("text is TYPE_STRING; sequences are said")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            same(config(client, "simple_string")["input"][0]["data_type"], "TYPE_STRING")
            same("sequence_batching" in config(client, "simple_sequence"), True)
            says(refused(InferenceServerException, lambda: config(client, "simpel")), "simpel")

    return suite


def repository(way: Way) -> Suite:
    suite = Suite(way.name, "repository")

    def states(client: Asking) -> dict[str, str]:
        answer = told(client, "get_model_repository_index")
        return {each["name"]: each.get("state", "") for each in (answer["models"] if client.way.grpc else answer)}

    @suite("the index, unload, and load again")
    def _(served: Served) -> None:
        model = f"spare_{'aio' if way.waits else 'sync'}_{'grpc' if way.grpc else 'http'}"
        with asking(way, served) as client:
            same(states(client)[model], "READY")
            client.call("unload_model", model)
            same(states(client)[model] == "READY", False)
            same(client.call("is_model_ready", model) if not way.grpc else False, False)
            says(refused(InferenceServerException, lambda: client.infer(model, sixteen())), model)
            client.call("load_model", model)
            same(states(client)[model], "READY")
            client.infer(model, sixteen())

    @suite("a model that is not there, and files or settings of the caller's own: refused")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            says(refused(InferenceServerException, lambda: client.call("load_model", "simpel")), "simpel")
            says(refused(InferenceServerException, lambda: client.call("unload_model", "simpel")), "simpel")
            says(refused(InferenceServerException, lambda: client.call("load_model", "simple", config="{}")), "config")
            client.infer("simple", sixteen())

    return suite


def logging(way: Way) -> Suite:
    suite = Suite(way.name, "log settings")

    def settings(answer: Any) -> dict[str, Any]:
        found = dict(answer.get("settings", answer))
        return {name: next(iter(value.values()), None) if isinstance(value, dict) else value for name, value in found.items()}

    @suite("what the server says it does can be read, changed and changed back; else it says that it does not")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            if "logging" not in told(client, "get_server_metadata")["extensions"]:
                refused(InferenceServerException, lambda: told(client, "get_log_settings"))
                return
            before = settings(told(client, "get_log_settings"))
            after = settings(told(client, "update_log_settings", {"log_info": False}))
            same(bool(after.get("log_info")), False)
            told(client, "update_log_settings", {"log_info": before["log_info"]})
            same(settings(told(client, "get_log_settings")), before)
            says(refused(InferenceServerException, lambda: told(client, "update_log_settings", {"log_file": "/tmp/x"})), "log_file")

    return suite


if __name__ == "__main__":
    run(*(make(way) for way in WAYS for make in (statistics, configuration, repository, logging)))
