"""Priority classes: in this order requests are served, and in the other one they leave when there is no room.

A request's number says its class, and its place in it: 1 to 4 is critical, 5 to 8 standard, 9 and more sheddable. There
is no aging: as long as more urgent work takes all of the time, the rest waits until its deadline.
"""

from bisect import bisect_right

from forwardpass.core.caller import ANONYMOUS, PRIORITIES, Priority
from forwardpass.core.errors import Code, Refused
from forwardpass.core.request import Request

NAMES: tuple[Priority, ...] = tuple(sorted(PRIORITIES, key=lambda name: PRIORITIES[name]))
_BEGINS = [PRIORITIES[name] for name in NAMES]
ALONE = 0
"""The rank of what must run alone to be cleared or blamed: before all classes, whose ranks are 1 and up."""


def rank_of(priority: int) -> int:
    """The class of a priority, 1 the most urgent: the last one that begins at it or before."""
    return bisect_right(_BEGINS, priority) or 1


def priority_of(request: Request) -> int:
    """The priority a request has: what it names, else its caller's class. Raises Refused forbidden for a higher class.

    Who need not say who they are may ask for any: there is nobody to keep them apart from.
    """
    caller = request.caller
    if not request.priority:
        return PRIORITIES[caller.priority]
    rank, most = rank_of(request.priority), rank_of(PRIORITIES[caller.priority])
    if rank < most and caller is not ANONYMOUS:
        text = f"priority: the class {NAMES[rank - 1]} was asked; the highest of this caller is {caller.priority}"
        raise Refused(Code.FORBIDDEN, text, field="priority")
    return request.priority
