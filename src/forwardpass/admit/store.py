"""Where accounts are kept, as those see it who take from them."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from forwardpass.admit.policy import State
from forwardpass.admit.rules import Account

Wanted = tuple[Account, float]
"""An account and how much of it."""


@dataclass(slots=True)
class Taken:
    """What became of a taking. ``states`` is of each account: with what was taken, or, where nothing was, as it stands."""

    store: "Store"
    wanted: Sequence[Wanted]
    states: list[State]
    granted: bool
    now_s: float  # of the store's clock
    wall_s: float  # seconds since 1970, likewise
    lease: str = ""  # names what is held, where that can be forgotten
    here: "Taken | None" = None  # the same in this server's own accounts, where those of others count

    def settle(self, used: Sequence[float]) -> None:
        """So much of each account was used in the end. Once, of what was granted."""
        self.store.settle(self, used)


class Store(Protocol):
    """``take`` takes all that is wanted or nothing at all, whoever else takes at the same time."""

    waits: bool
    """Whether ``take`` asks others."""

    def open(self) -> AbstractAsyncContextManager[object]:
        """``async with`` this while it is taken from."""

    def status(self) -> Mapping[str, object]:
        """For whoever runs the server."""

    async def take(self, wanted: Sequence[Wanted]) -> Taken: ...

    def settle(self, taken: Taken, used: Sequence[float]) -> None:
        """Never waits and never fails; ``taken.states`` are then as they stand afterwards."""
