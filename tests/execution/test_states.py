"""What a worker keeps of its sequences: counted only with an answer, given back whole, forgotten when idle or ended."""

from collections.abc import Sequence

import numpy as np
import pytest

from forwardpass.core.errors import Code, Failed
from forwardpass.core.pipeline import Sequences
from forwardpass.execution.states import SLACK, Staged, States
from forwardpass.execution.wire import Run, WireError
from forwardpass.steps.protocol import Batch

Turn = tuple[int, bool, bool]


def turn(number: int, *, start: bool = False, end: bool = False) -> Turn:
    return number, start, end


def stage(states: States, *turns: Turn | None, given_up: Sequence[int] = ()) -> Staged:
    return states.stage(Run(1, [1] * len(turns), [], [], list(turns), list(given_up)))


def add(batch: Batch) -> None:
    """A step that counts what it has seen of each sequence."""
    for row in range(batch.rows):
        slots = batch.slots(row)
        if slots is not None:
            slots["seen"] = slots.get("seen", 0) + 1


def seen(batch: Batch) -> list[int | None]:
    return [None if slots is None else slots.get("seen") for slots in map(batch.slots, range(batch.rows))]


def ran(states: States, *turns: Turn | None, fail: Sequence[int] = ()) -> Batch:
    """A batch from its arrival to its answer; the rows in ``fail`` get none."""
    staged = stage(states, *turns)
    batch = staged.batch({"x": np.arange(len(turns))})
    add(batch)
    for row in fail:
        batch.fail(row, Failed(Code.STEP_FAILED, "no"))
    batch.settle()
    staged.keep(batch)
    staged.commit()
    return batch


def store(sequences_max: int = 1024) -> States:
    return States(Sequences(60.0, sequences_max))


def test_each_sequence_finds_what_it_left_and_rows_of_none_find_nothing() -> None:
    states = store()
    ran(states, turn(1, start=True), None, turn(2, start=True))
    ran(states, turn(2))
    assert seen(ran(states, turn(1), turn(2), None)) == [2, 3, None]


def test_a_start_begins_with_nothing_and_an_end_leaves_nothing() -> None:
    states = store()
    ran(states, turn(1, start=True))
    assert seen(ran(states, turn(1, start=True))) == [1]
    assert seen(ran(states, turn(1, end=True))) == [2]
    assert len(states) == 0
    ran(states, turn(2, start=True, end=True))
    assert len(states) == 0


def test_a_row_whose_sequence_is_not_here_fails_alone() -> None:
    states = store()
    ran(states, turn(1, start=True))
    batch = ran(states, turn(1), turn(9))
    assert (batch.origin, batch.failures[1].code) == ([0], Code.SEQUENCE_LOST)
    assert len(states) == 1


def test_what_a_failed_row_wrote_never_counts() -> None:
    states = store()
    ran(states, turn(1, start=True), turn(2, start=True))
    ran(states, turn(1), turn(2, end=True), turn(3, start=True), fail=[1, 2])
    assert seen(ran(states, turn(1), turn(2))) == [3, 2]
    assert len(states) == 2


def test_a_batch_that_is_run_again_item_by_item_begins_again_from_what_was_kept() -> None:
    states = store()
    ran(states, turn(1, start=True), turn(2, start=True))
    staged = stage(states, turn(1), turn(2))
    add(staged.batch({"x": np.arange(2)}))  # and then the batch failed as a whole
    for item in range(2):
        batch = staged.batch({"x": np.arange(1)}, item)
        add(batch)
        if item == 0:
            staged.keep(batch, item)
    staged.commit()
    assert seen(ran(states, turn(1), turn(2))) == [3, 2]


def test_what_could_not_be_answered_can_be_undone() -> None:
    states = store()
    ran(states, turn(1, start=True), turn(2, start=True))
    staged = stage(states, turn(1), turn(2, end=True), turn(3, start=True))
    batch = staged.batch({"x": np.arange(3)})
    add(batch)
    staged.keep(batch)
    staged.commit()()
    assert seen(ran(states, turn(1), turn(2))) == [2, 2]
    assert len(states) == 2


def test_what_was_given_up_in_between_is_not_brought_back_by_an_undo() -> None:
    states = store()
    ran(states, turn(1, start=True), turn(2, start=True))
    staged = stage(states, turn(1), turn(2))
    batch = staged.batch({"x": np.arange(2)})
    add(batch)
    staged.keep(batch)
    undo = staged.commit()
    states.forget([1])
    undo()
    assert (len(states), seen(ran(states, turn(2)))) == (1, [2])


def test_kept_arrays_cannot_be_changed_in_place() -> None:
    states = store()
    staged = stage(states, turn(1, start=True))
    batch = staged.batch({"x": np.arange(1)})
    batch.sequences[0] |= {"steps[0]": np.zeros(2), "steps[1]": {"h": np.zeros(2)}, "steps[2]": (1, np.zeros(2))}
    staged.keep(batch)
    staged.commit()
    slots = stage(states, turn(1)).batch({"x": np.arange(1)}).slots(0)
    assert slots is not None
    for array in (slots["steps[0]"], slots["steps[1]"]["h"], slots["steps[2]"][1]):
        with pytest.raises(ValueError, match="read-only"):
            np.add(array, 1, out=array)


def test_what_the_front_gave_up_goes_with_its_next_batch_whatever_is_in_that() -> None:
    states = store()
    ran(states, turn(1, start=True), turn(2, start=True), turn(3, start=True))
    stage(states, None, given_up=[1])
    stage(states, given_up=[2, 9])
    assert len(states) == 1
    assert seen(ran(states, turn(3))) == [2]


def test_what_is_given_up_while_it_runs_is_not_kept_when_it_is_done() -> None:
    states = store()
    ran(states, turn(1, start=True))
    running = stage(states, turn(1), turn(2, start=True), turn(3, start=True))
    stage(states, given_up=[1, 2])
    batch = running.batch({"x": np.arange(3)})
    add(batch)
    running.keep(batch)
    running.commit()
    assert len(states) == 1
    assert seen(ran(states, turn(1, start=True), turn(3))) == [1, 2]


def test_as_many_as_are_allowed_stay_while_others_run_for_nobody() -> None:
    states = store(2)
    for number in (1, 2):
        ran(states, turn(number, start=True))
    for number in range(3, 20):  # each began, timed out and was given up
        stage(states, given_up=[number - 1] if number > 3 else []).commit()
        ran(states, turn(number, start=True))
    assert seen(ran(states, turn(1), turn(2))) == [2, 2]


def test_a_front_that_gives_nothing_up_finds_the_store_bounded() -> None:
    states = store(1)
    for number in range(1, 2 + SLACK):
        ran(states, turn(number, start=True))
    assert len(states) == SLACK
    assert ran(states, turn(1)).failures[0].code is Code.SEQUENCE_LOST


def test_what_a_batch_works_on_is_not_what_makes_room() -> None:
    states = store(1)
    ran(states, turn(1, start=True))
    ran(states, turn(2, start=True))
    running = stage(states, turn(1))
    ran(states, turn(3, start=True))
    assert len(states) == 3
    running.commit()
    assert len(states) == SLACK


def test_a_row_knows_whether_anything_comes_after_it() -> None:
    states = store()
    ran(states, turn(1, start=True), turn(2, start=True))
    staged = stage(states, turn(1), None, turn(2, end=True), turn(3, start=True, end=True))
    whole = staged.batch({"x": np.arange(4)})
    assert [whole.ends(row) for row in range(4)] == [False, True, True, True]
    assert [staged.batch({"x": np.arange(1)}, item).ends(0) for item in range(4)] == [False, True, True, True]


def test_one_sequence_in_two_batches_at_a_time_is_a_defect() -> None:
    states = store()
    stage(states, turn(1, start=True))
    with pytest.raises(AssertionError):
        stage(states, turn(1))


def test_a_frame_that_does_not_fit_its_sequences_is_refused() -> None:
    with pytest.raises(WireError):
        store().stage(Run(1, [1, 1], [], [], [turn(1)]))
    with pytest.raises(WireError):
        store().stage(Run(1, [2], [], [], [turn(1)]))
