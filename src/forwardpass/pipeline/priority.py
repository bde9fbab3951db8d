"""Which priority a request has: what it names, as far as its caller may."""

from forwardpass.batching.shares import NAMES, rank_of
from forwardpass.core.caller import ANONYMOUS, PRIORITIES
from forwardpass.core.errors import Code, Refused
from forwardpass.core.request import Request


def priority_of(request: Request) -> int:
    """The priority a request has: what it names, else its caller's class. Raises Refused forbidden for a higher class.

    Who need not say who they are may ask for any: there is nobody to keep them apart from.
    """
    caller = request.caller
    if not request.priority:
        return PRIORITIES[caller.priority]
    rank, most = rank_of(request.priority), rank_of(PRIORITIES[caller.priority])
    if rank < most and caller is not ANONYMOUS:
        field = request.priority_field
        text = f"{field}: the class {NAMES[rank - 1]} was asked; the highest of this caller is {caller.priority}"
        raise Refused(Code.FORBIDDEN, text, field=field)
    return request.priority
