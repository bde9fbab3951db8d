"""Strangers in one batch: no caller's fault, hurry or departure is ever another's answer (group B)."""

import random
import threading
import time

import pytest
from tests.faults.asking import infer
from tests.serving import Reply, Server, wait_until

from forwardpass.batching.limit import ROWS_MOST


def ask(server: Server, first: float, second: float = 0.5, **headers: str) -> Reply:
    return server.predict("own", {"x": [first, second]}, **headers)


@pytest.fixture
def busy(server: Server) -> threading.Thread:
    """Keeps the only worker busy for a second, so that what is sent now waits together."""
    thread = threading.Thread(target=ask, args=(server, 2000.0))
    thread.start()
    wait_until(lambda: server.version("own")["running"] == 1)
    time.sleep(0.1)
    return thread


def test_b1_a_bad_request_among_eight_is_refused_and_the_others_are_as_alone(
    server: Server, busy: threading.Thread
) -> None:
    answers = server.together(8, lambda n: server.predict("own", {"x": ["3" if n == 3 else n / 7, 0.1]}))
    busy.join()
    assert [answer.status for answer in answers] == [200] * 3 + [400] + [200] * 4
    alone = [ask(server, n / 7, 0.1) for n in range(8)]
    assert all(answers[n].json["outputs"] == alone[n].json["outputs"] for n in range(8) if n != 3)
    assert max(batch["items"] for batch in server.batches("own")) >= 3


@pytest.mark.alone
def test_b2_a_member_that_expires_while_it_waits_never_runs_and_the_others_do(
    server: Server, busy: threading.Thread
) -> None:
    def one(n: int) -> Reply:
        return ask(server, n, X_Request_Deadline_Ms="200") if n % 2 else ask(server, n)

    answers = server.together(6, one)
    busy.join()
    assert {answer.status for answer in answers[::2]} == {200}
    # Refused at the door where its lateness was foreseen, by what this model took in tests before.
    assert {answer.code for answer in answers[1::2]} <= {"deadline_exceeded", "queue_wait_too_long"}
    wait_until(lambda: server.batches("own")[-1]["items"] == 3)


def test_b2_a_member_that_expires_while_it_runs_is_told_in_time_and_the_next_is_right(server: Server) -> None:
    started = time.monotonic()
    answer = ask(server, 1800.0, X_Request_Deadline_Ms="200")
    assert (answer.status, answer.code) == (504, "deadline_exceeded")
    assert time.monotonic() - started < 0.7
    assert ask(server, 7.0).json["outputs"] == {"y": 7.5}


def test_b5_of_four_thousand_requests_at_random_times_each_gets_its_own_answer(server: Server) -> None:
    before = server.version("own")["outcomes"].get("ok", 0)

    def client(number: int) -> list[tuple[list[float], Reply]]:
        chance = random.Random(number)
        sent: list[tuple[list[float], Reply]] = []
        for turn in range(500):
            rows = [(-10.0 - number, turn + row / 8) for row in range(chance.choice((1, 1, 1, 2, 5)))]
            answer = infer("own", datatype="FP64", shape=[len(rows), 2], data=rows).send(server)
            sent.append(([sum(row) for row in rows], answer))
            time.sleep(chance.choice((0, 0, 0, 0.002)))
        return sent

    for sent in server.together(8, client):
        assert all(answer.json["outputs"][0]["data"] == own for own, answer in sent)
    assert server.version("own")["outcomes"]["ok"] == before + 4000


@pytest.mark.parametrize("rows", [31, 32, 33, 64, 65, 1000])
def test_b6_a_request_of_any_size_around_the_largest_batch_is_answered_whole(server: Server, rows: int) -> None:
    values = [[float(row), 4 * row + 0.5] for row in range(rows)]
    answer = infer("own", datatype="FP64", shape=[rows, 2], data=values).send(server)
    if rows > 900:  # the model would sleep from 1000 on
        assert answer.status == 200
    assert answer.json["outputs"][0]["data"] == [5 * row + 0.5 for row in range(rows)]
    assert max(batch["rows"] for batch in server.batches("own")) <= ROWS_MOST


def test_b7_a_batch_whose_model_forgets_a_row_harms_nobody_after_it(server: Server, busy: threading.Thread) -> None:
    answers = server.together(5, lambda n: ask(server, -1.0 if n == 2 else n))
    busy.join()
    assert [answer.status for answer in answers] == [200, 200, 500, 200, 200]
    assert [answers[n].json["outputs"]["y"] for n in (0, 1, 3, 4)] == [0.5, 1.5, 3.5, 4.5]
    assert ask(server, 5.0).json["outputs"] == {"y": 5.5}
