"""What a hundred of each hostile input leave in memory, and what refusing them costs (O3, O9)."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from http.client import HTTPConnection

import pytest
from tests.faults import test_fault_http, test_fault_json, test_fault_tensor
from tests.faults.asking import Call
from tests.faults.conftest import Figure
from tests.faults.test_fault_grpc import cpu_s
from tests.serving import Server

pytestmark = [pytest.mark.alone, pytest.mark.timeout(300)]

MIB = 1024**2
GROWN_MIB = 8
LARGE_BYTES = 200_000  # a hundred of each that are larger take too long here
CPU_PER_MB_S = 0.01
SLACK = 3  # a machine with other things to do


Act = Callable[[HTTPConnection], object]


def asking(call: Call) -> Act:
    """The call on a connection that is kept: the client is not to be what takes the time."""

    def ask(connection: HTTPConnection) -> None:
        headers = {"Content-Type": "application/json", **call.headers}
        connection.request("POST", f"/v2/models/{call.pipeline}/infer", call.body, headers)
        answer = connection.getresponse()
        answer.read()
        assert 400 <= answer.status < 500

    return ask


def http_acts(server: Server) -> list[Act]:
    heads = [sent for sent, *_ in test_fault_http.REFUSED.values() if len(sent) < LARGE_BYTES]
    packed = [Call(body, headers={"Content-Encoding": "gzip"}) for body in test_fault_http.DAMAGED.values()]
    return [*(partial(_raw, server, sent) for sent in heads), *map(asking, packed)]


def _raw(server: Server, sent: bytes, _: HTTPConnection) -> None:
    test_fault_http.raw(server, sent)


def json_acts(_: Server) -> list[Act]:
    return [asking(Call(body)) for body, _ in test_fault_json.ROWS.values() if len(body) < LARGE_BYTES]


def tensor_acts(_: Server) -> list[Act]:
    return [asking(row.call) for row in test_fault_tensor.ROWS.values()]


GROUPS = {"H": http_acts, "J": json_acts, "T": tensor_acts}


@pytest.mark.parametrize("group", GROUPS)
def test_a_hundred_of_each_hostile_input_leave_no_memory_behind(server: Server, figure: Figure, group: str) -> None:
    acts, resident = GROUPS[group](server), []
    with closing(HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        for times in (10, 100):
            for act in acts * times:
                act(connection)
            resident.append(server.resident_bytes())
    grown = (resident[1] - resident[0]) / MIB
    figure(f"{group} memory after 100 of each of {len(acts)}", f"{grown:+.1f} MiB", f"+{GROWN_MIB} MiB")
    assert grown < GROWN_MIB


LARGE = {
    "J 5,000,000 brackets": b"[" * 5_000_000,
    "J million keys": test_fault_json.ROWS["J11 million keys"][0],
    "J million lists": test_fault_json.data("[" + "[1]," * 999_999 + "[1]]"),
    "J long string": test_fault_json.top('"id": "' + "x" * 5_000_000 + '", '),
    "J objects": b'{"a":' * 1_000_000,
}


@pytest.mark.parametrize("name", LARGE)
def test_refusing_a_megabyte_costs_little(server: Server, figure: Figure, name: str) -> None:
    """The best of a few: what it costs, not what else the machine did. What is refused unread costs nothing."""
    costs = []
    for _ in range(3):
        before = cpu_s(server)
        assert Call(LARGE[name]).send(server).status in (400, 413)
        costs.append(cpu_s(server) - before)
    cost_ms = min(costs) / (len(LARGE[name]) / 1e6) * 1000
    figure(f"{name}: CPU for each refused MB", f"{cost_ms:.1f} ms", f"{CPU_PER_MB_S * 1000:.0f} ms, threefold here")
    assert cost_ms < CPU_PER_MB_S * 1000 * SLACK
