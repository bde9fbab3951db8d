"""``frames``: samples to overlapping or adjoining frames, one row each, also across the requests of a sequence."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.audio.headers import RATE_HZ_MAX
from forwardpass.steps.audio.samples import SAMPLES
from forwardpass.steps.kind import Kind, pick
from forwardpass.steps.options import choice, field_name, option, whole
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, Slots

SAMPLES_MAX = 10_000_000
FRAMES_MAX = 1_000_000

Samples = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Frames:
    """Cuts samples into frames of ``length`` that begin every ``hop``; from here on a row is one frame.

    Takes FP32 [-1], ragged or a tensor. Makes ``output``, FP32 [context + length]: the ``context`` samples before the
    frame (zeros before the beginning), then the frame; and ``start_s`` and ``end_s``, FP64: where the frame, without
    its context, begins and where its last sample ends. In a sequence context and time go on from request to request.
    ``tail`` says what becomes of samples left at the end of a request: padded with zeros to a last frame, dropped, or
    carried to the sequence's next request and padded in its last, so that the frames are those of the whole sound
    however it was cut (a row outside a sequence is a whole sound). More than ``frames_max`` frames fail a row with
    ``input_too_large``.
    """

    input: str | None = option(field_name(), "the samples; without it the latest field of this kind", None)
    output: str = option(field_name(), "where the frames go", "frame")
    rate_hz: int = option(whole(1, RATE_HZ_MAX), "samples a second, to tell the time")
    length: int = option(whole(1, SAMPLES_MAX), "samples of a frame, without its context")
    hop: int | None = option(
        whole(1, SAMPLES_MAX), "samples from one frame's beginning to the next; without it length", None
    )
    context: int = option(whole(0, SAMPLES_MAX), "samples of the past in front of each frame", 0)
    tail: Literal["pad", "drop", "carry"] = option(
        choice("pad", "drop", "carry"), "what becomes of an incomplete last frame", "pad"
    )
    frames_max: int = option(whole(1, FRAMES_MAX), "the most frames of one row", 20_000)


class Past(NamedTuple):
    """What goes on in a sequence: never changed, only replaced."""

    start: int  # of the next frame, counted from the sequence's first sample
    kept: Samples  # the latest samples, from the next frame's context on
    end: int  # samples seen so far; ``kept`` ends here


@dataclass(frozen=True, slots=True)
class Cut:
    """A row's frames, where the first starts, how many samples there were in all, and what is kept."""

    windows: Samples
    start: int
    end: int
    past: Past


def cut(samples: Samples, past: Past, options: Frames, *, ends: bool) -> Cut:
    """The frames that these samples complete; ``ends``: nothing comes after them."""
    hop, window = options.hop or options.length, options.context + options.length
    there = np.concatenate([past.kept, samples])
    end = past.end + len(samples)
    first = past.start - options.context - (end - len(there))  # of the first window, in ``there``
    count = max(0, 1 + (len(there) - first - window) // hop)
    windows = sliding_window_view(there[first:], window)[::hop] if count else np.empty((0, window), np.float32)
    start = past.start + count * hop
    carries = options.tail == "carry"
    if carries and not ends:
        kept_from = min(start - options.context, end)
        return Cut(windows, past.start, end, Past(start, _last(there, end - kept_from), end))
    last = count or (carries and past.start)  # there is a frame before the one that would start next
    covered = start - hop + options.length if last else past.start
    if options.tail != "drop" and max(start, covered) < end:
        padded = np.zeros((1, window), np.float32)
        rest = there[first + count * hop :]
        padded[0, : len(rest)] = rest
        windows = np.concatenate([windows, padded])
    return Cut(windows, past.start, end, Past(end, _last(there, options.context), end))


def _last(samples: Samples, count: int) -> Samples:
    """A copy, so that what it is a part of is not kept."""
    return samples[len(samples) - count :].copy()


def _frame_fields(options: Frames, known: FieldMap) -> list[Field]:
    pick(known, options.input, SAMPLES)
    frame = Field(options.output, "FP32", (options.context + options.length,))
    return [frame, Field("start_s", "FP64"), Field("end_s", "FP64")]


def _frames(options: Frames, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, SAMPLES).name
    hop = options.hop or options.length
    silence = Past(0, np.zeros(options.context, np.float32), 0)

    def of_row(samples: Samples, slots: Slots | None, ends: bool) -> Cut:
        past: Past = silence if slots is None else slots.get(context.place, silence)
        whole_row = cut(samples, past, options, ends=ends)
        if slots is not None:
            slots[context.place] = whole_row.past
        return whole_row

    def run(batch: Batch) -> None:
        for row, samples in enumerate(batch.columns[source]):
            if len(samples) > options.frames_max * hop:
                batch.fail(row, _too_many(source, len(samples), options.frames_max * hop))
        batch.settle()  # rows have other numbers once they are frames
        cuts = [of_row(each, batch.slots(row), batch.ends(row)) for row, each in enumerate(batch.columns[source])]
        counts = [len(each.windows) for each in cuts]
        starts = [each.start + np.arange(count) * hop for each, count in zip(cuts, counts, strict=True)]
        ends = [np.minimum(s + options.length, each.end) for s, each in zip(starts, cuts, strict=True)]
        batch.expand(
            counts,
            {
                options.output: _joined([each.windows for each in cuts], silence.kept, options.length),
                "start_s": _seconds(starts, options.rate_hz),
                "end_s": _seconds(ends, options.rate_hz),
            },
        )

    return run


def _joined(windows: list[Samples], context: Samples, length: int) -> Samples:
    """All rows' windows in one array of its own, also when there are none."""
    return np.concatenate([np.empty((0, len(context) + length), np.float32), *windows])


def _seconds(places: list[NDArray[Any]], rate_hz: int) -> NDArray[np.float64]:
    return np.concatenate([np.empty(0, np.float64), *places]) / rate_hz


def _too_many(source: str, count: int, most: int) -> Refused:
    text = f"{source}: {count} samples make too many frames; at most {most} samples are taken at once"
    return Refused(Code.INPUT_TOO_LARGE, text, field=source)


FRAMES = Kind("frames", Frames, _frame_fields, _frames, level=1)
