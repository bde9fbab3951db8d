"""What the engines of graphs have in common: how the rows of a batch map to a graph's inputs and outputs.

It is read from the first axes of the inputs: all free, a batch of any size; all the same number N, exactly N rows at
once; anything else, no axis for rows, so a work is one row and its arrays have none.
"""

from collections.abc import Collection, Sequence

from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Field
from forwardpass.engines.protocol import ModelFile, ModelSignature

OUT_OF_MEMORY = ("Failed to allocate memory", "bad_alloc", "out of memory", "bad array new length")
"""What runtimes say when there was no room."""


def signature_of(file: ModelFile, inputs: Sequence[Field], outputs: Sequence[Field]) -> ModelSignature:
    """The signature of a graph whose inputs and outputs are given with all their axes, -1 where one is free."""
    inputs, whole_inputs = _parted(inputs, {*file.state, *file.constants})
    outputs, whole_outputs = _parted(outputs, set(file.state.values()))
    batched, fixed_rows = _rows_of([field.shape for field in inputs])
    if not all(field.shape for field in outputs):  # nothing to cut into rows
        batched, fixed_rows = False, None
    cut = 1 if batched or fixed_rows is not None else 0
    return ModelSignature(
        tuple(Field(field.name, field.datatype, field.shape[cut:]) for field in inputs),
        tuple(Field(field.name, field.datatype, field.shape[cut:]) for field in outputs),
        batched,
        fixed_rows,
        tuple(whole_inputs),
        tuple(whole_outputs),
    )


def _parted(fields: Sequence[Field], apart: Collection[str]) -> tuple[list[Field], list[Field]]:
    return [field for field in fields if field.name not in apart], [field for field in fields if field.name in apart]


def _rows_of(shapes: Sequence[tuple[int, ...]]) -> tuple[bool, int | None]:
    """Whether the first axis is one of rows, free in all inputs; or the number that it is in all of them."""
    first = {shape[0] if shape else None for shape in shapes}
    if first == {-1}:
        return True, None
    return False, (first.pop() or None) if len(first) == 1 else None


def run_failure(error: Exception) -> Failed:
    """What to say when a runtime could not run a batch."""
    detail = str(error)
    if isinstance(error, MemoryError) or any(sign in detail for sign in OUT_OF_MEMORY):
        return Failed(Code.ENGINE_OUT_OF_MEMORY, "the model ran out of memory on this input", detail=detail)
    return Failed(Code.ENGINE_FAILED, "the model could not be run on this input", detail=detail)
