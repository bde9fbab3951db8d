import asyncio
import struct
from collections.abc import Sequence
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwardpass.batching.grouping import COST_MAX, ON_LOOP_ROWS_MAX, Grouping
from forwardpass.batching.ticket import Item
from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Batch, Field, Padding
from forwardpass.core.request import Request
from forwardpass.core.tensor import Tensor, pack_bytes
from forwardpass.core.timeline import Timeline
from forwardpass.core.tokens import pack_token_ids

X = Field("x", "FP32", (2,))
IDS = Field("ids", "INT64", (-1,))
TEXT = Field("text", "BYTES", (), "text")
AMOUNT = Field("amount", "FP64", (), "number")


def floats(rows: int) -> Tensor:
    return Tensor("FP32", (rows, 2), b"".join(bytes([row]) * 8 for row in range(rows)))


def texts(*values: bytes) -> Tensor:
    return Tensor("BYTES", (len(values),), pack_bytes(values))


def items(
    columns: Sequence[Field],
    batch: Batch,
    *tensors: Tensor,
    batched: bool = True,
    fixed_rows: int | None = None,
    apart: bool = False,
) -> list[Item]:
    async def run() -> list[Item]:
        request = Request("id", list(tensors), tensors[0].shape[0], Timeline())
        grouping = Grouping(columns, batch, batched=batched, fixed_rows=fixed_rows, apart=apart)
        return (await grouping.cut(request, 100.0, 1.0))[1]

    return asyncio.run(run())


def test_a_request_that_fits_is_one_item_without_copying() -> None:
    tensor = floats(3)
    (only,) = items([X], Batch(), tensor)
    assert only.columns[0] is tensor.data
    assert (only.rows, only.cost, only.bytes_total) == (3, 3.0, 24)


def test_before_a_cache_rows_are_cut_one_by_one_but_where_they_depend_on_each_other() -> None:
    assert [item.rows for item in items([X], Batch(), floats(3), apart=True)] == [1, 1, 1]
    assert [item.rows for item in items([X], Batch(enabled=False), floats(3), apart=True)] == [3]
    assert [item.rows for item in items([X], Batch(), floats(3), batched=False, fixed_rows=3, apart=True)] == [3]


@given(st.integers(1, 200), st.integers(1, 64))
def test_an_oversized_request_is_cut_into_pieces_that_join_to_it(rows: int, rows_max: int) -> None:
    tensor = floats(rows)
    cut = items([X], Batch(rows_max=rows_max), tensor)
    assert all(item.rows <= rows_max for item in cut)
    assert b"".join(bytes(item.columns[0]) for item in cut) == tensor.data
    assert [item.part for item in cut] == list(range(len(cut)))


def test_texts_are_cut_row_by_row_so_that_lengths_can_share_a_batch() -> None:
    short, long, short_too = items([TEXT], Batch(), texts(b"a", b"x" * 300, b"b"))
    assert short.key == short_too.key != long.key
    assert bytes(long.columns[0]) == pack_bytes([b"x" * 300])


def test_neighbours_of_one_length_are_one_item_so_that_many_short_texts_cost_little() -> None:
    values = [b"a"] * 70 + [b"x" * 300] + [b"b"] * 3
    cut = items([TEXT], Batch(rows_max=32), texts(*values))
    assert [item.rows for item in cut] == [32, 32, 6, 1, 3]
    assert b"".join(bytes(item.columns[0]) for item in cut) == pack_bytes(values)
    assert cut[0].key == cut[2].key == cut[4].key != cut[3].key


def test_many_rows_are_cut_beside_the_loop_and_come_out_the_same() -> None:
    async def run() -> None:
        values = [b"a", b"x" * 300] * ON_LOOP_ROWS_MAX
        request = Request("id", [texts(*values)], len(values), Timeline())
        cutting = asyncio.create_task(Grouping([TEXT], Batch(), batched=True).cut(request, 100.0, 1.0))
        await asyncio.sleep(0)
        assert not cutting.done()
        ticket, cut = await cutting
        assert len(cut) == len(values)
        assert ticket.ended.get_loop() is asyncio.get_running_loop()

    asyncio.run(run())


def test_texts_whose_batches_end_at_a_cost_are_cut_row_by_row() -> None:
    assert [item.rows for item in items([TEXT], Batch(cost="tokens", cost_max=100), texts(b"a", b"b"))] == [1, 1]


def test_declared_buckets_decide_which_lengths_share_a_batch() -> None:
    batch = Batch(buckets_bytes=(10, 500))
    (one,), (other,) = (items([TEXT], batch, texts(b"x" * size)) for size in (20, 400))
    assert one.key == other.key


def test_a_declared_cost_that_is_no_cost_counts_as_nothing() -> None:
    values = Tensor("FP64", (4,), struct.pack("<4d", 2.0, -5.0, nan, inf))
    assert items([AMOUNT], Batch(cost="amount", cost_max=1), values)[0].cost == 2.0 + COST_MAX


def test_different_row_shapes_never_share_a_batch() -> None:
    first = items([IDS], Batch(), Tensor("INT64", (1, 3), bytes(24)))
    second = items([IDS], Batch(), Tensor("INT64", (1, 4), bytes(32)))
    assert first[0].key != second[0].key


def test_padded_lengths_of_one_bucket_share_a_batch() -> None:
    batch = Batch(padding=Padding({"ids": 0}, (4, 8)))
    three, four, five = (items([IDS], batch, Tensor("INT64", (1, n), bytes(8 * n)))[0].key for n in (3, 4, 5))
    assert three == four != five


@pytest.mark.parametrize(
    ("batch", "columns", "tensors", "cost"),
    [
        (Batch(), [X], [floats(3)], 3.0),
        (Batch(cost="bytes", cost_max=1), [X], [floats(3)], 24.0),
        (Batch(cost="tokens", cost_max=1), [IDS], [Tensor("INT64", (2, 5), bytes(80))], 10.0),
        (Batch(cost="tokens", cost_max=1), [TEXT], [texts(b"x" * 36)], 12.0),
        (Batch(cost="amount", cost_max=1), [AMOUNT], [Tensor("FP64", (2,), b"\0\0\0\0\0\0\xf0\x3f" * 2)], 2.0),
    ],
)
def test_an_items_cost_is_counted_in_the_declared_unit(
    batch: Batch, columns: list[Field], tensors: list[Tensor], cost: float
) -> None:
    assert items(columns, batch, *tensors)[0].cost == cost


def test_rows_that_depend_on_each_other_are_never_cut() -> None:
    with pytest.raises(Refused) as refused:
        items([X], Batch(enabled=False, rows_max=4), floats(5))
    assert refused.value.code is Code.BATCH_TOO_LARGE
    (whole,) = items([X], Batch(rows_max=4), floats(5), batched=False, fixed_rows=5)
    assert whole.rows == 5


@pytest.mark.parametrize("fixed_rows", [None, 1])
def test_a_model_that_runs_each_row_by_itself_gets_it_as_an_item_of_its_own(fixed_rows: int | None) -> None:
    cut = items([X], Batch(enabled=False), floats(3), batched=False, fixed_rows=fixed_rows)
    assert [item.rows for item in cut] == [1, 1, 1]


@pytest.mark.parametrize("cost", ["bytes", "tokens"])
def test_token_ids_share_a_batch_with_texts_of_as_many_tokens_and_cost_about_the_same(cost: str) -> None:
    long = b"word " * 100
    ids = [pack_token_ids(range(count), "/input") for count in (100, 2)]
    rows = items([TEXT], Batch(cost=cost, cost_max=1e6), texts(long, ids[0], b"word", ids[1]))
    assert rows[0].key == rows[1].key != rows[2].key == rows[3].key
    assert rows[1].cost == pytest.approx(rows[0].cost, rel=0.25)
