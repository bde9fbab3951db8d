"""How many requests one caller may make: a bucket of tokens per caller, and the headers that tell how full it is.

A bucket is one number, the moment at which it will be full again: nothing has to run for buckets to fill.
"""

import math
from dataclasses import dataclass

from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.routes import Family

CALLERS_MAX = 10_000
"""Callers whose buckets are kept; of more, those that asked longest ago are forgotten: nearly always full ones."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a caller has left: requests now, and the seconds until the bucket is full and until there is one request."""

    remaining: int
    full_s: float
    next_s: float


@dataclass(frozen=True, slots=True)
class Quota:
    """So many requests in a window, evenly refilled; all of them at once if none was made for that long."""

    requests: int
    window_s: float = 60.0

    def standing(self, full_at_s: float, now_s: float) -> Standing:
        each_s = self.window_s / self.requests
        full_s = max(0.0, full_at_s - now_s)
        remaining = math.floor((self.window_s - full_s) / each_s + 1e-6)
        return Standing(max(0, remaining), full_s, max(0.0, full_s + each_s - self.window_s))

    def taken(self, full_at_s: float, now_s: float) -> float:
        """When the bucket is full again after one request more."""
        return max(full_at_s, now_s) + self.window_s / self.requests


class Rates:
    """The buckets of the callers; whoever is not known has a full one."""

    def __init__(self, quota: Quota, clock: Clock) -> None:
        self._quota = quota
        self._clock = clock
        self._full_at_s: dict[str, float] = {}  # by caller, who asked last at the end

    def __len__(self) -> int:
        return len(self._full_at_s)

    def take(self, caller: str) -> None:
        """Count one request. Raises Refused rate_limited, which costs the caller nothing."""
        now_s = self._clock()
        full_at_s = self._full_at_s.get(caller, now_s)
        standing = self._quota.standing(full_at_s, now_s)
        if not standing.remaining:
            text = f"more than {self._quota.requests} requests in {self._quota.window_s:g} s; the next in"
            wait_s = math.ceil(standing.next_s)
            raise Refused(Code.RATE_LIMITED, f"{text} {wait_s} s", retry_after_s=standing.next_s)
        self._full_at_s.pop(caller, None)
        self._full_at_s[caller] = self._quota.taken(full_at_s, now_s)
        if len(self._full_at_s) > CALLERS_MAX:
            del self._full_at_s[next(iter(self._full_at_s))]

    def headers(self, caller: str, family: Family) -> list[tuple[bytes, bytes]]:
        """How the caller stands, for every answer: the RateLimit fields, and OpenAI's own for its clients."""
        now_s = self._clock()
        standing = self._quota.standing(self._full_at_s.get(caller, now_s), now_s)
        limit, left, full_s = self._quota.requests, standing.remaining, math.ceil(standing.full_s)
        headers = [
            (b"RateLimit-Policy", b'"default";q=%d;w=%d' % (limit, self._quota.window_s)),
            (b"RateLimit", b'"default";r=%d;t=%d' % (left, full_s)),
        ]
        if family == "openai":
            headers += [
                (b"x-ratelimit-limit-requests", b"%d" % limit),
                (b"x-ratelimit-remaining-requests", b"%d" % left),
                (b"x-ratelimit-reset-requests", b"%ds" % full_s),
            ]
        return headers
