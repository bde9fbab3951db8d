"""tritonclient: statistics, configuration, the model repository and the log, over HTTP and gRPC."""

from typing import Any

import numpy as np
from tests.clients.checks import refused, run, same, says
from tests.clients.suites.triton_clients import Asking, EachWay, sixteen
from tritonclient.utils import InferenceServerException

statistics = EachWay("statistics")
configuration = EachWay("configuration")
repository = EachWay("repository")
logging = EachWay("log settings")


def is_refused(words: tuple[str, ...], client: Asking, *given: Any, **named: Any) -> None:
    says(refused(InferenceServerException, lambda: client.call(*given, **named)), *words)


def number(about: dict[str, Any], *path: str) -> int:
    """gRPC's JSON leaves out what is 0, and prints 64 bits as text."""
    value: Any = about
    for key in path:
        value = value.get(key, 0) if isinstance(value, dict) else 0
    return int(value)


@statistics("rows, runs and successes add up; times grow")
def _(client: Asking) -> None:
    def counted() -> dict[str, Any]:
        [about] = client.told("get_inference_statistics", "counted")["model_stats"]
        return dict(about)

    before = counted()
    for rows in (1, 3):
        client.infer("counted", {k: np.repeat(v.astype(np.int8), rows, axis=0) for k, v in sixteen().items()})
    after = counted()
    paths = [("inference_count",), ("execution_count",), ("inference_stats", "success", "count")]
    same([number(after, *path) - number(before, *path) for path in paths], [4, 2, 2])
    same((after["name"], after["version"]), ("counted", "1"))
    for stage in ("success", "queue", "compute_infer"):
        same(number(after, "inference_stats", stage, "ns") > number(before, "inference_stats", stage, "ns"), True)
    sizes = {number(each, "batch_size"): number(each, "compute_infer", "count") for each in after["batch_stats"]}
    same(sum(size * count for size, count in sizes.items()), number(after, "inference_count"))


@statistics("of all models, of one version, and refused of none")
def _(client: Asking) -> None:
    names = {each["name"] for each in client.told("get_inference_statistics")["model_stats"]}
    same(names >= {"simple", "wide", "table"}, True)
    same(len(client.told("get_inference_statistics", "simple", "1")["model_stats"]), 1)
    is_refused(("simpel",), client, "get_inference_statistics", "simpel")


def config(client: Asking, model: str) -> dict[str, Any]:
    answer = client.told("get_model_config", model)
    return dict(answer["config"] if client.way.grpc else answer)


@configuration("types, and dims without the batch dimension, which has its own place")
def _(client: Asking) -> None:
    about = config(client, "simple")
    same((about["name"], int(about["max_batch_size"]) > 0), ("simple", True))
    inputs = [(each["name"], each["data_type"], [int(size) for size in each["dims"]]) for each in about["input"]]
    same(inputs, [("INPUT0", "TYPE_INT32", [16]), ("INPUT1", "TYPE_INT32", [16])])
    same([each["name"] for each in about["output"]], ["OUTPUT0", "OUTPUT1"])


@configuration("text is TYPE_STRING; sequences are said; none of a model that is not there")
def _(client: Asking) -> None:
    same(config(client, "simple_string")["input"][0]["data_type"], "TYPE_STRING")
    same("sequence_batching" in config(client, "simple_sequence"), True)
    is_refused(("simpel",), client, "get_model_config", "simpel")


def state(client: Asking, model: str) -> str:
    answer = client.told("get_model_repository_index")
    [found] = [each for each in (answer["models"] if client.way.grpc else answer) if each["name"] == model]
    return str(found.get("state", ""))


@repository("the index, unload, and load again")
def _(client: Asking) -> None:
    model = f"spare_{'aio' if client.way.waits else 'sync'}_{'grpc' if client.way.grpc else 'http'}"
    same(state(client, model), "READY")
    client.call("unload_model", model)
    same(state(client, model) == "READY", False)
    is_refused((model,), client, "infer", model, [client.input(*given) for given in sixteen().items()])
    client.call("load_model", model)
    same((state(client, model), client.call("is_model_ready", model)), ("READY", True))
    same(client.infer(model, sixteen()).as_numpy("OUTPUT0").shape, (1, 16))


@repository("a model that is not there, and settings or files of the caller's own: refused")
def _(client: Asking) -> None:
    is_refused(("simpel",), client, "load_model", "simpel")
    is_refused(("simpel",), client, "unload_model", "simpel")
    is_refused(("config",), client, "load_model", "simple", config="{}")
    same(client.call("is_model_ready", "simple"), True)


def plain(answer: dict[str, Any]) -> dict[str, Any]:
    """gRPC's settings are wrapped, each in its type."""
    found = dict(answer.get("settings", answer))
    return {
        name: next(iter(value.values()), None) if isinstance(value, dict) else value for name, value in found.items()
    }


@logging("what the server says it does can be read, changed and changed back; else it says that it does not")
def _(client: Asking) -> None:
    if "logging" not in client.told("get_server_metadata")["extensions"]:
        refused(InferenceServerException, lambda: client.told("get_log_settings"))
        return
    before = plain(client.told("get_log_settings"))
    after = plain(client.told("update_log_settings", {"log_info": False}))
    same(bool(after.get("log_info")), False)
    client.told("update_log_settings", {"log_info": before["log_info"]})
    same(plain(client.told("get_log_settings")), before)
    is_refused(("log_file",), client, "update_log_settings", {"log_file": "x"})


if __name__ == "__main__":
    run(*(suite for each in (statistics, configuration, repository, logging) for suite in each.suites.values()))
