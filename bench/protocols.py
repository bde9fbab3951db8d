"""What protocols cost beside the libraries under them: ``make bench``, or ``python bench/protocols.py [--rounds N]``.

A tensor as an image classifier takes it is decoded from V2 JSON and from V2's binary form, in this process, in seconds of
the processor. What is compared alternates in one run, so that ratios hold on a noisy machine; absolute times are of this
machine and this hour only.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import orjson
import simdjson
from numpy.typing import NDArray

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
from bench.figures import Figure, say, summarise  # noqa: E402
from bench.grpc_front import grpc_over_http  # noqa: E402

from forwardpass.core.pipeline import Field, Input, Pipeline, Signature, Version  # noqa: E402
from forwardpass.core.request import Answer  # noqa: E402
from forwardpass.core.tensor import Tensor  # noqa: E402
from forwardpass.core.timeline import Timeline  # noqa: E402
from forwardpass.ingress.dialects.v2 import decode_infer  # noqa: E402
from forwardpass.ingress.dialects.v2_answer import encode_infer  # noqa: E402
from forwardpass.ingress.message import HttpRequest  # noqa: E402

SHAPE = (1, 3, 224, 224)
SIGNATURE = Signature(
    (Input("x", "tensor", datatype="FP32", shape=SHAPE[1:]),),
    (Field("y", "FP32", SHAPE[1:]),),
)
VERSION = Version("image", 1, "digest", "/image", Pipeline(()))
HEAD_LENGTH = b"inference-header-content-length"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="rounds of each measurement; medians are reported")
    rounds = parser.parse_args().rounds
    image = np.random.default_rng(0).standard_normal(SHAPE, np.float32)
    figures = [*decoding(image, rounds), form(image, rounds), *grpc_over_http(max(3, rounds // 10))]
    summarise(figures)


def decoding(image: NDArray[np.float32], rounds: int) -> list[Figure]:
    """The packed tensor of a request from JSON, strictly, to what simdjson needs for the text's doubles alone."""
    figures = []
    for name, data in (("flat", image.ravel()), ("nested", image)):
        body = json_body(data)
        ours, theirs, cast = partial(decoded, body), partial(doubles, body), partial(singles, body)
        assert ours() == image.tobytes() == cast()
        mine, alone, packed = alternating((ours, theirs, cast), rounds)
        ratios = [other / one for one, other in zip(mine, alone, strict=True)]
        with_cast = median(other / one for one, other in zip(mine, packed, strict=True))
        spread = f"quartiles {quartiles(ratios)}; {with_cast:.2f} with a cast to FP32 of its own; "
        spread += f"{1000 * median(mine):.2f} ms against {1000 * median(alone):.2f} ms; {len(body)} bytes"
        title = f"V2 JSON of a 1x3x224x224 FP32 tensor, {name}: speed of decoding / pysimdjson"
        figures.append(say(Figure(title, median(ratios), "", 0.7, False, spread)))
    return figures


def form(image: NDArray[np.float32], rounds: int) -> Figure:
    """A request read and its answer written, the tensor being in binary form both ways, to the same in JSON."""
    raw = image.tobytes()
    tensor = {"name": "x", "shape": SHAPE, "datatype": "FP32", "parameters": {"binary_data_size": len(raw)}}
    asked = [{"name": "y", "parameters": {"binary_data": True}}]
    head = orjson.dumps({"inputs": [tensor], "outputs": asked})
    binary = partial(there_and_back, head + raw, {HEAD_LENGTH: b"%d" % len(head)})
    text = partial(there_and_back, json_body(image.ravel()), {})
    in_binary, in_text = alternating((binary, text), rounds)
    ratios = [one / other for one, other in zip(in_binary, in_text, strict=True)]
    spread = f"quartiles {quartiles(ratios)}; {1e6 * median(in_binary):.0f} us against {1e6 * median(in_text):.0f} us"
    return say(Figure("V2 request and answer, binary / JSON: time", median(ratios), "", 0.1, True, spread))


def json_body(data: NDArray[np.float32]) -> bytes:
    tensor = {"name": "x", "shape": SHAPE, "datatype": "FP32", "data": data}
    return orjson.dumps({"inputs": [tensor]}, option=orjson.OPT_SERIALIZE_NUMPY)


def decoded(body: bytes) -> bytes | bytearray | memoryview:
    request = decode_infer(HttpRequest(b"POST", "/", "", {}, body, 0.0), SIGNATURE, "id", Timeline())
    return request.columns[0].data


def doubles(body: bytes) -> memoryview:
    parsed = simdjson.Parser().parse(body)
    return memoryview(parsed["inputs"][0]["data"].as_buffer(of_type="d"))  # type: ignore[index, union-attr]  # an object with them


def singles(body: bytes) -> bytes:
    return np.frombuffer(doubles(body)).astype(np.float32).tobytes()


def there_and_back(body: bytes, headers: dict[bytes, bytes]) -> None:
    request = decode_infer(HttpRequest(b"POST", "/", "", headers, body, 0.0), SIGNATURE, "id", Timeline())
    outputs = {"y": Tensor("FP32", SHAPE, request.columns[0].data)}
    encode_infer(Answer(VERSION, SIGNATURE, outputs, 1, {}, ()), request)


def alternating(runs: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """The processor seconds of each run in each round; every round goes through all of them."""
    took: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds + 1):
        for seconds, run in zip(took, runs, strict=True):
            started = time.process_time()
            run()
            seconds.append(time.process_time() - started)
    return [seconds[1:] for seconds in took]  # the first round is the warm-up


def quartiles(values: Sequence[float]) -> str:
    low, high = np.quantile(values, (0.25, 0.75))
    return f"{low:.2g} to {high:.2g}"


if __name__ == "__main__":
    main()
