"""For how long a worker was at a batch and at nothing else: by its own word where that can be, else as the event loop saw it."""

WAY_S = 0.005  # to the worker and back, at least, if the event loop saw so much


class Spent:
    """Asked of a worker's batches in the order in which they ended."""

    def __init__(self) -> None:
        self._ended_s: dict[int, float] = {}  # by worker, when it had ended its last batch, as it says

    def own_s(
        self, worker: int, begun_s: float, ended_s: float, before_s: float, *, sent_s: float, now: float
    ) -> float:
        """By its own word; 0 where there is none that can be. ``before_s`` went by before the model was given the batch."""
        if not sent_s <= begun_s <= ended_s <= now:
            return 0.0
        from_s, before_it_s = begun_s - before_s, self._ended_s.get(worker, 0.0)
        self._ended_s[worker] = ended_s
        own_s = ended_s - (from_s if from_s > before_it_s else before_it_s)
        return own_s if own_s > 0.0 else 0.0


def with_way_s(own_s: float, seen_s: float) -> float:
    """What it says, which is more than nothing, with the way there and back: what the loop saw beyond, up to as much again.

    Its own delays must not become the prediction, or a front that is short of time would refuse what an idle worker
    could do.
    """
    most_s = own_s + (own_s if own_s > WAY_S else WAY_S)
    return own_s if seen_s < own_s else seen_s if seen_s < most_s else most_s
