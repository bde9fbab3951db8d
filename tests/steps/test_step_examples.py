"""The examples of docs/steps.md: each is run here and must give what it says."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forwardpass.core.pipeline import Field
from forwardpass.core.tensor import NUMPY_NAMES
from forwardpass.execution.model_step import ModelStep
from forwardpass.steps.catalogue import kind_of, kinds
from forwardpass.steps.protocol import Batch, Column, Context, Watched, object_column

EXAMPLES = Path(__file__).with_name("examples")


def field_of(given: dict[str, Any]) -> Field:
    return Field(given["name"], given["datatype"], tuple(given.get("shape", ())), given.get("kind", "tensor"))


def column_of(field: Field, values: list[Any]) -> Column:
    if field.kind in ("tensor", "number") and field.datatype in NUMPY_NAMES:
        missing = [np.nan if value is None else value for value in values]
        return np.array(missing, dtype=NUMPY_NAMES[field.datatype]).reshape(len(values), *np.shape(values[0]))
    return object_column([element_of(field, value) for value in values])


def element_of(field: Field, value: Any) -> Any:
    if field.kind == "ragged":
        shape = tuple(max(size, 0) for size in field.shape)
        array = np.array(value, dtype=NUMPY_NAMES[field.datatype])
        return array if array.size else array.reshape(shape)
    return base64.b64decode(value["base64"]) if isinstance(value, dict) and value.keys() == {"base64"} else value


def element_of_file(content: str | dict[str, str]) -> bytes:
    return content.encode() if isinstance(content, str) else base64.b64decode(content["base64"])


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return None if isinstance(value, float) and np.isnan(value) else value


def close(found: Any, wanted: Any, tolerance: float) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return found.keys() == wanted.keys() and all(close(found[key], wanted[key], tolerance) for key in wanted)
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(
            close(one, two, tolerance) for one, two in zip(found, wanted, strict=True)
        )
    if isinstance(wanted, float | int) and not isinstance(wanted, bool) and isinstance(found, float | int):
        return abs(found - wanted) <= tolerance
    return bool(found == wanted)


class _Columns(dict[str, Column]):
    """Columns that say which of them were read."""

    def __init__(self, columns: dict[str, Column]) -> None:
        super().__init__(columns)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Column:
        self.read.add(name)
        return super().__getitem__(name)


def run(example: dict[str, Any], name: str, folder: Path) -> Batch:
    for file, content in example.get("files", {}).items():
        (folder / file).write_bytes(element_of_file(content))
    fields = [field_of(given["field"]) for given in example["inputs"]]
    known = {field.name: field for field in fields}
    rows = len(example["inputs"][0]["values"])
    columns = {
        field.name: column_of(field, given["values"]) for field, given in zip(fields, example["inputs"], strict=True)
    }
    batch = Batch(columns, rows, list(range(rows)))
    context = Context(folder, trusted=True)
    outside: list[dict[str, Field]] = []
    for step in example.get("steps", [{"use": name, **example.get("options", {})}]):
        kind = ModelStep(context) if step["use"] == ModelStep.name else kind_of(step["use"], kinds())
        options = {key: value for key, value in step.items() if key != "use"}
        assert not kind.check(options, folder)
        watched = Watched(known)
        made = kind.fields(options, watched)
        prepared = kind.prepare(options, watched, context)
        batch.columns = columns = _Columns(batch.columns)
        prepared(batch)
        unasked = columns.read - watched.named - {each.name for each in made}
        assert kind.level < 0 or not unasked, "what is read was asked for before; a fold copies all of an element"
        batch.settle()
        if kind.level > 0:
            outside.append(known)
            known = {}
        elif kind.level < 0:
            known = outside.pop()
        known = {**known, **{field.name: field for field in made}}
    assert not batch.failures, {row: failure.text for row, failure in batch.failures.items()}
    return batch


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.json")), ids=lambda file: file.stem)
def test_an_example_gives_what_it_says(file: Path, tmp_path: Path) -> None:
    example = json.loads(file.read_text("utf-8"))
    batch = run(example, file.stem.replace("steps_", "steps:"), tmp_path)
    assert example["outputs"]
    for name, wanted in example["outputs"].items():
        found = [plain(value) for value in batch.columns[name]]
        assert close(found, wanted, example.get("tolerance", 1e-6)), f"{name}: {found}"


def test_every_kind_of_step_has_an_example() -> None:
    named = {file.stem for file in EXAMPLES.glob("*.json")}
    assert named == kinds().keys() | {ModelStep.name, "steps_NAME"}
