"""NVIDIA Triton: the server out of the nvidia-pytriton wheel, which carries the Python backend only.

Where the environment variable TRITON_BACKENDS names a folder of backends with onnxruntime's, that one runs the models.
"""

import os
import shutil
import sysconfig
from pathlib import Path

from bench.load.served import free_port
from bench.peers.environments import python_of
from bench.peers.models import MODELS, ROOT, WORKLOADS
from bench.peers.peer import STARTED, Launch, Layout, environment_for, served_name

WORK = STARTED / "triton"
FORMS = {
    "tabular": "v2",
    "tabular_binary": "v2_binary",
    "minilm": "v2",
    "image": "v2_binary",
    "cascade": "v2",
}
SIGNATURES = {
    "tabular": ({"x": "FP32 30"}, {"y": "FP32 1"}),
    "minilm": ({"input_ids": "INT64 -1", "attention_mask": "INT64 -1"}, {"embedding": "FP32 384"}),
    "squeezenet": ({"image": "FP32 3 224 224"}, {"probabilities": "FP32 1000"}),
    "first": ({"x": "FP32 30"}, {"first": "FP32 1"}),
    "second": ({"x": "FP32 30", "first": "FP32 1"}, {"y": "FP32 1"}),
    "cascade": ({"x": "FP32 30"}, {"y": "FP32 1"}),
}
ENSEMBLE = """platform: "ensemble"
ensemble_scheduling { step [
  { model_name: "first" model_version: -1
    input_map { key: "x" value: "x" } output_map { key: "first" value: "first" } },
  { model_name: "second" model_version: -1
    input_map { key: "x" value: "x" } input_map { key: "first" value: "first" } output_map { key: "y" value: "y" } }
] }
"""


def onnxruntime_backend() -> Path | None:
    """The folder of backends that somebody provides, if onnxruntime's is in it."""
    named = os.environ.get("TRITON_BACKENDS", "")
    folder = Path(named)
    return folder if named and (folder / "onnxruntime" / "libtriton_onnxruntime.so").exists() else None


def note() -> str:
    if onnxruntime_backend():
        return "Triton of nvidia-pytriton 0.7.0 with an onnxruntime backend: C++ throughout, dynamic batching, no delay"
    return "Triton of nvidia-pytriton 0.7.0; no onnxruntime backend here: its Python backend runs onnxruntime"


def launch(workload: str, port: int, layout: Layout) -> Launch:
    """Writes the repository, and for the Python backend the folder of backends with the stub of this Python."""
    backends = onnxruntime_backend()
    repository = write_repository(workload, layout, WORK, python=backends is None)
    package = _packages() / "pytriton" / "tritonserver"
    command = (
        str(package / "bin" / "tritonserver"),
        f"--model-repository={repository}",
        f"--backend-directory={backends or _python_backend(package)}",
        "--http-address=127.0.0.1",
        f"--http-port={port}",
        "--allow-grpc=false",
        "--allow-gpu-metrics=false",
        f"--metrics-port={free_port()}",
    )
    libraries = f"{_packages() / 'nvidia_pytriton.libs'}:{sysconfig.get_config_var('LIBDIR')}"
    paths = {"LD_LIBRARY_PATH": libraries, "PYTHONPATH": f"{ROOT}:{_packages()}"}
    return Launch(command, {**environment_for(workload, port, layout), **paths})


def write_repository(workload: str, layout: Layout, folder: Path, *, python: bool) -> Path:
    """The workload's models for either backend; a cascade is an ensemble, in Python one model of both networks."""
    repository = folder / workload
    shutil.rmtree(repository, ignore_errors=True)
    if python:
        made = _model(repository, served_name(workload), 'backend: "python"', layout)
        shutil.copy(Path(__file__).parent / "model.py", made / "1" / "model.py")
        return repository
    networks = WORKLOADS[workload].networks
    for name in networks:
        made = _model(repository, name, 'backend: "onnxruntime"', layout)
        (made / "1" / "model.onnx").symlink_to(MODELS / f"{name}.onnx")
    if len(networks) > 1:
        _model(repository, served_name(workload), ENSEMBLE, layout)
    return repository


def _packages() -> Path:
    return python_of("triton").parents[1] / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"


def _python_backend(package: Path) -> Path:
    """The wheel keeps a stub for each Python apart from the backend; it looks for one of them beside itself."""
    made = WORK / "backends"
    if not made.exists():
        shutil.copytree(package / "backends", made)
        stubs = package / "python_backend_stubs" / sysconfig.get_python_version()
        shutil.copy(stubs / "triton_python_backend_stub", made / "python")
    return made


def _model(repository: Path, name: str, kind: str, layout: Layout) -> Path:
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    inputs, outputs = SIGNATURES[name]
    lines = [f'name: "{name}"', kind, f"max_batch_size: {layout.batch}"]
    lines += [_tensor("input", *each) for each in inputs.items()] + [
        _tensor("output", *each) for each in outputs.items()
    ]
    if kind != ENSEMBLE:
        lines.append("dynamic_batching { }")
        lines.append(f"instance_group [{{ kind: KIND_CPU count: {layout.workers} }}]")
    if "onnxruntime" in kind:
        threads = f'{{ key: "intra_op_thread_count" value: {{ string_value: "{layout.threads}" }} }}'
        lines.append(f"parameters {threads}")
    (folder / "config.pbtxt").write_text("\n".join(lines) + "\n")
    return folder


def _tensor(direction: str, name: str, form: str) -> str:
    datatype, *dimensions = form.split()
    return f'{direction} [{{ name: "{name}" data_type: TYPE_{datatype} dims: [{", ".join(dimensions)}] }}]'
