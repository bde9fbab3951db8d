"""The outputs of a request's items, end to end in row order, as the one answer they are."""

from collections.abc import Sequence

from forwardpass.batching.ticket import Part
from forwardpass.core.errors import Failure
from forwardpass.core.pipeline import Field, Signature, Version
from forwardpass.core.request import Answer, CacheUse, Note, Request
from forwardpass.core.tensor import Tensor
from forwardpass.core.timeline import Timeline


def answer_of(version: Version, signature: Signature, request: Request, parts: Sequence[Part]) -> Answer:
    """What was asked for of the parts' outputs; failures and notes count rows of the request."""
    failures, notes = parts[0].failures, parts[0].notes
    if len(parts) > 1:
        failures, notes = _counted_on(parts)
    tokens = sum([part.tokens for part in parts])
    return Answer(version, signature, _outputs(signature, request, parts), request.rows, failures, notes, tokens=tokens)


def stamp_shared(timeline: Timeline, parts: Sequence[Part], use: CacheUse) -> None:
    """The worker's stages of a request with a cache before it; where nothing was run for it, all it did was wait."""
    last = next((part.batch for part in reversed(parts) if part.batch is not None), None)
    if last is None or not use.miss:
        timeline.released = timeline.returned
        return
    timeline.released = max(timeline.queued, last.released_s)
    timeline.preprocess_s, timeline.execute_s = last.preprocess_s, last.execute_s
    timeline.postprocess_s = last.postprocess_s


def _counted_on(parts: Sequence[Part]) -> tuple[dict[int, Failure], list[Note]]:
    failures: dict[int, Failure] = {}
    notes: list[Note] = []
    start = 0
    for part in parts:
        failures.update({start + row: failure for row, failure in part.failures.items()})
        notes.extend(Note(start + note.row, note.name, note.value) for note in part.notes)
        start += part.rows + len(part.failures)
    return failures, notes


def _outputs(signature: Signature, request: Request, parts: Sequence[Part]) -> dict[str, Tensor]:
    tensors = parts[0].outputs
    if len(parts) > 1:
        tensors = [joined(field, index, parts) for index, field in enumerate(signature.outputs)]
    outputs = dict(zip(signature.output_names, tensors, strict=True))
    return {name: outputs[name] for name in request.outputs} if request.outputs else outputs


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
