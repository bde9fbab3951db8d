"""Stretches of speech out of the probability of each frame: ``segments`` of a whole sound, ``voice_events`` live."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.pipeline import Field
from forwardpass.steps.audio.samples import SAMPLES
from forwardpass.steps.kind import Kind, not_finite, pick
from forwardpass.steps.options import Trouble, field_name, number, option
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, object_column

OFF_BELOW_ON, OFF_MIN = 0.15, 0.01
SECONDS_MAX = 3_600

Found = list[dict[str, Any]]
"""A row's segments or events."""


@dataclass(frozen=True, kw_only=True)
class VoiceEvents:
    """Says when speech starts and ends while a sequence of requests goes on.

    Takes one probability a frame, FP32 [-1], ragged or a tensor: the frames of this request. Makes ``output``, json: a
    list of {"event": "start" | "end", "at_s": seconds since the sequence began}, empty for most requests. Speech
    starts with a frame of ``on`` or more and ends with the first below ``off`` once ``silence_min_s`` passed without
    one of ``on`` or more, so an end is told that much later than it was; speech that goes on when the sequence ends
    ends with its last frame. Outside a sequence each row is a whole sound. A probability that is not finite
    fails its row.
    """

    input: str | None = option(field_name(), "the probabilities; without it the latest field of this kind", None)
    output: str = option(field_name(), "where the events go", "events")
    frame_s: float = option(number(), f"seconds from one frame to the next, above 0, at most {SECONDS_MAX}")
    on: float = option(number(), "a probability from which a frame is speech, from 0 to 1", 0.5)
    off: float | None = option(number(), "a probability below which it is silence; without it on - 0.15", None)
    silence_min_s: float = option(number(), "a shorter silence does not end speech", 0.1)
    pad_s: float = option(number(), "how much earlier speech starts and later it ends than its frames", 0.03)

    @property
    def silence_from(self) -> float:
        return max(self.on - OFF_BELOW_ON, OFF_MIN) if self.off is None else self.off

    def frames(self, seconds: float) -> float:
        """How many frames that is; rounded, so that 0.096 s are 3 frames of 0.032 s and not a little less."""
        return round(seconds / self.frame_s, 6)

    def at_s(self, frame: int, pad_s: float) -> float:
        return round(max(0.0, frame * self.frame_s + pad_s), 6)


@dataclass(frozen=True, kw_only=True)
class Segments(VoiceEvents):
    """The stretches of speech in a whole sound.

    Takes one probability a frame, FP32 [-1], ragged or a tensor. Makes ``output``, json: a list of {"start_s", "end_s",
    "score"}, score being the mean probability of its frames. Speech starts with a frame of ``on`` or more and ends with
    the first below ``off`` once ``silence_min_s`` passed without one of ``on`` or more; it must last longer than
    ``speech_min_s``, and is then made longer by ``pad_s`` at both ends, or by half the silence between two where that
    is less. The rules and defaults are those of silero-vad. Each row is a whole sound, also in a sequence: a live
    client gets the segments of its latest request alone, and wants ``voice_events``. A probability that is
    not finite fails its row.
    """

    output: str = option(field_name(), "where the segments go", "segments")
    speech_min_s: float = option(number(), "speech that does not last longer is left out", 0.25)


class Hysteresis(NamedTuple):
    """Where a scan of frames stands; a plain value, so that a sequence can keep it."""

    frame: int = 0  # the next one's number
    speaking: bool = False
    quiet_from: int | None = None  # the frame at which the present speech may have ended


class Turn(NamedTuple):
    """Speech starts or ends with this frame."""

    starts: bool
    frame: int


def scan(
    scores: Sequence[float], state: Hysteresis, options: VoiceEvents, *, ends: bool
) -> tuple[list[Turn], Hysteresis]:
    """The turns that these frames, coming after ``state``, bring; ``ends``: no more come, and so speech ends too."""
    frame, speaking, quiet_from = state
    silence_min = options.frames(options.silence_min_s)
    turns: list[Turn] = []
    for score in scores:
        if score >= options.on:
            if not speaking:
                turns.append(Turn(True, frame))
            speaking, quiet_from = True, None
        elif speaking and score < options.silence_from:
            quiet_from = frame if quiet_from is None else quiet_from
            if frame - quiet_from >= silence_min:
                turns.append(Turn(False, quiet_from))
                speaking, quiet_from = False, None
        frame += 1
    if speaking and ends:
        turns.append(Turn(False, frame))
    return turns, Hysteresis(frame, speaking, quiet_from)


def find_segments(scores: NDArray[np.float32], options: Segments) -> Found:
    """The segments of one whole sound."""
    turns, _ = scan(scores.tolist(), Hysteresis(), options, ends=True)
    spans = [(start.frame, end.frame) for start, end in zip(turns[::2], turns[1::2], strict=True)]
    spans = [(start, end) for start, end in spans if end - start > options.frames(options.speech_min_s)]
    found: Found = []
    for place, (start, end) in enumerate(spans):
        before = start * options.frame_s
        if place:
            before = (start - spans[place - 1][1]) * options.frame_s / 2
        after = (len(scores) - end) * options.frame_s
        if place + 1 < len(spans):
            after = (spans[place + 1][0] - end) * options.frame_s / 2
        found.append(
            {
                "start_s": options.at_s(start, -min(options.pad_s, before)),
                "end_s": options.at_s(end, min(options.pad_s, after)),
                "score": round(float(scores[start:end].mean(dtype=np.float64)), 6),
            }
        )
    return found


def _problems(options: VoiceEvents) -> list[Trouble]:
    troubles = []
    if not 0 < options.frame_s <= SECONDS_MAX:
        troubles.append(("frame_s", str(options.frame_s), f"above 0, at most {SECONDS_MAX}"))
    if not 0 <= options.silence_from <= options.on <= 1:
        troubles.append(("on", f"on = {options.on:g}, off = {options.silence_from:g}", "0 <= off <= on <= 1"))
    for key in ("silence_min_s", "pad_s", "speech_min_s"):
        seconds = getattr(options, key, 0)
        if not 0 <= seconds <= SECONDS_MAX:
            troubles.append((key, str(seconds), f"0 to {SECONDS_MAX}"))
    return troubles


def _json_field(options: VoiceEvents, known: FieldMap) -> list[Field]:
    pick(known, options.input, SAMPLES)
    return [Field(options.output, "BYTES", (), "json")]


def _segments(options: Segments, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, SAMPLES)

    def run(batch: Batch) -> None:
        _on_each(batch, source, options.output, lambda _, scores: find_segments(scores, options))

    return run


def _voice_events(options: VoiceEvents, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, SAMPLES)

    def of_row(scores: NDArray[np.float32], batch: Batch, row: int) -> Found:
        slots = batch.slots(row)
        state = Hysteresis() if slots is None else Hysteresis(*slots.get(context.place, ()))
        ends = batch.ends(row)
        turns, state = scan(scores.tolist(), state, options, ends=ends)
        if slots is not None:
            slots[context.place] = tuple(state)
        last_s = options.at_s(state.frame, 0.0) if ends else math.inf  # the sound is not longer
        return [
            {"event": "start", "at_s": options.at_s(turn.frame, -options.pad_s)}
            if turn.starts
            else {"event": "end", "at_s": min(options.at_s(turn.frame, options.pad_s), last_s)}
            for turn in turns
        ]

    def run(batch: Batch) -> None:
        _on_each(batch, source, options.output, lambda row, scores: of_row(scores, batch, row))

    return run


def _on_each(batch: Batch, source: Field, output: str, act: Callable[[int, NDArray[np.float32]], Found]) -> None:
    """Of a probability that is not finite nothing is made: it would be silence, or the mean of all would be none."""
    found: list[Found | None] = [None] * batch.rows
    for row, scores in enumerate(batch.columns[source.name]):
        if np.isfinite(scores).all():
            found[row] = act(row, scores)
        else:
            batch.fail(row, not_finite(source))
    batch.columns[output] = object_column(found)


SEGMENTS = Kind("segments", Segments, _json_field, _segments, _problems)
VOICE_EVENTS = Kind("voice_events", VoiceEvents, _json_field, _voice_events, _problems)
