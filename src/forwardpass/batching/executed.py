"""What a version's workers have run: exact sums, kept for as long as the version is loaded."""

from dataclasses import dataclass, field

from forwardpass.core.timeline import BatchReport

EXACT_ROWS_MAX = 1024
"""Sizes up to here are told apart; a larger one counts with the next power of two, so that there are few of them."""


@dataclass(slots=True)
class Runs:
    """Batches of one size, and how long they took in the worker together."""

    count: int = 0
    preprocess_s: float = 0.0
    execute_s: float = 0.0
    postprocess_s: float = 0.0


@dataclass(slots=True)
class Executed:
    """Batches of which a worker answered at least one row, whoever still waited for it.

    One whose rows all failed, most often before the model, is not counted, nor is one that lost its worker: a row that
    ran again alone after that was executed once.
    """

    executions: int = 0
    rows: int = 0
    overdue: int = 0  # items begun though their deadline had passed or their caller had left before: a defect of ours
    elements: int = 0  # of rows of different length that were made equal,
    padding: int = 0  # and what they were filled up with
    by_rows: dict[int, Runs] = field(default_factory=dict)

    def add(self, report: BatchReport) -> None:
        """``report`` has its durations."""
        self.executions += 1
        self.rows += report.rows
        self.elements += report.elements
        self.padding += report.padding
        size = report.rows if report.rows <= EXACT_ROWS_MAX else 1 << (report.rows - 1).bit_length()
        runs = self.by_rows.get(size)
        if runs is None:
            runs = self.by_rows[size] = Runs()
        runs.count += 1
        runs.preprocess_s += report.preprocess_s
        runs.execute_s += report.execute_s
        runs.postprocess_s += report.postprocess_s
