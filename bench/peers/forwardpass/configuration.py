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
ENGINE = 'engine = "onnxruntime"'
AUTO_ABSOLUTE = 0.02
AUTO_ENGINE = f'engine = "auto"\ntolerance = {{ absolute = {AUTO_ABSOLUTE}, cosine = 0.999 }}'
AUTO_NOTE = (
    f'the same with engine = "auto": engine and precision chosen at the first load, answers within {AUTO_ABSOLUTE}'
)


def path(workload: str) -> str:
    return (
        f"/predict/{workload}" if FORMS[workload] in ("record", "jpeg") else f"/v2/models/{served_name(workload)}/infer"
    )


def launch(workload: str, port: int, layout: Layout, engine: str = ENGINE, work: Path = WORK) -> Launch:
    """Writes the repository. How many workers there are is said by the pipeline, and batches need no limit."""
    made = repository(workload, work)
    for file in made.glob("*/*/pipeline.toml"):
        file.write_text(file.read_text().replace(ENGINE, engine))
    argv = (sys.executable, "-m", "forwardpass", "serve", str(made))
    ports = ("--port", str(port), "--admin-port", "0", "--grpc-port", "0")
    threads = ("--set", f"run.threads={layout.workers * layout.threads}")
    return Launch((*argv, *ports, *threads, "--set", f"run.data={work / 'data'}"), {})


def launch_auto(workload: str, port: int, layout: Layout) -> Launch:
    """The same, but that the engine and its precision are chosen by the server, within a tolerance."""
    return launch(workload, port, layout, AUTO_ENGINE, STARTED / "forwardpass-auto")


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
