"""NVIDIA's load generator against us: it asks for metadata, configuration and statistics, then measures."""

import json
import subprocess
from pathlib import Path

from tests.clients.checks import LeftOut, Served, Suite, run, same, says
from tests.clients.perf_analyzer import FOLDER, LOADER, PROGRAM, REASON

suite = Suite("perf_analyzer", "load")
LIMIT_S = 60


def measured(served: Served, *options: str) -> None:
    """It ends with 0 only when every request was answered and the statistics moved as they must."""
    if REASON.exists():
        raise LeftOut(REASON.read_text().strip())
    command = [str(LOADER), "--library-path", str(LOADER.parent), str(PROGRAM), *options]
    fixed = ["--request-count", "300", "--concurrency-range", "4"]
    ended = subprocess.run(
        [*command, *fixed], cwd=served.folder, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    printed = ended.stdout + ended.stderr
    if ended.returncode:
        raise AssertionError(f"ended with {ended.returncode}: {printed[-400:]}")
    says(printed, "Throughput", "infer/sec")


@suite("HTTP")
def _(served: Served) -> None:
    measured(served, "-m", "simple", "-u", served.http, "-i", "http", "-b", "2")


@suite("gRPC")
def _(served: Served) -> None:
    measured(served, "-m", "simple", "-u", served.grpc, "-i", "grpc", "-b", "2")


@suite("gRPC, streaming")
def _(served: Served) -> None:
    measured(served, "-m", "simple", "-u", served.grpc, "-i", "grpc", "--streaming")


@suite("OpenAI embeddings")
def _(served: Served) -> None:
    payload = Path(served.folder) / "embeddings.json"
    payload.write_text(json.dumps({"data": [{"payload": [{"model": "embedder", "input": "the small river"}]}]}))
    options = [
        "--service-kind",
        "openai",
        "--endpoint",
        "v1/embeddings",
        "--async",
        "-i",
        "http",
        "--input-data",
        str(payload),
    ]
    measured(served, "-m", "embedder", "-u", served.http, *options)


if __name__ == "__main__":
    same(FOLDER.exists(), True)
    run(suite)
