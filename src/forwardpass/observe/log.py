"""One JSON line per event on standard error: bounded, escaped, never blocking a request (FAULTS G2, G5)."""

import json
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Condition, Thread
from types import TracebackType
from typing import Any

from forwardpass.core.clock import Clock, iso8601, monotonic_s, wall_s
from forwardpass.observe.receipts import Record
from forwardpass.observe.redaction import Redaction, without_messages

LINES_MAX = 10_000  # that wait for whoever reads standard error
WRITE_LINES_MAX = 100  # at one time
ALIKE_MAX = 20  # lines a second with the same text and error code; the rest is counted
UNCODED_MAX = 200  # the same for lines without an error code: what a worker prints, a traceback of it
FLUSH_TIME_S = 1.0
LINE_BYTES_MAX = 8192
VALUE_CHARACTERS_MAX = 2000
TRACE_CHARACTERS_MAX = 8000  # of which what is shown are the last
_log = logging.getLogger("forwardpass.observe")
_requests = logging.getLogger("forwardpass.requests")


@dataclass(frozen=True, slots=True)
class LogChoice:
    """What is logged, and how; ``iso`` writes times as ISO 8601 has them.

    ``verbose`` adds a line for each request, and to what failed the exception's message: it may repeat what was sent.
    """

    info: bool = True
    warning: bool = True
    error: bool = True
    verbose: bool = False
    iso: bool = False

    def takes(self, level: int) -> bool:
        if level >= logging.ERROR:
            return self.error
        if level >= logging.WARNING:
            return self.warning
        return self.info if level >= logging.INFO else self.verbose


class JsonLines(logging.Formatter):
    """``extra={"event": {...}}`` becomes the line's fields; anything that cannot be JSON becomes its repr."""

    def __init__(self, redaction: Redaction | None = None) -> None:
        super().__init__()
        self.iso = False
        self.messages = False  # of exceptions, which may repeat what a client sent
        self._redaction = Redaction() if redaction is None else redaction

    def format(self, record: logging.LogRecord) -> str:
        now_s = wall_s()
        fields: dict[str, Any] = {
            "at": iso8601(now_s) if self.iso else round(now_s, 3),
            "level": record.levelname.lower(),
            "part": record.name,
            "text": self._redaction.text(record.getMessage())[:VALUE_CHARACTERS_MAX],
        }
        event = getattr(record, "event", {})
        for name, value in event.items():
            if isinstance(value, (int, float, bool, type(None))):
                fields[name] = value
                continue
            told = str(value) if self.messages or "request" not in event else without_messages(str(value))
            fields[name] = str(self._redaction.field(name, told[-TRACE_CHARACTERS_MAX:]))[:VALUE_CHARACTERS_MAX]
        if record.exc_info:
            trace = self.formatException(record.exc_info)
            trace = trace if self.messages else without_messages(trace)
            fields["trace"] = self._redaction.text(trace[-TRACE_CHARACTERS_MAX:])[-VALUE_CHARACTERS_MAX:]
        line = json.dumps(fields)
        if len(line) > LINE_BYTES_MAX:  # escapes can make six characters of one
            line = json.dumps(
                {name: value for name, value in fields.items() if len(json.dumps(value)) <= 512} | {"cut": True}
            )
        return (
            line
            if len(line) <= LINE_BYTES_MAX
            else json.dumps({"level": fields["level"], "text": "too long", "cut": True})
        )


class TextLines(logging.Formatter):
    """The same for people at a terminal, who see the time if they ask for it."""

    def __init__(self, redaction: Redaction | None = None) -> None:
        super().__init__()
        self.iso = False
        self._redaction = Redaction() if redaction is None else redaction

    def format(self, record: logging.LogRecord) -> str:
        told = {
            name: self._redaction.field(name, _searchable(value))
            for name, value in getattr(record, "event", {}).items()
        }
        event = " ".join(f"{name}={value!s:.200}" for name, value in told.items())
        text = f"{record.levelname.lower():7} {self._redaction.text(record.getMessage())} {event}".rstrip()
        text = f"{iso8601(wall_s())} {text}" if self.iso else text
        if record.exc_info:
            text += f"\n{self._redaction.text(self.formatException(record.exc_info)[-TRACE_CHARACTERS_MAX:])}"
        return text


def _searchable(value: object) -> object:
    """Numbers as they are, all else as the text it is told as: secrets within it are found there."""
    return value if isinstance(value, (int, float, bool, type(None))) else str(value)


class Sink(logging.Handler):
    """Takes lines without ever waiting; one thread writes them to ``descriptor``, which nobody may be reading.

    What finds no room, and what was said often in the same second, is dropped and counted, and the count is logged. Of
    the lines of each request, which are asked for, only those that find no room are.
    """

    def __init__(self, descriptor: int, *, lines_max: int = LINES_MAX, clock: Clock = monotonic_s) -> None:
        super().__init__()
        self.choice = LogChoice()
        self.addFilter(lambda record: self.choice.takes(record.levelno))
        self._descriptor = descriptor
        self._lines_max = lines_max
        self._clock = clock
        self._lines: deque[str] = deque()
        self._dropped = 0  # and not yet told
        self.dropped_total = 0
        self._ended = False
        self._changed = Condition()
        self._alike: dict[tuple[str, str, str], int] = {}
        self._alike_until = 0.0
        self._thread = Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == _requests.name:
            self._put(self.format(record))
            return
        now = self._clock()
        if now >= self._alike_until:
            self._tell_left_out()
            self._alike_until = now + 1.0
        key = (record.name, str(record.msg), str(getattr(record, "event", {}).get("code", "")))
        self._alike[key] = count = self._alike.get(key, 0) + 1
        if count <= _most(key[-1]):
            self._put(self.format(record))

    def close(self) -> None:
        """Write what waits, for at most FLUSH_TIME_S: the interpreter calls this at its end."""
        if not self._ended:
            self._tell_left_out()
            with self._changed:
                self._ended = True
                self._changed.notify()
            self._thread.join(FLUSH_TIME_S)
        super().close()

    def _tell_left_out(self) -> None:
        for (part, text, code), count in self._alike.items():
            if count > _most(code):
                event = {"code": code, "about": text, "lines": count - _most(code)}
                self._put(self._line(part, "lines like this were left out", event))
        self._alike.clear()

    def _put(self, line: str) -> None:
        with self._changed:
            if len(self._lines) >= self._lines_max:
                self._drop(1)
            else:
                self._lines.append(line)
                self._changed.notify()

    def _drop(self, lines: int) -> None:
        self._dropped += lines
        self.dropped_total += lines

    def _line(self, part: str, text: str, event: dict[str, Any]) -> str:
        values = {"name": part, "levelno": logging.WARNING, "levelname": "WARNING", "msg": text, "event": event}
        return self.format(logging.makeLogRecord(values))

    def _write(self) -> None:
        broken = False  # in the middle of a line, perhaps
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._ended)
                if not self._lines:
                    return
                lines = [self._lines.popleft() for _ in range(min(len(self._lines), WRITE_LINES_MAX))]
                dropped, self._dropped = self._dropped, 0
            told = [self._line("forwardpass.observe", "log lines were dropped", {"lines": dropped})] if dropped else []
            start = "\n" if broken else ""
            text = start + "".join(f"{line}\n" for line in [*lines, *told])
            try:
                _write_whole(self._descriptor, text.encode("utf-8", "replace"))
                broken = False
            except OSError:  # a full disk, a broken pipe: whoever reads it later is told how much is missing
                broken = True
                with self._changed:
                    self._drop(len(lines))
                    self._dropped += dropped


def _most(code: str) -> int:
    return ALIKE_MAX if code else UNCODED_MAX


def _write_whole(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def start(kind: str, secrets: Iterable[str] = ()) -> None:
    """Send the product's events to standard error as ``json`` or ``text``, without ``secrets``.

    What libraries have to say comes the same way from warnings on, and so do exceptions that nobody caught.
    """
    logging.raiseExceptions = False
    sink = Sink(sys.stderr.fileno())
    redaction = Redaction(secrets)
    sink.setFormatter(JsonLines(redaction) if kind == "json" else TextLines(redaction))
    for name, level in (("forwardpass", logging.INFO), (None, logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers = [sink]
        logger.setLevel(level)
    logging.getLogger("forwardpass").propagate = False
    logging.captureWarnings(True)
    threading.excepthook = lambda died: _uncaught(died.exc_type, died.exc_value, died.exc_traceback)
    sys.excepthook = _uncaught


def _uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if error is not None and not issubclass(kind, SystemExit | KeyboardInterrupt):
        _log.error("ended by a defect", exc_info=(kind, error, trace))


def chosen() -> LogChoice:
    """What is in force; the default where ``start`` was not called."""
    return next((sink.choice for sink in _sinks()), LogChoice())


def choose(choice: LogChoice) -> None:
    """In force from now on."""
    for sink in _sinks():
        sink.choice = choice
        if isinstance(sink.formatter, JsonLines | TextLines):
            sink.formatter.iso = choice.iso
        if isinstance(sink.formatter, JsonLines):
            sink.formatter.messages = choice.verbose
    logging.getLogger("forwardpass").setLevel(logging.DEBUG if choice.verbose else logging.INFO)


def dropped() -> int:
    """Lines that found no room, or nowhere to go."""
    return sum(sink.dropped_total for sink in _sinks())


def requests_told() -> bool:
    """Whether the log has a line for each request."""
    return _requests.isEnabledFor(logging.DEBUG)


def request_ended(record: Record) -> None:
    """One line for each request, where the log is verbose."""
    if requests_told():
        times_us = {f"{stage}_us": taken_us for stage, taken_us in record.timeline.stages_us().items()}
        event = {"request": record.id, "pipeline": record.version.pipeline, "version": record.version.number}
        event |= {"tenant": record.tenant, "key": record.key} if record.key else {}
        event |= {"outcome": record.outcome, "rows": record.rows, **times_us}
        _requests.debug("request ended", extra={"event": event})


def _sinks() -> list[Sink]:
    return [sink for sink in logging.getLogger("forwardpass").handlers if isinstance(sink, Sink)]
