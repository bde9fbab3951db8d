"""The voice examples: speech found in whole sounds as silero-vad finds it, and live, in pieces, just as in the whole."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples.voice.build import RATE_HZ, pcm, two_vowels, wav
from numpy.typing import NDArray
from tests.examples.ways import outputs_by_every_way
from tests.serving import Reply, Server
from tests.steps.sounds import encoded, speech, tone

from forwardpass.core.errors import Code
from forwardpass.steps.protocol import Batch

Ask = Callable[[str, Sequence[Mapping[str, object]]], Batch]
Samples = NDArray[np.floating]

FRAME = 512
TEXT = "The quick brown fox jumps over the lazy dog. Please call me tomorrow morning at nine o'clock."


def of_the_network(folder: Path, samples: Samples) -> list[float]:
    """The probabilities as the package's own loop asks the network for them."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(folder / "model.onnx", settings, providers=["CPUExecutionProvider"])
    rate_hz, state, context = np.array(RATE_HZ), np.zeros((2, 1, 128), np.float32), np.zeros(64, np.float32)
    found = []
    for start in range(0, len(samples), FRAME):
        frame = np.zeros(FRAME, np.float32)
        frame[: len(samples) - start] = samples[start : start + FRAME]
        given = np.concatenate([context, frame])[np.newaxis]
        (probability,), state = session.run(None, {"input": given, "state": state, "sr": rate_hz})
        found.append(float(probability[0]))
        context = frame[-64:]
    return found


def spans(segments: Sequence[Mapping[str, float]]) -> list[tuple[float, float]]:
    return [(each["start_s"], each["end_s"]) for each in segments]


def test_speech_is_likely_where_somebody_speaks_and_not_where_nobody_does(ask: Ask) -> None:
    quiet = wav(np.zeros(RATE_HZ))
    spoken, silence = ask("voice", [{"sound": speech(TEXT)}, {"sound": quiet}]).columns["probabilities"]
    assert spoken.mean() > 0.7
    assert silence.mean() < 0.02


def test_every_probability_is_the_networks_own(ask: Ask, folder_of: Callable[[str], Path]) -> None:
    samples = two_vowels()[:-77]  # the last frame is not full
    (found,) = ask("voice", [{"sound": wav(samples)}]).columns["probabilities"]
    assert found.tolist() == of_the_network(folder_of("voice"), np.frombuffer(pcm(samples), "<i2") / np.float32(32_768))


def test_segments_are_those_of_the_package(ask: Ask) -> None:
    # get_speech_timestamps of silero-vad 6.2.3 says so. Speech to the end ends here with the last frame, there with the
    # last sample.
    samples = two_vowels()
    first, second = samples[8_000:20_800], samples[36_800:49_600]
    pauses = [np.zeros(round(seconds * RATE_HZ)) for seconds in (0.3, 0.15, 0.21, 0.05)]
    run_on = np.concatenate([pauses[0], first[2_000:5_000], pauses[1], second, pauses[2], first, pauses[3], second])
    whole, close = ask("voice", [{"sound": wav(samples)}, {"sound": wav(run_on)}]).columns["segments"]
    assert spans(whole) == [(0.482, 1.374), (2.274, 3.134)]
    np.testing.assert_allclose(spans(close), [(0.258, 1.534), (1.634, 3.2975)], atol=0.032)
    assert all(0.5 < segment["score"] < 1 for segment in whole)


def test_a_file_of_any_kind_and_rate_has_the_same_segments(ask: Ask) -> None:
    flac = encoded(np.stack([two_vowels()] * 2, axis=1).astype(np.float32), format="FLAC")
    ogg = encoded(two_vowels().astype(np.float32), format="OGG")
    for segments in ask("voice", [{"sound": flac}, {"sound": ogg}]).columns["segments"]:
        np.testing.assert_allclose(spans(segments), [(0.482, 1.374), (2.274, 3.134)], atol=0.1)


def test_a_sound_is_heard_the_same_alone_and_beside_others(ask: Ask) -> None:
    sounds = [speech(TEXT), wav(two_vowels()), speech("Yes."), wav(tone(0.7)), wav(np.zeros(100))]
    together = ask("voice", [{"sound": each} for each in sounds]).columns["probabilities"]
    alone = [ask("voice", [{"sound": each}]).columns["probabilities"][0] for each in sounds]
    assert [each.tobytes() for each in together] == [each.tobytes() for each in alone]


def test_what_is_no_sound_fails_alone(ask: Ask) -> None:
    batch = ask("voice", [{"sound": b"no sound"}, {"sound": wav(two_vowels())}])
    assert len(batch.columns["segments"][0]) == 2
    assert {row: failure.code for row, failure in batch.failures.items()} == {0: Code.AUDIO_INVALID}


def test_every_way_in_gives_the_same_bytes(
    served: Callable[[str], Server], folder_of: Callable[[str], Path], data: Path, tmp_path: Path
) -> None:
    (tmp_path / "spoken.wav").write_bytes(speech(TEXT))
    answers = outputs_by_every_way(served("voice"), folder_of("voice"), {"sound": tmp_path / "spoken.wav"}, data)
    assert b'"start_s"' in answers["http"]
    assert len(set(answers.values())) == 1


def say(server: Server, stream: str, content: bytes, *, start: bool = False, end: bool = False) -> Reply:
    headers = {"Content-Type": "audio/pcm", "X-Sequence-Id": stream}
    headers |= {"X-Sequence-Start": str(start).lower(), "X-Sequence-End": str(end).lower()}
    return server.call("POST", "/predict/voice_live", content, headers)


def cut(content: bytes, number: int) -> list[bytes]:
    """The samples in pieces of very unlike size, other ones for every number."""
    sizes = np.random.default_rng(number).choice([1, 100, 160, 511, 512, 513, 1_000, 4_000], len(content) // 200)
    places = [0, *(2 * np.cumsum(sizes)).tolist()]
    return [content[start:end] for start, end in pairwise(places) if start < len(content)]


def streamed(server: Server, stream: str, pieces: Sequence[bytes]) -> list[Reply]:
    last = len(pieces) - 1
    replies = [say(server, stream, p, start=place == 0, end=place == last) for place, p in enumerate(pieces)]
    assert {reply.status for reply in replies} == {200}, [reply.body for reply in replies if reply.status != 200]
    return replies


def joined(replies: Sequence[Reply], output: str) -> list[Any]:
    return [each for reply in replies for each in reply.json["outputs"][output]]


def in_wav(raw: bytes) -> bytes:
    return wav(np.frombuffer(raw, "<i2") / 32_768)


def heard_whole(server: Server, content: bytes) -> Any:
    reply = server.call("POST", "/predict/voice", content, {"Content-Type": "audio/wav"})
    return reply.json["outputs"]


@pytest.mark.parametrize(("form", "wrap"), [("raw", bytes), ("wav", in_wav)])
def test_live_in_any_pieces_is_the_whole_sound_frame_by_frame(
    served: Callable[[str], Server], form: str, wrap: Callable[[bytes], bytes]
) -> None:
    content = pcm(two_vowels())
    replies = streamed(served("voice_live"), f"in-{form}-pieces", [*map(wrap, cut(content, 0))])
    whole = heard_whole(served("voice"), wav(two_vowels()))
    assert joined(replies, "probabilities") == whole["probabilities"]
    events = joined(replies, "events")
    assert [each["event"] for each in events] == ["start", "end"] * 2
    assert [each["at_s"] for each in events] == [second for span in spans(whole["segments"]) for second in span]


def test_a_stream_that_ends_while_somebody_speaks_is_told_of_that_end(served: Callable[[str], Server]) -> None:
    speaking = two_vowels()[:19_000]  # the last frame is not full
    replies = streamed(served("voice_live"), "cut-off", [*cut(pcm(speaking), 1), b""])
    whole = heard_whole(served("voice"), wav(speaking))
    assert joined(replies, "probabilities") == whole["probabilities"]
    ((start_s, end_s),) = spans(whole["segments"])
    assert joined(replies, "events") == [{"event": "start", "at_s": start_s}, {"event": "end", "at_s": end_s}]


def test_eight_streams_at_once_are_each_as_alone_to_the_byte(served: Callable[[str], Server]) -> None:
    sound = two_vowels()
    streams = [cut(pcm(np.roll(sound, 2_000 * n) * (1 - n / 10)), n) for n in range(8)]
    server = served("voice_live")
    alone = [streamed(server, f"alone-{n}", pieces) for n, pieces in enumerate(streams)]
    together = server.together(8, lambda n: streamed(server, f"together-{n}", streams[n]))
    for one, other in zip(alone, together, strict=True):
        assert [reply.body for reply in one] == [reply.body for reply in other]


def test_a_piece_that_is_refused_leaves_the_stream_as_it_was(served: Callable[[str], Server]) -> None:
    server, content = served("voice_live"), pcm(two_vowels())
    pieces = [content[:20_000], content[20_000:40_001], content[20_000:40_000]]
    replies = [say(server, "careful", piece, start=place == 0) for place, piece in enumerate(pieces)]
    assert [(reply.status, reply.code) for reply in replies] == [(200, ""), (400, "audio_format"), (200, "")]
    clean = [say(server, "clean", pieces[place], start=place == 0) for place in (0, 2)]
    assert [replies[0].body, replies[2].body] == [reply.body for reply in clean]


def test_a_stream_that_nobody_started_is_refused(served: Callable[[str], Server]) -> None:
    ask = partial(say, served("voice_live"), "nobody")
    assert (ask(b"").status, ask(b"").code) == (404, "sequence_not_found")
