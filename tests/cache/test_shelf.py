"""Where answers are kept: how many bytes they take, how long they hold, and who goes first."""

import gc
import tracemalloc
from hashlib import sha256

import msgspec
import pytest

from forwardpass.cache.kept import Kept
from forwardpass.cache.shelf import Shelf, Shelves
from forwardpass.core.request import Note
from forwardpass.core.tensor import Tensor

LARGE = 10**9


def kept(size: int = 100, made_s: float = 0.0) -> Kept:
    return Kept(1, [Tensor("UINT8", (1, size), bytes(size))], [], 0, made_s)


def shelf(bytes_max: int = LARGE, ttl_s: float = 10.0, shelves: Shelves | None = None) -> Shelf:
    return (shelves or Shelves(LARGE)).add("p", 1, bytes_max, ttl_s)


def test_what_is_kept_is_found_until_its_time_is_over() -> None:
    made, answer = shelf(ttl_s=10.0), kept(made_s=100.0)
    made.keep(b"k", answer, 100.0)
    assert made.find(b"k", 109.9) is answer
    assert made.find(b"k", 110.0) is None
    assert (len(made), made.bytes, made.expired) == (0, 0, 1)


def test_a_caller_may_want_a_newer_one() -> None:
    made = shelf(ttl_s=100.0)
    made.keep(b"k", kept(made_s=0.0), 0.0)
    assert made.find(b"k", 5.0, age_s_max=4.0) is None
    assert made.find(b"k", 5.0, age_s_max=5.0) is not None


def test_the_one_that_nobody_asked_for_the_longest_gives_way() -> None:
    size = kept().bytes_total
    made = shelf(bytes_max=2 * size)
    made.keep(b"a", kept(), 0.0)
    made.keep(b"b", kept(), 0.0)
    made.find(b"a", 1.0)
    made.keep(b"c", kept(), 1.0)
    assert [key in made for key in (b"a", b"b", b"c")] == [True, False, True]
    assert made.evicted == 1 and made.bytes == 2 * size


def test_one_larger_than_the_bound_is_not_kept_and_nobody_goes_for_it() -> None:
    made = shelf(bytes_max=5000)
    made.keep(b"a", kept(), 0.0)
    made.keep(b"large", kept(6000), 0.0)
    assert b"a" in made and b"large" not in made


def test_one_bound_holds_for_all_shelves() -> None:
    size = kept().bytes_total
    shelves = Shelves(3 * size)
    one, other = shelf(shelves=shelves), shelf(shelves=shelves)
    for number in range(3):
        one.keep(bytes([number]), kept(), 0.0)
    other.keep(b"x", kept(), 0.0)
    assert (len(one), len(other), shelves.bytes) == (2, 1, 3 * size)


def test_what_replaces_an_answer_is_counted_once() -> None:
    made = shelf()
    made.keep(b"a", kept(100), 0.0)
    made.keep(b"a", kept(200), 0.0)
    assert (len(made), made.bytes) == (1, kept(200).bytes_total)


def test_what_nobody_asks_for_any_more_goes_with_its_time_and_not_only_for_want_of_room() -> None:
    made = shelf(ttl_s=10.0)
    for number in range(10):
        made.keep(bytes([number]), kept(made_s=0.0), 0.0)
    for number in range(20, 30):
        made.keep(bytes([number]), kept(made_s=50.0), 50.0)
    assert (len(made), made.expired, made.evicted) == (10, 10, 0)


def test_a_shelf_that_is_removed_gives_its_room_back() -> None:
    shelves = Shelves(LARGE)
    made = shelf(shelves=shelves)
    made.keep(b"a", kept(), 0.0)
    shelves.remove(made)
    made.keep(b"b", kept(), 0.0)  # what still ran
    assert shelves.bytes == 0 and not list(shelves) and not len(made)


def test_short_of_memory_the_older_half_goes() -> None:
    shelves = Shelves(LARGE)
    made = shelf(shelves=shelves)
    for number in range(5):
        made.keep(bytes([number]), kept(), 0.0)
    assert shelves.shrink() == 3
    assert [number for number in range(5) if bytes([number]) in made] == [3, 4]


VALUES: dict[str, list[object]] = {
    "text": ["\U0001f600" * 400],
    "lists": [[] for _ in range(200)],
    "numbers": [float(each) for each in range(200)],
    "objects": [{"a": {}} for _ in range(200)],
}


@pytest.mark.parametrize("name", VALUES)
def test_what_notes_hold_counts_with_what_it_takes(name: str) -> None:
    made, written = shelf(), msgspec.msgpack.encode({"value": VALUES[name]})
    gc.collect()
    tracemalloc.start()
    for number in range(200):
        notes = [Note(0, "seen", msgspec.msgpack.decode(written)) for _ in range(3)]
        made.keep(sha256(b"%d" % number).digest(), Kept(1, [], notes, 0, 0.0), 0.0)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= made.bytes <= 4 * taken


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_bytes_that_are_counted_are_no_fewer_than_the_memory_that_is_taken(outputs: int) -> None:
    made, count = shelf(), 2000
    gc.collect()
    tracemalloc.start()
    for number in range(count):
        tensors = [Tensor("FP32", (1, 8), bytes(bytearray(32))) for _ in range(outputs)]
        notes = [Note(0, "truncated", {"tokens": 300 + number, "kept": 256})]
        made.keep(sha256(b"%d" % number).digest(), Kept(1, tensors, notes, 9, float(number)), 0.0)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken <= made.bytes <= 4 * taken
