"""How a caller stands with the limits that its request touched, and the headers that say so.

RateLimit and RateLimit-Policy as in draft-ietf-httpapi-ratelimit-headers, and OpenAI's own for its clients.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from forwardpass.admit.policy import DAY_S, full_s, left
from forwardpass.admit.rules import Account
from forwardpass.admit.store import Taken

Header = tuple[bytes, bytes]


class Standing(NamedTuple):
    account: Account
    used: float
    wall_s: float

    @property
    def share_left(self) -> float:
        return 1.0 - self.used / self.account.limit.capacity


class Standings:
    """The last that is known of each account."""

    __slots__ = ("_by_account",)

    def __init__(self) -> None:
        self._by_account: dict[str, Standing] = {}

    def add(self, taken: Taken) -> None:
        for (account, _), used in zip(taken.wanted, taken.used, strict=True):
            self._by_account[account.name] = Standing(account, used, taken.wall_s)

    def give(self, taken: Taken, back: Sequence[float]) -> None:
        for (account, _), amount in zip(taken.wanted, back, strict=True):
            known = self._by_account[account.name]
            self._by_account[account.name] = known._replace(used=max(0.0, known.used - amount))

    def headers(self, *, openai: bool) -> list[Header]:
        """Of several limits of one name (a caller's own and everybody's) the one with the least room."""
        tightest: dict[str, Standing] = {}
        for standing in self._by_account.values():
            known = tightest.setdefault(standing.account.policy, standing)
            if standing.share_left < known.share_left:
                tightest[standing.account.policy] = standing
        if not tightest:
            return []
        headers = [(b"RateLimit-Policy", ", ".join(map(_policy, tightest.values())).encode())]
        own = [standing for standing in tightest.values() if not standing.account.shared]
        if own:
            headers.append((b"RateLimit", ", ".join(map(_left, own)).encode()))
        if openai:
            headers += _openai(own, "requests")
            headers += _openai(own, "tokens")
        return headers


def _policy(standing: Standing) -> str:
    limit = standing.account.limit
    window = {"rate": limit.rate and limit.capacity / limit.rate, "day": DAY_S, "concurrent": 0.0}[limit.kind]
    seconds = f";w={math.ceil(window)}" if window else ""
    unit = "" if limit.unit == "requests" else f';qu="{limit.unit}"'
    return f'"{standing.account.policy}";q={math.floor(limit.capacity)}{unit}{seconds}'


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
    yield f"x-ratelimit-limit-{unit}".encode(), b"%d" % limit.capacity
    yield f"x-ratelimit-remaining-{unit}".encode(), b"%d" % left(limit, standing.used)
    yield f"x-ratelimit-reset-{unit}".encode(), b"%ds" % full
