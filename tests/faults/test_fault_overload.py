"""More work than can be done, less memory than is wanted, and a loop that does not turn (V1-V13).

The model sleeps, so the queue is overloaded and the machine is not. ``bench/overload.py`` measures the same for longer,
against the bars; here they have the slack that a busy machine needs.
"""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.faults.overloaded import Load, Seen, Watch, overloadable, peak_of
from tests.open_loop import Outcome
from tests.serving import Reply, Server, wait_until

pytestmark = pytest.mark.alone

SLEEP_MS = 25.0
DEADLINE_MS = 500
SLACK_S = 0.1
PROBES_MAX_S = 0.1 + SLACK_S
REFUSED_MAX_S = 0.02 + SLACK_S
MIB = 1024**2


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Load]:
    with overloadable(tmp_path_factory.mktemp("overload")) as (server, _):
        yield Load(server, SLEEP_MS, DEADLINE_MS, peak_of(server, SLEEP_MS))


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Load, dict[str, str]]]:
    """The same where callers have keys."""
    with overloadable(tmp_path_factory.mktemp("tenants"), keys=True) as (server, keys):
        peak = peak_of(server, SLEEP_MS, {"X-API-Key": keys["quiet"]})
        yield Load(server, SLEEP_MS, DEADLINE_MS, peak), keys


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came of so many times the capacity, and what was seen before and meanwhile."""

    load: Load
    times: float
    came: Outcome
    before: Seen
    seen: Sequence[Seen]


@pytest.fixture(scope="module", params=[1.2, 3.0, 10.0])
def loaded(load: Load, request: pytest.FixtureRequest) -> Loaded:
    times: float = request.param
    with Watch(load.server, "slow") as watch:
        before = watch.look()
        came = load.offer(load.stream("all", times, 0.0, 4.0))
    return Loaded(load, times, came, before, watch.seen)


def test_v1_goodput_stays_at_the_peak_however_much_is_offered(loaded: Loaded) -> None:
    came = loaded.came
    assert came.rate(1.0, 4.0) >= (0.9 if loaded.times < 2 else 0.85) * loaded.load.peak, came.codes
    assert came.accepted.took_s() <= DEADLINE_MS / 1000 + SLACK_S
    assert came.codes.keys() <= {"200", "queue_wait_too_long", "shed", "deadline_exceeded"}, came.codes


def test_v1_what_is_refused_is_refused_at_the_door(loaded: Loaded) -> None:
    """What is let in may be shed when more waits than was predicted, or run over, as on a busy machine: seldom."""
    came = loaded.came
    refused = Outcome([each for each in came.refused.sent if each.code != "deadline_exceeded"])
    if loaded.times >= 3.0:
        assert refused.took_s() <= REFUSED_MAX_S, came.codes
    assert len(came.sent) - len(came.good.sent) - len(refused.sent) <= 0.1 * len(came.sent), came.codes


def test_v2_under_overload_nothing_grows(loaded: Loaded) -> None:
    before, seen = loaded.before, loaded.seen
    assert max(each.queue_rows for each in seen) <= loaded.load.peak * DEADLINE_MS / 1000 + 2
    assert max(each.resident_bytes for each in seen) <= before.resident_bytes + 32 * MIB
    assert max(each.descriptors - each.connections for each in seen) <= before.descriptors + 8
    assert max(each.threads for each in seen) <= before.threads + 6  # of asyncio's own pool


def test_v3_under_overload_the_operator_is_answered_at_once(loaded: Loaded) -> None:
    assert {status for each in loaded.seen for status in each.statuses} == {200}
    assert max(each.probes_s for each in loaded.seen) <= PROBES_MAX_S


def test_v5_under_overload_nothing_is_begun_that_nobody_waits_for(loaded: Loaded) -> None:
    assert loaded.load.server.version("slow")["overdue"] == 0
    assert loaded.load.begun_late() == 0, "as the model itself counts"


def executed_rows(server: Server) -> float:
    text = server.get("/metrics", admin=True).body.decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("forwardpass_rows_total{"))


def test_v5_what_clients_who_left_had_asked_for_is_not_run(load: Load) -> None:
    server, before = load.server, executed_rows(load.server)
    body = json.dumps({"x": [1300.0, 0.0]}).encode()
    head = f"POST /predict/slow HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with ExitStack() as stay:
        for number in range(6):  # the first is run, the others wait
            client = stay.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            client.sendall(head.encode() + body)
            wait_until(lambda number=number: server.version("slow")["running"] == number + 1)
    wait_until(lambda: server.version("slow")["running"] == 0)
    assert server.predict("slow", {"x": [1.0, 2.0]}).json["outputs"]["y"] == 3.0
    assert executed_rows(server) - before <= 2  # the first, if it had begun by then, and the last
    assert server.version("slow")["overdue"] == 0


def test_v5_a_hang_that_nobody_waits_for_costs_its_worker_and_no_stranger(load: Load) -> None:
    server, ended = load.server, load.server.version("slow")["workers"][0]["abandoned"]

    def ask(number: int) -> Reply:
        if number == 0:
            return server.predict("slow", {"x": [-3.0, 0.0]}, X_Request_Deadline_Ms="400")
        wait_until(lambda: server.version("slow")["running"])
        return server.predict("slow", {"x": [1.0, 2.0]}, X_Request_Deadline_Ms="20000")

    hangs, stranger = server.together(2, ask)
    assert (hangs.status, hangs.code) == (504, "deadline_exceeded")
    assert (stranger.status, stranger.json["outputs"]["y"]) == (200, 3.0)
    version = server.version("slow")
    assert (version["workers"][0]["abandoned"] - ended, version["workers"][0]["deaths"], version["quarantined"]) == (
        1,
        0,
        0,
    )


def test_v6_after_a_burst_all_is_as_before_although_everybody_tries_again_three_times(load: Load) -> None:
    usual = load.stream("usual", 0.5, 0.0, 7.0)
    burst = replace(load.stream("burst", 10.0, 1.0, 3.0), attempts=4)
    came = load.offer(usual, burst).of("usual")
    assert came.between(0.0, 1.0).share >= 0.99
    after = came.between(5.0, 7.0)
    assert after.share >= 0.99, after.codes
    assert after.took_s() <= 4 * SLEEP_MS / 1000 + 3 * SLACK_S  # of some forty: one that a busy machine kept counts


def test_v7_a_noisy_tenant_costs_another_next_to_nothing(known: tuple[Load, dict[str, str]]) -> None:
    load, keys = known
    idle = load.offer(load.stream("quiet", 0.5, 0.0, 5.0, X_API_Key=keys["quiet"]))
    noisy = load.stream("noisy", 10.0, 0.0, 5.0, X_API_Key=keys["noisy"])
    quiet = load.stream("quiet", 0.1, 1.0, 5.0, X_API_Key=keys["quiet"])
    came = load.offer(noisy, quiet)
    assert came.of("quiet").share >= 0.99, came.of("quiet").codes
    assert came.of("quiet").took_s() <= 3 * idle.took_s() + SLACK_S
    assert came.of("noisy").rate(2.0, 5.0) >= 0.7 * load.peak, "what the other does not want is the noisy one's"


@pytest.mark.parametrize("times", [1.2, 3.0, 10.0])
def test_v9_critical_work_is_done_and_sheddable_work_is_the_first_to_go(
    known: tuple[Load, dict[str, str]], times: float
) -> None:
    load, keys = known
    streams = [
        load.stream(name, each, 0.0, 3.0, X_API_Key=keys[name])
        for name, each in (("critical", 0.3), ("quiet", 0.5), ("sheddable", times - 0.8))
    ]
    came = load.offer(*streams)
    assert came.of("critical").share >= 0.99, came.of("critical").codes
    assert came.of("quiet").share >= 0.9, came.of("quiet").codes
    assert came.of("sheddable").share <= (1.0 if times < 2.0 else 0.25), came.of("sheddable").codes
    assert came.of("sheddable").share <= came.of("quiet").share


INJECTED = """
import os
import signal
import time
from pathlib import Path

from forwardpass.observe import pressure


def stand_still(number, frame):
    time.sleep(float(os.environ["STAND_STILL_S"]))


signal.signal(signal.SIGUSR1, stand_still)
pressure.ROOT = Path(os.environ["SYSTEM_ROOT"])
"""
STAND_STILL_S = 2.0


@pytest.fixture(scope="module")
def injected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server that stands still at SIGUSR1, and the files in which it reads how full the memory is."""
    folder = tmp_path_factory.mktemp("injected")
    (folder / "python").mkdir()
    (folder / "python" / "sitecustomize.py").write_text(INJECTED)
    fill(folder / "system", 0.1)
    environment = {
        "PYTHONPATH": str(folder / "python"), "SYSTEM_ROOT": str(folder / "system"), "STAND_STILL_S": str(STAND_STILL_S)
    }  # fmt: skip
    settings: dict[str, object] = {"limits.memory_share_max": 0.8}
    with overloadable(folder, environment=environment, settings=settings) as (server, _):
        yield server, folder / "system"


def fill(root: Path, share: float) -> None:
    """A control group (v2) of which so much is in use."""
    group = root / "sys/fs/cgroup"
    group.mkdir(parents=True, exist_ok=True)
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    (root / "proc/self/cgroup").write_text("0::/\n")
    (group / "memory.max").write_text(f"{1000 * MIB}\n")
    (group / "memory.stat").write_text("inactive_file 0\n")
    (group / "new").write_text(f"{int(1000 * MIB * share)}\n")
    (group / "new").rename(group / "memory.current")


def level(server: Server) -> str:
    named: str = server.status()["memory"]["level"]
    return named


def keyed(server: Server, key: str) -> Reply:
    return server.predict("slow", {"x": [1.0, 2.0]}, Idempotency_Key=key)


def test_v11_when_memory_runs_short_what_is_kept_goes_first_then_requests_then_loads(
    injected: tuple[Server, Path],
) -> None:
    server, system = injected
    first = keyed(server, "one")
    assert keyed(server, "one").headers["idempotency-replayed"] == "true"
    fill(system, 0.82)
    wait_until(lambda: level(server) == "shrink")
    wait_until(lambda: server.call("GET", f"/receipts/{first.headers['x-request-id']}", admin=True).status == 404)
    again = keyed(server, "one")
    assert (again.status, "idempotency-replayed" in again.headers) == (200, False)
    fill(system, 0.91)
    wait_until(lambda: level(server) == "refuse_loads")
    refused = server.predict("slow", {"x": [1.0, 2.0]})
    assert (refused.status, refused.code, 1 <= int(refused.headers["retry-after"]) <= 5) == (503, "memory_full", True)
    loaded = server.call("POST", "/pipelines/slow/versions/1/load", admin=True)
    assert (loaded.status, loaded.code) == (503, "memory_full")
    assert [server.get(path, admin=True).status for path in ("/live", "/ready", "/metrics")] == [200] * 3
    fill(system, 0.5)
    wait_until(lambda: level(server) == "calm")
    assert server.predict("slow", {"x": [1.0, 2.0]}).status == 200


def test_v13_a_loop_that_stands_still_is_told_of_and_deadlines_hold_afterwards(
    injected: tuple[Server, Path],
) -> None:
    server, _ = injected
    replies: dict[str, Reply] = {}

    def ask(name: str, **headers: str) -> threading.Thread:
        body = {"x": [1100.0, 0.0]}
        thread = threading.Thread(target=lambda: replies.update({name: server.predict("slow", body, **headers)}))
        thread.start()
        return thread

    asking = [ask("hurried", X_Request_Deadline_Ms="1000"), ask("patient")]
    wait_until(lambda: server.version("slow")["running"] == 2)
    os.kill(server.process.pid, signal.SIGUSR1)
    time.sleep(0.1)
    ready = server.get("/ready", admin=True)  # answered when it turns again
    for thread in asking:
        thread.join()
    assert (ready.status, ready.code) == (503, "not_ready")
    assert (replies["hurried"].code, replies["patient"].status) == ("deadline_exceeded", 200)
    events = [json.loads(line) for line in server.log.read_text().splitlines() if '"stack"' in line]
    assert any(":stand_still:" in event["stack"] for event in events)
    assert server.status()["loop"]["blocked"] >= 1
    assert b"forwardpass_loop_blocked_total 0" not in server.get("/metrics", admin=True).body
    wait_until(lambda: server.get("/ready", admin=True).status == 200, 5.0)
