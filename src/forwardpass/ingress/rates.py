"""How many requests one address may make in a minute: the bucket of a quota, for whoever is behind it."""

import math

from forwardpass.admit.memory import MemoryStore
from forwardpass.admit.policy import wait_s
from forwardpass.admit.rules import Account, limit_of
from forwardpass.admit.standing import Standings
from forwardpass.core.clock import Clock
from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.routes import Family

CALLERS_MAX = 10_000
"""Callers whose buckets are kept; of more, those that asked longest ago are forgotten: nearly always full ones."""


class Rates:
    """The buckets of the callers; whoever is not known has a full one."""

    def __init__(self, requests_per_minute: int, clock: Clock) -> None:
        self._store = MemoryStore(clock, clock, CALLERS_MAX)
        self._limit = limit_of("requests_per_minute", requests_per_minute)

    def __len__(self) -> int:
        return len(self._store)

    def take(self, caller: str) -> None:
        """Count one request. Raises Refused rate_limited, which costs the caller nothing."""
        taken = self._store.take_now([(self._account(caller), 1.0)])
        if not taken.granted:
            next_s = wait_s(self._limit, taken.states[0], 1.0, 0.0)
            text = f"more than {self._limit.quantity:.15g} requests in 60 s; the next in {math.ceil(next_s)} s"
            raise Refused(Code.RATE_LIMITED, text, retry_after_s=next_s)

    def headers(self, caller: str, family: Family) -> list[tuple[bytes, bytes]]:
        """How the caller stands, for every answer: the RateLimit fields, and OpenAI's own for its clients."""
        standings = Standings()
        standings.add(self._store.look([self._account(caller)]))
        return standings.headers(openai=family == "openai")

    def _account(self, caller: str) -> Account:
        return Account(caller, self._limit, caller, "default", shared=False)
