"""How often an address may be wrong: whoever guesses keys is told to wait, and nobody else is."""

from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Refused

PER_SECOND = 20
ADDRESSES_MAX = 10_000
"""Addresses that are remembered; of more, those that were wrong longest ago are forgotten."""

_EACH_S = 1.0 / PER_SECOND


class Guesses:
    """A bucket of a second's guesses for each address, as the moment at which it is full again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._full_at_s: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._full_at_s)

    def count(self, address: str) -> None:
        """One more. Raises Refused rate_limited; callers of a Unix socket, who have no address, are never told so."""
        if not address:
            return
        now_s = self._clock()
        full_at_s = max(now_s, self._full_at_s.pop(address, now_s))
        over = full_at_s + _EACH_S - now_s > 1.0 + 1e-6
        self._full_at_s[address] = full_at_s if over else full_at_s + _EACH_S
        if len(self._full_at_s) > ADDRESSES_MAX:
            del self._full_at_s[next(iter(self._full_at_s))]
        if over:
            text = f"more than {PER_SECOND} wrong credentials a second came from this address"
            raise Refused(Code.RATE_LIMITED, text, retry_after_s=1.0)
