"""How many bytes the requests of all connections hold together (FAULTS V10): bodies that come in, and are answered."""

from collections.abc import Iterator
from contextlib import contextmanager

from forwardpass.core.errors import Code, Failed
from forwardpass.ingress.routes import SMALL_BODY_BYTES_MAX

SMALL_SHARE = 8
"""One part of so many is kept for small bodies: a few huge ones leave room for everybody else's."""


class BytesInFlight:
    """``held`` is what is here, not what was announced: a client that only says it will send much takes no room."""

    def __init__(self, bytes_max: int) -> None:
        self.held = 0
        self._bytes_max = bytes_max
        self._large_max = bytes_max - bytes_max // SMALL_SHARE

    def check(self, more: int, size: int) -> None:
        """Raises Failed bytes_in_flight_full where so many more, of a body of ``size`` in all, have no room."""
        room = self._bytes_max if size <= SMALL_BODY_BYTES_MAX else self._large_max
        if self.held + more > room:
            text = f"requests hold {self.held} bytes; with {more} more they are over limits.bytes_in_flight_max"
            raise Failed(Code.BYTES_IN_FLIGHT_FULL, text, retry_after_s=1.0)

    @contextmanager
    def lent(self, size: int, of: int) -> Iterator[None]:
        """So many bytes, made of a body of ``of``, are held while the block runs. Raises Failed bytes_in_flight_full."""
        self.check(size, of)
        self.held += size
        try:
            yield
        finally:
            self.held -= size
