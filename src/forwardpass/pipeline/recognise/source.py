"""What ``forwardpass init`` looks at: a model file, and the files that usually lie beside one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forwardpass.pipeline.onnx_facts import Facts, facts
from forwardpass.pipeline.onnx_file import external_data, is_onnx

TEXT_BYTES_MAX = 4 * 1024 * 1024
USUAL_NAME = "model.onnx"
_INNER = "onnx"  # where exporters put the model file in a folder of a model hub


class Unfit(Exception):
    """It looks like a known family, and something keeps it from being one: why, in words."""


@dataclass(frozen=True, slots=True)
class Source:
    """One ONNX file and the folder whose other files may describe it; these are read, never trusted to be right."""

    model: Path
    folder: Path
    facts: Facts

    def table(self, name: str) -> dict[str, Any]:
        """A JSON object beside the model; empty when there is none or it is something else."""
        text = self.text(name)
        try:
            found = json.loads(text) if text else None
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def rows(self, name: str) -> list[Any]:
        """A JSON list beside the model, likewise."""
        text = self.text(name)
        try:
            found = json.loads(text) if text else None
        except (ValueError, RecursionError):
            return []
        return found if isinstance(found, list) else []

    def text(self, name: str) -> str:
        """A text file beside the model; "" when there is none that can be read."""
        place = self.folder / name
        try:
            if not place.is_file() or place.stat().st_size > TEXT_BYTES_MAX:
                return ""
            return place.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return ""

    def has(self, name: str) -> bool:
        return (self.folder / name).is_file()

    def files(self) -> dict[str, Path]:
        """The model file and the weights it keeps beside itself, by their names in a pipeline's folder."""
        with self.model.open("rb") as file:
            externals = external_data(file.fileno(), self.model.name)
        beside = {external.location: self.model.parent / external.location for external in externals}
        return {self.model.name: self.model, **beside}


def source_at(path: Path) -> Source:
    """Raises Unfit when there is not exactly one model to be meant, Misconfigured for what is no ONNX file."""
    model = _model_in(path) if path.is_dir() else path
    if not is_onnx(model.name):
        raise Unfit(f"{model.name} is no ONNX file")
    folder = model.parent.parent if model.parent.name == _INNER else model.parent
    return Source(model, folder, facts(model))


def chosen(path: Path) -> str:
    """What is to be said of which model file of a folder is meant; "" where there is only one."""
    found = _models_in(path) if path.is_dir() else []
    if len(found) <= 1:
        return ""
    others = ", ".join(place.relative_to(path).as_posix() for place in found if place != _model_in(path))
    return f"the model is {_model_in(path).relative_to(path).as_posix()}, by its usual name; also there: {others}"


def model_file_of(path: Path) -> Path | None:
    """The model file that is meant by a path, whatever it is; None when a folder holds none, or several."""
    try:
        return _model_in(path) if path.is_dir() else path
    except Unfit:
        return None


def _models_in(folder: Path) -> list[Path]:
    return [*sorted(folder.glob("*.onnx")), *sorted((folder / _INNER).glob("*.onnx"))]


def _model_in(folder: Path) -> Path:
    found = _models_in(folder)
    usual = [place for place in found if place.name == USUAL_NAME]
    if len(found) == 1 or usual:
        return (usual or found)[0]
    if not found:
        raise Unfit("no file *.onnx is in this folder or in its folder onnx")
    raise Unfit(f"several model files are here ({', '.join(place.name for place in found[:8])}): name the one")


def whole(value: object, low: int = 1, high: int = 2**31 - 1) -> int | None:
    """A whole number of a JSON file within bounds, or None."""
    return value if type(value) is int and low <= value <= high else None


def part(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A table inside a table; empty when there is none."""
    found = table.get(name)
    return found if isinstance(found, dict) else {}
