"""tritonclient: inference, over HTTP and gRPC, each synchronous and asynchronous."""

from typing import Any

import numpy as np
from tests.clients.checks import Served, Suite, refused, run, same, says
from tests.clients.suites.triton_clients import WAYS, Array, Way, asking, sixteen
from tritonclient.utils import InferenceServerException

FLOATS = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
INTEGERS = {
    "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
}  # fmt: skip


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


def infers(way: Way) -> Suite:  # noqa: C901
    suite = Suite(way.name, "infer")

    @suite("the sum and the difference of two rows, binary both ways")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            result = client.infer("simple", sixteen())
            given = sixteen()
            alike(result.as_numpy("OUTPUT0"), given["INPUT0"] + given["INPUT1"])
            alike(result.as_numpy("OUTPUT1"), given["INPUT0"] - given["INPUT1"])

    @suite("every datatype comes back bit for bit")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            result = client.infer("every_datatype", extremes())
            for name, array in extremes().items():
                alike(result.as_numpy(name.replace("x_", "y_")), array)

    @suite("bytes: decimal text is added, any UTF-8 comes back, the empty text too")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            numbers = {name: texts(*map(str, array[0])) for name, array in sixteen().items()}
            summed = client.infer("simple_string", numbers).as_numpy("OUTPUT0")
            same([int(value) for value in summed[0]], [number + 1 for number in range(16)])
            given = texts("abc", "", "déjà", "\N{SNOWMAN}" * 1000)
            alike(client.infer("simple_identity", {"INPUT0": given}).as_numpy("OUTPUT0"), given)

    @suite("8-bit integers")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            given = {name: array.astype(np.int8) for name, array in sixteen().items()}
            alike(client.infer("simple_int8", given).as_numpy("OUTPUT1"), given["INPUT0"] - given["INPUT1"])

    @suite("a tensor of 4.8 MB, larger than gRPC's own limit")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            given = np.random.default_rng(0).normal(size=(8, 3, 224, 224)).astype(np.float32)
            alike(client.infer("wide", {"x": given}).as_numpy("y"), given)

    @suite("only the outputs that were asked for")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            result = client.infer("simple", sixteen(), [client.output("OUTPUT1")])
            same(result.as_numpy("OUTPUT0"), None)
            same(result.as_numpy("OUTPUT1").shape, (1, 16))

    @suite("the request's id, a version, a priority, a time limit and parameters of one's own")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            result = client.infer(
                "simple", sixteen(), model_version="1", request_id="mine-42", priority=1, timeout=5_000_000,
                parameters={"shop": "north", "urgent": True, "tries": 3},
            )  # fmt: skip
            answer = result.get_response()
            same(answer["id"] if isinstance(answer, dict) else answer.id, "mine-42")

    @suite("64 requests at the same time, each its own answer")
    def _(served: Served) -> None:
        named = {} if way.grpc else {"conn_limit": 16} if way.waits else {"concurrency": 16}
        with asking(way, served, **named) as client:
            calls = [("simple", {"INPUT0": sixteen()["INPUT0"] + n, "INPUT1": sixteen()["INPUT1"]}) for n in range(64)]
            for number, result in enumerate(client.together(calls)):
                alike(result.as_numpy("OUTPUT0"), calls[number][1]["INPUT0"] + 1)

    @suite("request and answer compressed")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            for algorithm in ("gzip", "deflate"):
                named = _compressed(way, algorithm)
                alike(client.infer("simple", sixteen(), **named).as_numpy("OUTPUT1"), np.arange(-1, 15, dtype=np.int32).reshape(1, 16))

    return suite


def _compressed(way: Way, algorithm: str) -> dict[str, str]:
    if way.grpc:
        return {"compression_algorithm": algorithm}
    return {"request_compression_algorithm": algorithm, "response_compression_algorithm": algorithm}


def errors(way: Way) -> Suite:
    suite = Suite(way.name, "errors")
    statuses = ("StatusCode.NOT_FOUND", "StatusCode.INVALID_ARGUMENT") if way.grpc else ("404", "400")

    def is_refused(served: Served, status: str, words: tuple[str, ...], model: str, inputs: Any, **named: Any) -> None:
        with asking(way, served) as client:
            if named.get("outputs"):
                named["outputs"] = [client.output(name) for name in named["outputs"]]
            error = refused(InferenceServerException, lambda: client.infer(model, inputs, **named))
            same(error.status(), status)
            says(error.message(), *words)
            client.infer("simple", sixteen())  # the connection serves on

    @suite("a model that is not there")
    def _(served: Served) -> None:
        is_refused(served, statuses[0], ("simpel",), "simpel", sixteen())

    @suite("a version that is not there")
    def _(served: Served) -> None:
        is_refused(served, statuses[0], ("7",), "simple", sixteen(), model_version="7")

    @suite("an input of a wrong name, with the right one")
    def _(served: Served) -> None:
        given = {"INPUT0": sixteen()["INPUT0"], "INPUT9": sixteen()["INPUT1"]}
        is_refused(served, statuses[1], ("INPUT9", "INPUT1"), "simple", given)

    @suite("a missing input")
    def _(served: Served) -> None:
        is_refused(served, statuses[1], ("INPUT1",), "simple", {"INPUT0": sixteen()["INPUT0"]})

    @suite("a wrong datatype, with the right one")
    def _(served: Served) -> None:
        given = {name: array.astype(np.float32) for name, array in sixteen().items()}
        is_refused(served, statuses[1], ("INT32", "FP32"), "simple", given)

    @suite("a wrong shape")
    def _(served: Served) -> None:
        is_refused(served, statuses[1], ("15",), "simple", {name: array[:, :15] for name, array in sixteen().items()})

    @suite("an output that is not there")
    def _(served: Served) -> None:
        is_refused(served, statuses[1], ("OUTPUT7",), "simple", sixteen(), outputs=["OUTPUT7"])

    @suite("an answer that takes longer than the request allows")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            given = {"x": np.array([[3000.0, 0.0]])}
            error = refused(InferenceServerException, lambda: client.infer("slow", given, timeout=100_000))
            says(error.message(), "deadline")

    return suite


def health(way: Way) -> Suite:
    suite = Suite(way.name, "health and metadata")

    @suite("live and ready, model by model")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            same([client.call(f"is_server_{state}") for state in ("live", "ready")], [True, True])
            same(client.call("is_model_ready", "simple"), True)
            same(client.call("is_model_ready", "simple", "1"), True)

    @suite("a model that is not there is not ready")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            try:
                same(client.call("is_model_ready", "simpel"), False)
            except InferenceServerException as error:  # gRPC's way of saying so
                same(error.status(), "StatusCode.NOT_FOUND")

    @suite("the server says what it can do")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            about = client.call("get_server_metadata", **_as_json(way))
            same(about["name"], "forwardpass")
            same("binary_tensor_data" in about["extensions"], True)

    @suite("the inputs and outputs of a model")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            about = client.call("get_model_metadata", "simple", **_as_json(way))
            shapes = {each["name"]: (each["datatype"], [int(size) for size in each["shape"]]) for each in about["inputs"]}
            same(shapes, {"INPUT0": ("INT32", [-1, 16]), "INPUT1": ("INT32", [-1, 16])})
            same(list(about["versions"]), ["1"])
            error = refused(InferenceServerException, lambda: client.call("get_model_metadata", "simpel"))
            says(error.message(), "simpel")

    return suite


def _as_json(way: Way) -> dict[str, bool]:
    return {"as_json": True} if way.grpc else {}


def sequences(way: Way) -> Suite:
    suite = Suite(way.name, "sequences")

    def total(client: Any, id: "int | str", value: float, **named: Any) -> float:
        given = {"x": np.array([[value, 0.0]], np.float32)}
        return float(client.infer("simple_sequence", given, sequence_id=id, **named).as_numpy("y")[0, 0])

    for kind, first, second in (("numbers", 1001, 1002), ("text", "left", "right")):

        @suite(f"two sequences side by side, their ids {kind}")
        def _(served: Served, first: Any = f"{first}" if kind == "text" else first, second: Any = second) -> None:
            with asking(way, served) as client:
                sums: dict[Any, list[float]] = {first: [], second: []}
                for part in range(4):
                    for id, scale in ((first, 1.0), (second, 10.0)):
                        flags = {"sequence_start": part == 0, "sequence_end": part == 3}
                        sums[id].append(total(client, id, (part + 1) * scale, **flags))
                same(sums, {first: [1, 3, 6, 10], second: [10, 30, 60, 100]})

    return suite


def json_forms(way: Way) -> Suite:
    suite = Suite(way.name, "JSON tensors")

    @suite("JSON in and out, and one of each")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            for in_binary, out_binary in ((False, False), (False, True), (True, False)):
                inputs = [client.input(name, array, binary_data=in_binary) for name, array in sixteen().items()]
                outputs = [client.output("OUTPUT0", binary_data=out_binary), client.output("OUTPUT1", binary_data=True)]
                result = client.call("infer", "simple", inputs, outputs=outputs)
                alike(result.as_numpy("OUTPUT0"), np.arange(1, 17, dtype=np.int32).reshape(1, 16))
                alike(result.as_numpy("OUTPUT1"), np.arange(-1, 15, dtype=np.int32).reshape(1, 16))

    @suite("an input in JSON beside one in binary")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            given = sixteen()
            inputs = [client.input("INPUT0", given["INPUT0"], binary_data=False), client.input("INPUT1", given["INPUT1"])]
            alike(client.call("infer", "simple", inputs).as_numpy("OUTPUT0"), given["INPUT0"] + 1)

    @suite("bytes as JSON text")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            given = texts("abc", "", "déjà \N{SNOWMAN}", 'quote " and \\')
            result = client.call(
                "infer",
                "simple_identity",
                [client.input("INPUT0", given, binary_data=False)],
                outputs=[client.output("OUTPUT0", binary_data=False)],
            )
            same([value.encode() for value in result.as_numpy("OUTPUT0")[0]], given[0].tolist())

    @suite("every datatype but FP16 as JSON, and FP16 refused with the way out")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            inputs = [client.input(name, array, binary_data=False) for name, array in extremes().items()]
            names = [name.replace("x_", "y_") for name in extremes() if name != "x_FP16"]
            result = client.call("infer", "every_datatype", inputs, outputs=[client.output(n, binary_data=False) for n in names])
            for name in names:
                alike(result.as_numpy(name), extremes()[name.replace("y_", "x_")])
            half = [client.output("y_FP16", binary_data=False)]
            error = refused(InferenceServerException, lambda: client.call("infer", "every_datatype", inputs, outputs=half))
            says(error.message(), "FP16", "binary")

    @suite("infinities and NaN by binary; null of JSON is read as NaN")
    def _(served: Served) -> None:
        with asking(way, served) as client:
            odd = np.array([[np.nan, np.inf, -np.inf]], np.float32)
            alike(client.infer("odd_numbers", {"x": odd}).as_numpy("y"), odd)
            result = client.infer("odd_numbers", {"x": odd}, [client.output("y", binary_data=False)])
            same(bool(np.isnan(result.as_numpy("y")).all()), True)

    return suite


if __name__ == "__main__":
    run(
        *(make(way) for way in WAYS for make in (infers, errors, health, sequences)),
        *(json_forms(way) for way in WAYS if not way.grpc),
    )
