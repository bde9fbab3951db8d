"""Every failure the product can tell anybody about, as one tree.

Failure                 anything forwardpass says no with
├── Refused             the caller's fault: the same request will be refused again
├── Failed              the server's fault: the same request may work later (``retry_after_s`` says when)
└── Misconfigured       the operator's fault: a pipeline folder, a setting, a model file; carries all ``problems``

A failure has a ``code`` from the closed set below, a ``text`` that is safe to show a client (field, expectation, what
came; never a path, class name or engine text) and a ``detail`` for the log only. Only ``ingress/status.py`` knows which
code becomes which HTTP status.
"""

from dataclasses import dataclass
from enum import StrEnum

CLIENT_DATA_BYTES_MAX = 256
TEXT_BYTES_MAX = 512


class Code(StrEnum):
    """Stable error codes: clients switch on them, so none is ever renamed."""

    # Refused: framing and parsing
    BAD_REQUEST = "bad_request"
    BODY_TOO_LARGE = "body_too_large"
    BODY_TOO_SLOW = "body_too_slow"
    HEADERS_TOO_LARGE = "headers_too_large"
    URL_TOO_LONG = "url_too_long"
    HEADER_TIMEOUT = "header_timeout"
    INCOMPLETE_BODY = "incomplete_body"
    TOO_MANY_CHUNKS = "too_many_chunks"
    BAD_ENCODING = "bad_encoding"
    EXPECTATION_FAILED = "expectation_failed"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    NOT_ACCEPTABLE = "not_acceptable"
    MISDIRECTED = "misdirected"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    NOT_IMPLEMENTED = "not_implemented"
    ROUTE_NOT_FOUND = "route_not_found"
    JSON_INVALID = "json_invalid"
    JSON_TOO_DEEP = "json_too_deep"
    JSON_TOO_MANY_KEYS = "json_too_many_keys"
    JSON_DUPLICATE_KEY = "json_duplicate_key"
    # Refused: the request's meaning
    PIPELINE_NOT_FOUND = "pipeline_not_found"
    VERSION_NOT_FOUND = "version_not_found"
    SEQUENCE_NOT_FOUND = "sequence_not_found"
    RECEIPT_NOT_FOUND = "receipt_not_found"
    UNKNOWN_FIELD = "unknown_field"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    SHAPE_MISMATCH = "shape_mismatch"
    SHAPE_OVERFLOW = "shape_overflow"
    DATATYPE_MISMATCH = "datatype_mismatch"
    BINARY_SIZE_MISMATCH = "binary_size_mismatch"
    BATCH_TOO_LARGE = "batch_too_large"
    INPUT_TOO_LARGE = "input_too_large"
    INVALID_UTF8 = "invalid_utf8"
    INVALID_INPUT = "invalid_input"
    IMAGE_INVALID = "image_invalid"
    IMAGE_TRUNCATED = "image_truncated"
    AUDIO_FORMAT = "audio_format"
    AUDIO_INVALID = "audio_invalid"
    RULE_REFUSED = "rule_refused"
    UNKNOWN_OUTPUT = "unknown_output"
    QUARANTINED = "quarantined"
    CONFLICT = "conflict"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    RATE_LIMITED = "rate_limited"
    CONCURRENCY_LIMITED = "concurrency_limited"
    BUDGET_EXHAUSTED = "budget_exhausted"
    GUARD_BLOCKED = "guard_blocked"
    IDEMPOTENCY_MISMATCH = "idempotency_mismatch"
    IDEMPOTENCY_RUNNING = "idempotency_running"
    CANCELLED = "cancelled"
    # Failed
    QUEUE_FULL = "queue_full"
    QUEUE_BYTES_FULL = "queue_bytes_full"
    QUEUE_WAIT_TOO_LONG = "queue_wait_too_long"
    SHED = "shed"
    BYTES_IN_FLIGHT_FULL = "bytes_in_flight_full"
    MEMORY_FULL = "memory_full"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    SEQUENCES_FULL = "sequences_full"
    SEQUENCE_LOST = "sequence_lost"
    NOT_READY = "not_ready"
    SHUTTING_DOWN = "shutting_down"
    MODEL_UNAVAILABLE = "model_unavailable"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    WORKER_CRASHED = "worker_crashed"
    WORKER_HUNG = "worker_hung"
    ENGINE_FAILED = "engine_failed"
    ENGINE_OUT_OF_MEMORY = "engine_out_of_memory"
    OUTPUT_TOO_LARGE = "output_too_large"
    NON_FINITE_OUTPUT = "non_finite_output"
    OUTPUT_OUT_OF_RANGE = "output_out_of_range"
    BAD_OUTPUT_SHAPE = "bad_output_shape"
    STEP_FAILED = "step_failed"
    INTERNAL = "internal"
    # Misconfigured
    DEFINITION_INVALID = "definition_invalid"
    SETTINGS_INVALID = "settings_invalid"
    MODEL_INVALID = "model_invalid"
    DIGEST_MISMATCH = "digest_mismatch"
    NOT_TRUSTED = "not_trusted"
    NOT_SIGNED = "not_signed"
    FOLDER_CHANGED = "folder_changed"
    GOLDEN_MISMATCH = "golden_mismatch"
    LOAD_FAILED = "load_failed"
    RUNTIME_MISSING = "runtime_missing"
    PORT_IN_USE = "port_in_use"
    STORE_LOCKED = "store_locked"


class Failure(Exception):
    """A failure with a code. ``field`` is a JSON pointer or a name; ``detail`` goes to the log, never to a client.

    Whatever text an exception or a value had, what is kept of it can be encoded: a failure always gets through.
    """

    def __init__(
        self, code: Code, text: str, *, field: str = "", detail: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(encodable(text))
        self.code = code
        self.text = encodable(text[:TEXT_BYTES_MAX])
        self.field = encodable(field)
        self.detail = detail
        self.retry_after_s = retry_after_s

    @property
    def detail(self) -> str:
        return self._detail

    @detail.setter
    def detail(self, detail: str) -> None:
        self._detail = encodable(detail)


class Refused(Failure):
    """The caller's fault."""


class Failed(Failure):
    """The server's fault."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with what the operator gave us: where, what was found, what is allowed."""

    file: str
    key: str
    found: str
    allowed: str
    line: int | None = None

    def __post_init__(self) -> None:
        for name in ("file", "key", "found", "allowed"):
            object.__setattr__(self, name, encodable(getattr(self, name)))

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        what = f"{self.found}; {self.allowed}" if self.allowed else self.found
        return ": ".join(part for part in (place, self.key, what) if part)


class Misconfigured(Failure):
    """The operator's fault; ``problems`` lists everything found, not only the first."""

    def __init__(self, code: Code, problems: "tuple[Problem, ...] | str", *, detail: str = "") -> None:
        self.problems = (Problem("", "", problems, ""),) if isinstance(problems, str) else problems
        super().__init__(code, "\n".join(map(str, self.problems)), detail=detail)
        self.text = "\n".join(map(str, self.problems))

    def __str__(self) -> str:
        return self.text


def encodable(text: str) -> str:
    """The text with what UTF-8 has no form for, half a surrogate pair, written as an escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def show(value: object) -> str:
    """A client's value as it may be repeated to the client: escaped and cut to 64 characters."""
    text = value if isinstance(value, str) else repr(value)
    escaped = text.encode("unicode_escape", "backslashreplace").decode("ascii")
    return escaped if len(escaped) <= 64 else escaped[:61] + "..."
