"""Where accounts are kept, as those see it who take from them."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from forwardpass.admit.rules import Account

Wanted = tuple[Account, float]
"""An account and how much of it."""


@dataclass(slots=True)
class Taken:
    """What became of a taking. ``used`` is of each account: with what was taken, or, where nothing was, as it stands."""

    store: "Store"
    wanted: Sequence[Wanted]
    used: list[float]
    granted: bool
    now_s: float  # of the store's clock
    wall_s: float  # seconds since 1970, likewise
    lease: str = ""  # names what runs, where that can be forgotten

    def give(self, back: Sequence[float]) -> None:
        """So much of each account is given back; less than 0: so much more was used. At most once each."""
        self.store.give(self, back)


class Store(Protocol):
    """``take`` takes all that is wanted or nothing at all, whoever else takes at the same time."""

    def open(self) -> AbstractAsyncContextManager[object]:
        """``async with`` this while it is taken from."""

    def status(self) -> Mapping[str, object]:
        """For whoever runs the server."""

    async def take(self, wanted: Sequence[Wanted]) -> Taken: ...

    def give(self, taken: Taken, back: Sequence[float]) -> None:
        """Never waits and never fails; of requests that run it lets one go where ``back`` is not 0."""
