"""What comes in one pass of the event loop and asks the same is one request of many rows: decided, queued, run, printed once.

Members are alike in all that decides: version, caller, form of body, no wishes of their own. So they would have been
neighbours in the queue. Where not all of a bundle can be answered alike (one has another number of elements, the queue
is not calm, a row fails, a worker dies), each of its members is answered by itself, as if it had come alone.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from forwardpass.batching.ticket import Ticket
from forwardpass.core.caller import Caller
from forwardpass.core.errors import Code, Failure
from forwardpass.core.request import Answer, Request
from forwardpass.core.timeline import Timeline
from forwardpass.ingress.dialects.envelope import answer_headers
from forwardpass.ingress.dialects.v2_repeated import texts_of
from forwardpass.ingress.framing import Head, opening_of
from forwardpass.ingress.serving import Asker, Waiting
from forwardpass.pipeline.handle import Begun
from forwardpass.rollout.variant import Variant

if TYPE_CHECKING:
    from forwardpass.ingress.direct import Asked, Direct

MEMBERS_MAX = 256
TOLD = frozenset((Code.DEADLINE_EXCEEDED, Code.SHED, Code.SHUTTING_DOWN, Code.MODEL_UNAVAILABLE))
"""How a bundle may end that is every member's end; after any other each runs by itself."""
LOST = frozenset((Code.WORKER_CRASHED, Code.WORKER_HUNG))

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


class Bundle:
    """Members of one pass, until they are told."""

    def __init__(self, direct: "Direct", variant: Variant, asked: "Asked", caller: Caller) -> None:
        self._direct = direct
        self._variant = variant
        self._asked = asked
        self._caller = caller
        self._begun: Begun | None = None
        self._waiting = 0
        self.members: list[Member] = []
        self.texts: list[bytes] = []

    def left(self, member: Member) -> None:
        """Its client went away: that is written down when the others are told, or when none is left."""
        self._waiting -= 1
        if not self._waiting and self._begun is not None:
            self._direct.handle.leave(self._begun)

    def begin(self) -> None:
        """All members of the pass are here."""
        here = [place for place, member in enumerate(self.members) if not member.left]
        if len(here) < len(self.members):
            for member in self.members:
                if member.left:
                    self._direct.gone(self._variant, self._asked, self._caller, member)
            self.members = [self.members[place] for place in here]
            self.texts = [self.texts[place] for place in here]
        self._waiting = len(self.members)
        if len(self.members) < 2 or not self._variant.calm(len(self.members)) or not self._together():
            self._apart()

    def _together(self) -> bool:
        """Whether they have been begun."""
        direct, variant, repeated = self._direct, self._variant, self._asked.repeated
        assert repeated is not None, "what bundles are made of"
        column = repeated.rows(self.texts)
        if column is None:
            return False
        received_s = self.members[0].received_s
        request = Request("", [column], len(self.members), Timeline(received_s), caller=self._caller)
        request.timeline.decoded = direct.clock()
        variant.enter(len(self.members))
        try:
            direct.inference.refuse_work()
            self._begun = direct.handle.begin(variant, request, direct.handle.open(variant, request), len(self.members))
        except Failure:
            variant.exit(len(self.members))
            return False
        self._begun.ticket.then = self._ended
        return True

    def _ended(self, ticket: Ticket) -> None:
        begun, direct = self._begun, self._direct
        assert begun is not None, "it was begun"
        try:
            try:
                answer = direct.handle.end(begun)
            finally:
                self._variant.exit(len(self.members))
            if answer.failures or answer.notes or answer.tokens:
                self._apart()
            else:
                self._tell(begun, answer)
        except Failure as failure:
            if failure.code in TOLD:
                self._fail(failure)
            else:
                if failure.code in LOST:
                    self._variant.quarantine.suspect_rows(begun.items)
                self._apart()
        except Exception:  # a border: a defect of ours must not cost the batch that these were in
            _log.exception("a bundle could not be told")
            self._apart()

    def _tell(self, begun: Begun, answer: Answer) -> None:
        direct, version, members = self._direct, self._variant.version, self.members
        ids = direct.ids.some(len(members))
        texts = texts_of(answer, version, ids)
        opening = opening_of(answer_headers(ids[0], version)[1:])
        left = [member.left for member in members]
        direct.handle.close_alike(begun, ids, [member.received_s for member in members], left)
        for member, id, text in zip(members, ids, texts, strict=True):
            if not member.left:
                member.asker.tell_row(opening, id, text)

    def _fail(self, failure: Failure) -> None:
        for member in self.members:
            if member.left:
                self._direct.gone(self._variant, self._asked, self._caller, member)
            else:
                self._direct.fail(self._variant, self._asked, self._caller, member, failure)

    def _apart(self) -> None:
        for member in self.members:
            if member.left:
                self._direct.gone(self._variant, self._asked, self._caller, member)
            else:
                self._direct.alone(member)


class Bundles:
    """Those of this pass of the loop."""

    def __init__(self, direct: "Direct") -> None:
        self._direct = direct
        self._open: dict[tuple[object, ...], Bundle] = {}
        self._all: list[Bundle] = []

    def join(
        self,
        variant: Variant,
        asked: "Asked",
        caller: Caller,
        text: bytes,
        head: Head,
        body: bytes,
        received_s: float,
        asker: Asker,
    ) -> Member:
        key = (asked.repeated, caller.tenant, caller.id)
        bundle = self._open.get(key)
        if bundle is None or len(bundle.members) >= MEMBERS_MAX:
            if not self._all:
                asyncio.get_running_loop().call_soon(self._begin)
            bundle = self._open[key] = Bundle(self._direct, variant, asked, caller)
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
