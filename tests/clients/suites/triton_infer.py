"""tritonclient: inference, over HTTP and gRPC, each synchronous and asynchronous."""

from typing import Any

import numpy as np
from tests.clients.checks import refused, run, same, says
from tests.clients.suites.triton_clients import WAYS, Array, Asking, EachWay, sixteen
from tritonclient.utils import InferenceServerException

infers = EachWay("infer")
errors = EachWay("errors")
health = EachWay("health and metadata")
sequences = EachWay("sequences")
json_tensors = EachWay("JSON tensors", [way for way in WAYS if not way.grpc])

FLOATS: dict[str, Any] = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
INTEGERS: dict[str, Any] = {
    "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
}  # fmt: skip
SUMS = np.arange(1, 17, dtype=np.int32).reshape(1, 16)
DIFFERENCES = SUMS - 2
"""Of ``sixteen``."""


def alike(found: Array, wanted: Array) -> None:
    """Bit for bit, not a number included."""
    same((found.dtype, found.shape), (wanted.dtype, wanted.shape))
    if found.dtype.kind == "O":
        same(found.tolist(), wanted.tolist())
    else:
        same(found.tobytes() == wanted.tobytes(), True)


def texts(*values: str) -> Array:
    return np.array([[value.encode() for value in values]], dtype=np.object_)


def extremes() -> dict[str, Array]:
    """Of every datatype two values, where there are such the ones at its ends."""
    arrays: dict[str, Array] = {"x_BOOL": np.array([[True, False]])}
    for name, kind in INTEGERS.items():
        arrays[f"x_{name}"] = np.array([[np.iinfo(kind).min, np.iinfo(kind).max]], kind)
    for name, kind in FLOATS.items():
        arrays[f"x_{name}"] = np.array([[np.finfo(kind).max, np.finfo(kind).tiny]], kind)
    return arrays


@infers("the sum and the difference of two rows, binary both ways")
def _(client: Asking) -> None:
    result = client.infer("simple", sixteen())
    alike(result.as_numpy("OUTPUT0"), SUMS)
    alike(result.as_numpy("OUTPUT1"), DIFFERENCES)


@infers("every datatype comes back bit for bit")
def _(client: Asking) -> None:
    result = client.infer("every_datatype", extremes())
    for name, array in extremes().items():
        alike(result.as_numpy(name.replace("x_", "y_")), array)


@infers("infinities and NaN come back bit for bit")
def _(client: Asking) -> None:
    odd = np.array([[np.nan, np.inf, -np.inf]], np.float32)
    alike(client.infer("odd_numbers", {"x": odd}).as_numpy("y"), odd)


@infers("bytes: decimal text is added, any UTF-8 comes back, the empty text too")
def _(client: Asking) -> None:
    numbers = {name: texts(*map(str, array[0])) for name, array in sixteen().items()}
    summed = client.infer("simple_string", numbers).as_numpy("OUTPUT0")
    same([int(value) for value in summed[0]], SUMS[0].tolist())
    given = texts("abc", "", "déjà", "\N{SNOWMAN}" * 1000)
    alike(client.infer("simple_identity", {"INPUT0": given}).as_numpy("OUTPUT0"), given)


@infers("8-bit integers")
def _(client: Asking) -> None:
    given = {name: array.astype(np.int8) for name, array in sixteen().items()}
    alike(client.infer("simple_int8", given).as_numpy("OUTPUT1"), DIFFERENCES.astype(np.int8))


@infers("a tensor of 4.8 MB, larger than gRPC's own limit")
def _(client: Asking) -> None:
    given = np.random.default_rng(0).normal(size=(8, 3, 224, 224)).astype(np.float32)
    alike(client.infer("wide", {"x": given}).as_numpy("y"), given)


@infers("only the outputs that were asked for")
def _(client: Asking) -> None:
    result = client.infer("simple", sixteen(), [client.output("OUTPUT1")])
    same(result.as_numpy("OUTPUT0"), None)
    alike(result.as_numpy("OUTPUT1"), DIFFERENCES)


@infers("the request's id, a version, a priority, a time limit and parameters of one's own")
def _(client: Asking) -> None:
    own = {"shop": "north", "urgent": True, "tries": 3}
    named: dict[str, Any] = {"model_version": "1", "priority": 1, "timeout": 5_000_000, "parameters": own}
    answer = client.infer("simple", sixteen(), request_id="mine-42", **named).get_response()
    same(answer["id"] if isinstance(answer, dict) else answer.id, "mine-42")


@infers("64 requests at the same time, each its own answer")
def _(client: Asking) -> None:
    given = [{**sixteen(), "INPUT0": sixteen()["INPUT0"] + number} for number in range(64)]
    for number, result in enumerate(client.together([("simple", inputs) for inputs in given])):
        alike(result.as_numpy("OUTPUT0"), SUMS + np.int32(number))


@infers("request and answer compressed")
def _(client: Asking) -> None:
    names = ["request_compression_algorithm", "response_compression_algorithm"]
    for algorithm in ("gzip", "deflate"):
        named: dict[str, Any] = dict.fromkeys(["compression_algorithm"] if client.way.grpc else names, algorithm)
        alike(client.infer("simple", sixteen(), **named).as_numpy("OUTPUT1"), DIFFERENCES)


NOT_FOUND, BAD = ("404", "StatusCode.NOT_FOUND"), ("400", "StatusCode.INVALID_ARGUMENT")
"""Of HTTP and of gRPC."""


def is_refused(client: Asking, statuses: tuple[str, str], words: tuple[str, ...], *given: Any, **named: Any) -> None:
    error = refused(InferenceServerException, lambda: client.infer(*given, **named))
    same(error.status(), statuses[client.way.grpc])
    says(error.message(), *words)
    alike(client.infer("simple", sixteen()).as_numpy("OUTPUT0"), SUMS)  # the connection serves on


@errors("a model that is not there")
def _(client: Asking) -> None:
    is_refused(client, NOT_FOUND, ("simpel",), "simpel", sixteen())


@errors("a version that is not there")
def _(client: Asking) -> None:
    is_refused(client, NOT_FOUND, ("7",), "simple", sixteen(), model_version="7")


@errors("an input of a wrong name, with the right one")
def _(client: Asking) -> None:
    given = {"INPUT0": sixteen()["INPUT0"], "INPUT9": sixteen()["INPUT1"]}
    is_refused(client, BAD, ("INPUT9", "INPUT1"), "simple", given)


@errors("a missing input")
def _(client: Asking) -> None:
    is_refused(client, BAD, ("INPUT1",), "simple", {"INPUT0": sixteen()["INPUT0"]})


@errors("a wrong datatype, with the right one")
def _(client: Asking) -> None:
    given = {name: array.astype(np.float32) for name, array in sixteen().items()}
    is_refused(client, BAD, ("INT32", "FP32"), "simple", given)


@errors("a wrong shape")
def _(client: Asking) -> None:
    is_refused(client, BAD, ("15",), "simple", {name: array[:, :15] for name, array in sixteen().items()})


@errors("an output that is not there")
def _(client: Asking) -> None:
    is_refused(client, BAD, ("OUTPUT7",), "simple", sixteen(), outputs=[client.output("OUTPUT7")])


@errors("an answer that takes longer than the request allows")
def _(client: Asking) -> None:
    given = {"x": np.array([[3000.0, 0.0]])}  # two seconds
    error = refused(InferenceServerException, lambda: client.infer("slow", given, timeout=100_000))
    says(error.message(), "deadline")


@health("live and ready, model by model")
def _(client: Asking) -> None:
    same([client.call(f"is_server_{state}") for state in ("live", "ready")], [True, True])
    same([client.call("is_model_ready", "simple"), client.call("is_model_ready", "simple", "1")], [True, True])


@health("a model that is not there is not ready")
def _(client: Asking) -> None:
    try:
        same(client.call("is_model_ready", "simpel"), False)
    except InferenceServerException as error:  # gRPC's way of saying so
        same(error.status(), NOT_FOUND[1])


@health("the server says what it can do")
def _(client: Asking) -> None:
    about = client.told("get_server_metadata")
    same(about["name"], "forwardpass")
    same("binary_tensor_data" in about["extensions"], True)


@health("the inputs and outputs of a model")
def _(client: Asking) -> None:
    about = client.told("get_model_metadata", "simple")
    shapes = {each["name"]: (each["datatype"], [int(size) for size in each["shape"]]) for each in about["inputs"]}
    same(shapes, {"INPUT0": ("INT32", [-1, 16]), "INPUT1": ("INT32", [-1, 16])})
    same((list(about["versions"]), len(about["outputs"])), (["1"], 2))
    says(refused(InferenceServerException, lambda: client.told("get_model_metadata", "simpel")), "simpel")


def side_by_side(client: Asking, first: int | str, second: int | str) -> None:
    """Two running sums in turn, the second of tenfold numbers."""
    sums: dict[int | str, list[float]] = {first: [], second: []}
    for part in range(4):
        for id, scale in ((first, 1.0), (second, 10.0)):
            given = {"x": np.array([[(part + 1) * scale, 0.0]], np.float32)}
            named: dict[str, Any] = {"sequence_id": id, "sequence_start": part == 0, "sequence_end": part == 3}
            sums[id].append(float(client.infer("simple_sequence", given, **named).as_numpy("y")[0, 0]))
    same(sums, {first: [1, 3, 6, 10], second: [10, 30, 60, 100]})


@sequences("two side by side, their ids numbers")
def _(client: Asking) -> None:
    side_by_side(client, 1001, 1002)


@sequences("two side by side, their ids text")
def _(client: Asking) -> None:
    side_by_side(client, "left", "right")


@json_tensors("JSON in and out, and one of each")
def _(client: Asking) -> None:
    for in_binary, out_binary in ((False, False), (False, True), (True, False)):
        inputs = [client.input(name, array, binary_data=in_binary) for name, array in sixteen().items()]
        outputs = [client.output("OUTPUT0", binary_data=out_binary), client.output("OUTPUT1", binary_data=True)]
        result = client.call("infer", "simple", inputs, outputs=outputs)
        alike(result.as_numpy("OUTPUT0"), SUMS)
        alike(result.as_numpy("OUTPUT1"), DIFFERENCES)


@json_tensors("an input in JSON beside one in binary")
def _(client: Asking) -> None:
    given = sixteen()
    inputs = [client.input("INPUT0", given["INPUT0"], binary_data=False), client.input("INPUT1", given["INPUT1"])]
    alike(client.call("infer", "simple", inputs).as_numpy("OUTPUT0"), SUMS)


@json_tensors("bytes as JSON text")
def _(client: Asking) -> None:
    given = texts("abc", "", "déjà \N{SNOWMAN}", 'quote " and \\')
    inputs, outputs = [client.input("INPUT0", given, binary_data=False)], [client.output("OUTPUT0", binary_data=False)]
    result = client.call("infer", "simple_identity", inputs, outputs=outputs)
    same([value.encode() for value in result.as_numpy("OUTPUT0")[0]], given[0].tolist())


@json_tensors("every datatype but FP16, and FP16 refused with the way out")
def _(client: Asking) -> None:
    inputs = [client.input(name, array, binary_data=False) for name, array in extremes().items()]
    outputs = {name: client.output(name.replace("x_", "y_"), binary_data=False) for name in extremes()}
    half = outputs.pop("x_FP16")
    result = client.call("infer", "every_datatype", inputs, outputs=list(outputs.values()))
    for name, output in outputs.items():
        alike(result.as_numpy(output.name()), extremes()[name])
    error = refused(InferenceServerException, lambda: client.call("infer", "every_datatype", inputs, outputs=[half]))
    says(error.message(), "FP16", "binary")


@json_tensors("NaN and infinities are null, which the client reads as NaN")
def _(client: Asking) -> None:
    odd = np.array([[np.nan, np.inf, -np.inf]], np.float32)
    result = client.infer("odd_numbers", {"x": odd}, [client.output("y", binary_data=False)])
    same(bool(np.isnan(result.as_numpy("y")).all()), True)


if __name__ == "__main__":
    run(*(suite for each in (infers, json_tensors, errors, health, sequences) for suite in each.suites.values()))
