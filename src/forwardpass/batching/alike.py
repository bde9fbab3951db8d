"""Which of those whose turn it is share a batch, where rows are filled up to the longest: those of about one length.

The first goes in any case, with it whoever was passed over PASSED_MAX times, or would have no time for one batch more;
then those nearest to the first in length. So nobody waits for more than PASSED_MAX batches beyond their turn.
"""

from collections.abc import Sequence

from forwardpass.batching.ticket import Item

WINDOW_BATCHES = 4
"""So many batches' worth of rows, in their order, are looked at."""
PASSED_MAX = 3


def alike(
    items: Sequence[Item], rows_max: int, cost_max: float | None, urgent_s: float
) -> tuple[list[Item], list[Item]]:
    """Who goes, in their order, and who is passed over and told so. ``urgent_s``: whose deadline is before that goes too."""
    head = items[0]
    rest = sorted(
        range(1, len(items)),
        key=lambda place: (
            items[place].passed < PASSED_MAX and items[place].ticket.deadline >= urgent_s,
            abs(items[place].length - head.length),
            place,
        ),
    )
    chosen, rows, cost = {0}, head.rows, head.cost
    for place in rest:
        item = items[place]
        if rows + item.rows <= rows_max and (cost_max is None or cost + item.cost <= cost_max):
            chosen.add(place)
            rows += item.rows
            cost += item.cost
            if rows == rows_max:
                break
    passed = [item for place, item in enumerate(items) if place not in chosen]
    if passed:
        last = max(chosen)
        for place, item in enumerate(items):
            item.passed += place < last and place not in chosen
    return [items[place] for place in sorted(chosen)], passed
