"""Steps on samples of sound: ``pcm_samples``, ``resample`` and ``gain``."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.audio.decode import QUALITY, encoded_sound
from forwardpass.steps.audio.headers import RATE_HZ_MAX, RATE_HZ_MIN, Unfit, is_wav, wav_heading
from forwardpass.steps.kind import Fit, Kind, library_missing, missing, not_finite, pick
from forwardpass.steps.options import Trouble, field_name, number, option, whole
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, object_column

SAMPLES = Fit(
    "a row of numbers of any length (FP32 [-1], ragged or a tensor)",
    lambda field: field.kind in ("ragged", "tensor") and field.datatype == "FP32" and len(field.shape) == 1,
)
PCM_FULL_SCALE = 32_768
DECIBELS_MAX = 120.0


@dataclass(frozen=True, kw_only=True)
class PcmSamples:
    """Takes bytes as 16-bit little-endian PCM of one channel, as live streams send it.

    Makes ``output``, ragged FP32 [samples] from -1 to 1: a sample divided by 32,768. An odd number of bytes fails its
    row with ``audio_format``, also inside a sequence: each request holds whole samples. No bytes are no samples.
    With ``rate_hz`` a whole WAV of such samples at this rate is taken as well, for the samples in it; any other WAV
    fails its row with ``audio_format``, instead of being heard with its header as noise.
    """

    input: str | None = option(field_name(), "the bytes; without it the latest audio field, else bytes field", None)
    output: str = option(field_name(), "where the samples go", "samples")
    rate_hz: int | None = option(
        whole(RATE_HZ_MIN, RATE_HZ_MAX), "samples a second of a WAV that is taken; without it none is", None
    )


def _pcm_fields(options: PcmSamples, known: FieldMap) -> list[Field]:
    encoded_sound(known, options.input)
    return [Field(options.output, "FP32", (-1,), "ragged")]


def _pcm(options: PcmSamples, known: FieldMap, context: Context) -> Prepared:
    source = encoded_sound(known, options.input).name

    def run(batch: Batch) -> None:
        samples: list[NDArray[np.float32] | None] = [None] * batch.rows
        for row, data in enumerate(batch.columns[source]):
            if data is None:
                batch.fail(row, missing(source))
                continue
            try:
                values = np.frombuffer(_raw(data, options.rate_hz), "<i2")
            except Unfit as unfit:
                batch.fail(row, Refused(unfit.code, f"{source}: {unfit.text}", field=source))
                continue
            samples[row] = values.astype(np.float32) / np.float32(PCM_FULL_SCALE)
        batch.columns[options.output] = object_column(samples)

    return run


def _raw(data: bytes, rate_hz: int | None) -> bytes:
    """The bytes of whole samples. Raises Unfit."""
    if not is_wav(data):
        if len(data) % 2:
            raise Unfit(Code.AUDIO_FORMAT, f"{len(data)} bytes are no whole number of samples of 2 bytes")
        return data
    if rate_hz is None:
        raise Unfit(Code.AUDIO_FORMAT, "is a WAV; samples without a header are taken here")
    heading = wav_heading(data)
    if heading.damage:
        raise Unfit(Code.AUDIO_FORMAT, heading.damage)
    if (heading.coding, heading.channels, heading.rate_hz) != ("PCM_16", 1, rate_hz):
        found = (
            f"is a WAV of {heading.coding}, {heading.rate_hz} samples a second and channel, {heading.channels} channels"
        )
        raise Unfit(Code.AUDIO_FORMAT, f"{found}; PCM_16, {rate_hz} and 1 are taken here")
    return data[heading.start : heading.end]


@dataclass(frozen=True, kw_only=True)
class Resample:
    """Changes the rate of samples from ``from_hz`` to ``to_hz`` with soxr (HQ).

    Takes FP32 [-1], ragged or a tensor; makes ``output``, ragged FP32 [samples], about to_hz / from_hz as many.
    Each row is a sound of its own: pieces of a sequence, resampled one by one, do not join without a click. Send a
    live stream at the model's rate. No row fails.
    """

    input: str | None = option(field_name(), "the samples; without it the latest field of this kind", None)
    output: str | None = option(field_name(), "where the result goes; without it, in place", None)
    from_hz: int = option(whole(RATE_HZ_MIN, RATE_HZ_MAX), "samples a second of the input")
    to_hz: int = option(whole(RATE_HZ_MIN, RATE_HZ_MAX), "samples a second of the result")


def _resample_problems(options: Resample) -> list[Trouble]:
    if options.from_hz != options.to_hz:
        return []
    return [("to_hz", str(options.to_hz), "another rate than from_hz: this step changes nothing")]


def _resample(options: Resample, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, SAMPLES).name
    try:
        import soxr
    except ImportError as error:
        raise library_missing("resample", "soxr", "audio", error) from error

    def run(batch: Batch) -> None:
        batch.columns[options.output or source] = object_column(
            [
                soxr.resample(np.ascontiguousarray(samples), options.from_hz, options.to_hz, quality=QUALITY)
                for samples in batch.columns[source]
            ]
        )

    return run


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Makes sound louder or quieter: by ``db`` decibels, or so far that its ``peak`` or its ``rms`` is as given.

    Takes FP32 [-1], ragged or a tensor; makes ``output``, ragged FP32 [samples]; what goes beyond -1 or 1 is set to
    it. Silence stays silence. Peak and rms are of each row alone, also in a sequence. A sample that is not a finite
    number fails the row.
    """

    input: str | None = option(field_name(), "the samples; without it the latest field of this kind", None)
    output: str | None = option(field_name(), "where the result goes; without it, in place", None)
    db: float | None = option(number(), f"decibels, from {-DECIBELS_MAX:g} to {DECIBELS_MAX:g}; 6.02 doubles", None)
    peak: float | None = option(number(), "the greatest absolute sample of the result, above 0, at most 1", None)
    rms: float | None = option(number(), "the root of the mean square of the result, above 0, at most 1", None)


def _gain_problems(options: Gain) -> list[Trouble]:
    troubles = []
    if [options.db, options.peak, options.rms].count(None) != 2:
        troubles.append(("db", f"db = {options.db}, peak = {options.peak}, rms = {options.rms}", "exactly one of them"))
    if options.db is not None and not -DECIBELS_MAX <= options.db <= DECIBELS_MAX:
        troubles.append(("db", str(options.db), f"{-DECIBELS_MAX:g} to {DECIBELS_MAX:g}"))
    for key, target in (("peak", options.peak), ("rms", options.rms)):
        if target is not None and not 0 < target <= 1:
            troubles.append((key, str(target), "above 0, at most 1"))
    return troubles


def _samples_fields(options: Resample | Gain, known: FieldMap) -> list[Field]:
    source = pick(known, options.input, SAMPLES)
    return [Field(options.output or source.name, "FP32", (-1,), "ragged")]


def _gain(options: Gain, known: FieldMap, context: Context) -> Prepared:
    source = pick(known, options.input, SAMPLES)

    def factor(samples: NDArray[np.float64]) -> float:
        if options.db is not None:
            return float(10 ** (options.db / 20))
        if options.peak is not None:
            return options.peak / float(np.abs(samples).max())
        return float(options.rms or 0) / float(np.sqrt(np.mean(samples**2)))

    def louder(samples: NDArray[np.float32]) -> NDArray[np.float32]:
        if not samples.any():
            return samples.copy()
        precise = samples.astype(np.float64)  # also the quietest sample has a square here
        return np.clip(precise * factor(precise), -1.0, 1.0).astype(np.float32)

    def run(batch: Batch) -> None:
        made: list[NDArray[np.float32] | None] = [None] * batch.rows
        for row, samples in enumerate(batch.columns[source.name]):
            if np.isfinite(samples).all():
                made[row] = louder(samples)
            else:
                batch.fail(row, not_finite(source))
        batch.columns[options.output or source.name] = object_column(made)

    return run


PCM_SAMPLES = Kind("pcm_samples", PcmSamples, _pcm_fields, _pcm)
RESAMPLE = Kind("resample", Resample, _samples_fields, _resample, _resample_problems)
GAIN = Kind("gain", Gain, _samples_fields, _gain, _gain_problems)
