"""The record every answer can carry: who answered, how long each stage took, in which batch, what was cut.

Records are kept raw and turned into a receipt only when somebody asks, so keeping them costs next to nothing.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from forwardpass.core.caller import ANONYMOUS, Caller
from forwardpass.core.pipeline import Version
from forwardpass.core.request import CacheUse, Note
from forwardpass.core.timeline import BatchReport, Timeline
from forwardpass.observe.redaction import Redaction

KEPT_MAX = 10_000
NOTES_MAX = 20  # of one request; the rest is counted
NOTE_CHARACTERS_MAX = 500  # of one note's values as text; larger ones are left out
BATCHES_MAX = 100  # of one request; the rest is counted
GUARD = "guard"  # the name of notes that are verdicts
_redaction = Redaction()


class Record(msgspec.Struct):
    """What is known of one request when it ends; ``outcome`` is "ok" or an error code.

    Bounded, however many rows the request had: the first notes and batches stay, the rest is counted.
    """

    id: str
    version: Version
    timeline: Timeline
    batches: Sequence[BatchReport]
    rows: int
    rows_failed: int
    notes: Sequence[Note]
    repeatable: str  # "" = yes, else why not
    outcome: str
    notes_left_out: int = 0
    batches_left_out: int = 0
    tokens: int = 0  # that tokenizers made of the rows that succeeded
    trace: str = ""  # id of the caller's trace
    cost: float = 0.0  # in the units of the pipeline's price
    tenant: str = ANONYMOUS.tenant
    key: str = ""  # id of what the caller was known by
    cache: CacheUse | None = None  # None: its version keeps no answers
    verdicts: Mapping[tuple[str, str], int] = {}  # of guards: (guard, what it did) -> on how many values

    def __post_init__(self) -> None:
        if len(self.notes) > NOTES_MAX:
            self.notes_left_out = len(self.notes) - NOTES_MAX
        if self.notes:
            self.verdicts = Counter(_verdict(note) for note in self.notes if note.name == GUARD)
            self.notes = [_bounded(note) for note in self.notes[:NOTES_MAX]]
        if len(self.batches) > 1:
            batches = list({batch.id: batch for batch in self.batches}.values())
            self.batches_left_out = max(0, len(batches) - BATCHES_MAX)
            self.batches = batches[:BATCHES_MAX]


class Shared:
    """The record of requests that came and were answered as one; they differ in id and in when they came."""

    __slots__ = ("record",)

    def __init__(self, record: Record) -> None:
        self.record = record

    def of(self, id: str, received_s: float, outcome: str = "ok") -> Record:
        """The record of one of them."""
        timeline = msgspec.structs.replace(self.record.timeline, received=received_s)
        return msgspec.structs.replace(self.record, id=id, timeline=timeline, outcome=outcome)


def _verdict(note: Note) -> tuple[str, str]:
    failed = note.value.get("judge") == "failed"
    return str(note.value.get("guard", "")), "failed" if failed else str(note.value.get("mode", ""))


def _bounded(note: Note) -> Note:
    return note if len(repr(note.value)) <= NOTE_CHARACTERS_MAX else Note(note.row, note.name, {"left_out": True})


def receipt(record: Record) -> dict[str, Any]:
    """The receipt as JSON-ready values; times in whole microseconds."""
    return {
        "id": record.id,
        "pipeline": record.version.pipeline,
        "version": record.version.number,
        "digest": record.version.digest,
        **({"policy": record.version.policy} if record.version.policy else {}),
        **({"signers": list(record.version.signers)} if record.version.signers else {}),
        **({"trace": record.trace} if record.trace else {}),
        **({"tenant": record.tenant, "key": record.key} if record.key else {}),
        "outcome": record.outcome,
        "rows": record.rows,
        "rows_failed": record.rows_failed,
        **({"tokens": record.tokens} if record.tokens else {}),
        "cost": record.cost,
        "timings_us": record.timeline.stages_us(),
        "batches": [
            {
                "id": batch.id,
                "rows": batch.rows,
                "items": batch.items,
                "reason": batch.reason,
                "worker": batch.worker,
            }
            for batch in record.batches
        ],
        **({"batches_left_out": record.batches_left_out} if record.batches_left_out else {}),
        **({"cache": _cache(record.cache)} if record.cache is not None else {}),
        "notes": [{"row": note.row, "name": note.name, **_redaction.value(note.value)} for note in record.notes],
        **({"guards": _by_guard(record.verdicts)} if record.verdicts else {}),
        **({"notes_left_out": record.notes_left_out} if record.notes_left_out else {}),
        "repeatable": not record.repeatable,
        **({"repeatable_reason": record.repeatable} if record.repeatable else {}),
    }


def _cache(use: CacheUse) -> dict[str, float]:
    return {"hit": use.hit, "joined": use.joined, "miss": use.miss, "age_s_max": round(use.age_s_max, 3)}


def _by_guard(verdicts: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    """All verdicts, those of notes that are left out too: guard -> what it did -> on how many values."""
    counts: dict[str, dict[str, int]] = {}
    for (guard, did), count in sorted(verdicts.items()):
        counts.setdefault(guard, {})[did] = count
    return counts


class Receipts:
    """The last ``kept_max`` records, by request id."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._records: OrderedDict[str, Record | tuple[Shared, float]] = OrderedDict()

    def keep(self, record: Record) -> None:
        self._records[record.id] = record
        if len(self._records) > self._kept_max:
            self._records.popitem(last=False)

    def keep_alike(self, ids: Sequence[str], received_s: Sequence[float], shared: Shared) -> None:
        """Those of requests that came as one; each record is made when it is asked for."""
        records = self._records
        for id, at_s in zip(ids, received_s, strict=True):
            records[id] = shared, at_s
        for _ in range(len(records) - self._kept_max):
            records.popitem(last=False)

    def shrink(self) -> int:
        """Drop the older half; returns how many those were."""
        dropped = (len(self._records) + 1) // 2
        for _ in range(dropped):
            self._records.popitem(last=False)
        return dropped

    def find(self, id: str, caller: Caller = ANONYMOUS) -> Record | None:
        """None for one of another tenant too, but to an administrator."""
        kept = self._records.get(id)
        record = kept[0].of(id, kept[1]) if isinstance(kept, tuple) else kept
        return record if record is not None and (record.tenant == caller.tenant or caller.may("admin")) else None
