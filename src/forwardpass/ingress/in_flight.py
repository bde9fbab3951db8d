"""How many bytes the requests of all connections hold together (FAULTS V10): what came in, until it is answered."""

from collections.abc import Callable
from typing import Protocol

from forwardpass.core.clock import jitter
from forwardpass.core.errors import Code, Failed
from forwardpass.ingress.routes import SMALL_BODY_BYTES_MAX

SMALL_SHARE = 8
"""One part of so many is kept for small bodies: a few huge ones leave room for everybody else's."""
RETRY_S = 2.0


class Elsewhere(Protocol):
    """What other processes of this server hold, and are told that this one does."""

    def held_elsewhere(self) -> int: ...

    def held_elsewhere_of(self, address: str) -> int: ...

    def tell_held(self, count: int, more: int, address: str) -> None: ...


class BytesInFlight:
    """``held`` is what is here, not what was announced: a client that only says it will send much takes no room.

    Of the room for large bodies one address has half at most, so that it alone keeps nobody out. ``refuse_work`` raises
    while memory is short: then there is none for them.
    """

    def __init__(self, bytes_max: int, refuse_work: Callable[[], None] = lambda: None) -> None:
        self.held = 0
        self._elsewhere: Elsewhere | None = None
        self._bytes_max = bytes_max
        self._large_max = bytes_max - bytes_max // SMALL_SHARE
        self._address_max = self._large_max // 2
        self.refuse_work = refuse_work
        self._of_address: dict[str, int] = {}

    def join(self, elsewhere: Elsewhere) -> None:
        """From now on the limits hold over all processes together."""
        self._elsewhere = elsewhere
        elsewhere.tell_held(self.held, 0, "")

    def hold(self, more: int, address: str = "") -> None:
        """So many bytes more are here, or fewer; callers without an address cannot be told apart."""
        self.held += more
        if address:
            held = self._of_address.get(address, 0) + more
            if held:
                self._of_address[address] = held
            else:
                self._of_address.pop(address, None)
        if self._elsewhere is not None:
            self._elsewhere.tell_held(self.held, more, address)

    def room(self, size: int) -> bool:
        """Whether a small body of so many bytes has room."""
        return self._all() + size <= self._bytes_max

    def check(self, more: int, size: int, address: str = "") -> None:
        """Raises Failed bytes_in_flight_full where so many more, of a body of ``size`` in all, have no room.

        For one that is not small also as ``refuse_work`` does.
        """
        held = self._all()
        if size <= SMALL_BODY_BYTES_MAX:
            if held + more > self._bytes_max:
                raise self._full(more, held, self._bytes_max)
            return
        self.refuse_work()
        if held + more > self._large_max:
            raise self._full(more, held, self._large_max)
        elif address and (held := self._held_of(address)) + more > self._address_max:
            raise self._full(more, held, self._address_max)

    def _all(self) -> int:
        return self.held if self._elsewhere is None else self.held + self._elsewhere.held_elsewhere()

    def _held_of(self, address: str) -> int:
        held = self._of_address.get(address, 0)
        return held if self._elsewhere is None else held + self._elsewhere.held_elsewhere_of(address)

    def _full(self, more: int, held: int, room: int) -> Failed:
        """What strangers are told says nothing of what others do."""
        text = "there is no room for so large a request at the moment"
        detail = f"{held} bytes of {room} are held, and {more} more were to come; limits.bytes_in_flight_max"
        return Failed(Code.BYTES_IN_FLIGHT_FULL, text, detail=detail, retry_after_s=RETRY_S * jitter())
