"""What every engine must do, as one call for its tests: the Engine contract, tried on a real model file."""

from collections.abc import Callable, Sequence

import numpy as np

from forwardpass.engines.protocol import Arrays, End, Engine, Event, ModelFile, Work

STEPS_MAX = 10_000


def engine_conformance(
    make_engine: Callable[[], Engine], file: ModelFile, sample: Arrays, bad: Arrays | None = None
) -> None:
    """Raises AssertionError where the engine breaks the contract. ``sample`` runs, ``bad`` must end with a failure."""
    engine = make_engine()
    engine.load(file)
    try:
        _signature_is_stable(engine)
        _idle_gives_nothing(engine)
        _every_work_ends_once(engine, sample)
        _same_work_same_answer(engine, sample)
        _cancelled_works_say_nothing(engine, sample)
        if bad is not None:
            _bad_work_fails_alone(engine, sample, bad)
    finally:
        engine.close()
        engine.close()
    make_engine().close()  # never loaded


def drain(engine: Engine) -> list[Event]:
    """Everything that comes out until the engine is idle."""
    events: list[Event] = []
    idle = 0
    for _ in range(STEPS_MAX):
        came = engine.step()
        events.extend(came)
        idle = 0 if came else idle + 1
        if idle > 100:
            return events
    raise AssertionError(f"the engine was not idle after {STEPS_MAX} steps")


def ends(events: Sequence[Event]) -> dict[int, End]:
    """The End of each id; AssertionError when one has two, or an event after it."""
    found: dict[int, End] = {}
    for event in events:
        assert event.id not in found, f"work {event.id}: an event after its end"
        if isinstance(event, End):
            found[event.id] = event
    return found


def _signature_is_stable(engine: Engine) -> None:
    signature = engine.signature()
    assert signature == engine.signature()
    assert signature.outputs, "a model without outputs"
    assert not (signature.batched and signature.fixed_rows is not None), "both batched and of fixed rows"


def _idle_gives_nothing(engine: Engine) -> None:
    assert engine.step() == [], "an event with nothing submitted"


def _every_work_ends_once(engine: Engine, sample: Arrays) -> None:
    engine.submit([Work(1, sample), Work(2, sample)])
    engine.submit([Work(3, sample)])
    found = ends(drain(engine))
    assert found.keys() == {1, 2, 3}, f"submitted 1, 2, 3; ended {sorted(found)}"
    names = {field.name for field in engine.signature().outputs}
    for end in found.values():
        assert end.failure is None, f"the sample failed: {end.failure}"
        assert end.outputs.keys() == names, f"outputs {sorted(end.outputs)} instead of {sorted(names)}"


def _same_work_same_answer(engine: Engine, sample: Arrays) -> None:
    engine.submit([Work(1, sample), Work(2, sample)])
    found = ends(drain(engine))
    for name, array in found[1].outputs.items():
        np.testing.assert_array_equal(array, found[2].outputs[name], err_msg=name)


def _cancelled_works_say_nothing(engine: Engine, sample: Arrays) -> None:
    engine.submit([Work(1, sample), Work(2, sample), Work(3, sample)])
    engine.cancel([1, 3, 99])
    found = ends(drain(engine))
    assert found.keys() == {2}, f"1 and 3 were cancelled before they ran; ended {sorted(found)}"
    engine.cancel([2])
    assert drain(engine) == [], "an event of a work that was cancelled after its end"


def _bad_work_fails_alone(engine: Engine, sample: Arrays, bad: Arrays) -> None:
    engine.submit([Work(1, sample), Work(2, bad), Work(3, sample)])
    found = ends(drain(engine))
    assert found.keys() == {1, 2, 3}, f"submitted 1, 2, 3; ended {sorted(found)}"
    assert found[2].failure is not None, "the bad work did not fail"
    assert found[1].failure is None, "a work beside the bad one failed"
    assert found[3].failure is None, "a work beside the bad one failed"
