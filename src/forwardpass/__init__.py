"""forwardpass: a model plus the exact steps around it, as one versioned pipeline, in every style of service."""

from collections.abc import Mapping
from pathlib import Path

from forwardpass.core.pipeline import Batch, Checks, Golden, Input, Padding, Pipeline, Queue, Step, Workers

__all__ = ["Batch", "Checks", "Golden", "Input", "Padding", "Pipeline", "Queue", "Step", "Workers", "export"]


def export(pipeline: Pipeline, folder: Path, files: Mapping[str, Path]) -> None:
    """Write a pipeline built in Python as a folder that can be served: ``pipeline.toml`` and its files by name.

    Checked like a folder written by hand. Raises Misconfigured with every problem.
    """
    from forwardpass.execution.kinds import kinds
    from forwardpass.pipeline.definition import export as write

    write(pipeline, folder, files, kinds=kinds())
