import asyncio

import pytest
from tests.batching.making import item

from forwardpass.batching.quarantine import Quarantine
from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code, Refused


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
