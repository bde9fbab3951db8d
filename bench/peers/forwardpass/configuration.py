"""Our own server, as a user runs it: ``forwardpass serve`` over a repository of one pipeline."""

import re
import shutil
import sys
from pathlib import Path

from bench.peers.models import MODELS
from bench.peers.peer import STARTED, Launch, Layout, served_name

PIPELINES = Path(__file__).parent / "pipelines"
WORK = STARTED / "forwardpass"
FORMS = {
    "tabular": "v2",
    "tabular_binary": "v2_binary",
    "minilm": "v2",
    "sentence": "record",
    "image": "v2_binary",
    "jpeg": "jpeg",
    "cascade": "v2",
}
NOTE = "this tree: default settings, onnxruntime 1.32; V2, of text and JPEG /predict"
CLASSES = 1000


def path(workload: str) -> str:
    return (
        f"/predict/{workload}" if FORMS[workload] in ("record", "jpeg") else f"/v2/models/{served_name(workload)}/infer"
    )


def launch(workload: str, port: int, layout: Layout) -> Launch:
    """Writes the repository. How many workers there are is said by the pipeline, and batches need no limit."""
    argv = (sys.executable, "-m", "forwardpass", "serve", str(repository(workload)))
    ports = ("--port", str(port), "--admin-port", "0", "--grpc-port", "0")
    threads = ("--set", f"run.threads={layout.workers * layout.threads}")
    return Launch((*argv, *ports, *threads, "--set", f"run.data={WORK / 'data'}"), {})


def repository(workload: str, folder: Path = WORK, models: Path = MODELS) -> Path:
    """A repository with the workload's pipeline and its files."""
    name = "tabular" if workload == "tabular_binary" else workload
    served = served_name(workload) if FORMS[workload].startswith("v2") else workload
    made = folder / workload
    shutil.rmtree(made, ignore_errors=True)
    version = made / served / "1"
    version.mkdir(parents=True)
    text = (PIPELINES / f"{name}.toml").read_text()
    (version / "pipeline.toml").write_text(text)
    for file in re.findall(r'^(?:file|tokenizer) = "(.*)"$', text, re.MULTILINE):
        if file == "labels.txt":
            (version / file).write_text("".join(f"{number}\n" for number in range(CLASSES)))
        else:
            shutil.copy(models / file, version / file)
    return made
