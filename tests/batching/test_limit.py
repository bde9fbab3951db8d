"""The learnt limit against curves whose best size is known by arithmetic: seconds = a + b · rows, and others."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forwardpass.batching.limit import HAND_OFF_S, KEYS_MAX, ROWS_MOST, Limit, Limits
from forwardpass.core.pipeline import Batch

Curve = Callable[[int], float]


def picture(rows: int) -> float:
    """Company gains it a twentieth at most."""
    return 0.0005 + 0.010 * rows


def table(rows: int) -> float:
    """Nearly all of a batch is what it takes for itself."""
    return 0.00005 + 0.000002 * rows


def text(rows: int) -> float:
    return 0.004 + 0.002 * rows


def crowded(rows: int) -> float:
    """Large batches no longer fit into a cache."""
    return 0.001 + 0.001 * rows + (0.002 * (rows - 16) if rows > 16 else 0.0)


def stepped(rows: int) -> float:
    """Up to eight rows run as quickly as one."""
    return 0.010 * max(1.0, rows / 8)


class Traffic:
    """Batches of one key: ``waiting`` rows or up to a third fewer wait each time, in requests of ``each``; times are noisy."""

    def __init__(
        self, waiting: int, *, each: int = 1, noise: float = 0.08, seed: int = 1, patience_s: float = 30.0
    ) -> None:
        self.limit = Limit()
        self.changes: list[tuple[int, int]] = []
        self._waiting, self._each, self._noise, self._patience_s = waiting, each, noise, patience_s
        self._chance = random.Random(seed)
        self._batches = 0

    def run(self, curve: Curve, batches: int) -> "Traffic":
        for _ in range(batches):
            waiting = max(1, round(self._waiting * self._chance.uniform(0.67, 1.0)))
            rows = max(self._each, min(waiting, self.limit.rows) // self._each * self._each)
            seconds = curve(rows) * self._chance.lognormvariate(0.0, self._noise)
            self.limit.observe(rows, rows, seconds, left_rows=max(0, waiting - rows), patience_s=self._patience_s)
            self._batches += 1
            if not self.changes or self.changes[-1][1] != self.limit.settled:
                self.changes.append((self._batches, self.limit.settled))
        return self


def throughput(curve: Curve, rows: int) -> float:
    return rows / (curve(rows) + HAND_OFF_S)


SIZES = [1 << power for power in range(ROWS_MOST.bit_length())]


@pytest.mark.parametrize("curve", [picture, table, text, crowded, stepped])
@pytest.mark.parametrize("waiting", [16, 300])
def test_within_200_batches_it_gets_nearly_all_done_that_any_size_could(curve: Curve, waiting: int) -> None:
    limit = Traffic(waiting).run(curve, 200).limit.settled
    best = max(throughput(curve, size) for size in SIZES if size <= waiting)
    assert throughput(curve, min(limit, waiting)) >= 0.88 * best


@pytest.mark.parametrize(("curve", "waiting", "low", "high"), [
    (picture, 64, 1, 2), (picture, 4, 1, 2), (table, 300, 128, 128), (table, 16, 32, 32), (stepped, 64, 8, 16), (crowded, 64, 8, 16),
])  # fmt: skip
def test_it_is_as_small_as_that_allows(curve: Curve, waiting: int, low: int, high: int) -> None:
    assert low <= Traffic(waiting).run(curve, 300).limit.settled <= high


@pytest.mark.parametrize("each", [2, 5, 12, 16])
@pytest.mark.parametrize(("curve", "low", "high"), [(table, 64, 128), (picture, 1, 16)])
def test_requests_of_several_rows_are_learnt_from_too(each: int, curve: Curve, low: int, high: int) -> None:
    """Where no batch comes about that is small enough to compare with, a larger one is tried."""
    assert low <= Traffic(300, each=each).run(curve, 400).limit.settled <= high


def test_a_model_that_got_faster_is_followed_by_requests_that_are_larger_than_the_limit() -> None:
    traffic = Traffic(300).run(picture, 400)
    assert traffic.limit.settled <= 2
    slow = traffic.limit
    for _ in range(1500):
        rows = max(12, slow.rows // 12 * 12)
        slow.observe(rows, rows, table(rows), left_rows=200, patience_s=30.0)
    assert slow.settled >= 64


@pytest.mark.parametrize(("first", "then", "low", "high"), [(picture, table, 64, 128), (table, picture, 1, 4)])
def test_it_follows_a_model_that_changes(first: Curve, then: Curve, low: int, high: int) -> None:
    traffic = Traffic(300).run(first, 1000).run(then, 300)
    assert low <= traffic.limit.settled <= high


@pytest.mark.parametrize("curve", [picture, table, text, crowded, stepped])
@pytest.mark.parametrize("seed", range(3))
def test_it_does_not_swing_in_noise(curve: Curve, seed: int) -> None:
    traffic = Traffic(64, noise=0.15, seed=seed).run(curve, 5000)
    assert sum(at > 500 for at, _ in traffic.changes) <= 10


@pytest.mark.parametrize("patience_s", [0.05, 0.2])
def test_a_batch_takes_at_most_half_of_the_time_that_callers_give(patience_s: float) -> None:
    limit = Traffic(300, patience_s=patience_s, noise=0.02).run(text, 300).limit
    assert text(limit.settled) <= patience_s / 2
    assert text(4 * limit.settled) > patience_s / 2


@given(
    st.lists(
        st.tuples(st.integers(1, 200), st.floats(0, 1e12), st.floats(0, 1e6), st.integers(0, 99), st.floats(0, 300))
    )
)
@settings(deadline=None)
def test_whatever_is_observed_it_stays_in_its_bounds(batches: list[tuple[int, float, float, int, float]]) -> None:
    limit = Limit()
    for rows, cost, seconds, left, patience_s in batches:
        limit.observe(rows, cost, seconds, left_rows=left, patience_s=patience_s)
        assert 1 <= limit.rows <= ROWS_MOST


def test_what_is_written_holds_whatever_is_observed() -> None:
    limits = Limits(Batch(rows_max=48))
    for _ in range(200):
        limits.observe(None, 48, 48.0, 4.8, left_rows=100, patience_s=0.1)
    assert (limits.of(None).rows, limits.of(None).why, limits.rows) == (48, "as written", 48)


def test_each_key_has_a_limit_of_its_own() -> None:
    limits = Limits(Batch())
    for _ in range(300):
        for key, curve in (("short", table), ("long", picture)):
            limit = limits.of(key)
            limits.observe(key, limit.rows, limit.rows, curve(limit.rows), left_rows=200, patience_s=30.0)
    assert limits.of("long").rows <= 2
    assert limits.of("short").rows == ROWS_MOST


def test_keys_that_were_not_seen_for_long_are_forgotten() -> None:
    limits = Limits(Batch())
    first = limits.of("first")
    for number in range(KEYS_MAX):
        limits.of(number)
    assert limits.of("first") is not first


def test_it_says_why() -> None:
    assert Traffic(300).run(table, 300).limit.why.endswith("less done in batches of half as many")
    assert "more done in" in Traffic(300).run(picture, 200).limit.why
    assert "that callers give" in Traffic(300, patience_s=0.05, noise=0.02).run(text, 150).limit.why


def test_it_says_when_a_size_is_only_tried() -> None:
    traffic, whys = Traffic(300), set()
    for _ in range(100):
        limit = traffic.run(text, 1).limit
        whys.add((limit.rows == limit.settled, limit.why.startswith("tried, ")))
    assert whys == {(True, False), (False, True)}
