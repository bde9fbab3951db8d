"""frames: how a sound is cut, in one piece and as a sequence of requests."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.steps.sounds import SAMPLES, Live, Samples

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field
from forwardpass.steps.catalogue import kinds

if TYPE_CHECKING:
    from tests.steps.conftest import Run


def count(most: int) -> Samples:
    """1, 2, 3 …"""
    return np.arange(1, most + 1, dtype=np.float32)


def frames(run: "Run", samples: Samples, **options: Any) -> list[list[float]]:
    found: list[list[float]] = run("frames", {"rate_hz": 10, **options}, {SAMPLES: [samples]}).columns["frame"].tolist()
    return found


@pytest.mark.parametrize(
    ("samples", "options", "expected"),
    [
        (4, {"length": 2}, [[1, 2], [3, 4]]),
        (5, {"length": 2}, [[1, 2], [3, 4], [5, 0]]),
        (5, {"length": 2, "tail": "drop"}, [[1, 2], [3, 4]]),
        (5, {"length": 2, "tail": "carry"}, [[1, 2], [3, 4], [5, 0]]),
        (4, {"length": 3, "hop": 1}, [[1, 2, 3], [2, 3, 4]]),
        (4, {"length": 3, "hop": 2}, [[1, 2, 3], [3, 4, 0]]),
        (5, {"length": 3, "hop": 2}, [[1, 2, 3], [3, 4, 5]]),
        (5, {"length": 1, "hop": 3}, [[1], [4]]),
        (3, {"length": 1, "hop": 3}, [[1]]),
        (1, {"length": 3}, [[1, 0, 0]]),
        (1, {"length": 3, "tail": "drop"}, []),
        (0, {"length": 3}, []),
        (4, {"length": 2, "context": 1}, [[0, 1, 2], [2, 3, 4]]),
        (3, {"length": 2, "context": 3}, [[0, 0, 0, 1, 2], [0, 1, 2, 3, 0]]),
    ],
)
def test_a_sound_is_cut(run: "Run", samples: int, options: dict[str, Any], expected: list[list[float]]) -> None:
    assert frames(run, count(samples), **options) == expected


def test_every_row_becomes_its_frames_in_order(run: "Run") -> None:
    batch = run("frames", {"rate_hz": 10, "length": 2}, {SAMPLES: [count(3), count(0), count(2)]})
    assert batch.columns["frame"].tolist() == [[1, 2], [3, 0], [1, 2]]
    assert batch.columns["frame"].dtype == np.float32
    assert batch.fold().tolist() == [0, 0, 2]


def test_times_are_without_context_and_end_with_the_sound(run: "Run") -> None:
    batch = run("frames", {"rate_hz": 10, "length": 4, "hop": 2, "context": 3}, {SAMPLES: [count(7)]})
    assert batch.columns["start_s"].tolist() == [0, 0.2, 0.4]
    assert batch.columns["end_s"].tolist() == [0.4, 0.6, 0.7]


def test_a_tensor_of_samples_is_cut_too(run: "Run") -> None:
    live = Field("live", "FP32", (4,))
    batch = run("frames", {"rate_hz": 10, "length": 2}, {live: np.stack([count(4), -count(4)])})
    assert batch.columns["frame"].tolist() == [[1, 2], [3, 4], [-1, -2], [-3, -4]]


def test_too_many_frames_fail_their_row_alone(run: "Run") -> None:
    batch = run("frames", {"rate_hz": 10, "length": 2, "frames_max": 2}, {SAMPLES: [count(5), count(4)]})
    assert batch.failures[0].code is Code.INPUT_TOO_LARGE
    assert batch.columns["frame"].tolist() == [[1, 2], [3, 4]]
    assert batch.fold().tolist() == [0, 0]
    assert batch.origin == [1]


def test_no_row_is_left_when_all_have_too_many_frames(run: "Run") -> None:
    batch = run("frames", {"rate_hz": 10, "length": 1, "frames_max": 1}, {SAMPLES: [count(2)]})
    assert (batch.rows, batch.columns["frame"].shape) == (0, (0, 1))


@given(
    samples=st.integers(0, 60),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    length=st.integers(1, 9),
    hop=st.integers(1, 12),
    context=st.integers(0, 7),
)
def test_a_sequence_cut_anywhere_gives_the_frames_of_the_whole(
    samples: int, cuts: list[int], length: int, hop: int, context: int
) -> None:
    sound = count(samples)
    options = {"rate_hz": 16_000, "length": length, "hop": hop, "context": context, "tail": "carry"}
    live = Live("frames", options, SAMPLES)
    pieces = np.split(sound, sorted(min(cut, samples) for cut in cuts))
    batches = [live.ask(piece) for piece in pieces]
    behind = np.concatenate([np.zeros(context, np.float32), sound])
    starts = range(0, samples - length + 1, hop)
    expected = [behind[start : start + context + length].tolist() for start in starts]
    assert [row for batch in batches for row in batch.columns["frame"].tolist()] == expected
    assert [at for batch in batches for at in batch.columns["start_s"]] == [start / 16_000 for start in starts]
    assert [at for batch in batches for at in batch.columns["end_s"]] == [(s + length) / 16_000 for s in starts]


@given(
    samples=st.integers(0, 60),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    length=st.integers(1, 9),
    hop=st.integers(1, 12),
    context=st.integers(0, 7),
)
def test_a_sequence_that_ends_gives_every_frame_of_the_whole_also_one_that_is_not_full(
    samples: int, cuts: list[int], length: int, hop: int, context: int
) -> None:
    sound = count(samples)
    options = {"rate_hz": 16_000, "length": length, "hop": hop, "context": context}
    live, whole = Live("frames", {**options, "tail": "carry"}, SAMPLES), Live("frames", options, SAMPLES)
    pieces = np.split(sound, sorted(min(cut, samples) for cut in cuts))
    batches = [live.ask(piece, end=place == len(pieces) - 1) for place, piece in enumerate(pieces)]
    padded = whole.ask(sound)
    for name in ("frame", "start_s", "end_s"):
        assert np.concatenate([batch.columns[name] for batch in batches]).tolist() == padded.columns[name].tolist()


@pytest.mark.parametrize(("tail", "expected"), [("pad", [[2, 3, 4, 5], [4, 5, 6, 0]]), ("drop", [[2, 3, 4, 5]])])
def test_without_carrying_each_request_is_cut_alone_but_knows_the_past(tail: str, expected: list[list[float]]) -> None:
    live = Live("frames", {"rate_hz": 10, "length": 2, "context": 2, "tail": tail}, SAMPLES)
    live.ask(count(3))
    batch = live.ask(np.array([4, 5, 6], np.float32))
    assert batch.columns["frame"].tolist() == expected
    assert batch.columns["start_s"].tolist() == [0.3, 0.5][: len(expected)]


def test_what_a_sequence_keeps_is_small_and_never_changed() -> None:
    live = Live("frames", {"rate_hz": 10, "length": 2, "context": 2, "tail": "carry"}, SAMPLES)
    live.ask(count(1_001))
    kept = live.slots["steps[0]"]
    assert kept.kept.tolist() == [999, 1_000, 1_001]
    assert kept.kept.base is None
    live.ask(count(10))
    assert kept.kept.tolist() == [999, 1_000, 1_001]


@pytest.mark.parametrize("options", [{"length": 0}, {"length": 1, "hop": 0}, {"length": 1, "tail": "keep"}, {}])
def test_wrong_options_are_the_operators_fault(run: "Run", options: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured):
        frames(run, count(1), **options)


def test_other_fields_are_no_samples() -> None:
    with pytest.raises(Misconfigured, match="no field is a row of numbers"):
        kinds()["frames"].fields({"rate_hz": 1, "length": 1}, {"x": Field("x", "FP32", (2, -1), "ragged")})
