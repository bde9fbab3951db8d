"""Who asks: the identity that a request carries from the door to the books (FAULTS R17)."""

import re
from typing import Literal

import msgspec

Scope = Literal["open", "read", "infer", "jobs", "receipts", "admin"]
"""What a route needs. A key's scopes are ``infer`` or ``infer:PIPELINE``, ``jobs``, ``receipts``, ``admin``."""

Priority = Literal["critical", "standard", "sheddable"]
"""In this order requests are served; in the other one they are refused when there is no room."""

PRIORITIES: dict[Priority, int] = {"critical": 1, "standard": 5, "sheddable": 9}
"""What a class is as a number, 1 the highest."""

EVERYTHING = frozenset({"infer", "jobs", "receipts", "admin"})

_SCOPE = re.compile(r"infer(:[a-z0-9._-]{1,64})?|jobs|receipts|admin")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


def is_scope(text: str) -> bool:
    """Whether a key may have it."""
    return _SCOPE.fullmatch(text) is not None


def is_tenant(text: str) -> bool:
    """Whether it can name one: 1 to 64 letters, digits and ``. _ - @``, the first of them a letter or digit."""
    return _TENANT.fullmatch(text) is not None


class Caller(msgspec.Struct, frozen=True):
    """``tenant`` owns what is stored for it; ``id`` names the key, token subject or certificate, never the secret."""

    tenant: str
    id: str = ""
    scopes: frozenset[str] = EVERYTHING
    priority: Priority = "standard"  # the highest that its requests may have, and theirs if they name none
    expires_s: float | None = None  # seconds since 1970; a stream ends then

    @property
    def peers(self) -> str:
        """Who may be given again what it was answered: callers of its tenant who may do the same."""
        return " ".join((self.tenant, *sorted(self.scopes)))

    def may(self, scope: str, pipeline: str = "") -> bool:
        """Whether a route of that scope is for it; ``pipeline``, where one is meant, must be one it may ask.

        Where none is known yet it is enough that there is one.
        """
        if scope == "open":
            return True
        if scope == "infer" and pipeline:
            return "infer" in self.scopes or f"infer:{pipeline}" in self.scopes
        if scope == "infer":
            return any(own.startswith("infer") for own in self.scopes)
        if scope == "read":
            return not pipeline or "admin" in self.scopes or self.may("infer", pipeline)
        return scope in self.scopes or (scope == "receipts" and "admin" in self.scopes)


ANONYMOUS = Caller("anonymous")
"""Everybody, where nobody need say who they are: on loopback, without ``auth.required``."""
