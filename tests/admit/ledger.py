"""Quotas over a memory store whose clocks tests move, and what tests ask of them."""

from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from forwardpass.admit.memory import MemoryStore
from forwardpass.admit.quotas import Admission, Quotas
from forwardpass.admit.rules import QuotaRule
from forwardpass.core.caller import Caller
from forwardpass.core.clock import FakeClock

NOON_S = 20_000 * 86_400.0 + 43_200
Result = TypeVar("Result")


def at_once(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of what never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result
    raise AssertionError("it waits")


@dataclass
class Ledger:
    """``wall`` is at noon of some day."""

    rules: tuple[QuotaRule, ...]
    accounts_max: int = 100_000
    clock: FakeClock = field(default_factory=FakeClock)
    wall: FakeClock = field(default_factory=lambda: FakeClock(NOON_S))

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock, self.wall, self.accounts_max)
        self.quotas = Quotas(self.rules, self.store, lambda pipeline: pipeline in ("p", "q"))

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.wall.advance(seconds)

    def entered(self, caller: Caller, body_bytes: int = 0, pipeline: str = "") -> Admission:
        admission = self.quotas.admission(caller, body_bytes)
        at_once(admission.enter(pipeline))
        return admission
