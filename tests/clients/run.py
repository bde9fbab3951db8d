"""Every client that people have, against one server of ours: ``make clients``. One line per client and suite.

``python -m tests.clients.run [PART_OF_A_SCRIPT_NAME ...]`` runs those suites only. Ends with 1 when any promise of any
suite does not hold.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from tests.clients import models
from tests.clients.checks import Outcome, Served
from tests.serving import forwardpass, serving

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / "build" / "clients"
SCRIPT_LIMIT_S = 180.0
AT_ONCE = 2
"""Scripts at a time."""
VERTEX = {
    "AIP_MODE": "PREDICTION",
    "AIP_HEALTH_ROUTE": "/vertex/health",
    "AIP_PREDICT_ROUTE": "/vertex/predict",
}
SEVERAL = {"fuzzed": ("simple", "embedder", "ranker", "classifier", "table"), "keyed": ("embedder", "ranker")}
"""Servers of more than one pipeline, by their name."""


@dataclass(frozen=True, slots=True)
class Script:
    """A module of ``suites``, the environment it runs in, and the servers it needs beside the one of everything."""

    module: str
    environment: str
    alone: tuple[str, ...] = ()


SCRIPTS = (
    Script("triton_infer", "triton"),
    Script("triton_grpc", "triton"),
    Script("triton_management", "triton"),
    Script("kserve_sdk", "kserve"),
    Script("openai_sdk", "openai"),
    Script("rerank", "openai", ("ranker", "embedder", "classifier")),
    Script("platforms", "mlflow", ("table",)),
    Script("openapi", "openai", ("fuzzed",)),
    Script("identity", "openai", ("keyed",)),
    Script("perf_analyzer", "triton"),
)


def main(wanted: Sequence[str]) -> int:
    scripts = [each for each in SCRIPTS if not wanted or any(part in each.module for part in wanted)]
    started = time.monotonic()
    failed = passed = left_out = promises = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        _served(Path(folder), scripts) as served,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        for outcomes in pool.map(lambda script: _outcomes(script, served), scripts):
            for (client, suite), group in groupby(outcomes, lambda each: (each.client, each.suite)):
                of_suite = list(group)
                promises += len(of_suite)
                state = _print(client, suite, of_suite)
                passed, failed, left_out = passed + (state == 0), failed + (state == 1), left_out + (state == 2)
    seconds = time.monotonic() - started
    rest = f", {left_out} not run" if left_out else ""
    print(f"clients: {passed} suites passed, {failed} failed{rest}; {promises} promises in {seconds:.0f} s")
    return 1 if failed or not passed else 0


def _print(client: str, suite: str, outcomes: Sequence[Outcome]) -> int:
    """0 passed, 1 failed, 2 not run."""
    broken = [each for each in outcomes if each.why and not each.left_out]
    left_out = [each for each in outcomes if each.left_out]
    title = f"{client} {suite} "
    if left_out and not broken:
        print(f"{title}: not run: {left_out[0].why}", flush=True)
        return 2
    state = f"FAILED ({len(broken)} of {len(outcomes)})" if broken else f"passed ({len(outcomes)})"
    print(f"{title:.<56} {state}", flush=True)
    for each in broken:
        print(f"    {each.promise}: {each.why}", flush=True)
    return 1 if broken else 0


def _outcomes(script: Script, served: Served) -> list[Outcome]:
    """What the script found; that it could not be run to its end is an outcome too."""
    python = ENVIRONMENTS / script.environment / "bin" / "python"
    command: list[str] = [str(python), "-m", f"tests.clients.suites.{script.module}", json.dumps(asdict(served))]
    try:
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SCRIPT_LIMIT_S, check=False)
    except subprocess.TimeoutExpired as expired:
        lines = expired.stdout.decode() if isinstance(expired.stdout, bytes) else ""
        why = f"still ran after {SCRIPT_LIMIT_S:.0f} s"
    else:
        lines = ended.stdout
        why = "" if ended.returncode == 0 else f"ended with {ended.returncode}: {ended.stderr[-600:]}"
    outcomes = [Outcome(**json.loads(line)) for line in lines.splitlines()]
    return [*outcomes, Outcome(script.module, "script", "runs to its end", why)] if why or not outcomes else outcomes


@contextmanager
def _served(folder: Path, scripts: Sequence[Script]) -> Iterator[Served]:
    """The server of all pipelines, with everything on that clients may ask for, and those of one pipeline."""
    models.write_repository(folder / "models")
    forwardpass("trust", folder / "models", data=folder / "data")
    settings = {"data.model_control": "true", "grpc.serve": "on"}
    with ExitStack() as servers:
        main = servers.enter_context(serving(folder / "models", data=folder / "data", settings=settings))
        alone = {name: servers.enter_context(_alone(name, folder)) for name in dict.fromkeys(_needed(scripts))}
        yield Served(f"127.0.0.1:{main.port}", f"127.0.0.1:{main.grpc_port}", str(folder), alone)


def _needed(scripts: Sequence[Script]) -> Iterator[str]:
    for script in scripts:
        yield from script.alone


@contextmanager
def _alone(name: str, folder: Path) -> Iterator[str]:
    sources = [folder / "models" / each for each in SEVERAL.get(name, (name,))]
    settings = {"fuzzed": {"data.model_control": "true"}, "keyed": {"auth.required": "true"}}.get(name, {})
    environment = VERTEX if name == "table" else {}
    if name == "keyed":
        of_one = ("keys", "create", "--tenant", "acme", "--scope", "infer:embedder")
        (folder / "key").write_text(forwardpass(*of_one, data=folder / "data-keyed").stdout)
    with serving(*sources, data=folder / f"data-{name}", settings=settings, environment=environment) as server:
        yield f"127.0.0.1:{server.port}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
