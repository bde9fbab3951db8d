"""The outputs of a request's items, end to end in row order, as the one answer they are."""

from collections.abc import Sequence

from forwardpass.batching.ticket import Part
from forwardpass.core.pipeline import Field
from forwardpass.core.tensor import Tensor


def joined(field: Field, index: int, parts: Sequence[Part]) -> Tensor:
    """Output ``index`` of all parts; rows of unlike shape keep the shapes they have."""
    tensors = [part.outputs[index] for part in parts if part.rows]
    data = b"".join([tensor.data for tensor in tensors])
    rows = sum([part.rows for part in parts])
    shape = tensors[0].shape[1:] if tensors else tuple(max(size, 0) for size in field.shape)
    if all(tensor.shape[1:] == shape and not tensor.shapes for tensor in tensors):
        return Tensor(field.datatype, (rows, *shape), data)
    shapes = [each for tensor in tensors for each in tensor.shapes or [tensor.shape[1:]] * tensor.shape[0]]
    return Tensor(field.datatype, (rows, *field.shape), data, shapes)
