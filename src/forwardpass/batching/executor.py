"""A worker as the batcher sees it: what it is asked, what it answers, and how it is lost."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from forwardpass.batching.ticket import Item, Part
from forwardpass.core.errors import Code


class Outcome(msgspec.Struct):
    """What a worker sent back for a batch: one part per item, in order, and its own durations."""

    parts: Sequence[Part]
    preprocess_s: float
    execute_s: float
    postprocess_s: float
    begun: float = 0.0  # when the model was given the batch, on the clock
    elements: int = 0  # that rows of different length have, where such were made equal
    padding: int = 0  # with which they were filled up for that


class WorkerLost(Exception):
    """The worker died with the batch; ``started`` is False when it never got it, ``code`` says how it went.

    ``nobodys``: nobody waited for the batch any more, and its worker was ended for that.
    """

    def __init__(self, code: Code, *, started: bool, nobodys: bool = False) -> None:
        super().__init__(code)
        self.code = code
        self.started = started
        self.nobodys = nobodys


class Executor(Protocol):
    """A worker as the batcher sees it: takes one batch, or a second one ahead when told when."""

    index: int

    @property
    def idle(self) -> bool:
        """Whether a batch sent now would run at once."""

    async def vacant(self, ahead_at: float | None) -> None:
        """Until it can take a batch: when idle, or from ``ahead_at`` on with one batch running."""

    def submit(self, items: Sequence[Item]) -> "asyncio.Future[Outcome]":
        """Send a batch now. The future fails with WorkerLost, never otherwise."""
