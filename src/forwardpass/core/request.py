"""What a dialect decodes bytes to and what it encodes an answer from: the same for every protocol."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import msgspec

from forwardpass.core.caller import ANONYMOUS, Caller
from forwardpass.core.errors import Failure
from forwardpass.core.pipeline import Signature, Version
from forwardpass.core.tensor import Tensor
from forwardpass.core.timeline import Timeline

Parameter = str | int | float | bool


class Turn(msgspec.Struct, frozen=True):
    """A request's place in a sequence: which one, whether it starts it and whether it ends it."""

    id: str
    start: bool = False
    end: bool = False


class Trace(msgspec.Struct, frozen=True):
    """The trace a caller says a request belongs to (W3C Trace Context); ids in hex."""

    id: str
    parent: str  # the caller's span
    span: str  # ours
    flags: str = "00"
    state: str = ""  # "tracestate", for whom we call in turn


class Request(msgspec.Struct):
    """``rows`` rows, one tensor per column of the signature (in its order), each with ``rows`` as its first axis."""

    id: str
    columns: list[Tensor]
    rows: int
    timeline: Timeline
    priority: int = 0  # 0 = default; 1 = highest, larger = lower
    priority_field: str = "priority"  # where that was said
    deadline_s: float | None = None  # seconds from receipt that the caller gives; None = the server's default
    outputs: tuple[str, ...] = ()  # () = all
    caller: Caller = ANONYMOUS
    receipt: bool = False
    client_id: str | None = None  # V2's "id", echoed
    single: bool = False  # predict: one record was sent, one comes back
    accept: str = ""  # predict: the media type of a file that the caller wants in place of JSON
    binary: dict[str, bool] = {}  # V2: output name -> raw bytes asked
    binary_default: bool = False
    classes: dict[str, int] = {}  # V2: output name -> so many of its highest values, with their indices
    sequence: Turn | None = None
    trace: Trace | None = None
    judged: bool = True  # by the judges of guards; golden examples are not
    judging: tuple[str, ...] = ()  # the pipelines for whose guards this one judges, the first asked first
    begun: int = 0  # which start of its sequence it counts for, once it has run
    age_s_max: float = inf  # of a kept answer that it may be given; below 0 none, and none of a request that runs
    stores: bool = True  # what is computed for it may be kept, and given to others

    @property
    def tenant(self) -> str:
        return self.caller.tenant


class CacheUse(msgspec.Struct):
    """Of a request's rows, how many had a kept answer, waited for an equal row that ran, and were run."""

    hit: int = 0
    joined: int = 0
    miss: int = 0
    age_s_max: float = 0.0  # of the kept answers


class Note(msgspec.Struct):
    """Something a step did to a row that the caller must be told, e.g. name "truncated", value {"tokens": 300, "kept": 256}."""

    row: int
    name: str
    value: dict[str, Any]


class Answer(msgspec.Struct):
    """The outputs asked for, of the rows that succeeded, in row order; ``failures`` maps the other rows to why."""

    version: Version
    signature: Signature
    outputs: dict[str, Tensor]
    rows: int  # of the request
    failures: Mapping[int, Failure]
    notes: Sequence[Note]
    receipt: dict[str, Any] | None = None
    tokens: int = 0  # that tokenizers made of the rows that succeeded, special ones counted, padding not
    cache: CacheUse | None = None  # None: its version keeps no answers
