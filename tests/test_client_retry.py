"""Whether, when and how often the Python client tries again, decided without a network."""

import pickle
from typing import Any

import pytest

from forwardpass.client_retry import (
    ConnectionFailed,
    DeadlineError,
    ForwardpassError,
    OverloadedError,
    RequestError,
    Retries,
    RetryBudget,
    ServerError,
    retry_wait_s,
)
from forwardpass.core.clock import FakeClock

BUSY = OverloadedError("queue_full", "full")
LOST = ConnectionFailed("connection_failed", "lost")


def busy(retry_after_s: float) -> OverloadedError:
    error = OverloadedError("queue_full", "full")
    error.retry_after_s = retry_after_s
    return error


def never_sent() -> ConnectionFailed:
    error = ConnectionFailed("connection_failed", "refused")
    error.sent = False
    return error


@pytest.mark.parametrize(
    ("error", "attempt", "left_s", "tokens", "factor", "wait_s"),
    [
        (BUSY, 1, 30.0, 10.0, 1.0, 0.1),
        (LOST, 1, 30.0, 10.0, 1.0, 0.1),
        (BUSY, 2, 30.0, 10.0, 1.2, 0.24),
        (BUSY, 3, 30.0, 10.0, 0.8, 0.32),
        (BUSY, 3, 0.32, 10.0, 0.8, None),  # it would wait until the deadline
        (BUSY, 8, 30.0, 10.0, 1.0, 5.0),  # the longest wait of its own
        (BUSY, 9, 30.0, 10.0, 1.0, None),  # attempts_max
        (BUSY, 1, 30.0, 1.0, 1.0, 0.1),
        (BUSY, 1, 30.0, 0.9, 1.0, None),  # no token
        (busy(7.0), 1, 30.0, 10.0, 1.2, 7.0),  # the server's advice is kept to
        (busy(7.0), 1, 7.0, 10.0, 0.8, None),
        (busy(0.0), 2, 30.0, 10.0, 1.0, 0.0),
        (RequestError("wrong_type", "no"), 1, 30.0, 10.0, 1.0, None),
        (ServerError("internal", "no"), 1, 30.0, 10.0, 1.0, None),
        (DeadlineError("deadline_exceeded", "no"), 1, 30.0, 10.0, 1.0, None),
    ],
)
def test_may_it_be_tried_again_and_when(
    error: ForwardpassError, attempt: int, left_s: float, tokens: float, factor: float, wait_s: float | None
) -> None:
    budget = RetryBudget(attempts_max=9)
    decided = retry_wait_s(error, budget, attempt=attempt, left_s=left_s, tokens=tokens, factor=factor)
    assert decided == (None if wait_s is None else pytest.approx(wait_s))


@pytest.mark.parametrize(
    ("error", "again"),
    [
        *[(OverloadedError(code, "no"), True) for code in ("queue_full", "queue_wait_too_long", "not_ready")],
        *[(OverloadedError(code, "no"), True) for code in ("model_unavailable", "sequences_full")],
        (OverloadedError("shutting_down", "it ends what runs"), False),
        (OverloadedError("unknown", "a proxy says so"), False),
        (LOST, False),
        (never_sent(), True),
        (RequestError("sequence_lost", "no"), False),
        (ServerError("internal", "no"), False),
        (DeadlineError("deadline_exceeded", "no"), False),
    ],
)
def test_what_must_not_run_twice_is_tried_again_only_if_it_surely_did_not_run(
    error: ForwardpassError, again: bool
) -> None:
    decided = retry_wait_s(error, RetryBudget(), attempt=1, left_s=9.0, tokens=9.0, factor=1.0, repeatable=False)
    assert (decided is not None) is again


def test_no_attempt_starts_after_the_deadline() -> None:
    clock = FakeClock()
    attempts = Retries(RetryBudget(), clock=clock, jitter=lambda: 1.0).call(1.0)
    clock.advance(0.75)
    assert attempts.left_s() == 0.25
    assert attempts.wait_s(BUSY) == 0.1
    clock.advance(0.25)
    with pytest.raises(DeadlineError):
        attempts.left_s()


@pytest.mark.parametrize("options", [{"attempts_max": 0}, {"earned": -0.1}, {"wait_first_s": -1.0}])
def test_a_budget_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        RetryBudget(**options)


def test_an_error_survives_pickling() -> None:
    error = OverloadedError("queue_full", "full", field="/text", request_id="r1", status=503)
    error.retry_after_s = 2.0
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.field, again.status, again.retry_after_s) == (
        "full (queue_full, request r1)",
        "/text",
        503,
        2.0,
    )
