"""What becomes of a version under more load than it can take, in virtual time (FAULTS V1, V5, V6, V7, V9).

One machine takes 200 rows a second in full batches of 8, each 40 ms; a row alone takes 22.5 ms. Callers wait 200 ms.
"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.batching.virtual import Client, Place, loaded

from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Batch
from forwardpass.core.pipeline import Queue as Limits

CAPACITY_PER_S = 200.0
QUEUE_S = 0.2
UNLEARNT_S = 0.5
"""Until it has seen batches, a version refuses nobody."""


def overdue(place: Place) -> int:
    return sum(machine.overdue for machine in place.machines)


@pytest.mark.parametrize("retries", [0, 3])
@pytest.mark.parametrize(("factor", "least"), [(1.2, 0.95), (3.0, 0.90), (10.0, 0.90)])
def test_goodput_stays_at_its_peak_under_overload(factor: float, least: float, retries: int) -> None:
    """Retries add to the load: three of each that was refused."""
    client = Client(CAPACITY_PER_S * factor, 2.5, retries=retries)
    place = loaded([client])
    assert client.good(UNLEARNT_S) >= least * CAPACITY_PER_S * (2.5 - UNLEARNT_S)
    assert overdue(place) == 0
    assert place.queue.items == 0


@pytest.mark.parametrize("noise", [0.3, 0.6])
def test_goodput_stays_at_its_peak_where_batches_take_more_or_less_than_predicted(noise: float) -> None:
    client = Client(CAPACITY_PER_S * 3.0, 3.0)
    assert overdue(loaded([client], noise=noise)) == 0
    assert client.good(UNLEARNT_S) >= 0.90 * CAPACITY_PER_S * (3.0 - UNLEARNT_S)


@pytest.mark.parametrize("machines", [2, 4])
def test_several_workers_are_all_kept_at_work(machines: int) -> None:
    client = Client(CAPACITY_PER_S * machines * 2.0, 1.5)
    assert overdue(loaded([client], machines=machines)) == 0
    assert client.good(UNLEARNT_S) >= 0.95 * CAPACITY_PER_S * machines * (1.5 - UNLEARNT_S)


def test_a_batch_that_is_sent_ahead_holds_nothing_that_is_over_when_it_begins() -> None:
    """Also of work that was let in and then had to wait for more urgent work."""
    urgent = Client(150.0, 3.0, priority=1, deadline_s=0.3, seed=3)
    patient = Client(60.0, 3.0, deadline_s=0.1, seed=5)
    assert overdue(loaded([urgent, patient], preprocess_s=0.01)) == 0
    assert urgent.share_good() >= 0.99
    client = Client(CAPACITY_PER_S * 3.0, 3.0)
    assert overdue(loaded([client], preprocess_s=0.01)) == 0
    assert client.good(UNLEARNT_S) >= 0.90 * CAPACITY_PER_S * (3.0 - UNLEARNT_S)


@pytest.mark.parametrize("limits", [Limits(), Limits(rows_max=32)])
def test_a_noisy_tenant_does_not_harm_another(limits: Limits) -> None:
    """At ten times the capacity, with so long deadlines that it fills whatever queue there is."""
    idle, quiet = (Client(20.0, 4.0, tenant="quiet", seed=2) for _ in range(2))
    loaded([idle])
    loaded([Client(CAPACITY_PER_S * 10.0, 4.0, tenant="noisy", deadline_s=5.0), quiet], limits=limits)
    assert quiet.share_good() >= 0.99
    assert quiet.p99_s() <= 3.0 * idle.p99_s()


def test_critical_work_is_served_and_what_can_be_shed_goes_first() -> None:
    critical, standard = Client(60.0, 4.0, priority=1, seed=2), Client(100.0, 4.0, priority=5, seed=3)
    sheddable = Client(CAPACITY_PER_S * 3.0, 4.0, priority=9, deadline_s=5.0)
    loaded([critical, standard, sheddable], limits=Limits(rows_max=32))
    assert critical.share_good() >= 0.99
    assert standard.share_good() >= 0.99
    ends = Counter(code for _, code, _ in sheddable.outcomes)
    assert ends[Code.SHED] > 0
    assert 0 < sheddable.good() < 0.2 * len(sheddable.outcomes)


def test_work_that_more_urgent_work_keeps_waiting_is_not_run_for_nobody() -> None:
    """Half of the time is critical work's, which nobody could predict: the rest of it is still spent on answers."""
    standard = Client(CAPACITY_PER_S * 3.0, 3.0, seed=3)
    assert overdue(loaded([Client(CAPACITY_PER_S / 2, 3.0, priority=1), standard])) == 0
    assert standard.good(UNLEARNT_S) >= 0.85 * (CAPACITY_PER_S / 2) * (3.0 - UNLEARNT_S)


@pytest.mark.parametrize(("retries", "patience_s"), [(0, 0.0), (3, 0.42)])
def test_after_a_burst_all_is_as_before_within_twice_the_queues_time(retries: int, patience_s: float) -> None:
    """From when the last of those who try again has given up: after 50, 100 and 200 ms, each up to a fifth longer."""
    steady = Client(80.0, 5.0)
    loaded([steady, Client(CAPACITY_PER_S * 10.0, 3.0, start_s=2.0, retries=retries, seed=4)])
    calm_s = 3.0 + patience_s + 2 * QUEUE_S
    before = max(took for at, _, took in steady.outcomes if UNLEARNT_S < at < 1.8)
    after = [(code, took) for at, code, took in steady.outcomes if at >= calm_s]
    assert {code for code, _ in after} == {None}
    assert max(took for _, took in after) <= 1.5 * before


def test_a_version_that_was_slow_once_is_not_kept_idle_by_what_it_learnt() -> None:
    """For a second each batch takes twenty times as long."""
    client = Client(100.0, 6.0)
    place = loaded([client], slow_from_s=2.0, slow_until_s=3.0, slow_pace=20.0)
    assert client.good(4.5) == sum(at >= 4.5 for at, _, _ in client.outcomes)
    assert overdue(place) == 0


def test_who_is_refused_is_told_at_once() -> None:
    client = Client(CAPACITY_PER_S * 3.0, 2.0)
    loaded([client])
    refused = [took for at, code, took in client.outcomes if at > UNLEARNT_S and code is Code.QUEUE_WAIT_TOO_LONG]
    assert len(refused) >= 0.5 * CAPACITY_PER_S * 1.5
    assert sum(took < 1e-4 for took in refused) >= 0.99 * len(refused)


def test_waiting_for_company_costs_nobody_their_deadline() -> None:
    client = Client(5.0, 4.0)
    assert overdue(loaded([client], batch=Batch(rows_max=8, wait_ms=250))) == 0
    assert client.good(1.0) == sum(at >= 1.0 for at, _, _ in client.outcomes)


def test_requests_of_many_costs_and_shapes_are_served_by_class_at_its_peak() -> None:
    """Bytes from 1 to 64, so that a full batch takes from 22.5 to 180 ms, in three shapes; half of the load is critical."""
    critical = Client(40.0, 4.0, priority=1, deadline_s=0.6, tenant="a", seed=2, costs=(1.0, 8.0), keys=2)
    rest = Client(400.0, 4.0, tenant="b", deadline_s=1.0, costs=(1.0, 2.0, 8.0), keys=3)
    assert overdue(loaded([critical, rest], batch=Batch(rows_max=8, cost="bytes"))) == 0
    assert critical.share_good() >= 0.99
    assert rest.good(UNLEARNT_S) >= 50.0


CLIENT = st.builds(
    Client,
    per_s=st.sampled_from([20.0, 100.0, 500.0]),
    end_s=st.just(0.5),
    tenant=st.sampled_from("abc"),
    priority=st.sampled_from([1, 5, 9]),
    deadline_s=st.sampled_from([0.05, 0.2, 1.0]),
    retries=st.integers(0, 1),
    seed=st.integers(1, 9),
)


@given(st.lists(CLIENT, min_size=1, max_size=4), st.integers(1, 2), st.sampled_from([0.0, 0.01]), st.integers(4, 64))
@settings(max_examples=15, deadline=None)
def test_whatever_the_load_everybody_is_told_once_and_in_time(
    clients: list[Client], machines: int, preprocess_s: float, rows_max: int
) -> None:
    place = loaded(clients, machines=machines, preprocess_s=preprocess_s, limits=Limits(rows_max=rows_max))
    for client in clients:
        asked = client.retries + 1
        assert len(client.outcomes) == len(list(client.arrivals()))
        assert all(took <= asked * (client.deadline_s + 0.011) + 0.06 for _, _, took in client.outcomes)
    assert place.deepest_rows <= rows_max
    assert (place.queue.items, place.queue.rows, place.queue.bytes) == (0, 0, 0)
