"""The speech example: what the network writes down, as it does by itself, also of long sound; and only where trusted."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from examples.voice.build import RATE_HZ, wav
from numpy.typing import NDArray
from tests.examples.ways import outputs_by_every_way
from tests.serving import Server, forwardpass
from tests.steps.sounds import SAMPLES, decode, speech

from forwardpass.core.errors import Code
from forwardpass.steps.catalogue import kinds
from forwardpass.steps.protocol import Batch, Context

Ask = Callable[[str, Sequence[Mapping[str, object]]], Batch]

TEXT = "The quick brown fox jumps over the lazy dog. Please call me tomorrow morning at nine o'clock."


def words(text: str) -> set[str]:
    return {word.strip(".,!?") for word in text.lower().split()}


def of_the_network(folder: Path, sound: bytes) -> tuple[str, float]:
    """The text and its score that CTranslate2 makes of the same features."""
    import ctranslate2
    from tokenizers import Tokenizer

    batch = decode(sound)
    kinds()["log_mel"].prepare({"seconds": 30.0}, {SAMPLES.name: SAMPLES}, Context(Path("/nowhere")))(batch)
    network = ctranslate2.models.Whisper(str(folder), compute_type="float32", intra_threads=2)
    features = ctranslate2.StorageView.from_array(batch.columns["log_mel"])
    prompt = [["<|startoftranscript|>", "<|notimestamps|>"]]
    (found,) = network.generate(features, prompt, beam_size=5, max_length=224, return_scores=True)
    text: str = Tokenizer.from_file(str(folder / "tokenizer.json")).decode(found.sequences_ids[0])
    return text.strip(), found.scores[0]


def test_what_is_said_is_written_down_as_the_network_does_it(ask: Ask, folder_of: Callable[[str], Path]) -> None:
    # The voice of espeak-ng is half understood, and is another one in each release: words, not sentences.
    sound = speech(TEXT)
    columns = ask("speech", [{"sound": sound}]).columns
    text, score = of_the_network(folder_of("speech"), sound)
    ((window,),) = columns["windows"]
    assert (columns["text"][0], window["text"]) == (text, text)
    assert window["score"] == pytest.approx(score, abs=1e-4)
    assert len(words(text) & {"quick", "brown", "lazy", "dog", "call", "tomorrow", "morning", "clock"}) >= 4


def test_long_sound_is_heard_window_by_window_and_what_is_no_sound_fails_alone(ask: Ask) -> None:
    spoken = decode(speech(TEXT)).columns["samples"][0]
    long: NDArray[np.float32] = np.concatenate([spoken, np.zeros(32 * RATE_HZ - len(spoken), np.float32), spoken])
    batch = ask("speech", [{"sound": b"no sound"}, {"sound": wav(long)}])
    assert {row: failure.code for row, failure in batch.failures.items()} == {0: Code.AUDIO_INVALID}
    (windows,) = batch.columns["windows"]
    assert [(each["start_s"], each["end_s"]) for each in windows] == [(0.0, 30.0), (30.0, len(long) / RATE_HZ)]
    assert all({"dog", "tomorrow"} & words(each["text"]) for each in windows)
    assert batch.columns["text"].tolist() == [" ".join(each["text"] for each in windows)]


def test_its_code_does_not_run_where_nobody_trusts_it(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    refused = forwardpass("predict", folder_of("speech"), "@nothing.wav", data=tmp_path, check=False)
    assert refused.returncode == 2
    assert "read it, then run: forwardpass trust" in refused.stderr


def test_every_way_in_gives_the_same_bytes(
    served: Callable[[str], Server], folder_of: Callable[[str], Path], data: Path, tmp_path: Path
) -> None:
    for store in (data, data / "speech"):
        forwardpass("trust", folder_of("speech"), data=store)
    (tmp_path / "spoken.wav").write_bytes(speech(TEXT))
    answers = outputs_by_every_way(served("speech"), folder_of("speech"), {"sound": tmp_path / "spoken.wav"}, data)
    assert b'"text":' in answers["http"]
    assert len(set(answers.values())) == 1, answers
