"""Schemathesis over our own OpenAPI document: no 5xx, no answer that the document does not know."""

import re
import subprocess
import sys
from pathlib import Path

import httpx
from tests.clients.checks import Served, Suite, run, same

suite = Suite("schemathesis", "OpenAPI")
CONFIGURATION = Path(__file__).parents[1] / "schemathesis.toml"
LIMIT_S = 150


@suite("the document is one of OpenAPI 3.1, with every pipeline in it")
def _(served: Served) -> None:
    document = httpx.get(f"http://{served.alone['fuzzed']}/openapi.json", timeout=30).json()
    same(document["openapi"].startswith("3."), True)
    same("/v2/models/simple/infer" in document["paths"], True)


@suite("every operation keeps to the document, whatever it is sent")
def _(served: Served) -> None:
    url = f"http://{served.alone['fuzzed']}"
    program = str(Path(sys.executable).parent / "schemathesis")
    command = [program, "--config-file", str(CONFIGURATION), "--no-color", "run", f"{url}/openapi.json", "--url", url]
    ended = subprocess.run(command, cwd=served.folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    found = re.findall(r"^_+ (.+?) _+$|^- (.+)$", ended.stdout, re.MULTILINE)
    failures = [operation or failure for operation, failure in found]
    same((ended.returncode, failures), (0, []))


if __name__ == "__main__":
    run(suite)
