"""How a caller stands with the limits that its request touched, and the headers that say so.

RateLimit and RateLimit-Policy as in draft-ietf-httpapi-ratelimit-headers, and OpenAI's own for its clients.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from forwardpass.admit.policy import DAY_S, full_s, left
from forwardpass.admit.rules import Account, Limit
from forwardpass.admit.store import Taken

Header = tuple[bytes, bytes]


class Standing(NamedTuple):
    account: Account
    used: float  # and held
    wall_s: float

    @property
    def share_left(self) -> float:
        return 1.0 - self.used / self.account.limit.capacity


class Standings:
    """The last that is known of each account."""

    __slots__ = ("_taken",)

    def __init__(self) -> None:
        self._taken: list[Taken] = []

    def add(self, taken: Taken) -> None:
        """What became of a taking; its ``states`` may go on changing."""
        self._taken.append(taken)

    def headers(self, *, openai: bool) -> list[Header]:
        """Of several limits of one name (a caller's own and everybody's) the one with the least room."""
        latest = {
            account.name: Standing(account, state.total, taken.wall_s)
            for taken in self._taken
            for (account, _), state in zip(taken.wanted, taken.states, strict=True)
        }
        tightest: dict[str, Standing] = {}
        for standing in latest.values():
            known = tightest.setdefault(standing.account.policy, standing)
            if known is not standing and standing.share_left < known.share_left:
                tightest[standing.account.policy] = standing
        if not tightest:
            return []
        policies = [_policy(name, standing.account.limit) for name, standing in tightest.items()]
        headers = [(b"RateLimit-Policy", ", ".join(policies).encode())]
        own = [standing for standing in tightest.values() if not standing.account.shared]
        if own:
            headers.append((b"RateLimit", ", ".join(map(_left, own)).encode()))
        if openai:
            headers += _openai(own, "requests")
            headers += _openai(own, "tokens")
        return headers


@lru_cache(maxsize=4096)
def _policy(name: str, limit: Limit) -> str:
    window = {"rate": limit.rate and limit.capacity / limit.rate, "day": DAY_S, "concurrent": 0.0}[limit.kind]
    seconds = f";w={math.ceil(window)}" if window else ""
    unit = "" if limit.unit == "requests" else f';qu="{limit.unit}"'
    return f'"{name}";q={math.ceil(limit.capacity)}{unit}{seconds}'


def _left(standing: Standing) -> str:
    limit = standing.account.limit
    until = "" if limit.kind == "concurrent" else f";t={math.ceil(full_s(limit, standing.used, standing.wall_s))}"
    return f'"{standing.account.policy}";r={left(limit, standing.used)}{until}'


def _openai(standings: Sequence[Standing], unit: str) -> Iterator[Header]:
    """Of the one with the least room: its limit, what is left, and the seconds until it is full."""
    of_unit = [standing for standing in standings if standing.account.limit.unit == unit]
    if not of_unit:
        return
    standing = min(of_unit, key=lambda each: each.share_left)
    limit = standing.account.limit
    full = math.ceil(full_s(limit, standing.used, standing.wall_s))
    yield f"x-ratelimit-limit-{unit}".encode(), b"%d" % math.ceil(limit.capacity)
    yield f"x-ratelimit-remaining-{unit}".encode(), b"%d" % left(limit, standing.used)
    yield f"x-ratelimit-reset-{unit}".encode(), b"%ds" % full
