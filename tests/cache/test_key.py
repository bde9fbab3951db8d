"""What an answer is kept under: whatever decides it makes another key, and nothing else does (FAULTS R16)."""

import struct
from dataclasses import replace
from typing import Any

import pytest

from forwardpass.cache.key import Keys, framed
from forwardpass.core.pipeline import Field, Input, Pipeline, Signature, Version

INPUTS = (Input("x", "tensor", datatype="FP32", shape=(-1,)), Input("y", "tensor", datatype="FP32", shape=(-1,)))
SIGNATURE = Signature(INPUTS, (Field("z", "FP32", (1,)),))
VERSION = Version("p", 1, "d" * 64, "/", Pipeline(()))
ONE, TWO = struct.pack("<f", 1.0), struct.pack("<2f", 1.0, 2.0)


def key(
    tenant: str = "a",
    columns: tuple[bytes, ...] = (ONE, TWO),
    shapes: tuple[tuple[int, ...], ...] = ((1,), (2,)),
    rows: int = 1,
    *,
    version: Version = VERSION,
    signature: Signature = SIGNATURE,
    settings: tuple[object, ...] = ({"threads": 1},),
    together: bool = False,
    machine: tuple[str, ...] = ("numpy 2",),
) -> bytes:
    keys = Keys(version, signature, settings, together=together, machine=machine)
    return keys.of(tenant, columns, shapes, rows)


def renamed(**changes: Any) -> Signature:
    return replace(SIGNATURE, inputs=(replace(INPUTS[0], **changes), INPUTS[1]))


@pytest.mark.parametrize(
    "other",
    [
        key("b"),
        key(columns=(ONE, struct.pack("<2f", 1.0, 3.0))),
        key(columns=(TWO, ONE), shapes=((2,), (1,))),
        key(columns=(ONE + ONE, TWO), shapes=((2,), (2,))),
        key(columns=(ONE, TWO), shapes=((1, 1), (2,))),
        key(rows=2),
        key(version=replace(VERSION, pipeline="q")),
        key(version=replace(VERSION, digest="e" * 64)),
        key(version=replace(VERSION, policy="f" * 64)),
        key(signature=renamed(name="w")),
        key(signature=renamed(datatype="INT32")),
        key(signature=replace(SIGNATURE, outputs=(Field("other", "FP32", (1,)),))),
        key(settings=({"threads": 2},)),
        key(machine=("numpy 3",)),
        key(together=True),
    ],
    ids=lambda found: found.hex()[:8],
)
def test_whatever_decides_an_answer_makes_another_key(other: bytes) -> None:
    assert other != key()


def test_an_equal_item_has_an_equal_key() -> None:
    assert key() == key()
    assert key(columns=(ONE, bytes(memoryview(TWO)))) == key()


def test_the_number_of_a_version_does_not_decide_its_answers() -> None:
    assert key(version=replace(VERSION, number=2)) == key()


def test_tenants_that_share_have_the_same_keys() -> None:
    assert key("a", together=True) == key("b", together=True)


def test_bytes_cannot_move_from_one_column_to_the_next() -> None:
    signature = Signature((Input("x", "bytes"), Input("y", "bytes")), ())
    shapes: tuple[tuple[int, ...], ...] = ((), ())
    one = key(columns=(b"ab", b"c"), shapes=shapes, signature=signature)
    assert one != key(columns=(b"a", b"bc"), shapes=shapes, signature=signature)


def test_a_frame_tells_every_list_from_every_other() -> None:
    lists = [(b"a", b"b"), (b"ab",), (b"", b"ab"), (b"ab", b""), (b"a", b"", b"b")]
    assert len({framed(each) for each in lists}) == len(lists)


def test_many_tenants_take_no_more_room_than_some() -> None:
    keys = Keys(VERSION, SIGNATURE, (), together=False)
    first = keys.of("tenant0", (ONE, TWO), ((1,), (2,)), 1)
    for number in range(3000):
        keys.of(f"tenant{number}", (ONE, TWO), ((1,), (2,)), 1)
    assert keys.of("tenant0", (ONE, TWO), ((1,), (2,)), 1) == first
