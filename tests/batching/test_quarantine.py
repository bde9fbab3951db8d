import asyncio

import pytest
from tests.batching.making import item
from tests.batching.test_arrivals import in_loop

from forwardpass.batching.quarantine import ENTRIES_MAX, HASHED_BYTES_MAX, SLOW_KEPT_S, Quarantine, digest
from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code, Failed, Refused


def test_an_input_is_refused_for_a_time_and_then_forgotten_by_itself() -> None:
    clock = FakeClock()
    quarantine = Quarantine(10.0, clock)
    quarantine.add([b"bad"], [()], 1)
    with pytest.raises(Refused):
        quarantine.check([b"bad"], [()], 1)
    quarantine.check([b"good"], [()], 1)
    clock.advance(10.0)
    assert len(quarantine) == 0
    quarantine.check([b"bad"], [()], 1)


def test_an_input_that_kills_again_stays_for_a_whole_time_more() -> None:
    clock = FakeClock()
    quarantine = Quarantine(10.0, clock)
    for input in (b"first", b"second"):
        quarantine.add([input], [()], 1)
    clock.advance(5.0)
    quarantine.add([b"first"], [()], 1)
    clock.advance(5.0)
    assert len(quarantine) == 1
    with pytest.raises(Refused):
        quarantine.check([b"first"], [()], 1)


def suspected(quarantine: Quarantine, data: bytes) -> bool:
    one = item(data=data)
    quarantine.look(one)
    assert (one.key is not None) == one.suspect  # then it shares its batch with nobody
    return one.suspect


@in_loop
async def test_a_suspect_is_not_refused_and_is_cleared_by_an_answer_or_by_time() -> None:
    clock = FakeClock()
    quarantine = Quarantine(10.0, clock)
    quarantine.suspect([digest([data], [()], 1) for data in (b"slow", b"mate")])
    assert [suspected(quarantine, data) for data in (b"slow", b"mate", b"other")] == [True, True, False]
    quarantine.clear(item(data=b"mate"), 0.1)
    assert [suspected(quarantine, data) for data in (b"slow", b"mate")] == [True, False]
    assert len(quarantine) == 0
    clock.advance(10.0)
    assert not suspected(quarantine, b"slow")


@in_loop
async def test_what_took_long_by_itself_is_refused_only_where_far_less_time_is_left() -> None:
    clock = FakeClock()
    quarantine = Quarantine(10.0, clock)
    quarantine.clear(item(data=b"slow"), 8.0)
    quarantine.clear(item(data=b"quick"), 0.9)
    for data, left_s in ((b"slow", 4.0), (b"quick", 0.1), (b"other", 0.1)):
        quarantine.look(item(data=data, deadline=clock() + left_s))
    with pytest.raises(Failed) as refused:
        quarantine.look(item(data=b"slow", deadline=clock() + 3.9))
    assert (refused.value.code, len(quarantine)) == (Code.QUEUE_WAIT_TOO_LONG, 0)
    clock.advance(10.0)
    quarantine.look(item(data=b"slow", deadline=clock() + 0.1))


@in_loop
async def test_what_took_long_once_and_is_answered_fast_is_taken_again() -> None:
    clock = FakeClock()
    quarantine = Quarantine(600.0, clock)
    quarantine.clear(item(data=b"slow"), 8.0)
    quarantine.clear(item(data=b"slow"), 0.01)
    quarantine.look(item(data=b"slow", deadline=clock() + 0.1))
    quarantine.clear(item(data=b"slow"), 8.0)
    with pytest.raises(Failed):
        quarantine.look(item(data=b"slow", deadline=clock() + 0.1))
    clock.advance(SLOW_KEPT_S)
    quarantine.look(item(data=b"slow", deadline=clock() + 0.1))


@in_loop
async def test_a_large_input_is_known_again_and_one_of_another_size_is_not_hashed() -> None:
    quarantine = Quarantine(10.0, FakeClock())
    large = bytes(HASHED_BYTES_MAX + 1)
    quarantine.add([large], [()], 1)
    with pytest.raises(Refused):
        quarantine.look(item(data=large))
    quarantine.look(item(data=large + b"x"))


@in_loop
async def test_suspects_are_bounded_and_the_oldest_goes() -> None:
    quarantine = Quarantine(10.0, FakeClock())
    quarantine.suspect([digest([b"%d" % number], [()], 1) for number in range(ENTRIES_MAX + 1)])
    assert [suspected(quarantine, data) for data in (b"0", b"1")] == [False, True]


def test_only_what_waits_with_the_very_same_input_is_ended() -> None:
    async def run() -> None:
        killer, same = item(data=b"bad"), item(data=b"bad")
        others = [item(data=b"bed"), item(data=b"bad!"), item(rows=3, data=b"bad")]
        others.append(item(data=b"bad"))
        others[-1].shapes = [(3,)]
        quarantine = Quarantine(10.0, FakeClock())
        assert quarantine.end(killer, [*others, same]) == [same]
        assert [each.ticket.done for each in others] == [False] * 4
        with pytest.raises(Refused) as refused:
            await same.ticket.ended
        assert refused.value.code is Code.QUARANTINED

    asyncio.run(run())
