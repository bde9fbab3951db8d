"""The example pipelines, built once and run as a worker would run them."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.serving import Server, serving

from forwardpass.core.pipeline import ENCODED, Field, Version
from forwardpass.core.tensor import NUMPY_NAMES, Tensor, unpack_bytes, unpack_texts
from forwardpass.execution.kinds import kinds
from forwardpass.execution.plan import Plan, build
from forwardpass.pipeline import definition, fields, golden_files
from forwardpass.steps.protocol import Batch, Column, object_column, text_column

ROOT = Path(__file__).parents[2]
UNAVAILABLE_EXIT = 3


@pytest.fixture(scope="session")
def folder_of() -> Callable[[str], Path]:
    """Builds an example by name, unless it is up to date, and answers where it is."""

    @cache
    def brought_up_to_date(name: str) -> Path:
        command = [sys.executable, str(ROOT / "examples" / "build.py"), name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == UNAVAILABLE_EXIT:
            pytest.skip(f"the package of this example cannot be downloaded here: {done.stderr}")
        assert done.returncode == 0, done.stderr
        return ROOT / "examples" / ".work" / "models" / name / "1"

    return brought_up_to_date


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The private store of every server and command here."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="session")
def served(folder_of: Callable[[str], Path], data: Path) -> Iterator[Callable[[str], Server]]:
    """A server of an example by name, started once."""
    with ExitStack() as servers:
        yield cache(lambda name: servers.enter_context(serving(folder_of(name).parent, data=data / name)))


@pytest.fixture(scope="session")
def plan_of(folder_of: Callable[[str], Path]) -> Iterator[Callable[[str], Plan]]:
    """An example's plan by name, loaded once."""
    plans: dict[str, Plan] = {}

    def loaded(name: str) -> Plan:
        if name not in plans:
            folder = folder_of(name)
            text = (folder / definition.FILE_NAME).read_text()
            pipeline = definition.parse(text, file=definition.FILE_NAME, folder=folder, kinds=kinds())
            pipeline = golden_files.resolved(pipeline, folder)
            plans[name] = build(Version(name, 1, "0" * 64, str(folder), pipeline, trusted=True), threads=2)
        return plans[name]

    yield loaded
    for plan in plans.values():
        plan.close()


@pytest.fixture(scope="session")
def ask(plan_of: Callable[[str], Plan]) -> Callable[[str, Sequence[Mapping[str, object]]], Batch]:
    """Runs records through an example's whole pipeline as one batch."""

    def run(name: str, records: Sequence[Mapping[str, object]]) -> Batch:
        plan = plan_of(name)
        tensors, rows = fields.encode(plan.signature, records)
        given = zip(plan.signature.columns, tensors, strict=True)
        batch = Batch({field.name: column(field, tensor) for field, tensor in given}, rows, list(range(rows)))
        for stage in (plan.preprocess, plan.execute, plan.postprocess):
            stage(batch)
        return batch

    return run


def column(field: Field, tensor: Tensor) -> Column:
    if field.datatype != "BYTES":
        return np.frombuffer(tensor.data, NUMPY_NAMES[field.datatype]).reshape(tensor.shape)
    values = unpack_bytes(tensor.data, tensor.shape[0])
    if field.kind == "texts":
        return object_column([unpack_texts(value or b"") for value in values])
    return text_column([value if value is None or field.kind in ENCODED else value.decode() for value in values])
