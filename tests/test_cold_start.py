"""What makes a start slow is not imported by those who do not need it: told by modules, as times are of a machine."""

import json
import subprocess
import sys

import pytest

LIBRARIES = (
    "PIL",
    "av",
    "cv2",
    "openvino",
    "opentelemetry",
    "redis",
    "scipy",
    "sklearn",
    "tokenizers",
    "torch",
    "httpx",
)
FRONT = "forwardpass.cli, forwardpass.app, forwardpass.execution.template"
WORKER = "forwardpass.execution.forking, forwardpass.execution.worker, forwardpass.engines.onnxruntime"
OF_FEW = (
    "forwardpass.admit.redis_store",
    "forwardpass.execution.local",
    "forwardpass.ingress.grpc.server",
    "forwardpass.ingress.openapi.document",
    "forwardpass.steps.guard.pii",
    "forwardpass.steps.image.decode",
    "forwardpass.steps.text.tokens",
    "urllib.request",
)
"""Ours and Python's: settings, kinds of step and engines bring them in when they are used."""


@pytest.mark.parametrize(
    ("imported", "unwanted"),
    [
        (FRONT, (*LIBRARIES, *OF_FEW, "google.protobuf", "jwt", "onnxruntime")),
        (WORKER, (*LIBRARIES, "asyncio", "click", "google.protobuf", "onnxruntime", "uvloop", *OF_FEW[4:])),
        (f"{WORKER}, onnxruntime", (*LIBRARIES, "asyncio")),
    ],
    ids=["a server", "a template of workers", "a worker with the runtime"],
)
def test_only_what_everybody_needs_is_imported_at_the_start(imported: str, unwanted: tuple[str, ...]) -> None:
    script = f"import json, sys, {imported}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) & set(unwanted) == set()
