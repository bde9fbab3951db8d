"""What a client may ask for that costs it nothing, before its connection is told to calm down (FAULTS H30)."""

from forwardpass.core.clock import Clock
from forwardpass.ingress.grpc.frames import Broken, Reason

STRIKES_MAX = 1000.0
FORGIVEN_PER_S = 200.0

FRAME = 1.0  # that asks for nothing
RESET = 5.0  # of a call that had hardly begun, by the client or for its mistake: it had us work, and holds no place
SCRAP = 0.25  # data for a call that we ended, as honest clients have it under way, or next to no data
SCRAP_BYTES = 16
BLOCK_BYTES = 1024  # of headers for one strike

CALL_FORGIVES = 5.0  # one that was answered, whatever the answer, or given up after it ran for a while
MESSAGE_FORGIVES = 10.0  # clients ping, and widen two windows, as they read
SENT_BYTES_FORGIVE = 2048  # one strike: likewise, for every frame of a large message


class Budget:
    """Strikes of one connection. What it is sent forgives, and time: only a flood, or nothing but mistakes, adds up."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._strikes = 0.0
        self._forgiven_s = clock()

    def strike(self, weight: float) -> None:
        """Raises Broken once they are too many."""
        self._strikes += weight
        if self._strikes > STRIKES_MAX / 2:
            now_s = self._clock()
            self._strikes = max(0.0, self._strikes - (now_s - self._forgiven_s) * FORGIVEN_PER_S)
            self._forgiven_s = now_s
            if self._strikes > STRIKES_MAX:
                raise Broken(Reason.ENHANCE_YOUR_CALM, "too much that asks for nothing")

    def forgive(self, weight: float) -> None:
        self._strikes = max(0.0, self._strikes - weight)
