"""What a worker answers is checked like what a client sends."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from forwardpass.batching.ticket import Item, Ticket
from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Field
from forwardpass.execution import wire
from forwardpass.execution.exchange import outcome_of
from forwardpass.execution.wire import Done, Frame, Kind, OutputMeta, PartMeta, WireError

FIELDS = (Field("y", "FP32", (2,)),)
FAILED = ("invalid_input", "no", "", "")


RAGGED = (Field("y", "FP32", (-1,), "ragged"),)


def answer(parts: list[PartMeta], sizes: list[int], shape: tuple[int, ...] = (2,), datatype: str = "FP32") -> Frame:
    done = Done(1, parts, [OutputMeta("y", datatype, [[shape]], sizes)], 0.0, 0.0, 0.0)
    return Frame(Kind.DONE, wire.encode(done), memoryview(bytes(sum(sizes))))


def items(*rows: int) -> list[Item]:
    """Whole requests."""
    return [cast(Item, SimpleNamespace(rows=count, ticket=SimpleNamespace(several=False))) for count in rows]


def unlike(rows: int, shapes: list[tuple[int, ...]], size: int) -> Frame:
    meta = wire.encode(Done(1, [PartMeta(rows, [], [])], [OutputMeta("y", "FP32", [shapes], [size])], 0.0, 0.0, 0.0))
    return Frame(Kind.DONE, meta, memoryview(bytes(size)))


def test_an_answer_that_fits_is_cut_into_one_part_per_item() -> None:
    parts = [PartMeta(1, [(1, *FAILED)], []), PartMeta(3, [], [])]
    outcome = outcome_of(answer(parts, [8, 24]), items(2, 3), FIELDS)
    assert [part.outputs[0].shape for part in outcome.parts] == [(1, 2), (3, 2)]
    assert outcome.parts[0].failures[1].code is Code.INVALID_INPUT


def test_an_item_that_failed_as_a_whole_has_no_rows() -> None:
    frame = answer([PartMeta(0, [], [], ("internal", "no", "", ""))], [0])
    (part,) = outcome_of(frame, items(2), FIELDS).parts
    assert part.failure is not None
    with pytest.raises(WireError):
        outcome_of(answer([PartMeta(2, [], [], ("internal", "no", "", ""))], [16]), items(2), FIELDS)


@pytest.mark.parametrize(("elements", "padding"), [(-1, 0), (0, -1)])
def test_less_than_no_padding_is_refused(elements: int, padding: int) -> None:
    outputs = [OutputMeta("y", "FP32", [[(2,)]], [8])]
    done = Done(1, [PartMeta(1, [], [])], outputs, 0.0, 0.0, 0.0, 0.0, elements, padding)
    with pytest.raises(WireError):
        outcome_of(Frame(Kind.DONE, wire.encode(done), memoryview(bytes(8))), items(1), FIELDS)


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [([12, 4], (2,)), ([8, 8], (3,)), ([16, 0], (2,)), ([24, -8], (2,)), ([8, 8], (-1, -2))],
)
def test_a_slice_of_another_size_than_its_shape_says_is_refused(sizes: list[int], shape: tuple[int, ...]) -> None:
    with pytest.raises(WireError):
        outcome_of(answer([PartMeta(1, [], []), PartMeta(1, [], [])], sizes, shape), items(1, 1), FIELDS)


@pytest.mark.parametrize("rows", [[2], [-1], [0, 0]])
def test_a_failed_row_that_the_item_does_not_have_is_refused(rows: list[int]) -> None:
    alive = 2 - len(rows)
    frame = answer([PartMeta(alive, [(row, *FAILED) for row in rows], [])], [8 * alive])
    with pytest.raises(WireError):
        outcome_of(frame, items(2), FIELDS)


def test_tokens_are_each_items_own() -> None:
    parts = [PartMeta(1, [], [], tokens=7), PartMeta(0, [(0, *FAILED)], [])]
    assert [part.tokens for part in outcome_of(answer(parts, [8, 0]), items(1, 1), FIELDS).parts] == [7, 0]


@pytest.mark.parametrize("part", [PartMeta(1, [], [], tokens=-1), PartMeta(0, [], [], ("internal", "no", "", ""), 1)])
def test_tokens_that_cannot_be_are_refused(part: PartMeta) -> None:
    with pytest.raises(WireError):
        outcome_of(answer([part], [8 * part.rows]), items(1), FIELDS)


def test_a_note_on_a_row_that_the_item_does_not_have_is_refused() -> None:
    note: tuple[int, str, dict[str, Any]] = (2, "n", {})
    with pytest.raises(WireError):
        outcome_of(answer([PartMeta(2, [], [note])], [16]), items(2), FIELDS)


def test_rows_of_one_item_may_have_shapes_of_their_own() -> None:
    (part,) = outcome_of(unlike(3, [(2,), (0,), (1,)], 12), items(3), RAGGED).parts
    (output,) = part.outputs
    assert (output.shape, output.shapes) == ((3, -1), [(2,), (0,), (1,)])


@pytest.mark.parametrize(
    ("rows", "shapes", "size"),
    [(3, [(2,), (1,)], 12), (2, [(2,), (2,)], 12), (2, [(4,), (-1,)], 12), (0, [], 0)],
)
def test_row_shapes_that_do_not_fit_are_refused(rows: int, shapes: list[tuple[int, ...]], size: int) -> None:
    with pytest.raises(WireError):
        outcome_of(unlike(rows, shapes, size), items(rows), RAGGED)


def test_an_item_of_a_request_that_was_cut_fails_its_own_rows_only() -> None:
    (item,) = items(2)
    item.ticket = cast(Ticket, SimpleNamespace(several=True))
    (part,) = outcome_of(answer([PartMeta(0, [], [], ("internal", "no", "", ""))], [0]), [item], FIELDS).parts
    assert part.failure is None
    assert [part.failures[row].code for row in (0, 1)] == [Code.INTERNAL, Code.INTERNAL]
