"""What steps and server cost beside the libraries under them: ``make bench``, or ``python bench/steps.py [--rounds N]``.

Needs the built examples (``make examples``). Pictures are decoded and prepared as by hand with the quickest libraries,
pages are read as the same pipeline reads them in process, and eight voices are listened to at once. What is compared
alternates in one run, so that ratios hold on a noisy machine; absolute times are of this machine and this hour only.
"""

import argparse
import io
import json
import struct
import subprocess
import sys
import tempfile
import threading
import time
import wave
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
from bench.figures import MODELS, Figure, say, summarise  # noqa: E402
from examples.ocr.build import LINES, page  # noqa: E402
from tests.serving import Server, serving  # noqa: E402  (the tests' harness starts and stops the server)

from forwardpass.core.pipeline import Field  # noqa: E402
from forwardpass.steps.catalogue import kind_of, kinds  # noqa: E402
from forwardpass.steps.protocol import Batch, Context, object_column  # noqa: E402

SIDE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STREAMS = 8
RATE_HZ = 16_000
CHUNK_SAMPLES = 1_600  # 0.1 s, as a client of a live stream sends them
SPEECH_S = 20.0
PAGES = 12
CLIENTS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement; medians are reported")
    rounds = parser.parse_args().rounds
    missing = [name for name in ("ocr", "voice_live") if not (MODELS / name).is_dir()]
    if missing:
        sys.exit(f"not built: {', '.join(missing)}: make examples")
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        figures = [*pictures(rounds), reading(work, rounds), *listening(work)]
    summarise(figures)


def pictures(rounds: int) -> list[Figure]:
    """A 1080p JPEG to the numbers an image classifier takes, in full and at the size the decoder can give for less."""
    photo = jpeg()
    whole, draft = prepared(draft=0), prepared(draft=SIDE)
    figures = []
    for name, ours, by_hand in (("", whole, whole_by_hand), (", decoded at a fraction", draft, draft_by_hand)):
        apart = float(np.abs(ours(photo) - by_hand(photo)).max())
        pairs = [(seconds(ours, photo), seconds(by_hand, photo)) for _ in range(4 * rounds)]
        ratios = [one / other for one, other in pairs]
        spread = (
            f"{min(ratios):.2f} to {max(ratios):.2f}; {1000 * median(one for one, _ in pairs):.1f} ms against "
            f"{1000 * median(other for _, other in pairs):.1f} ms; numbers apart by {apart:.2g}"
        )
        title = f"1080p JPEG to a classifier's input{name}, steps / libraries by hand"
        figures.append(say(Figure(title, median(ratios), "", 1.15, True, spread)))
    return figures


def jpeg() -> bytes:
    """scikit-learn's photo of a temple at 1920 x 1080, with grain: about as many bytes as a camera makes of it."""
    from PIL import Image
    from sklearn.datasets import load_sample_image

    photo = Image.fromarray(load_sample_image("china.jpg")).resize((1920, 1080), Image.Resampling.BICUBIC)
    grain = np.random.default_rng(0).normal(0.0, 6.0, (1080, 1920, 1))
    file = io.BytesIO()
    Image.fromarray(np.clip(np.asarray(photo) + grain, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=85)
    return file.getvalue()


def prepared(draft: int) -> Callable[[bytes], NDArray[Any]]:
    """The steps, as a worker runs them."""
    known = {"photo": Field("photo", "BYTES", (), "image")}
    scale = {"scale": 1 / 255, "mean": list(MEAN), "std": list(STD), "size": [SIDE, SIDE]}
    runs = []
    for use, options in (
        ("decode_image", {"draft": draft}),
        ("resize_image", {"width": SIDE, "height": SIDE}),
        ("image_tensor", scale),
    ):
        kind = kind_of(use, kinds())
        runs.append(kind.prepare(options, known, Context(Path())))
        known |= {field.name: field for field in kind.fields(options, known)}

    def run(photo: bytes) -> NDArray[Any]:
        batch = Batch({"photo": object_column([photo])}, 1, [0])
        for step in runs:
            step(batch)
            batch.settle()
        return batch.columns["tensor"][0]  # type: ignore[no-any-return]  # columns are of any type

    return run


def whole_by_hand(photo: bytes) -> NDArray[Any]:
    """simplejpeg decodes, Pillow resizes, NumPy scales: the quickest of each."""
    import simplejpeg
    from PIL import Image

    pixels = simplejpeg.decode_jpeg(photo, "RGB")
    return _scaled(Image.fromarray(pixels).resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def draft_by_hand(photo: bytes) -> NDArray[Any]:
    """Pillow decodes at the smallest fraction that is still large enough, and resizes."""
    from PIL import Image

    image = Image.open(io.BytesIO(photo))
    image.draft("RGB", (SIDE, SIDE))
    return _scaled(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def _scaled(image: Any) -> NDArray[Any]:
    factor = np.array([1 / 255 / std for std in STD], dtype=np.float32)
    offset = np.array([-mean / std for mean, std in zip(MEAN, STD, strict=True)], dtype=np.float32)
    return np.ascontiguousarray((np.asarray(image) * factor + offset).transpose(2, 0, 1))


def seconds(act: Callable[[bytes], object], given: bytes) -> float:
    started = time.perf_counter()
    act(given)
    return time.perf_counter() - started


def reading(work: Path, rounds: int) -> Figure:
    """Pages a second through the server, against the same pipeline in process with the same threads."""
    pages = [page([*LINES[turn:], *LINES[:turn]]) for turn in range(len(LINES))]
    alone = in_process("ocr")
    ratios, rates = [], []
    with serving(MODELS / "ocr", data=work / "ocr") as server:

        def served(number: int) -> bytes:
            reply = server.call("POST", "/predict/ocr", pages[number % len(pages)], {"Content-Type": "image/png"})
            assert reply.status == 200, reply.body
            return reply.body

        for _ in range(rounds):
            started = time.perf_counter()
            with ThreadPoolExecutor(CLIENTS) as clients:
                bodies = list(clients.map(served, range(PAGES)))
            through = PAGES / (time.perf_counter() - started)
            started = time.perf_counter()
            texts = [alone(pages[number % len(pages)]) for number in range(PAGES)]
            inside = PAGES / (time.perf_counter() - started)
            assert [json.loads(body)["outputs"]["lines"] for body in bodies] == texts
            ratios.append(through / inside)
            rates.append((through, inside))
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}; {median(one for one, _ in rates):.2f} pages/s against "
    spread += f"{median(other for _, other in rates):.2f}; every answer equal"
    return say(Figure("reading pages, server / in process", median(ratios), "", 0.9, False, spread))


def in_process(name: str) -> Callable[[bytes], Any]:
    """The pipeline's only output for one file, with as many threads as the server's default."""
    from forwardpass.core.clock import random_id
    from forwardpass.core.pipeline import Version
    from forwardpass.execution.kinds import kinds as all_kinds
    from forwardpass.execution.plan import build
    from forwardpass.pipeline import definition
    from forwardpass.settings import Settings

    folder = MODELS / name / "1"
    text = (folder / "pipeline.toml").read_text()
    parsed = definition.parse(text, file="pipeline.toml", folder=folder, kinds=all_kinds())
    plan = build(Version(name, 1, random_id(), str(folder), parsed), threads=Settings().threads)
    (column,), (output,) = plan.signature.columns, plan.signature.outputs

    def run(file: bytes) -> Any:
        batch = Batch({column.name: object_column([file])}, 1, [0])
        for part in (plan.preprocess, plan.execute, plan.postprocess):
            part(batch)
        assert not batch.failures, batch.failures
        return json.loads(json.dumps(batch.columns[output.name][0]))

    return run


def listening(work: Path) -> list[Figure]:
    """Eight live streams at once: how far ahead of real time the slowest is, and whether each hears what it hears alone."""
    speech = spoken()
    with serving(MODELS / "voice_live", data=work / "voice") as server:
        alone = [stream(server, f"alone-{number}", voice(speech, number))[1] for number in range(STREAMS)]
        start = threading.Barrier(STREAMS)

        def one(number: int) -> tuple[float, list[bytes]]:
            start.wait()
            return stream(server, f"together-{number}", voice(speech, number))

        with ThreadPoolExecutor(STREAMS) as streams:
            together = list(streams.map(one, range(STREAMS)))
    slowest = max(took for took, _ in together)
    audio_s = len(speech) / RATE_HZ
    equal = sum(heard == own for (_, heard), own in zip(together, alone, strict=True))
    spread = f"{STREAMS} streams of {audio_s:.1f} s in pieces of {CHUNK_SAMPLES / RATE_HZ:g} s; the slowest took {slowest:.2f} s"
    return [
        say(Figure("voice streams at once, real time of the slowest", audio_s / slowest, "x", 1.0, False, spread)),
        say(Figure("voice streams equal to alone, byte for byte", equal, "", STREAMS, False, f"of {STREAMS}")),
    ]


def spoken() -> NDArray[np.int16]:
    """Speech by espeak-ng with pauses, INT16 at 16 kHz."""
    words = "The quick brown fox jumps over the lazy dog. <break time='1500ms'/> And now it rests for a while. " * 4
    command = ["espeak-ng", "-m", "-v", "en", "--stdout", words]
    done = subprocess.run(command, capture_output=True, check=True)
    with wave.open(io.BytesIO(done.stdout)) as sound:
        rate_hz = sound.getframerate()
        samples = np.frombuffer(sound.readframes(sound.getnframes()), dtype="<i2")
    places = np.arange(0, len(samples) - 1, rate_hz / RATE_HZ)
    at_our_rate: NDArray[np.int16] = np.interp(places, np.arange(len(samples)), samples).astype(np.int16)
    return at_our_rate[: round(SPEECH_S * RATE_HZ)]


def voice(speech: NDArray[np.int16], number: int) -> NDArray[np.int16]:
    """Everybody speaks, none at the same moment."""
    return np.roll(speech, number * RATE_HZ)


def stream(server: Server, name: str, samples: NDArray[np.int16]) -> tuple[float, list[bytes]]:
    """Send it piece by piece over one connection, each as soon as the last was answered: seconds, and the answers."""
    pieces: Sequence[NDArray[np.int16]] = np.split(samples, range(CHUNK_SAMPLES, len(samples), CHUNK_SAMPLES))
    connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
    answers = []
    started = time.perf_counter()
    for number, piece in enumerate(pieces):
        headers = {"Content-Type": "application/octet-stream", "X-Sequence-Id": name}
        headers |= {"X-Sequence-Start": "true"} if number == 0 else {}
        headers |= {"X-Sequence-End": "true"} if number == len(pieces) - 1 else {}
        data = struct.pack(f"<{len(piece)}h", *piece.tolist())
        connection.request("POST", "/predict/voice_live", data, headers)
        reply = connection.getresponse()
        body = reply.read()
        assert reply.status == 200, body
        answers.append(body)
    took = time.perf_counter() - started
    connection.close()
    return took, answers


if __name__ == "__main__":
    main()
