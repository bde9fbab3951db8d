"""``log_mel``: samples to the log-mel spectrogram that speech models are trained on."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.audio.headers import RATE_HZ_MAX
from forwardpass.steps.audio.samples import SAMPLES
from forwardpass.steps.kind import Kind, not_finite, pick
from forwardpass.steps.options import Trouble, choice, field_name, number, option, whole
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, object_column

WINDOW_MAX = 65_536
BINS_MAX = 1_024
SECONDS_MAX = 3_600
FRAMES_AT_ONCE = 512
"""Small enough for the processor's cache; the spectrum of all frames of a long sound would take gigabytes."""
POWER_MIN = 1e-10

_SLANEY_HZ = 200 / 3  # hertz of one mel, up to 1,000 Hz; from there on 27 mels make a factor of 6.4
_SLANEY_BREAK_HZ, _SLANEY_STEP = 1_000.0, np.log(6.4) / 27

Samples = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class LogMel:
    """The log-mel spectrogram of samples; the defaults are Whisper's.

    Takes FP32 [-1], ragged or a tensor. Makes ``output``, ragged FP32 [bins, frames]: power in ``bins`` triangular mel
    bands from ``low_hz`` to ``high_hz``, of Hann windows centred on every ``hop``-th sample (the ends mirrored), then
    its logarithm: "natural", "db" (10 log10), each of at least 1e-10, or "whisper": log10, lifted to 8 below the row's
    greatest, plus 4, divided by 4, and without the last frame. There are samples // hop frames then, else one more; of
    an odd window (samples - 1) // hop. With ``seconds`` each row is first filled up with silence or cut (note
    "truncated") to that length, and the output is an FP32 tensor of fixed shape: 30 make Whisper's [80, 3000]. Samples
    too few to mirror fail their row with ``invalid_input``, and samples that are no finite numbers, or too large to
    have a power, fail it too. Source: Radford et al. 2022, section 2.2; Slaney 1998 (scale); O'Shaughnessy 1987 (htk).
    """

    input: str | None = option(field_name(), "the samples; without it the latest field of this kind", None)
    output: str = option(field_name(), "where the spectrogram goes", "log_mel")
    rate_hz: int = option(whole(1, RATE_HZ_MAX), "samples a second", 16_000)
    bins: int = option(whole(1, BINS_MAX), "how many mel bands", 80)
    window: int = option(whole(2, WINDOW_MAX), "samples of a window, and size of its Fourier transform", 400)
    hop: int = option(whole(1, WINDOW_MAX), "samples from one window to the next", 160)
    low_hz: float = option(number(), "where the lowest band begins", 0.0)
    high_hz: float | None = option(number(), "where the highest band ends; without it half the rate", None)
    scale: Literal["slaney", "htk"] = option(choice("slaney", "htk"), "the mel scale", "slaney")
    norm: Literal["slaney", "none"] = option(
        choice("slaney", "none"), "slaney: each band divided by half its width in hertz", "slaney"
    )
    log: Literal["whisper", "natural", "db"] = option(choice("whisper", "natural", "db"), "the logarithm", "whisper")
    seconds: float | None = option(number(), f"the length of every row; above 0, at most {SECONDS_MAX}", None)

    @property
    def highest_hz(self) -> float:
        return self.rate_hz / 2 if self.high_hz is None else self.high_hz

    @property
    def samples(self) -> int | None:
        """Of every row, where that is fixed."""
        return None if self.seconds is None else round(self.seconds * self.rate_hz)

    @property
    def samples_min(self) -> int:
        """Enough to mirror the ends, and for one frame."""
        return max(self.window // 2 + 1, self.hop + self.window % 2 if self.log == "whisper" else 1)

    def frames(self, samples: int) -> int:
        return (samples - self.window % 2) // self.hop + (self.log != "whisper")


def _mel_problems(options: LogMel) -> list[Trouble]:
    troubles = []
    if not 0 <= options.low_hz < options.highest_hz <= options.rate_hz / 2:
        found = f"low_hz = {options.low_hz:g}, high_hz = {options.highest_hz:g}"
        troubles.append(("low_hz", found, f"0 <= low_hz < high_hz <= half the rate ({options.rate_hz / 2:g})"))
    if options.seconds is not None and not 0 < options.seconds <= SECONDS_MAX:
        troubles.append(("seconds", str(options.seconds), f"above 0, at most {SECONDS_MAX}"))
    elif options.samples is not None and options.samples < options.samples_min:
        least = options.samples_min / options.rate_hz
        troubles.append(("seconds", str(options.seconds), f"at least {least:g}, for one window"))
    return troubles


def _mel_fields(options: LogMel, known: FieldMap) -> list[Field]:
    pick(known, options.input, SAMPLES)
    if options.samples is None:
        return [Field(options.output, "FP32", (options.bins, -1), "ragged")]
    return [Field(options.output, "FP32", (options.bins, options.frames(options.samples)))]


def _log_mel(options: LogMel, known: FieldMap, context: Context) -> Prepared:
    field = pick(known, options.input, SAMPLES)
    source = field.name
    bands = mel_bands(options).astype(np.float32)
    hann = np.hanning(options.window + 1)[:-1].astype(np.float32)
    fixed, least = options.samples, options.samples_min

    def run(batch: Batch) -> None:
        made: list[Samples | None] = [None] * batch.rows
        for row, samples in enumerate(batch.columns[source]):
            if fixed is not None and len(samples) > fixed:
                batch.note(row, "truncated", {"field": source, "samples": len(samples), "samples_max": fixed})
            if fixed is None and len(samples) < least:
                text = f"{source}: has {len(samples)} samples; at least {least} are needed"
                batch.fail(row, Refused(Code.INVALID_INPUT, text, field=source))
                continue
            whole_row = samples if fixed is None else _of_length(samples, fixed)
            with np.errstate(over="ignore", invalid="ignore"):  # refused below
                spectrogram = _logarithm(_mel(whole_row, options, bands, hann), options.log)
            if not np.isfinite(spectrogram).all():
                batch.fail(row, not_finite(field))
            made[row] = spectrogram
        column = object_column(made)
        batch.columns[options.output] = column if fixed is None else np.stack(list(column))

    return run


def _of_length(samples: Samples, count: int) -> Samples:
    """Cut, or filled up with silence."""
    return np.concatenate([samples[:count], np.zeros(max(0, count - len(samples)), np.float32)])


def _mel(samples: Samples, options: LogMel, bands: Samples, hann: Samples) -> Samples:
    """Power in each band [bins, frames]."""
    mirrored = np.pad(samples, options.window // 2, mode="reflect")
    windows = sliding_window_view(mirrored, options.window)[:: options.hop][: options.frames(len(samples))]
    mel = np.empty((len(bands), len(windows)), np.float32)
    for start in range(0, len(windows), FRAMES_AT_ONCE):
        spectrum = np.fft.rfft(windows[start : start + FRAMES_AT_ONCE] * hann)
        mel[:, start : start + FRAMES_AT_ONCE] = bands @ (spectrum.real**2 + spectrum.imag**2).T
    return mel


def _logarithm(mel: Samples, log: str) -> Samples:
    np.maximum(mel, np.float32(POWER_MIN), out=mel)
    if log == "natural":
        return np.log(mel, dtype=np.float32)
    decades: Samples = np.log10(mel)
    if log == "db":
        return 10 * decades
    np.maximum(decades, decades.max() - 8, out=decades)
    return (decades + np.float32(4)) / np.float32(4)


def mel_bands(options: LogMel) -> NDArray[np.float64]:
    """The weight of each frequency of the transform in each band [bins, window // 2 + 1]."""
    to_mel, to_hz = (_slaney_mel, _slaney_hz) if options.scale == "slaney" else (_htk_mel, _htk_hz)
    edges_hz = to_hz(np.linspace(to_mel(options.low_hz), to_mel(options.highest_hz), options.bins + 2))
    frequencies_hz = np.fft.rfftfreq(options.window, 1 / options.rate_hz)
    low, middle, high = edges_hz[:-2, None], edges_hz[1:-1, None], edges_hz[2:, None]
    rising, falling = (frequencies_hz - low) / (middle - low), (high - frequencies_hz) / (high - middle)
    bands: NDArray[np.float64] = np.maximum(0.0, np.minimum(rising, falling))
    return bands if options.norm == "none" else bands * 2 / (high - low)


def _htk_mel(hertz: float) -> float:
    return 2595 * float(np.log10(1 + hertz / 700))


def _htk_hz(mel: NDArray[Any]) -> NDArray[Any]:
    return 700 * (10 ** (mel / 2595) - 1)


def _slaney_mel(hertz: float) -> float:
    if hertz < _SLANEY_BREAK_HZ:
        return hertz / _SLANEY_HZ
    return _SLANEY_BREAK_HZ / _SLANEY_HZ + float(np.log(hertz / _SLANEY_BREAK_HZ) / _SLANEY_STEP)


def _slaney_hz(mel: NDArray[Any]) -> NDArray[Any]:
    above = mel - _SLANEY_BREAK_HZ / _SLANEY_HZ
    return np.where(above < 0, mel * _SLANEY_HZ, _SLANEY_BREAK_HZ * np.exp(_SLANEY_STEP * above))


LOG_MEL = Kind("log_mel", LogMel, _mel_fields, _log_mel, _mel_problems)
