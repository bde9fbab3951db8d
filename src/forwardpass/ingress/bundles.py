"""What comes in one pass of the event loop and asks the same is one request of many rows: decided, queued, run, printed once.

Members are alike in all that decides: version, caller, form of body, no wishes of their own. So they would have been
neighbours in the queue. Where not all of a bundle can be answered alike (one has another number of elements, the queue
is not calm, a row fails, a worker dies), each of its members is answered by itself, as if it had come alone.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from forwardpass.admit.quotas import Admission
from forwardpass.batching.ticket import Ticket
from forwardpass.core.caller import Caller
from forwardpass.core.clock import Clock, RandomIds
from forwardpass.core.errors import Code, Failure, Refused
from forwardpass.core.off_loop import at_once
from forwardpass.core.request import Answer, Request
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialects.envelope import answer_headers
from forwardpass.ingress.dialects.v2_repeated import Repeated, texts_of
from forwardpass.ingress.edge import Edge
from forwardpass.ingress.framing import Head, opening_of
from forwardpass.ingress.inference import Inference
from forwardpass.ingress.message import HttpAnswer
from forwardpass.ingress.serving import Answering, Asker, Waiting
from forwardpass.pipeline.begun import Begun, begin
from forwardpass.pipeline.handle import Handle
from forwardpass.rollout.variant import Variant

MEMBERS_MAX = 256
TOLD = frozenset((Code.DEADLINE_EXCEEDED, Code.SHED, Code.SHUTTING_DOWN, Code.MODEL_UNAVAILABLE))
"""How a bundle may end that is every member's end; after any other each runs by itself."""
LOST = frozenset((Code.WORKER_CRASHED, Code.WORKER_HUNG))
APART_S = 1.0
"""What came apart once it had run was run twice: so long bodies of that form come in one by one."""

_log = logging.getLogger("forwardpass.ingress")


class Member(Waiting):
    """One request of a bundle; ``alone`` is what became of it where it had to be answered by itself."""

    __slots__ = ("alone", "asker", "body", "bundle", "head", "id", "left", "received_s")

    def __init__(self, bundle: "Bundle", head: Head, body: bytes, received_s: float, asker: Asker) -> None:
        self.bundle = bundle
        self.head = head
        self.body = body
        self.received_s = received_s
        self.asker = asker
        self.left = False
        self.alone: Waiting | None = None

    def leave(self) -> None:
        self.left = True
        if self.alone is not None:
            self.alone.leave()
        else:
            self.bundle.left(self)


class Alone(Protocol):
    """Who answers one request by itself, and what that takes."""

    handle: Handle
    inference: Inference
    edge: Edge
    clock: Clock
    ids: RandomIds

    def alone(self, variant: Variant, caller: Caller, member: Member) -> None:
        """Answer a member of a bundle: by the version and for the caller that it came in for."""

    def fail(self, variant: Variant, caller: Caller, member: Member, error: Exception) -> None:
        """That is its end."""

    def gone(self, variant: Variant, caller: Caller, member: Member) -> None:
        """It left before it was told."""

    def coded(self, member: Member, answer: HttpAnswer) -> Answering:
        """An answer as its client accepts it."""


class Bundle:
    """Members of one pass, until they are told."""

    def __init__(self, direct: Alone, variant: Variant, repeated: Repeated, caller: Caller) -> None:
        self._direct = direct
        self._variant = variant
        self._repeated = repeated
        self._caller = caller
        self._begun: Begun | None = None
        self._admission: Admission | None = None
        self._waiting = 0
        self.members: list[Member] = []
        self.texts: list[bytes] = []

    def left(self, member: Member) -> None:
        """Its client went away: that is written down when the others are told, or when none is left."""
        self._waiting -= 1
        if not self._waiting and self._begun is not None:
            self._begun.leave()

    def begin(self) -> None:
        """All members of the pass are here."""
        here = [place for place, member in enumerate(self.members) if not member.left]
        if len(here) < len(self.members):
            self._each(lambda member: None)
            self.members = [self.members[place] for place in here]
            self.texts = [self.texts[place] for place in here]
        most = self._variant.together(len(self.members))
        if 1 < most < len(self.members):
            self._parted(most).begin()
        self._waiting = len(self.members)
        if most < 2 or len(self.members) < 2 or not self._together():
            self._each(self._alone)

    def _parted(self, most: int) -> "Bundle":
        """A bundle of those that are over so many."""
        rest = Bundle(self._direct, self._variant, self._repeated, self._caller)
        rest.members, self.members = self.members[most:], self.members[:most]
        rest.texts, self.texts = self.texts[most:], self.texts[:most]
        for member in rest.members:
            member.bundle = rest
        return rest

    def _together(self) -> bool:
        """Whether they have been begun."""
        direct, variant, count = self._direct, self._variant, len(self.members)
        column = None if variant.ended else self._repeated.rows(self.texts)
        if column is None:
            return False
        if not self._admitted():
            return False
        request = Request("", [column], count, Timeline(self.members[0].received_s), caller=self._caller)
        request.timeline.decoded = direct.clock()
        variant.enter(count)
        try:
            direct.inference.refuse_work()
            entry = direct.handle.books.open(variant, request)
            self._begun = begin(direct.handle, variant, request, entry, count)
        except Exception as error:  # a border: a defect is found by each of them, with its answer
            if not isinstance(error, Failure):
                _log.exception("a bundle could not be begun")
            variant.exit(count)
            self._undo()
            return False
        self._begun.ticket.then = self._ended
        return True

    def _admitted(self) -> bool:
        """Take of the caller's quotas for all at once; where that is not granted each asks for itself."""
        quotas, caller, pipeline = self._direct.edge.quotas, self._caller, self._variant.version.pipeline
        if quotas is None:
            return True
        if quotas.by_work(caller, pipeline):
            return False
        admission = quotas.admission(caller, sum([len(member.body) for member in self.members]), len(self.members))
        try:
            at_once(admission.enter(pipeline))
        except Refused:
            return False
        self._admission = admission
        return True

    def _undo(self) -> None:
        """Each asks for itself."""
        if self._admission is not None:
            self._admission.undo()
            self._admission = None

    def _ended(self, ticket: Ticket) -> None:
        begun = self._begun
        assert begun is not None, "it was begun"
        try:
            told = self._tell(begun, begun.end())
        except Failure as failure:
            told = failure.code in TOLD
            if told:
                self._each(partial(self._fail, error=failure))
            elif failure.code in LOST:
                self._variant.quarantine.suspect_rows(begun.items)
        except Exception:  # a border: a defect of ours must not cost the batch that these were in
            _log.exception("a bundle could not be told")
            told = False
        if not told:
            self._undo()
            self._each(self._alone)
        if self._admission is not None:
            self._admission.leave()
        self._variant.exit(len(self.members))  # not before: a version that drains waits for those that run again
        self.members = []  # they hold this

    def _tell(self, begun: Begun, answer: Answer) -> bool:
        """Whether they have been told; where anything is to be said of one row, each is to have an answer of its own."""
        if any(part.failures or part.notes or part.tokens for part in begun.entry.parts):
            self._repeated.apart_until_s = self._direct.clock() + APART_S
            return False
        version, members = self._variant.version, self.members
        ids = self._direct.ids.some(len(members))
        texts = texts_of(answer, version, ids)
        headers = answer_headers(ids[0], version)[1:]
        if self._admission is not None:
            headers += self._admission.standings.headers(openai=False)
        opening, coded_min = opening_of(headers), self._direct.edge.compress_bytes_min
        left = [member.left for member in members]
        begun.close_alike(ids, [member.received_s for member in members], left)
        for member, id, text in zip(members, ids, texts, strict=True):
            if not member.left:
                try:
                    if coded_min and len(text) >= coded_min:
                        member.asker.tell(self._direct.coded(member, opening.answer(id, text)))
                    else:
                        member.asker.tell_row(opening, id, text)
                except Exception:  # a border: what is in the books is not run again
                    _log.exception("an answer could not be told")
        return True

    def _each(self, answer: Callable[[Member], None]) -> None:
        """Those who have left are written down."""
        for member in self.members:
            try:
                if member.left:
                    self._direct.gone(self._variant, self._caller, member)
                else:
                    answer(member)
            except Exception as error:  # a border: a defect with one is not the others'
                _log.exception("a member of a bundle could not be answered")
                self._fail_or_log(member, error)

    def _alone(self, member: Member) -> None:
        self._direct.alone(self._variant, self._caller, member)

    def _fail_or_log(self, member: Member, error: Exception) -> None:
        try:
            self._fail(member, error)
        except Exception:  # a border, as above
            _log.exception("a member of a bundle could not be told that it failed")

    def _fail(self, member: Member, error: Exception) -> None:
        self._direct.fail(self._variant, self._caller, member, error)


class Bundles:
    """Those of this pass of the loop."""

    def __init__(self, direct: Alone) -> None:
        self._direct = direct
        self._open: dict[tuple[Repeated, Caller], Bundle] = {}
        self._all: list[Bundle] = []

    def join(
        self,
        variant: Variant,
        repeated: Repeated,
        caller: Caller,
        text: bytes,
        head: Head,
        body: bytes,
        received_s: float,
        asker: Asker,
    ) -> Member:
        key = (repeated, caller)
        bundle = self._open.get(key)
        if bundle is None or len(bundle.members) >= MEMBERS_MAX:
            if not self._all:
                asyncio.get_running_loop().call_soon(self._begin)
            bundle = self._open[key] = Bundle(self._direct, variant, repeated, caller)
            self._all.append(bundle)
        member = Member(bundle, head, body, received_s, asker)
        bundle.members.append(member)
        bundle.texts.append(text)
        return member

    def _begin(self) -> None:
        bundles, self._all = self._all, []
        self._open.clear()
        for bundle in bundles:
            bundle.begin()
