"""What can go wrong with a call to a server, and whether, when and how often it is tried again. Pure, but for the tokens.

ForwardpassError        a call, or one record of it, that got no outputs
├── RequestError        4xx: the same request will be refused again; never retried
├── OverloadedError     429, 503: refused before it ran; ``retry_after_s`` is the server's advice
├── ServerError         5xx, or an answer that is not what was agreed
├── DeadlineError       no answer in time: by our clock, or 504 by the server's
└── ConnectionFailed    not sent, or sent and the connection lost before the answer was here

A request of a sequence changes what is kept of it. It is tried again only after what surely did not run it.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from forwardpass.core.clock import Clock, jitter, monotonic_s
from forwardpass.core.errors import Code

NO_CODE = "unknown"
"""The code of an error that did not come from forwardpass, e.g. of a proxy on the way."""

NOT_RUN = frozenset(
    {
        Code.QUEUE_FULL, Code.QUEUE_BYTES_FULL, Code.QUEUE_WAIT_TOO_LONG, Code.TOO_MANY_CONNECTIONS, Code.NOT_READY,
        Code.MODEL_UNAVAILABLE, Code.SEQUENCES_FULL, Code.SHED,
    }
)  # fmt: skip
"""With these the server turns a request away at the door. Not with shutting_down: that also ends what runs."""


class ForwardpassError(Exception):
    """``code`` is stable (``core/errors.py`` lists the server's); ``status`` is None when there was no answer."""

    def __init__(
        self, code: str, message: str, *, field: str = "", request_id: str = "", status: int | None = None
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.field = field
        self.request_id = request_id
        self.status = status

    def __str__(self) -> str:
        request = f", request {self.request_id}" if self.request_id else ""
        return f"{self.message} ({self.code}{request})"


class RequestError(ForwardpassError):
    """The caller's fault."""


class OverloadedError(ForwardpassError):
    """The server cannot take it now."""

    retry_after_s: float | None = None


class ServerError(ForwardpassError):
    """The server's fault."""


class DeadlineError(ForwardpassError):
    """The time given was not enough."""


class ConnectionFailed(ForwardpassError):
    """Nobody knows whether the server has seen it, unless ``sent`` is False: then there was no connection to send it on.

    Outside a sequence inference changes nothing there, so it may be sent again.
    """

    sent: bool = True


def error_class(status: int | None) -> type[ForwardpassError]:
    """The class for an HTTP status other than 200."""
    match status:
        case None:
            return ForwardpassError
        case 429 | 503:
            return OverloadedError
        case 504:
            return DeadlineError
        case _:
            return RequestError if 400 <= status < 500 else ServerError


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """How hard to try. A request earns ``earned`` tokens and a retry costs one, of at most ``tokens_max`` (all there at
    the start): in the long run one request in ten is retried, so that retries cannot feed an overload."""

    attempts_max: int = 3
    wait_first_s: float = 0.1  # doubled with each attempt, when the server gives no Retry-After
    wait_max_s: float = 5.0  # of our own waits; a longer Retry-After is kept to
    earned: float = 0.1
    tokens_max: float = 10.0

    def __post_init__(self) -> None:
        if self.attempts_max < 1 or min(self.wait_first_s, self.wait_max_s, self.earned, self.tokens_max) < 0:
            raise ValueError("a RetryBudget allows at least 1 attempt and has no negative numbers")


def retry_wait_s(
    error: ForwardpassError,
    budget: RetryBudget,
    *,
    attempt: int,
    left_s: float,
    tokens: float,
    factor: float,
    repeatable: bool = True,
) -> float | None:
    """How long to wait before the next attempt, None when there is to be none.

    ``attempt`` counts those made; ``factor`` is the jitter, which the server's own advice is spared. What is not
    ``repeatable`` must not run twice.
    """
    if not isinstance(error, OverloadedError | ConnectionFailed):
        return None
    if not repeatable and not surely_not_run(error):
        return None
    if attempt >= budget.attempts_max or tokens < 1:
        return None
    wait_s = min(budget.wait_first_s * 2 ** (attempt - 1), budget.wait_max_s) * factor
    if isinstance(error, OverloadedError) and error.retry_after_s is not None:
        wait_s = error.retry_after_s
    return wait_s if wait_s < left_s else None


def surely_not_run(error: ForwardpassError) -> bool:
    """Whether what was asked for has not run and will not: as far as the error tells, in doubt False."""
    if isinstance(error, ConnectionFailed):
        return not error.sent
    return isinstance(error, OverloadedError) and error.code in NOT_RUN


class Retries:
    """A client's budget and what is left of it; used by all its calls, from any thread."""

    def __init__(
        self, budget: RetryBudget, *, clock: Clock = monotonic_s, jitter: Callable[[], float] = jitter
    ) -> None:
        self._budget = budget
        self._clock = clock
        self._jitter = jitter
        self._tokens = budget.tokens_max
        self._lock = threading.Lock()

    def call(self, deadline_s: float, *, repeatable: bool = True) -> "Attempts":
        """A new call, to be done in ``deadline_s`` from now."""
        with self._lock:
            self._tokens = min(self._tokens + self._budget.earned, self._budget.tokens_max)
        return Attempts(self, self._clock, self._clock() + deadline_s, repeatable)

    def wait_s(self, error: ForwardpassError, attempt: int, left_s: float, repeatable: bool) -> float | None:
        """``retry_wait_s``; takes the token of the retry it allows."""
        factor = self._jitter()
        with self._lock:
            wait_s = retry_wait_s(
                error,
                self._budget,
                attempt=attempt,
                left_s=left_s,
                tokens=self._tokens,
                factor=factor,
                repeatable=repeatable,
            )
            if wait_s is not None:
                self._tokens -= 1
        return wait_s


class Attempts:
    """The tries of one call: ask ``left_s`` before each, ``wait_s`` after each that failed."""

    def __init__(self, retries: Retries, clock: Clock, end_s: float, repeatable: bool) -> None:
        self._retries = retries
        self._clock = clock
        self._end_s = end_s
        self._repeatable = repeatable
        self._made = 0

    def left_s(self) -> float:
        """Seconds left of the deadline, more than 0. Raises DeadlineError."""
        left_s = self._end_s - self._clock()
        if left_s <= 0:
            raise out_of_time()
        return left_s

    def wait_s(self, error: ForwardpassError) -> float:
        """Seconds to wait before the next attempt. Raises ``error`` when it is final."""
        self._made += 1
        wait_s = self._retries.wait_s(error, self._made, self._end_s - self._clock(), self._repeatable)
        if wait_s is None:
            raise error
        return wait_s


def out_of_time() -> DeadlineError:
    return DeadlineError("deadline_exceeded", "no answer came before the deadline")
