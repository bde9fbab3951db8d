import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from forwardpass.core.clock import FakeClock
from forwardpass.core.errors import Code
from forwardpass.core.pipeline import Pipeline, Step, Version
from forwardpass.core.request import Note
from forwardpass.core.timeline import BatchReport, Timeline
from forwardpass.observe.log import LINE_BYTES_MAX, JsonLines, Sink
from forwardpass.observe.metrics import TABLE, Metrics
from forwardpass.observe.receipts import BATCHES_MAX, NOTE_CHARACTERS_MAX, NOTES_MAX, Receipts, Record, receipt

VERSION = Version("p", 3, "digest", "/secret/folder", Pipeline((Step("model"),)))


def record(id: str = "a", outcome: str = "ok") -> Record:
    timeline = Timeline(
        received=1.0, decoded=1.001, admitted=1.0011, queued=1.0012, released=1.0022, returned=1.0122, responded=1.0124,
        preprocess_s=0.001, execute_s=0.007, postprocess_s=0.0005,
    )  # fmt: skip
    batch = BatchReport(7, 1.0022, 8, 5, "worker_free", 0, 0.001, 2)
    return Record(id, VERSION, timeline, [batch], 2, 1, [Note(1, "truncated", {"kept": 256})], "", outcome)


def test_a_receipt_says_who_answered_in_which_batch_and_what_each_stage_took() -> None:
    made = receipt(record())
    assert made["timings_us"] == {
        "decode": 1000, "admit": 100, "queue": 1000, "preprocess": 1000, "execute": 7000, "postprocess": 500,
        "wire": 1500, "respond": 200, "total": 12400,
    }  # fmt: skip
    assert (made["pipeline"], made["version"], made["digest"], made["repeatable"]) == ("p", 3, "digest", True)
    assert made["batches"] == [{"id": 7, "rows": 8, "items": 5, "reason": "worker_free", "worker": 0}]
    assert made["notes"] == [{"row": 1, "name": "truncated", "kept": 256}]
    assert "secret" not in json.dumps(made)


def test_stages_that_were_not_reached_are_left_out() -> None:
    refused = record(outcome=Code.QUEUE_FULL)
    refused.timeline = Timeline(received=1.0, decoded=1.1, admitted=1.2, responded=1.3)
    assert set(receipt(refused)["timings_us"]) == {"decode", "admit", "respond", "total"}


def test_only_the_last_receipts_are_kept() -> None:
    kept = Receipts(2)
    for id in "abc":
        kept.keep(record(id))
    assert kept.find("a") is None
    assert kept.find("c") is not None


def test_metrics_count_every_end_and_time_only_successes() -> None:
    metrics = Metrics()
    for outcome in ("ok", "ok", "cancelled"):
        metrics.observe(record(outcome=outcome))
    text = metrics.exposition({"forwardpass_queue_rows": [((("pipeline", "p"), ("version", "3")), 4)]})
    assert 'forwardpass_requests_total{pipeline="p",version="3",outcome="ok"} 2' in text
    assert 'forwardpass_requests_total{pipeline="p",version="3",outcome="cancelled"} 1' in text
    assert 'forwardpass_request_seconds_count{pipeline="p",version="3"} 2' in text
    assert 'forwardpass_request_seconds_bucket{pipeline="p",version="3",le="0.025"} 2' in text
    assert 'forwardpass_queue_rows{pipeline="p",version="3"} 4' in text
    assert all(f"# TYPE {name} " in text for name in TABLE)


@pytest.mark.parametrize("value", ["line\nbreak \x1b[31m red", "x" * 100_000, "\ud800", b"\xff", {"a": 1}])
def test_whatever_a_client_sends_becomes_one_bounded_line_of_json(value: object) -> None:
    entry = logging.makeLogRecord({"msg": "event", "event": {"value": value}})
    line = JsonLines().format(entry)
    assert len(line.encode("utf-8", "surrogatepass")) <= LINE_BYTES_MAX
    assert "\n" not in line and "\x1b" not in line
    assert json.loads(line)["text"] == "event"


def lines(descriptor: int) -> list[dict[str, object]]:
    """All that is written until the other end closes."""
    with os.fdopen(descriptor, "rb") as pipe:
        return [json.loads(line) for line in pipe]


def said(text: str, **event: object) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "p", "msg": text, "event": event})


def test_a_log_that_nobody_reads_drops_lines_and_says_how_many_once_it_is_read() -> None:
    reading, writing = os.pipe()
    sink = Sink(writing, lines_max=500)
    sink.setFormatter(JsonLines())
    for number in range(3000):
        sink.emit(said(f"line {number}"))
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(lines, reading)
        sink.close()
        os.close(writing)
        written = read.result()
    kept = [line for line in written if str(line["text"]).startswith("line ")]
    dropped = [line["lines"] for line in written if line["text"] == "log lines were dropped"]
    assert len(kept) + sum(map(int, map(str, dropped))) == 3000
    assert dropped and kept[0]["text"] == "line 0"


def test_what_fails_often_is_logged_twenty_times_a_second_and_the_rest_is_counted() -> None:
    reading, writing = os.pipe()
    clock = FakeClock()
    sink = Sink(writing, clock=clock)
    sink.setFormatter(JsonLines())
    for _ in range(100):
        sink.emit(said("request failed", code="engine_failed"))
    sink.emit(said("request failed", code="step_failed"))
    clock.advance(1.0)
    sink.emit(said("request failed", code="engine_failed"))
    sink.close()
    os.close(writing)
    written = lines(reading)
    assert [line["text"] for line in written].count("request failed") == 22
    assert [(line["code"], line["lines"]) for line in written if "lines" in line] == [("engine_failed", 80)]


def test_the_line_of_each_request_is_never_left_out() -> None:
    reading, writing = os.pipe()
    sink = Sink(writing, clock=FakeClock())
    sink.setFormatter(JsonLines())
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(lines, reading)
        for number in range(2000):
            event = {"request": f"{number}"}
            sink.emit(logging.makeLogRecord({"name": "forwardpass.requests", "msg": "request ended", "event": event}))
        sink.close()
        os.close(writing)
        assert [line["request"] for line in read.result()] == [f"{number}" for number in range(2000)]


def test_a_record_is_bounded_however_many_rows_its_request_had() -> None:
    one = record()
    batches = [BatchReport(n // 2, 1.0, 8, 5, "worker_free", 0, 0.0, 0) for n in range(1000)]
    notes = [Note(row, "truncated", {"text": "x" * 10_000 * (row == 0)}) for row in range(1000)]
    made = receipt(Record("a", VERSION, one.timeline, batches, 1000, 0, notes, "", "ok"))
    assert (len(made["notes"]), made["notes_left_out"]) == (NOTES_MAX, 1000 - NOTES_MAX)
    assert made["notes"][0] == {"row": 0, "name": "truncated", "left_out": True}
    assert (len(made["batches"]), made["batches_left_out"]) == (BATCHES_MAX, 500 - BATCHES_MAX)
    assert len(json.dumps(made["notes"])) < NOTES_MAX * (NOTE_CHARACTERS_MAX + 100)
