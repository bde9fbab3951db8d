import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forwardpass.execution import wire
from forwardpass.execution.wire import INLINE_BYTES_MAX, Kind, WireError


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    front, worker = wire.pair()
    worker.setblocking(False)
    yield front, worker
    front.close()
    worker.close()


Ends = tuple[socket.socket, socket.socket]


@pytest.mark.parametrize("size", [0, 1, INLINE_BYTES_MAX - 5, INLINE_BYTES_MAX - 4, INLINE_BYTES_MAX + 1, 5_000_000])
def test_a_frame_arrives_as_it_was_sent_whatever_its_size(ends: Ends, size: int) -> None:
    data = os.urandom(size)
    wire.send(ends[0], Kind.RUN, b"meta", [data[: size // 2], b"", data[size // 2 :]])
    frame = wire.receive(ends[1])
    assert frame is not None
    assert (frame.kind, frame.meta, bytes(frame.payload)) == (Kind.RUN, b"meta", data)


def test_thousands_of_columns_fit_one_frame(ends: Ends) -> None:
    columns = [b"%d" % n for n in range(5000)]
    wire.send(ends[0], Kind.DONE, b"", columns)
    frame = wire.receive(ends[1])
    assert frame is not None
    assert bytes(frame.payload) == b"".join(columns)


def test_the_other_side_gone_is_told_from_nothing_there_yet(ends: Ends) -> None:
    with pytest.raises(BlockingIOError):
        wire.receive(ends[1])
    ends[0].close()
    assert wire.receive(ends[1]) is None


def test_no_descriptor_is_left_open(ends: Ends) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        wire.send(ends[0], Kind.RUN, b"", [bytes(INLINE_BYTES_MAX + 1)])
        frame = wire.receive(ends[1])
        assert frame is not None
        del frame
    assert len(os.listdir("/proc/self/fd")) == before


def test_shared_memory_cannot_be_changed_after_it_was_sent(ends: Ends) -> None:
    wire.send(ends[0], Kind.RUN, b"", [bytes(INLINE_BYTES_MAX + 1)])
    frame = wire.receive(ends[1])
    assert frame is not None
    assert frame.payload.readonly


@given(st.binary(min_size=1, max_size=200))
@settings(max_examples=200, deadline=None)
def test_bytes_that_are_no_frame_are_refused(packet: bytes) -> None:
    front, worker = wire.pair()
    try:
        front.send(packet)
        with pytest.raises(WireError):
            wire.receive(worker)
    finally:
        front.close()
        worker.close()


def test_sizes_that_do_not_add_up_are_refused() -> None:
    payload = memoryview(b"abcdef")
    assert [bytes(part) for part in wire.split(payload, [2, 0, 4])] == [b"ab", b"", b"cdef"]
    for sizes in ([2], [2, 5], [7, -1]):
        with pytest.raises(WireError):
            wire.split(payload, sizes)


def test_a_payload_over_the_memory_limit_still_tells_which_batch_it_was(ends: Ends) -> None:
    wire.send(ends[0], Kind.RUN, b"meta", [bytes(64 * 1024**2)])
    before = resource.getrlimit(resource.RLIMIT_AS)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + 4 * 1024**2, before[1]))
    try:
        with pytest.raises(wire.NoRoom) as refused:
            wire.receive(ends[1])
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert refused.value.meta == b"meta"
