"""What keeping answers costs where nothing repeats, and what it gives where everything does: ``python bench/cache.py``.

Needs wrk and the built examples (``make services examples``). One server with [cache] and one without stand side by
side and are asked in turns, so that ratios hold on a noisy machine.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
from bench.figures import MODELS, Figure, say, summarise  # noqa: E402
from bench.tabular import write_tabular  # noqa: E402
from tests.serving import Reply, Server, serving  # noqa: E402  (the tests' harness starts and stops the server)

CONNECTIONS = 16
REPEATED = 64
"""Bodies that are sent again and again where all are to be known."""
WORDS = "the quick brown fox jumps over one lazy dog and then it runs away the quick brown fox jumps over"
TABULAR = '[[steps]]\nuse = "model"\nengine = "onnxruntime"\nfile = "model.onnx"\n'
SECTION = "\n[cache]\nbytes_max = 16777216\napproximate = true\n"
SCRIPT = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local number = {start}
request = function()
  number = number + 1
  local own = number % {different}
  return wrk.format(nil, nil, nil, {body})
end
"""
TEXT = f"""string.format('{{"text":"%d {WORDS}"}}', own)"""
ROW = """string.format('{"inputs":[{"name":"x","datatype":"FP32","shape":[1,30],"data":[%d,%d,"""
ROW += ",".join(["0.1"] * 28) + "]}]}', math.floor(own / 2^20), own % 2^20)"
_starts = count(1)


@dataclass(frozen=True, slots=True)
class Load:
    """A pipeline, where it is asked, and a body as an expression of Lua over the number ``own``."""

    pipeline: str
    path: str
    body: str
    unique_bar: float
    known_bar: float


EMBEDDING = Load("sentences", "/predict/sentences", TEXT, 0.97, 5.0)
SMALL = Load("tabular", "/v2/models/tabular/infer", ROW, 0.0, 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="pairs of rounds; medians are reported")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one load round")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is missing: make services")
    if not (MODELS / "sentences").is_dir():
        sys.exit("the examples are not built: make examples")
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        work = Path(scratch)
        servers = []
        for name, section in (("plain", ""), ("cached", SECTION)):
            write(work / name, section)
            servers.append(stack.enter_context(serving(work / name, data=work / f"data-{name}")))
        plain, cached = servers
        for load in (EMBEDDING, SMALL):
            if (said := cached.version(load.pipeline)["cache"]) != "on":
                sys.exit(f"{load.pipeline} keeps no answers: {said}")
        for load in (EMBEDDING, SMALL):
            figures += compared(load, plain, cached, arguments.rounds, arguments.seconds)
        figures.append(partly_known(cached))
    summarise([figure for figure in figures if figure.bar])


def write(root: Path, section: str) -> None:
    """Both pipelines, with that section."""
    shutil.copytree(MODELS / "sentences", root / "sentences")
    definition = root / "sentences" / "1" / "pipeline.toml"
    definition.write_text(definition.read_text() + section)
    small = root / "tabular" / "1"
    small.mkdir(parents=True)
    write_tabular(small / "model.onnx")
    (small / "pipeline.toml").write_text(TABULAR + section)


def compared(load: Load, plain: Server, cached: Server, rounds: int, seconds: float) -> list[Figure]:
    """Unique and repeated requests to the server with a cache, each beside unique ones to the server without."""
    unique: list[float] = []
    known: list[float] = []
    rates: list[float] = []
    for server in (plain, cached):
        rate(server, load, 2**31, 1.0)
    rate(cached, load, REPEATED, 1.0)
    for turn in range(rounds):
        order = (plain, cached) if turn % 2 == 0 else (cached, plain)
        found = {server.port: rate(server, load, 2**31, seconds) for server in order}
        unique.append(found[cached.port] / found[plain.port])
        known.append(rate(cached, load, REPEATED, seconds) / found[plain.port])
        rates.append(found[plain.port])
    without = f"{median(rates):.0f} requests/s without a cache, {CONNECTIONS} connections"
    figures = [
        Figure(f"{load.pipeline}: unique requests, with / without a cache", median(unique), "", load.unique_bar, False,
               f"{min(unique):.3f} to {max(unique):.3f}; {without}"),
        Figure(f"{load.pipeline}: known requests, with / without a cache", median(known), "", load.known_bar, False,
               f"{min(known):.2f} to {max(known):.2f}; {without}"),
    ]  # fmt: skip
    for figure in figures:
        if figure.bar:
            say(figure)
        else:
            print(f"for comparison: {figure.name}: {figure.value:.3g}  [{figure.spread}]", flush=True)
    return figures


def partly_known(server: Server) -> Figure:
    """How many rows the batches of a request of 32 have of which 30 are known."""
    ask(server, range(30))
    receipt = ask(server, range(32)).json["receipt"]
    ran = sum(batch["rows"] for batch in receipt["batches"])
    return say(Figure("rows run of 32 of which 30 are known", ran, "rows", 2, True, json.dumps(receipt["cache"])))


def ask(server: Server, numbers: range) -> Reply:
    records = [{"text": f"number {number} of those that are known"} for number in numbers]
    body = json.dumps({"instances": records}).encode()
    given = {"Content-Type": "application/json"}
    return server.call("POST", "/predict/sentences?receipt=full", body, given)


def rate(server: Server, load: Load, different: int, seconds: float) -> float:
    """Requests a second; any status but 200 ends the benchmark."""
    script = server.log.with_name(f"{load.pipeline}.lua")
    script.write_text(SCRIPT.format(start=next(_starts) * 2**24, different=different, body=load.body))
    url = f"http://127.0.0.1:{server.port}{load.path}"
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s", "-s", str(script), url]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds + 30).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        sys.exit(f"the server refused requests:\n{text}")
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith("Requests/sec"))


if __name__ == "__main__":
    main()
