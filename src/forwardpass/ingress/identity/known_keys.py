"""The keys of the store as they were within the last second, in memory: no request waits for a file."""

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from forwardpass.core.caller import Caller
from forwardpass.core.errors import Failure
from forwardpass.ingress.identity.beside import beside
from forwardpass.store.keys import Key, KeyStore, digest_of

LOOK_S = 0.5
"""How often the store is looked at: a key that is revoked is refused within twice that."""

LOOKS_MAX = 10
"""Of so many looks one reads the store whatever its mark says: not every change of other programs leaves another."""

_NOBODY = Key("", "", frozenset(), 0.0, bytes(32), revoked_s=0.0)
_log = logging.getLogger("forwardpass.identity")


class KnownKeys:
    """While the store is away, locked or broken, what was known stays known, and is logged once.

    ``read`` is called, in a thread, after the keys were read.
    """

    def __init__(self, store: KeyStore, wall_s: Callable[[], float], read: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._wall_s = wall_s
        self._read = read
        self._mark: object = None
        self._found = False  # there was a store
        self._looks = 0
        self._away = ""
        self.reads = 0  # how often the keys were read
        self._by_digest: dict[bytes, Key] = {}
        self._by_subject: dict[str, Key] = {}
        self._by_id: dict[str, Key] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def caller(self, secret: bytes) -> Caller | None:
        """Whose key it is; the same way to None for one that is unknown, revoked or expired (FAULTS R17)."""
        digest = digest_of(secret)
        key = self._by_digest.get(digest, _NOBODY)
        same = hmac.compare_digest(digest, key.digest)
        return key.caller if key.holds(self._wall_s()) and same else None

    def of_subject(self, subject: str) -> Caller | None:
        """Who asks with a certificate of this subject."""
        key = self._by_subject.get(subject, _NOBODY)
        return key.caller if key.holds(self._wall_s()) else None

    def holds(self, id: str) -> bool:
        """Whether a caller who was known by this key still is."""
        return self._by_id.get(id, _NOBODY).holds(self._wall_s())

    def has(self, id: str) -> bool:
        """Whether there is a key of this id, one that holds or one that does no more."""
        return id in self._by_id

    def look(self) -> None:
        """Read the store if it has changed. Raises Misconfigured or OSError, and then knows what it knew."""
        before, self._mark = self._mark, None  # after what goes wrong nothing that is found is as it was
        mark = self._store.mark()
        if mark is None and self._found:
            raise FileNotFoundError("the store of keys is not there any more")
        self._looks += 1
        if mark is not None and (mark != before or self._looks % LOOKS_MAX == 0):
            self._take(self._store.listed())
            self._found = True
        self._mark = mark

    def _take(self, keys: Sequence[Key]) -> None:
        self._by_digest = {key.digest: key for key in keys if key.digest}
        self._by_subject = {key.subject: key for key in keys if key.subject and key.revoked_s is None}
        self._by_id = {key.id: key for key in keys}
        self.reads += 1
        self._read()

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Follow the store within the block. Raises Misconfigured when it cannot be read at the beginning."""
        await asyncio.to_thread(self.look)
        async with beside(self._watch):
            yield

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await asyncio.to_thread(self.look)
            except (OSError, Failure) as error:
                if not self._away:
                    self._away = str(error)
                    event = {"detail": self._away, "keys": len(self)}
                    _log.error("the store of keys cannot be read; what was known stays", extra={"event": event})
            else:
                if self._away:
                    self._away = ""
                    _log.info("the store of keys is read again", extra={"event": {"keys": len(self)}})
