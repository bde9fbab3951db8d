"""One JSON line per event on standard error: bounded, escaped, never blocking a request (FAULTS G2, G5)."""

import json
import logging
import sys
from typing import Any

from forwardpass.core.clock import wall_s

LINE_BYTES_MAX = 8192
VALUE_CHARACTERS_MAX = 2000


class JsonLines(logging.Formatter):
    """``extra={"event": {...}}`` becomes the line's fields; anything that cannot be JSON becomes its repr."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "at": round(wall_s(), 3),
            "level": record.levelname.lower(),
            "part": record.name,
            "text": record.getMessage()[:VALUE_CHARACTERS_MAX],
        }
        for name, value in getattr(record, "event", {}).items():
            fields[name] = (
                value if isinstance(value, (int, float, bool, type(None))) else str(value)[:VALUE_CHARACTERS_MAX]
            )
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)[-VALUE_CHARACTERS_MAX:]
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
    """The same for people at a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        event = " ".join(f"{name}={value!s:.200}" for name, value in getattr(record, "event", {}).items())
        text = f"{record.levelname.lower():7} {record.getMessage()} {event}".rstrip()
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def start(kind: str) -> None:
    """Send the product's events to standard error as ``json`` or ``text``; a broken pipe there is ignored."""
    logging.raiseExceptions = False
    sink = logging.StreamHandler(sys.stderr)
    sink.setFormatter(JsonLines() if kind == "json" else TextLines())
    logger = logging.getLogger("forwardpass")
    logger.handlers = [sink]
    logger.setLevel(logging.INFO)
    logger.propagate = False
