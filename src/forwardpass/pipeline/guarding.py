"""Guards whose judge is another pipeline served here: asked by the front, around the way of a request through its own.

A judge sees each text in a request of its caller's, under what is left of the request's deadline, TEXTS_AT_ONCE at a
time; such a request costs its caller nothing and has no receipt. What a guard in
shadow mode found stays in the books: it is taken out of the answer here, for guards of every kind.
"""

import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import Any

import msgspec

from forwardpass.core.clock import Clock, random_id
from forwardpass.core.errors import Code, Failed, Failure, Misconfigured, Problem, Refused
from forwardpass.core.off_loop import off_loop
from forwardpass.core.pipeline import Field, Guard, Version
from forwardpass.core.request import Answer, Note, Request
from forwardpass.core.tensor import ITEM_BYTES, Tensor, byte_offsets, unpack_bytes, unpack_texts
from forwardpass.core.timeline import Timeline
from forwardpass.pipeline import fields
from forwardpass.pipeline.books import Entry
from forwardpass.pipeline.joining import joined
from forwardpass.rollout.route import Routes
from forwardpass.rollout.variant import Variant
from forwardpass.steps.guard.checks import blocked
from forwardpass.steps.guard.stage import NOTE, holds_text, verdict
from forwardpass.steps.rules.expressions import FIELDS, Expression, Unanswered, compiled

_log = logging.getLogger(__name__)

TEXTS_JUDGED_MAX = 10_000
"""Of one field of a request, for one guard. A request with more is refused."""
TEXTS_AT_ONCE = 256
"""That a judge is asked about in one request; the next ones once that is answered."""

AnswerOf = Callable[[Variant, Request, Entry], Awaitable[Answer]]
Texts = Sequence[tuple[int, str]]
"""(row, a text in it)"""


@dataclass(slots=True)
class _Judged:
    """What judges said of the rows of a request so far; ``found`` and ``failed`` are of one guard and field."""

    failures: dict[int, Failure] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    found: dict[int, int] = field(default_factory=dict)
    failed: dict[int, Failure] = field(default_factory=dict)

    def fail(self, rows: Iterable[int], failure: Failure) -> None:
        for row in rows:
            self.failed.setdefault(row, failure)

    def enter(self, guard: Guard, name: str) -> None:
        """One verdict for each row, guard and field: what was found comes before what could not be told."""
        for row, count in self.found.items():
            self.notes.append(Note(row, NOTE, verdict(guard, name, count)))
            if guard.mode == "block":
                self.failures.setdefault(row, blocked(guard, name))
        for row, failure in self.failed.items():
            self.notes.append(Note(row, NOTE, {**verdict(guard, name, 0), "judge": "failed"}))
            if guard.mode == "block" and guard.on_failure == "block":
                self.failures.setdefault(row, _no_verdict(guard, name, failure))
        self.found, self.failed = {}, {}


class Guarding:
    """``ask`` gives the answer of a variant that is entered; one per handle."""

    def __init__(self, routes: Routes, clock: Clock, ask: Callable[[Variant, Request], Awaitable[Answer]]) -> None:
        self._routes = routes
        self._clock = clock
        self._ask = ask

    async def around(
        self, variant: Variant, request: Request, entry: Entry, deadline: float, answer_of: AnswerOf
    ) -> Answer:
        """The answer of ``answer_of`` to the rows that judges let in, less what they do not let out. Raises Failure."""
        if request.judged and any(guard.judge for guard in variant.version.definition.guards):
            answer = await self._judged(variant, request, entry, deadline, answer_of)
        else:
            answer = await answer_of(variant, request, entry)
        return without_shadows(answer)

    async def _judged(
        self, variant: Variant, request: Request, entry: Entry, deadline: float, answer_of: AnswerOf
    ) -> Answer:
        judged = _Judged()
        entry.judged_failures, entry.judged_notes = judged.failures, judged.notes
        signature, rows = variant.signature, range(request.rows)
        columns = dict(zip(signature.columns, request.columns, strict=True))
        await self._judge("input", variant, request, deadline, columns, rows, judged)
        kept = [row for row in rows if row not in judged.failures]
        if judged.failures and not signature.batched:
            raise judged.failures[min(judged.failures)]
        if not kept:
            nothing = {each.name: joined(each, 0, ()) for each in signature.outputs}
            if request.outputs:
                nothing = {name: nothing[name] for name in request.outputs if name in nothing}
            return Answer(variant.version, signature, nothing, request.rows, judged.failures, judged.notes)
        inside = request
        if len(kept) < request.rows:
            picked = [picked_rows(tensor, kept) for tensor in request.columns]
            inside = msgspec.structs.replace(request, columns=picked, rows=len(kept))
        answer = await answer_of(variant, inside, entry)
        request.begun = inside.begun
        failures = {kept[row]: failure for row, failure in answer.failures.items()}
        notes = [Note(kept[note.row], note.name, note.value) for note in answer.notes]
        alive = [row for row in kept if row not in failures]
        outputs = {each: answer.outputs[each.name] for each in signature.outputs if each.name in answer.outputs}
        await self._judge("output", variant, request, deadline, outputs, alive, judged)
        out = [place for place, row in enumerate(alive) if row not in judged.failures]
        if len(out) < len(alive):
            if not signature.batched:
                raise judged.failures[min(judged.failures)]
            answer.outputs = {name: picked_rows(tensor, out) for name, tensor in answer.outputs.items()}
        answer.rows = request.rows
        answer.failures, answer.notes = {**failures, **judged.failures}, [*judged.notes, *notes]
        return answer

    async def _judge(
        self,
        on: str,
        variant: Variant,
        request: Request,
        deadline: float,
        tensors: Mapping[Field, Tensor],
        rows: Sequence[int],
        judged: _Judged,
    ) -> None:
        """Every judge of these guards in turn, of the rows that none has blocked before."""
        for guard in (each for each in variant.version.definition.guards if each.judge and each.on == on):
            for each, tensor in tensors.items():
                if not holds_text(each) or (guard.fields and each.name not in guard.fields):
                    continue
                texts = await off_loop(tensor.bytes_total, _texts, on, each, tensor, rows, judged.failures, guard)
                for some in self._slices(guard, texts):
                    await self._ask_of(guard, some, variant, request, deadline, judged)
                judged.enter(guard, each.name)

    def _slices(self, guard: Guard, texts: Texts) -> Iterator[Texts]:
        """As many texts at once as its judge takes."""
        try:
            count = TEXTS_AT_ONCE if self._routes.find(guard.judge, None).signature.batched else 1
        except Failure:
            count = TEXTS_JUDGED_MAX  # nobody is asked
        return (texts[begin : begin + count] for begin in range(0, len(texts), count))

    async def _ask_of(
        self, guard: Guard, texts: Texts, variant: Variant, request: Request, deadline: float, judged: _Judged
    ) -> None:
        """What the judge says of some texts of a field. What it does not take is not the failure of the others."""
        chain = (*request.judging, variant.version.pipeline)
        try:
            if guard.judge in chain:
                raise Failed(Code.STEP_FAILED, "pipelines judge each other in a circle")
            judge = self._routes.find(guard.judge, None)
            size = sum([len(text) for _, text in texts])
            asked_of, columns, rows = await off_loop(size, _encoded, judge, texts, judged)
            if not rows:
                return
            now = self._clock()
            asked = Request(
                random_id(), columns, rows, Timeline(now, now), priority=request.priority, deadline_s=deadline - now,
                caller=request.caller, trace=request.trace, judging=chain,
                age_s_max=request.age_s_max, stores=request.stores,
            )  # fmt: skip
            judge.enter()
            try:
                answer = await self._ask(judge, asked)
            finally:
                judge.exit()
        except Failure as failure:
            judged.fail([row for row, _ in texts], failure)
            return
        size = sum([tensor.bytes_total for tensor in answer.outputs.values()])
        await off_loop(size, _look_at, guard, asked_of, answer, judged)


def without_shadows(answer: Answer) -> Answer:
    """It without the verdicts of guards in shadow mode: they are for the books."""
    if answer.notes:
        answer.notes = [note for note in answer.notes if not _in_shadow(note)]
    return answer


def refuse_circle(version: Version, routes: Routes) -> None:
    """Raises Misconfigured for a version that would judge itself, by whatever pipelines that are served."""
    served = {variant.version.pipeline: variant.version for variant in routes.variants() if not variant.ended}
    ahead, seen = [*_judges(version)], set[str]()
    while ahead:
        name = ahead.pop()
        if name == version.pipeline:
            problem = Problem("pipeline.toml", "guards", f'"{name}" would be judged by itself', "judges in no circle")
            raise Misconfigured(Code.DEFINITION_INVALID, (problem,))
        if name not in seen and name in served:
            seen.add(name)
            ahead += _judges(served[name])


def warn_of_missing_judges(routes: Routes) -> None:
    """In the log, of guards whose judge is not served: what they block is not answered."""
    for variant in routes.variants():
        for name in _judges(variant.version):
            if not routes.serves(name):
                event = {"pipeline": variant.version.pipeline, "judge": name}
                _log.warning("the judge of a guard is not served", extra={"event": event})


def picked_rows(tensor: Tensor, rows: Sequence[int]) -> Tensor:
    """These rows of a tensor, in this order."""
    count = tensor.shape[0]
    elements = [prod(shape) for shape in tensor.shapes] or [prod(tensor.shape[1:])] * count
    ends = list(accumulate(elements, initial=0))
    view = memoryview(tensor.data).cast("B") if len(tensor.data) else memoryview(b"")
    if tensor.datatype == "BYTES":
        offsets = byte_offsets(view, ends[-1])
        places = [offsets[end] for end in ends]
    else:
        places = [end * ITEM_BYTES[tensor.datatype] for end in ends]
    data = b"".join([view[places[row] : places[row + 1]] for row in rows])
    shapes = [tensor.shapes[row] for row in rows] if tensor.shapes else ()
    return Tensor(tensor.datatype, (len(rows), *tensor.shape[1:]), data, shapes)


def _judges(version: Version) -> Iterator[str]:
    return (guard.judge for guard in version.definition.guards if guard.judge)


def _in_shadow(note: Note) -> bool:
    return note.name == NOTE and note.value.get("mode") == "shadow"


def _only_text(judge: Variant) -> str:
    needed = [given for given in judge.signature.inputs if not given.missing]
    if len(needed) != 1 or needed[0].type != "text":
        raise Failed(Code.STEP_FAILED, "a judge takes one text and nothing else")
    return needed[0].name


def _texts(
    on: str, field: Field, tensor: Tensor, rows: Sequence[int], failed: Container[int], guard: Guard
) -> list[tuple[int, str]]:
    """(row, text) of each that is not null, of rows that have not failed; of JSON the whole value. Raises Refused."""
    each = max(prod(tensor.shape[1:]), 1)
    found: list[tuple[int, str]] = []
    for place, element in enumerate(unpack_bytes(tensor.data, prod(tensor.shape))):
        row = rows[place // each]
        if element is None or row in failed:
            continue
        if field.kind == "texts":
            found += [
                (row, text) for text in (unpack_texts(element) if on == "input" else msgspec.json.decode(element))
            ]
        else:
            found.append((row, element.decode("utf-8", "replace")))
        if len(found) > TEXTS_JUDGED_MAX:
            text = f'the judge of the guard "{guard.name}" looks at no more than {TEXTS_JUDGED_MAX} texts of a request'
            raise Refused(Code.INPUT_TOO_LARGE, text, field=field.name)
    return found


def _encoded(judge: Variant, texts: Texts, judged: _Judged) -> tuple[Sequence[int], list[Tensor], int]:
    """The rows of the texts that a judge takes, and these as its input."""
    name = _only_text(judge)
    try:
        return [row for row, _ in texts], *fields.encode(judge.signature, [{name: text} for _, text in texts], root="")
    except Refused:
        pass
    taken: list[tuple[int, str]] = []
    for row, text in texts:
        try:
            fields.encode(judge.signature, [{name: text}], root="")
            taken.append((row, text))
        except Refused as refused:
            judged.fail([row], refused)
    if not taken:
        return [], [], 0
    return [row for row, _ in taken], *fields.encode(judge.signature, [{name: text} for _, text in taken], root="")


def _look_at(guard: Guard, rows: Sequence[int], answer: Answer, judged: _Judged) -> None:
    for row, outcome in zip(rows, fields.decode(answer), strict=True):
        found = _true(guard, outcome)
        if isinstance(found, Failure):
            judged.fail([row], found)
        elif found:
            judged.found[row] = judged.found.get(row, 0) + 1


@lru_cache(256)
def _expression(text: str) -> Expression:
    return compiled(text)


def _true(guard: Guard, outcome: "dict[str, Any] | Failure") -> bool | Failure:
    if isinstance(outcome, Failure):
        return outcome
    try:
        found = _expression(guard.when).value({**outcome, FIELDS: outcome})
    except Unanswered as why:
        return Failed(Code.STEP_FAILED, f"when has no value: {why.reason}", detail=why.detail)
    return found if type(found) is bool else Failed(Code.STEP_FAILED, "when is neither true nor false")


def _no_verdict(guard: Guard, field: str, failure: Failure) -> Failure:
    """Why a row is not let through of which the judge said nothing: a text that it refuses is the caller's."""
    if isinstance(failure, Refused) and failure.code is not Code.PIPELINE_NOT_FOUND:
        return blocked(guard, field)
    code = failure.code if failure.code is Code.DEADLINE_EXCEEDED else Code.MODEL_UNAVAILABLE
    text = f'the judge of the guard "{guard.name}" gives no answer'
    return Failed(
        code, text, field=field, detail=f"{failure.code}: {failure.text}; {failure.detail}", retry_after_s=1.0
    )
