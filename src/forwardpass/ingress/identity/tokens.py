"""Signed tokens of an issuer (JWT, RFC 7519) as callers: who is named there may ask what is said there."""

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from forwardpass.core.caller import Caller, is_scope, is_tenant
from forwardpass.core.errors import Code, Failed, Misconfigured, Problem
from forwardpass.store.keys import digest_of

if TYPE_CHECKING:
    from jwt import PyJWK

    from forwardpass.ingress.identity.issuer_keys import IssuerKeys

ID_PREFIX = "token:"
"""Before the subject in a caller's id, so that it is nobody's key."""

TOKEN_BYTES_MAX = 8 * 1024
KEPT_MAX = 10_000
"""Tokens whose signature need not be checked again."""

LIFETIME_S_MAX = 24 * 3600.0
"""A token that would hold for longer is not taken: it cannot be taken back."""

LEEWAY_S = 5.0  # that the issuer's clock may differ
SUBJECT_CHARACTERS_MAX = 256
_FORM = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_ALGORITHMS = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""By kind of key, never by what a token says of itself: none of them is a shared secret, none of them is "none"."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say to be taken, and where it says who asks and what for."""

    issuer: str
    audience: str
    tenant_claim: str = "tenant"
    scope_claim: str = "scope"


class Tokens:
    """A token that was checked once is known until it expires, or the issuer's keys are read again."""

    def __init__(
        self, rules: TokenRules, keys: "IssuerKeys", wall_s: Callable[[], float], kept_max: int = KEPT_MAX
    ) -> None:
        """Raises Misconfigured runtime_missing."""
        if find_spec("jwt") is None:
            problem = Problem("settings", "auth.jwks", "pyjwt is not installed", "pip install 'forwardpass[auth]'")
            raise Misconfigured(Code.RUNTIME_MISSING, (problem,))
        self._rules = rules
        self._keys = keys
        self._wall_s = wall_s
        self._kept_max = kept_max
        self._kept: OrderedDict[bytes, Caller] = OrderedDict()
        self._kept_of = 0  # which reading of the keys they were checked with

    def __len__(self) -> int:
        return len(self._kept)

    async def caller(self, token: bytes) -> Caller | None:
        """None for what is no token, or none of this issuer for us that holds now.

        Raises Failed not_ready while the issuer's keys could not be read even once.
        """
        if len(token) > TOKEN_BYTES_MAX or _FORM.fullmatch(token) is None:
            return None
        self._forget_old()
        digest = digest_of(token)
        caller = self._kept.get(digest)
        if caller is None:
            caller = await self._checked(token.decode())
            if caller is None:
                return None
            self._forget_old()
            self._kept[digest] = caller
            if len(self._kept) > self._kept_max:
                self._kept.popitem(last=False)
        assert caller.expires_s is not None, "a token without an end is not taken"
        return caller if self._wall_s() < caller.expires_s else None

    def known(self, token: bytes) -> Caller | None:
        """The caller of one that was checked before and still holds; None says nothing."""
        self._forget_old()
        caller = self._kept.get(digest_of(token))
        return caller if caller is not None and self._wall_s() < (caller.expires_s or 0.0) else None

    def _forget_old(self) -> None:
        if self._kept_of != self._keys.reads:
            self._kept.clear()
            self._kept_of = self._keys.reads

    async def _checked(self, token: str) -> Caller | None:
        import jwt

        try:
            id = jwt.get_unverified_header(token).get("kid", "")
            key = await self._keys.find(id) if isinstance(id, str) else None
            if not self._keys.reads:
                raise Failed(Code.NOT_READY, "the issuer's keys could not be read yet", retry_after_s=5.0)
            return None if key is None else self._caller(_claims(token, key, self._rules))
        except (jwt.PyJWTError, ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError):
            return None  # whatever it is, it is none that we take

    def _caller(self, claims: Mapping[str, Any]) -> Caller | None:
        tenant, subject = claims.get(self._rules.tenant_claim), claims["sub"]
        listed = claims.get(self._rules.scope_claim, ())
        scopes = listed.split() if isinstance(listed, str) else listed if isinstance(listed, list) else []
        if not isinstance(tenant, str) or not is_tenant(tenant):
            return None
        expires_s = claims["exp"]
        if type(expires_s) not in (int, float) or expires_s - self._wall_s() > LIFETIME_S_MAX + LEEWAY_S:
            return None
        if not subject.isprintable() or not 0 < len(subject) <= SUBJECT_CHARACTERS_MAX:
            return None
        # An issuer has scopes of its own beside ours ("openid"): they say nothing here.
        ours = frozenset(scope for scope in scopes if isinstance(scope, str) and is_scope(scope))
        return Caller(tenant, ID_PREFIX + subject, ours, expires_s=float(expires_s) + LEEWAY_S)


def _claims(token: str, key: "PyJWK", rules: TokenRules) -> dict[str, Any]:
    """What a token says whose signature, times, issuer and audience are right. Raises what pyjwt raises."""
    import jwt

    claims: dict[str, Any] = jwt.decode(
        token,
        key.key,
        algorithms=[*_ALGORITHMS[key.key_type or ""]],
        audience=rules.audience,
        issuer=rules.issuer,
        leeway=LEEWAY_S,
        options={"require": ["exp", "iss", "aud", "sub"]},
    )
    return claims
