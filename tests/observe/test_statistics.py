import pytest

from forwardpass.core.clock import wall_s
from forwardpass.core.pipeline import Pipeline, Version
from forwardpass.core.timeline import Timeline
from forwardpass.observe.receipts import Record
from forwardpass.observe.statistics import Answered, Span

VERSION = Version("p", 1, "digest", "/folder", Pipeline(()))
TIMES = Timeline(
    received=1.0, queued=1.25, released=1.75, returned=3.5, responded=4.0, preprocess_s=0.25, execute_s=1.0, postprocess_s=0.5
)  # fmt: skip


def record(outcome: str = "ok", rows: int = 1, rows_failed: int = 0) -> Record:
    return Record("id", VERSION, TIMES, [], rows, rows_failed, [], "", outcome)


def test_a_request_answered_whole_is_a_success_with_its_stages() -> None:
    answered = Answered()
    answered.observe(record(rows=3))
    answered.observe(record(rows=2))
    assert (answered.rows, answered.success, answered.queue) == (5, Span(2, 6.0), Span(2, 1.0))
    assert (answered.preprocess, answered.execute, answered.postprocess) == (Span(2, 0.5), Span(2, 2.0), Span(2, 1.0))
    assert answered.fail == Span()


@pytest.mark.parametrize("outcome", ["cancelled", "queue_full", "deadline_exceeded", "quarantined", "worker_crashed"])
def test_a_request_without_an_answer_is_a_failure_and_nothing_else(outcome: str) -> None:
    answered = Answered()
    answered.observe(record(outcome, rows=3))
    assert answered == Answered(fail=Span(1, 3.0))


def test_a_request_with_a_row_that_failed_is_a_failure_whose_other_rows_were_answered() -> None:
    answered = Answered()
    answered.observe(record(rows=3, rows_failed=1))
    assert (answered.rows, answered.fail, answered.success, answered.queue) == (2, Span(1, 3.0), Span(), Span())


def test_the_last_answer_is_told_in_the_time_of_people() -> None:
    answered, before_s = Answered(), wall_s()
    answered.observe(record())
    assert before_s <= answered.last_s <= wall_s()
