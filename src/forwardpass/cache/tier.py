"""What a server asks of a store of answers that several servers share: never waited for long, never needed."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from forwardpass.cache.kept import Kept


class SharedTier(Protocol):
    """``away``: it is not asked at the moment. Nothing here raises because of what is at the other end."""

    @property
    def away(self) -> bool: ...

    def opened(self) -> AbstractAsyncContextManager[None]:
        """While it is open it may be there."""

    async def find(self, pipeline: str, keys: Sequence[bytes], now: float) -> Mapping[bytes, Kept]:
        """What is kept there of these, with ``made_s`` on this server's clock."""

    def keep(self, pipeline: str, key: bytes, kept: Kept, now: float, ttl_s: float) -> None:
        """Written before long, or never."""

    async def purge(self, pipeline: str) -> int | None:
        """Everything of that pipeline goes, or of all for ""; how many those were, None if that could not be done."""

    def status(self) -> dict[str, Any]: ...
