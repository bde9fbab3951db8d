"""segments and voice_events. The expected times of ``SILERO`` are those of silero-vad 6.2.3 for these probabilities."""

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.steps.sounds import Live, Samples

from forwardpass.core.errors import Code, Failed, Misconfigured
from forwardpass.core.pipeline import Field

if TYPE_CHECKING:
    from tests.steps.conftest import Run

SCORES = Field("scores", "FP32", (-1,), "ragged")
TENTH = {"frame_s": 0.1, "pad_s": 0.0}


def scores(*runs: tuple[int, float]) -> Samples:
    """Each of ``runs`` is how many frames there are of one probability."""
    return np.concatenate([np.full(count, score, np.float32) for count, score in runs] or [np.empty(0, np.float32)])


def segments(run: "Run", given: Samples, **options: Any) -> list[dict[str, float]]:
    found: list[dict[str, float]] = run("segments", options, {SCORES: [given]}).columns["segments"][0]
    return found


def spans(run: "Run", given: Samples, **options: Any) -> list[tuple[float, float]]:
    return [(found["start_s"], found["end_s"]) for found in segments(run, given, **{**TENTH, **options})]


SILERO: list[tuple[list[tuple[int, float]], list[tuple[int, int]]]] = [
    ([(3, 0.1), (12, 0.9), (2, 0.2), (9, 0.8), (10, 0.1)], [(1056, 13792)]),
    ([(9, 0.9), (4, 0.1), (20, 0.6), (6, 0.4), (30, 0.0), (8, 0.9)], [(0, 20448), (34848, 39424)]),
    ([(9, 0.9), (3, 0.1), (1, 0.4), (1, 0.1), (9, 0.9)], [(0, 5088), (6688, 11776)]),
    (
        [(5, 0), (8, 0.9), (5, 0.1), (9, 0.5), (4, 0.3), (3, 0.36), (12, 0.7), (4, 0.34), (10, 0.95)],
        [(2080, 7136), (8736, 30720)],
    ),
]
"""Runs of frames of 512 samples, and the segments in samples at 16 kHz."""


@pytest.mark.parametrize(("runs", "expected"), SILERO)
def test_segments_are_those_of_silero(
    run: "Run", runs: list[tuple[int, float]], expected: list[tuple[int, int]]
) -> None:
    found = spans(run, scores(*runs), frame_s=0.032, pad_s=0.03)
    assert [(round(start * 16_000, 6), round(end * 16_000, 6)) for start, end in found] == expected


def test_speech_goes_from_the_first_loud_frame_to_the_first_quiet_one(run: "Run") -> None:
    given = scores((2, 0.1), (4, 0.9), (4, 0.1))
    assert segments(run, given, **TENTH) == [{"start_s": 0.2, "end_s": 0.6, "score": 0.9}]


def test_between_on_and_off_speech_goes_on_but_does_not_start(run: "Run") -> None:
    assert spans(run, scores((3, 0.4), (3, 0.5), (3, 0.4), (3, 0.1))) == [(0.3, 0.9)]


def test_a_short_silence_does_not_end_speech(run: "Run") -> None:
    given = scores((3, 0.9), (2, 0.1), (3, 0.9), (5, 0))
    assert spans(run, given, silence_min_s=0.2) == [(0, 0.8)]
    assert spans(run, given, silence_min_s=0.1) == [(0, 0.3), (0.5, 0.8)]


def test_short_speech_is_left_out(run: "Run") -> None:
    given = scores((3, 0.9), (5, 0), (4, 0.9), (5, 0))
    assert spans(run, given, speech_min_s=0.3) == [(0.8, 1.2)]


def test_speech_that_goes_on_ends_with_the_sound(run: "Run") -> None:
    assert spans(run, scores((1, 0), (5, 0.9)), pad_s=0.05) == [(0.05, 0.6)]


def test_padding_never_overlaps_or_leaves_the_sound(run: "Run") -> None:
    given = scores((3, 0.9), (2, 0), (3, 0.9))
    assert spans(run, given, pad_s=0.5, silence_min_s=0) == [(0, 0.4), (0.4, 0.8)]
    assert spans(run, given, pad_s=0.03, silence_min_s=0) == [(0, 0.33), (0.47, 0.8)]


def test_the_score_is_the_mean_of_the_frames_without_padding(run: "Run") -> None:
    given = np.array([0, 0.5, 0.75, 1, 0, 0], np.float32)
    assert segments(run, given, **{**TENTH, "pad_s": 0.1})[0]["score"] == 0.75


def test_a_sound_without_speech_has_no_segments(run: "Run") -> None:
    assert spans(run, scores((50, 0.2))) == spans(run, scores()) == []


def test_what_comes_out_is_plain_json(run: "Run") -> None:
    made = run("segments", TENTH, {Field("scores", "FP32", (8,)): np.ones((1, 8), np.float32)}).columns["segments"]
    assert json.loads(json.dumps(made[0])) == [{"start_s": 0, "end_s": 0.8, "score": 1}]


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_probability_that_is_no_number_never_becomes_speech_or_silence(run: "Run", wrong: float) -> None:
    for use in ("segments", "voice_events"):
        batch = run(use, TENTH, {SCORES: [scores((3, wrong)), scores((3, 0))]})
        assert isinstance(batch.failures[0], Failed)
        assert batch.failures[0].code is Code.NON_FINITE_OUTPUT
        assert batch.rows == 1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"frame_s": 0},
        {"frame_s": 0.1, "on": 1.1},
        {"frame_s": 0.1, "on": 0.3, "off": 0.4},
        {"frame_s": 0.1, "pad_s": -1},
        {"frame_s": 0.1, "silence_min_s": -1},
    ],
)
def test_wrong_options_are_the_operators_fault(run: "Run", options: dict[str, Any]) -> None:
    for use in ("segments", "voice_events"):
        with pytest.raises(Misconfigured):
            run(use, options, {SCORES: [scores()]})


def test_a_live_client_is_told_of_each_start_and_end_once() -> None:
    live = Live("voice_events", {**TENTH, "silence_min_s": 0.2}, SCORES)
    pieces = [
        scores((3, 0)),
        scores((1, 0.9)),
        scores((2, 0.9), (1, 0)),
        scores((1, 0)),
        scores((1, 0)),
        scores((2, 0)),
    ]
    assert [live.ask(piece).columns["events"][0] for piece in pieces] == [
        [], [{"event": "start", "at_s": 0.3}], [], [], [{"event": "end", "at_s": 0.6}], [],
    ]  # fmt: skip


@given(
    runs=st.lists(st.tuples(st.integers(1, 9), st.sampled_from([0.0, 0.4, 0.5, 0.9])), max_size=20),
    cuts=st.lists(st.integers(0, 180), max_size=6),
)
def test_events_do_not_depend_on_how_the_frames_were_cut(runs: list[tuple[int, float]], cuts: list[int]) -> None:
    everything = scores(*runs)
    live, whole = (Live("voice_events", {"frame_s": 0.032}, SCORES) for _ in range(2))
    pieces = np.split(everything, sorted(min(cut, len(everything)) for cut in cuts))
    events = [event for piece in pieces for event in live.ask(piece).columns["events"][0]]
    events += live.ask(scores(), end=True).columns["events"][0]
    assert events == whole.ask(everything, end=True).columns["events"][0]
    assert [event["event"] for event in events] == ["start", "end"] * (len(events) // 2)


def test_speech_that_goes_on_ends_with_the_sequence_and_not_after_it() -> None:
    live = Live("voice_events", {"frame_s": 0.1, "pad_s": 0.05}, SCORES)
    assert live.ask(scores((1, 0), (5, 0.9))).columns["events"][0] == [{"event": "start", "at_s": 0.05}]
    assert live.ask(scores((2, 0.9), (1, 0)), end=True).columns["events"][0] == [{"event": "end", "at_s": 0.9}]


def test_a_silence_when_the_sequence_ends_is_no_event() -> None:
    live = Live("voice_events", TENTH, SCORES)
    live.ask(scores((3, 0.9), (3, 0)))
    assert live.ask(scores((3, 0)), end=True).columns["events"][0] == []


def test_outside_a_sequence_each_row_is_a_whole_sound(run: "Run") -> None:
    made = run("voice_events", {"frame_s": 0.1}, {SCORES: [scores((1, 0), (5, 0.9)), scores((5, 0.9))]})
    assert made.columns["events"].tolist() == [
        [{"event": "start", "at_s": 0.07}, {"event": "end", "at_s": 0.6}],
        [{"event": "start", "at_s": 0.0}, {"event": "end", "at_s": 0.5}],
    ]
