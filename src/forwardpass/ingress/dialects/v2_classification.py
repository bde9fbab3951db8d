"""V2's classification: an output of numbers as its highest few, each a text "value:index" or "value:index:label"."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Field, Signature
from forwardpass.core.tensor import NUMPY_NAMES, Tensor, pack_bytes
from forwardpass.pipeline.bounds import refuse


def check_classes(count: object, field: Field, where: str) -> int:
    """How many are asked for; of fewer numbers all are given. Raises Refused, also for an output that has no classes."""
    if type(count) is not int:
        raise refuse(Code.WRONG_TYPE, where, "expected an integer")
    if count < 1:
        raise refuse(Code.OUT_OF_RANGE, where, "must be 1 or more")
    if field.datatype in ("BYTES", "BOOL"):
        raise refuse(Code.DATATYPE_MISMATCH, where, f"classes have numbers; output '{field.name}' is {field.datatype}")
    if len(field.shape) != 1:
        text = f"a row must be a list of numbers; rows of output '{field.name}' have the shape {list(field.shape)}"
        raise refuse(Code.SHAPE_MISMATCH, where, text)
    return count


def labels_of(name: str, signature: Signature) -> Sequence[str]:
    """What the pipeline's task calls the elements of an output; () where it does not say."""
    task = signature.task
    return task.labels if task is not None and task.kind == "classify" and task.output == name else ()


def classified(tensor: Tensor, count: int, labels: Sequence[str]) -> Tensor:
    """[rows, count] texts, the highest first; of equal numbers the one that stands first; what is no number last.

    A value has the fewest digits that say which one of its datatype it is, and no exponent.
    """
    rows = _numbers(tensor)
    count = min(count, rows.shape[1])
    elements = [
        _element(row[index], int(index), labels) for row in rows for index in _highest(row, count)
    ]  # fmt: skip
    return Tensor("BYTES", (len(rows), count), pack_bytes(elements))


def _numbers(tensor: Tensor) -> NDArray[Any]:
    if tensor.datatype == "BF16":  # the upper half of an FP32
        halves = np.frombuffer(tensor.data, dtype="<u2").astype("<u4") << 16
        return halves.view("<f4").reshape(tensor.shape)
    return np.frombuffer(tensor.data, dtype=np.dtype(NUMPY_NAMES[tensor.datatype]).newbyteorder("<")).reshape(
        tensor.shape
    )


def _highest(row: NDArray[Any], count: int) -> NDArray[Any]:
    """Indices. A stable sort from the back, read backwards, leaves equal ones in their order."""
    keys = np.where(np.isnan(row), -np.inf, row) if row.dtype.kind == "f" else row
    order = np.argsort(keys[::-1], kind="stable")[::-1][:count]
    return len(row) - 1 - order


def _element(value: Any, index: int, labels: Sequence[str]) -> bytes:
    text = np.format_float_positional(value, trim="0") if isinstance(value, np.floating) else str(int(value))
    return (f"{text}:{index}:{labels[index]}" if index < len(labels) else f"{text}:{index}").encode()
