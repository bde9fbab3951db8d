"""NVIDIA Triton: the server out of the nvidia-pytriton wheel, which carries the Python backend only.

Where the environment variable TRITON_BACKENDS names a folder of backends with onnxruntime's, that one runs the models.
"""

import os
import shutil
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.load.served import free_port
from bench.peers.environments import python_of
from bench.peers.models import MODELS, ROOT, WORKLOADS
from bench.peers.peer import STARTED, Launch, Layout, environment_for, served_name

WORK = STARTED / "triton"
Tensors = Mapping[str, str]
"""Name = datatype and the shape of one row."""
FORMS = {
    "tabular": "v2",
    "tabular_binary": "v2_binary",
    "minilm": "v2",
    "sentence": "v2",
    "image": "v2_binary",
    "jpeg": "v2_file",
    "cascade": "v2",
}
SIGNATURES: Mapping[str, tuple[Tensors, Tensors]] = {
    "tabular": ({"x": "FP32 30"}, {"y": "FP32 1"}),
    "minilm": ({"input_ids": "INT64 -1", "attention_mask": "INT64 -1"}, {"embedding": "FP32 384"}),
    "squeezenet": ({"image": "FP32 3 224 224"}, {"probabilities": "FP32 1000"}),
    "first": ({"x": "FP32 30"}, {"first": "FP32 1"}),
    "second": ({"x": "FP32 30", "first": "FP32 1"}, {"y": "FP32 1"}),
    "texts": ({"text": "STRING 1"}, {"input_ids": "INT64 -1", "attention_mask": "INT64 -1"}),
    "pictures": ({"picture": "STRING 1"}, {"image": "FP32 3 224 224"}),
}
CHAINS = {"cascade": ("first", "second"), "sentence": ("texts", "minilm"), "jpeg": ("pictures", "squeezenet")}
"""Ensembles: what one model makes, the next one takes."""
IN_PYTHON = ("texts", "pictures")
"""Models that are code: triton/model.py, run by the Python backend."""


def onnxruntime_backend() -> Path | None:
    """The folder of backends that somebody provides, if onnxruntime's is in it."""
    named = os.environ.get("TRITON_BACKENDS", "")
    folder = Path(named)
    return folder if named and (folder / "onnxruntime" / "libtriton_onnxruntime.so").exists() else None


def note() -> str:
    if onnxruntime_backend():
        return "Triton of nvidia-pytriton 0.7.0 with an onnxruntime backend: C++ throughout, dynamic batching, no delay"
    return "Triton of nvidia-pytriton 0.7.0; no onnxruntime backend here: its Python backend runs onnxruntime"


def path(workload: str) -> str:
    return f"/v2/models/{workload if workload in CHAINS else served_name(workload)}/infer"


def launch(workload: str, port: int, layout: Layout) -> Launch:
    """Writes the repository and a folder of the backends there are."""
    package = _packages() / "pytriton" / "tritonserver"
    backends = onnxruntime_backend()
    command = (
        str(package / "bin" / "tritonserver"),
        f"--model-repository={write_repository(workload, layout, WORK, python=backends is None)}",
        f"--backend-directory={_backends(package, backends)}",
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
    """The workload's models, an ensemble where there are several; networks run in ``python`` or in onnxruntime's backend."""
    repository = folder / workload
    shutil.rmtree(repository, ignore_errors=True)
    chain = CHAINS.get(workload, WORKLOADS[workload].networks)
    for name in chain:
        in_python = python or name in IN_PYTHON
        made = _model(repository, name, "python" if in_python else "onnxruntime", layout)
        if in_python:
            shutil.copy(Path(__file__).parent / "model.py", made / "1" / "model.py")
        else:
            (made / "1" / "model.onnx").symlink_to(MODELS / f"{name}.onnx")
    if len(chain) > 1:
        _ensemble(repository, workload, chain, layout)
    return repository


def _packages() -> Path:
    return python_of("triton").parents[1] / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"


def _backends(package: Path, onnxruntime: Path | None) -> Path:
    """The wheel keeps a stub for each Python apart from the backend, which looks for one of them beside itself."""
    made = WORK / "backends"
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(package / "backends", made)
    stubs = package / "python_backend_stubs" / sysconfig.get_python_version()
    shutil.copy(stubs / "triton_python_backend_stub", made / "python")
    if onnxruntime:
        (made / "onnxruntime").symlink_to(onnxruntime / "onnxruntime")
    return made


def _model(repository: Path, name: str, backend: str, layout: Layout) -> Path:
    instances = f"instance_group [{{ kind: KIND_CPU count: {layout.workers} }}]"
    lines = [f'backend: "{backend}"', "dynamic_batching { }", instances]
    if backend == "onnxruntime":
        threads = f'{{ key: "intra_op_thread_count" value: {{ string_value: "{layout.threads}" }} }}'
        lines.append(f"parameters {threads}")
    return _configured(repository, name, *SIGNATURES[name], lines, layout)


def _ensemble(repository: Path, name: str, chain: Sequence[str], layout: Layout) -> None:
    """Every tensor keeps its name from model to model."""
    steps = []
    for each in chain:
        inputs, outputs = SIGNATURES[each]
        maps = [f'{kind}_map {{ key: "{tensor}" value: "{tensor}" }}'
                for kind, tensors in (("input", inputs), ("output", outputs)) for tensor in tensors]  # fmt: skip
        steps.append(f'{{ model_name: "{each}" model_version: -1 {" ".join(maps)} }}')
    lines = ['platform: "ensemble"', f"ensemble_scheduling {{ step [ {', '.join(steps)} ] }}"]
    _configured(repository, name, SIGNATURES[chain[0]][0], SIGNATURES[chain[-1]][1], lines, layout)


def _configured(
    repository: Path, name: str, inputs: Tensors, outputs: Tensors, lines: Sequence[str], layout: Layout
) -> Path:
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    head = [f'name: "{name}"', f"max_batch_size: {layout.batch}"]
    tensors = [_tensor("input", *each) for each in inputs.items()] + [
        _tensor("output", *each) for each in outputs.items()
    ]
    (folder / "config.pbtxt").write_text("\n".join([*head, *tensors, *lines]) + "\n")
    return folder


def _tensor(direction: str, name: str, form: str) -> str:
    datatype, *dimensions = form.split()
    return f'{direction} [{{ name: "{name}" data_type: TYPE_{datatype} dims: [{", ".join(dimensions)}] }}]'
