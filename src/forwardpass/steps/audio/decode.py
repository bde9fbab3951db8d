"""``decode_audio``: an encoded sound file to samples at the rate the model wants."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Field
from forwardpass.steps.audio.headers import (
    CHANNELS_MAX,
    RATE_HZ_MAX,
    RATE_HZ_MIN,
    Heading,
    Unfit,
    after_tags,
    check_bounds,
    flac_heading,
    is_wav,
    too_long,
    wav_heading,
)
from forwardpass.steps.audio.packets import is_mp3, mp3_heading, ogg_heading
from forwardpass.steps.kind import Fit, Kind, library_missing, missing, pick
from forwardpass.steps.options import Trouble, choice, field_name, number, option, whole
from forwardpass.steps.protocol import Batch, Context, FieldMap, Prepared, object_column

SECONDS_MAX = 86_400
SAMPLES_MAX = SECONDS_MAX * RATE_HZ_MAX * CHANNELS_MAX
SAMPLES_USUAL = 600 * 48_000 * 2
BLOCK_FRAMES, BLOCK_FRAMES_DAMAGED = 8_192, 512  # the block in which libsndfile finds damage is lost
PEAK_MAX = 8.0
QUALITY = "HQ"

AUDIO = Fit("an encoded sound (audio)", lambda field: field.kind == "audio" and not field.shape)
ENCODED = Fit("an encoded sound (audio or bytes)", lambda field: field.kind in ("audio", "bytes") and not field.shape)

Samples = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class DecodeAudio:
    """Decodes WAV, FLAC, Ogg (Vorbis, Opus) and MP3, told by their content, to one channel of samples from -1 to 1.

    Makes ``output``, ragged FP32 [samples]: the mean of the channels, resampled to ``rate_hz`` by soxr (HQ), and
    what is beyond -1 or 1 set to it. WAV may hold PCM of 8, 16, 24 or 32 bits, floats, A-law or mu-law. A row fails
    with ``audio_invalid`` when it is none of these files or damaged; with ``audio_format`` when its header is wrong
    or not taken (8,000 to 192,000 Hz, 1 to 8 channels, no ADPCM) or a WAV is cut; with ``input_too_large`` past
    ``seconds_max`` or ``samples_max``, which are counted while decoding. A WAV written as a stream, without a length
    in its header, is taken to its end. RF64, RIFX and W64 are not taken, nor is an MP3 behind zeros or anything but ID3
    tags. Of a damaged MP3 libmpg123 also writes a line to the worker's standard error.
    """

    input: str | None = option(field_name(), "the file; without it the latest audio field, else bytes field", None)
    output: str = option(field_name(), "where the samples go", "samples")
    rate_hz: int = option(whole(RATE_HZ_MIN, RATE_HZ_MAX), "samples a second of the result")
    seconds_max: float = option(number(), f"longer sound is refused; more than 0, at most {SECONDS_MAX}", 600.0)
    samples_max: int = option(
        whole(1, SAMPLES_MAX),
        "sound of more samples, counted over all channels at the file's own rate, is refused: 600 s of 48 kHz stereo",
        SAMPLES_USUAL,
    )
    channels_max: int = option(whole(1, CHANNELS_MAX), "sound of more channels is refused", CHANNELS_MAX)
    channel: int | None = option(
        whole(0, CHANNELS_MAX - 1), "take this channel, 0 = the first; without it the mean of all", None
    )
    truncated: Literal["refuse", "accept"] = option(
        choice("refuse", "accept"), "what a cut or damaged file gets; accept: what can be decoded of it", "refuse"
    )


def encoded_sound(known: FieldMap, name: str | None) -> Field:
    """The field with encoded sound: the one named, else the latest of audio, else the latest of bytes."""
    some_audio = any(AUDIO.test(field) for field in known.values())
    return pick(known, name, AUDIO if name is None and some_audio else ENCODED)


def _decode_problems(options: DecodeAudio) -> list[Trouble]:
    troubles = []
    if not 0 < options.seconds_max <= SECONDS_MAX:
        troubles.append(("seconds_max", str(options.seconds_max), f"more than 0, at most {SECONDS_MAX}"))
    if options.channel is not None and options.channel >= options.channels_max:
        troubles.append(("channel", str(options.channel), f"less than channels_max ({options.channels_max})"))
    return troubles


def _decoded_fields(options: DecodeAudio, known: FieldMap) -> list[Field]:
    encoded_sound(known, options.input)
    return [Field(options.output, "FP32", (-1,), "ragged")]


def _load(options: DecodeAudio, known: FieldMap, context: Context) -> Prepared:
    source = encoded_sound(known, options.input).name
    decode = partial(_decode, options, _library())

    def run(batch: Batch) -> None:
        samples: list[Samples | None] = [None] * batch.rows
        for row, data in enumerate(batch.columns[source]):
            if data is None:
                batch.fail(row, missing(source))
                continue
            try:
                samples[row] = decode(data)
            except Unfit as unfit:
                batch.fail(row, Refused(unfit.code, f"{source}: {unfit.text}", field=source, detail=unfit.detail))
        batch.columns[options.output] = object_column(samples)

    return run


@dataclass(frozen=True, slots=True)
class _Library:
    """soundfile and soxr, imported."""

    open: Callable[..., Any]
    resampler: Callable[..., Any]
    error: type[Any]  # an exception that has ``error_string``


def _library() -> _Library:
    try:
        import soundfile
        import soxr
    except (ImportError, OSError) as error:  # OSError: the C library that soundfile loads
        raise library_missing("decode_audio", "soundfile or soxr", "audio", error) from error

    class Forward(soundfile.SoundFile):  # type: ignore[misc]  # the library has no types
        """Read from front to back: soundfile seeks after each read otherwise, slowly and not in every file."""

        def seekable(self) -> bool:
            return False

    return _Library(Forward, soxr.ResampleStream, soundfile.LibsndfileError)


def _decode(options: DecodeAudio, library: _Library, data: bytes) -> Samples:
    """The samples of one file. Raises Unfit."""
    heading = _heading(data, options.seconds_max)
    if heading.channels > options.channels_max:
        found = f"is sound of {heading.channels} channels"
        raise Unfit(Code.AUDIO_FORMAT, f"{found}; at most {options.channels_max} are taken here")
    if options.channel is not None and options.channel >= heading.channels:
        found = f"is sound of {heading.channels} channels"
        raise Unfit(Code.AUDIO_FORMAT, f"{found}; channel {options.channel} (0 = the first) is needed here")
    if heading.frames is not None:
        _check_length(options, heading.frames, heading.rate_hz, heading.channels)
    if heading.damage and options.truncated == "refuse":
        raise _damaged(heading, heading.damage)
    samples = np.concatenate([np.empty(0, np.float32), *_resampled(options, library, heading, data)])
    if not len(samples):
        raise _damaged(heading, f"holds no sound, or less than one sample at {options.rate_hz} a second")
    return np.clip(samples, -1.0, 1.0, out=samples)


def _check_length(options: DecodeAudio, frames: int, rate_hz: int, channels: int) -> None:
    """Raises Unfit. Seconds alone would not bound the work: there may be eight channels."""
    if frames > options.seconds_max * rate_hz:
        raise too_long(options.seconds_max)
    if frames * channels > options.samples_max:
        what = f"is sound of more than {options.samples_max} samples in {channels} channels, the most taken here"
        raise Unfit(Code.INPUT_TOO_LARGE, what)


def _heading(data: bytes, seconds_max: float) -> Heading:
    if is_wav(data):
        return wav_heading(data)
    if data[:4] == b"OggS":
        return ogg_heading(data, seconds_max)
    start = after_tags(data)
    if data[start : start + 4] == b"fLaC":
        return flac_heading(data, start)
    if is_mp3(data, start):
        return mp3_heading(data, start, seconds_max)
    raise Unfit(Code.AUDIO_INVALID, "is no WAV, FLAC, Ogg (Vorbis, Opus) or MP3 file")


def _resampled(options: DecodeAudio, library: _Library, heading: Heading, data: bytes) -> Iterator[Samples]:
    """One channel, block by block, at the wanted rate."""
    with _open(library, heading, data) as file:
        rate_hz, count = int(file.samplerate), 0
        resampler = None
        if rate_hz != options.rate_hz:
            resampler = library.resampler(rate_hz, options.rate_hz, 1, dtype="float32", quality=QUALITY)
        for block in _blocks(options, library, heading, file):
            count += len(block)
            _check_length(options, count, rate_hz, heading.channels)
            mono = _one_channel(options, block)
            yield mono if resampler is None else resampler.resample_chunk(mono)
    if resampler is not None and count:
        yield resampler.resample_chunk(np.empty(0, np.float32), last=True)
    if heading.frames is not None and count < heading.frames and options.truncated == "refuse":
        raise _damaged(heading, f"is cut: its header says {heading.frames} samples and {count} are there")


def _one_channel(options: DecodeAudio, block: Samples) -> Samples:
    if options.channel is not None or block.shape[1] == 1:
        mono = block[:, options.channel or 0].copy()
    else:
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            mono = block.mean(axis=1)
    if not np.abs(mono).max() <= PEAK_MAX:  # a NaN is not
        what = "has samples that are no number or far beyond -1 to 1, the range of sound in floating point"
        raise Unfit(Code.AUDIO_FORMAT, what)
    return mono


def _open(library: _Library, heading: Heading, data: bytes) -> Any:
    """The file opened by libsndfile: a WAV as the raw samples we found, so that its header is read only by us."""
    raw: dict[str, Any] = {}
    if heading.coding:
        raw = {"format": "RAW", "subtype": heading.coding, "endian": "LITTLE"}
        raw |= {"samplerate": heading.rate_hz, "channels": heading.channels}
    try:
        file = library.open(io.BytesIO(data[heading.start : heading.end]), **raw)
    except library.error as error:
        raise _damaged(heading, f"cannot be decoded as {heading.family}", error.error_string) from None
    check_bounds(file.samplerate, file.channels)
    if file.channels != heading.channels:
        raise _damaged(heading, f"cannot be decoded as {heading.family}", "another number of channels than its header")
    return file


def _blocks(options: DecodeAudio, library: _Library, heading: Heading, file: Any) -> Iterator[Samples]:
    """[samples, channels] until the end; each is overwritten by the next."""
    frames = BLOCK_FRAMES if options.truncated == "refuse" else BLOCK_FRAMES_DAMAGED
    space = np.empty((frames, file.channels), np.float32)
    count = 0
    try:
        while len(block := file.read(out=space)):
            count += len(block)
            yield block
    except library.error as error:
        if options.truncated == "refuse":
            seconds = count / file.samplerate
            raise _damaged(heading, f"is cut or damaged after {seconds:.1f} seconds", error.error_string) from None


def _damaged(heading: Heading, text: str, detail: str = "") -> Unfit:
    code = Code.AUDIO_FORMAT if heading.family == "WAV" else Code.AUDIO_INVALID
    return Unfit(code, text, detail)


DECODE_AUDIO = Kind("decode_audio", DecodeAudio, _decoded_fields, _load, _decode_problems)
