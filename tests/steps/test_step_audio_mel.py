"""log_mel, against the formulas written out in float64 and against values of Whisper's own feature extractor."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.signal
from numpy.typing import NDArray
from tests.steps.sounds import SAMPLES, Samples, decode, speech

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field
from forwardpass.steps.catalogue import kinds

if TYPE_CHECKING:
    from tests.steps.conftest import Run

NOISE = (np.random.default_rng(7).standard_normal(5_000) * 0.1).astype(np.float32)


def chirp() -> Samples:
    """A second from 200 to 3,200 Hz."""
    times = np.arange(16_000) / 16_000
    return (0.5 * np.sin(2 * np.pi * (200 * times + 1_500 * times**2))).astype(np.float32)


def log_mel(run: "Run", samples: Samples, **options: Any) -> Samples:
    made: Samples = run("log_mel", options, {SAMPLES: [samples]}).columns["log_mel"][0]
    assert made.dtype == np.float32
    return made


def hertz_of(mel: float, scale: str) -> float:
    if scale == "htk":
        return 700 * (10 ** (mel / 2595) - 1)
    return mel * 200 / 3 if mel < 15 else 1_000 * 6.4 ** ((mel - 15) / 27)


def bands(bins: int, window: int, rate_hz: int, scale: str, norm: str) -> NDArray[np.float64]:
    """One triangle at a time, one frequency at a time."""
    top = 2595 * np.log10(1 + rate_hz / 2 / 700) if scale == "htk" else 15 + 27 * np.log(rate_hz / 2_000) / np.log(6.4)
    edges = [hertz_of(top * place / (bins + 1), scale) for place in range(bins + 2)]
    made = np.zeros((bins, window // 2 + 1))
    for band in range(bins):
        low, middle, high = edges[band : band + 3]
        for place in range(window // 2 + 1):
            hertz = place * rate_hz / window
            weight = (hertz - low) / (middle - low) if hertz < middle else (high - hertz) / (high - middle)
            made[band, place] = max(0.0, weight) * (2 / (high - low) if norm == "slaney" else 1)
    return made


def power(samples: Samples, window: int, hop: int) -> NDArray[np.float64]:
    """Of the short-time Fourier transform [window // 2 + 1, frames], by scipy."""
    hann = scipy.signal.get_window("hann", window)
    padded = np.pad(samples.astype(np.float64), window // 2, mode="reflect")
    starts = range(0, len(padded) - window + 1, hop)
    return np.array([np.abs(scipy.fft.rfft(padded[start : start + window] * hann)) ** 2 for start in starts]).T


@pytest.mark.parametrize("scale", ["slaney", "htk"])
@pytest.mark.parametrize("norm", ["slaney", "none"])
@pytest.mark.parametrize("log", ["natural", "db"])
def test_it_is_what_the_formulas_say(run: "Run", scale: str, norm: str, log: str) -> None:
    options = {"bins": 40, "window": 512, "hop": 128, "rate_hz": 22_050}
    mel = np.maximum(bands(40, 512, 22_050, scale, norm) @ power(NOISE, 512, 128), 1e-10)
    expected = np.log(mel) if log == "natural" else 10 * np.log10(mel)
    made = log_mel(run, NOISE, **options, scale=scale, norm=norm, log=log)
    assert made.shape == (40, 1 + 5_000 // 128)
    assert made == pytest.approx(expected, abs=1e-4)


def test_speech_is_what_whisper_computes(run: "Run") -> None:
    samples = decode(speech()).columns["samples"][0]
    mel = bands(80, 400, 16_000, "slaney", "slaney") @ power(samples, 400, 160)[:, :-1]
    decades = np.log10(np.maximum(mel, 1e-10))
    expected = (np.maximum(decades, decades.max() - 8) + 4) / 4
    assert log_mel(run, samples) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("bins", "mean", "values"),
    [
        (80, -0.546545, {(0, 0): 1.165871, (5, 10): -0.007946, (20, 50): -0.553048, (79, 99): -0.280016}),
        (128, -0.498185, {(0, 0): 1.090112, (5, 10): -0.248692, (20, 50): -0.503978, (79, 99): 0.060481}),
    ],
)
def test_thirty_seconds_are_as_in_whispers_own_extractor(
    run: "Run", bins: int, mean: float, values: dict[tuple[int, int], float]
) -> None:
    """The values are those of faster-whisper 1.2.1 for this sound."""
    made = log_mel(run, chirp(), bins=bins, seconds=30)
    assert made.shape == (bins, 3_000)
    assert made.mean(dtype=np.float64) == pytest.approx(mean, abs=1e-5)
    assert {place: made[place] for place in values} == pytest.approx(values, abs=1e-5)


def test_rows_filled_up_to_one_length_are_one_tensor(run: "Run") -> None:
    batch = run("log_mel", {"seconds": 0.5}, {SAMPLES: [NOISE, NOISE[:10]]})
    assert batch.columns["log_mel"].shape == (2, 80, 50)
    assert not batch.notes


def test_cutting_a_row_is_told(run: "Run") -> None:
    batch = run("log_mel", {"seconds": 0.25}, {SAMPLES: [NOISE[:4_000], NOISE]})
    assert np.array_equal(*batch.columns["log_mel"])
    assert batch.notes == [(1, "truncated", {"field": "samples", "samples": 5_000, "samples_max": 4_000})]


def test_a_row_does_not_depend_on_its_neighbours(run: "Run") -> None:
    both = run("log_mel", {}, {SAMPLES: [chirp(), NOISE]}).columns["log_mel"]
    assert np.array_equal(both[0], log_mel(run, chirp()))
    assert np.array_equal(both[1], log_mel(run, NOISE))


def test_a_sound_too_short_to_mirror_fails_alone(run: "Run") -> None:
    batch = run("log_mel", {}, {SAMPLES: [NOISE[:200], NOISE[:201], NOISE[:0]]})
    assert {row: failure.code for row, failure in batch.failures.items()} == {
        0: Code.INVALID_INPUT,
        2: Code.INVALID_INPUT,
    }
    assert [made.shape for made in batch.columns["log_mel"]] == [(80, 1)]


def test_bands_can_be_limited(run: "Run") -> None:
    """A tone of 3 kHz is in no band up to 1 kHz."""
    tone = np.sin(2 * np.pi * 3_000 * np.arange(16_000) / 16_000).astype(np.float32)
    low, all_of_it = (log_mel(run, tone, bins=10, log="db", **limit) for limit in ({"high_hz": 1_000.0}, {}))
    assert low[:, 50].max() < -60 < 0 < all_of_it[:, 50].max()


@pytest.mark.parametrize(
    "options",
    [
        {"low_hz": 9_000.0},
        {"high_hz": 8_001.0},
        {"low_hz": -1.0},
        {"seconds": 0},
        {"seconds": 0.001},
        {"seconds": 1e9},
        {"bins": 0},
        {"window": 1},
    ],
)
def test_wrong_options_are_the_operators_fault(run: "Run", options: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured):
        run("log_mel", options, {SAMPLES: [NOISE]})


def test_a_live_tensor_is_taken_too(run: "Run") -> None:
    made = run("log_mel", {}, {Field("live", "FP32", (-1,)): NOISE[None]}).columns["log_mel"][0]
    assert np.array_equal(made, log_mel(run, NOISE))


@pytest.mark.parametrize("log", ["whisper", "natural", "db"])
@pytest.mark.parametrize("window", [400, 401])
@pytest.mark.parametrize("samples", [400, 959, 960, 961, 1_120])
def test_there_are_as_many_frames_as_the_step_says(run: "Run", samples: int, window: int, log: str) -> None:
    options = {"window": window, "log": log, "seconds": samples / 16_000}
    (said,) = kinds()["log_mel"].fields(options, {SAMPLES.name: SAMPLES})
    assert run("log_mel", options, {SAMPLES: [NOISE]}).columns["log_mel"].shape[1:] == said.shape
    if log != "whisper":
        assert said.shape[1] == power(NOISE[:samples], window, 160).shape[1]


@pytest.mark.parametrize("window", [2, 3])
def test_the_fewest_samples_make_one_frame(run: "Run", window: int) -> None:
    options = {"window": window, "hop": 10, "bins": 1}
    least = 10 + window % 2
    assert log_mel(run, NOISE[:least], **options).shape == (1, 1)
    assert list(run("log_mel", options, {SAMPLES: [NOISE[: least - 1], NOISE[:99]]}).failures) == [0]
    with pytest.raises(Misconfigured, match="for one window"):
        run("log_mel", {**options, "seconds": (least - 1) / 16_000}, {SAMPLES: [NOISE]})


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 3e38])
def test_samples_that_are_no_numbers_or_too_large_fail_alone(run: "Run", wrong: float) -> None:
    for log in ("whisper", "natural", "db"):
        for options in ({"log": log}, {"log": log, "seconds": 0.1}):
            batch = run("log_mel", options, {SAMPLES: [np.full(5_000, wrong, np.float32), NOISE]})
            assert batch.failures[0].code is Code.NON_FINITE_OUTPUT
            assert batch.rows == 1
