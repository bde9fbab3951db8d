"""Who asks: by a key, a token or a certificate. What is wrong with one that is refused, nobody is told."""

import logging
import shlex
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from forwardpass.core.caller import Caller
from forwardpass.core.clock import Clock, wall_s
from forwardpass.core.errors import Code, Refused
from forwardpass.ingress.identity.credentials import credential
from forwardpass.ingress.identity.guesses import Guesses
from forwardpass.ingress.identity.known_keys import KnownKeys
from forwardpass.ingress.identity.tokens import ID_PREFIX, TokenRules, Tokens
from forwardpass.ingress.message import HttpRequest
from forwardpass.store.keys import KeyStore

if TYPE_CHECKING:
    from forwardpass.ingress.identity.issuer_keys import IssuerKeys

_log = logging.getLogger("forwardpass.identity")


class KnownCallers:
    """The edge's Identity, over the keys of a store and, with ``jwks``, the tokens of an issuer.

    ``expected``: ids that callers should have, being those of quotas; one that nobody has is logged.
    """

    def __init__(
        self,
        store: KeyStore,
        clock: Clock,
        jwks: str = "",
        rules: TokenRules | None = None,
        expected: Collection[str] = (),
    ) -> None:
        """Raises Misconfigured runtime_missing where tokens are to be read and cannot be."""
        self._store = store
        self._expected = frozenset(expected)
        self._missing: frozenset[str] = frozenset()
        self._keys = KnownKeys(store, wall_s, self._tell_of_missing)
        self._issuer = _issuer(jwks, clock) if jwks else None
        self._tokens = Tokens(rules, self._issuer, wall_s) if self._issuer is not None and rules is not None else None
        self._guesses = Guesses(clock)

    async def caller(self, http: HttpRequest) -> Caller:
        """Raises Refused unauthenticated; bad_request for two credentials; rate_limited for who is often wrong.

        A certificate counts where no key or token is sent.
        """
        given = credential(http.headers)
        if given is None and not http.subject:
            text = "say who asks, with Authorization: Bearer KEY or X-API-Key: KEY"
            raise Refused(Code.UNAUTHENTICATED, text, field="Authorization")
        found = self._keys.of_subject(http.subject) if given is None else self._keys.caller(given)
        if found is None and given is not None and self._tokens is not None:
            found = await self._tokens.caller(given)
        if found is None:
            self._guesses.count(http.peer)
            if given is None:
                event = {"subject": http.subject}
                _log.warning("a certificate is nobody's; forwardpass keys create --subject", extra={"event": event})
            text = "the key, token or certificate is not accepted"
            raise Refused(Code.UNAUTHENTICATED, text, field="Authorization")
        return found

    @property
    def changes(self) -> int:
        return self._keys.reads + (self._issuer.reads if self._issuer is not None else 0)

    def known(self, http: HttpRequest) -> Caller | None:
        try:
            given = credential(http.headers)
        except Refused:
            return None
        if given is None:
            return self._keys.of_subject(http.subject) if http.subject else None
        found = self._keys.caller(given)
        return self._tokens.known(given) if found is None and self._tokens is not None else found

    def holds(self, caller: Caller) -> bool:
        return caller.expires_s is None or wall_s() < caller.expires_s

    def knows(self, caller: Caller) -> bool:
        """Whether one who was known still is, for answers that take long."""
        if caller.expires_s is not None and wall_s() >= caller.expires_s:
            return False
        return caller.id.startswith(ID_PREFIX) or self._keys.holds(caller.id)

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Follow keys and issuer within the block. Raises Misconfigured when the store cannot be read."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._keys.watched())
            self._tell_of_missing()
            if self._issuer is not None:
                await stack.enter_async_context(self._issuer.watched())
            elif not len(self._keys):
                setting = shlex.quote(f"run.data={self._store.path.parent.absolute()}")
                first = f"forwardpass keys create --tenant NAME --scope infer --set {setting}"
                _log.warning("there is no key yet, so nobody may ask; make one", extra={"event": {"command": first}})
            yield

    def _tell_of_missing(self) -> None:
        """After every change of the keys."""
        tokens = self._tokens is not None
        missing = frozenset(
            id for id in self._expected if not (self._keys.has(id) or (tokens and id.startswith(ID_PREFIX)))
        )
        if missing - self._missing:
            text = (
                "quotas are for keys that there are not; a key has an id (forwardpass keys list), a token token:SUBJECT"
            )
            _log.warning(text, extra={"event": {"keys": sorted(missing)}})
        self._missing = missing


def _issuer(jwks: str, clock: Clock) -> "IssuerKeys":
    from forwardpass.ingress.identity.issuer_keys import IssuerKeys  # with an HTTP client, which few servers need

    return IssuerKeys(jwks, clock)
