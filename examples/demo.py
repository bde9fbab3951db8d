"""Serve the built examples and show what the server does with them: python examples/demo.py [MODELS]

It stays up until Ctrl-C; with DEMO_ONCE=1 it ends after the show. The exit status is 1 when an answer was wrong.
"""

import argparse
import asyncio
import gzip
import io
import json
import os
import shutil
import signal
import struct
import sys
import wave
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this file may run as a script

from examples.ocr.build import page
from examples.showing import Reply, Screen, Server, hammer, serving
from forwardpass.client import Client, ForwardpassError, Prediction, RequestError, RetryBudget
from forwardpass.core.clock import monotonic_s, pause

MODELS = Path(__file__).resolve().parent / ".work" / "models"
SHOWN = ("sentences", "filetype", "ocr", "fraud")
START_LIMIT_S = 120.0
LOAD_S = 2.0
INTERRUPTED_EXIT = 130
PAYMENTS = 64
PAGE = ("Dear reader,", "these lines were drawn a moment ago", "and are read by a pipeline.", "30 November 2026")
QUERY = "A man is eating pasta."
COSINES = {  # to the query, as the model's authors publish them
    "A man is eating food.": 0.7035,
    "A man is eating a piece of bread.": 0.5272,
    "A man is riding a horse.": 0.1889,
    "A cheetah is running behind its prey.": 0.0980,
}
WHY = {"worker_free": "a worker was free and took what waited", "rows_max": "full"}
SIZES = {"1 row": (1, 1), "2 to 7": (2, 7), "8 to 15": (8, 15), "16 to 31": (16, 31), "32 (most)": (32, 32)}


class Ended(Exception):
    """The show cannot go on. The text says why."""


@dataclass(slots=True)
class Show:
    """What every story needs. ``wrong`` counts what was not as it must be."""

    screen: Screen
    server: Server
    client: Client
    http: httpx.Client
    payments: list[dict[str, Any]]  # each beside scikit-learn's own "fraud_probability"
    wrong: int = 0

    def expect(self, right: bool, otherwise: str) -> None:
        if not right:
            self.wrong += 1
            self.screen.say(f"  WRONG: {otherwise}", "bold red")

    def get(self, url: str) -> Any:
        return self.http.get(url).raise_for_status().json()

    def batches(self, after: int = 0) -> list[dict[str, Any]]:
        """What is kept of the fraud pipeline's last batches, without those up to the id ``after``."""
        kept = self.get(f"{self.server.url}/v2/models/fraud/batches")["batches"]
        return [batch for batch in kept if batch["id"] > after]

    def fraud_worker(self) -> dict[str, Any]:
        versions = self.get(f"{self.server.admin_url}/status")["versions"]
        worker: dict[str, Any] = next(v for v in versions if v["pipeline"] == "fraud")["workers"][0]
        return worker


def wait_until_ready(show: Show) -> None:
    """Tells of each version when it is ready. Raises Ended when one fails, the server ends or takes too long."""
    started, told = monotonic_s(), set()
    while monotonic_s() - started < START_LIMIT_S:
        if show.server.process.poll() is not None:
            raise Ended(f"the server ended:\n{show.server.log.read_text()[-2000:]}")
        pause(0.05)
        try:
            status = show.get(f"{show.server.admin_url}/status")
        except httpx.TransportError:  # it does not listen yet
            continue
        if status["failures"]:
            raise Ended(f"not everything could be loaded: {status['failures']}")
        for name, version in ((version["pipeline"], version) for version in status["versions"]):
            if version["ready"] and name not in told:
                told.add(name)
                digest = version["digest"][:16]
                show.screen.say(
                    f"  {name:10} version {version['version']}, digest {digest}: {version['load_s']} s to load"
                )
        if status["ready"]:
            show.screen.say(f"  ready {monotonic_s() - started:.1f} s after the start")
            return
    raise Ended(f"not ready after {START_LIMIT_S:.0f} s; see {show.server.log}")


def sentences(show: Show) -> None:
    """How alike texts are, and where the time of one answer went."""
    show.screen.say(f'\n1. Sentences: how near each is to "{QUERY}"', "bold cyan")
    found = show.client.predict_many("sentences", [{"text": text} for text in COSINES])
    asked = show.client.predict("sentences", {"text": QUERY}, receipt=True)
    bars = []
    for (text, right), answer in zip(COSINES.items(), found, strict=True):
        vector = answer.outputs["embedding"] if isinstance(answer, Prediction) else ()
        cosine = sum(a * b for a, b in zip(vector, asked.outputs["embedding"], strict=False))
        bars.append((text, max(cosine, 0.0), f"{cosine:.4f}"))
        show.expect(abs(cosine - right) < 1e-3, f"{text} {right} is right")
    show.screen.bars(bars)
    receipt = asked.receipt or {}
    stages = dict(receipt["timings_us"])
    (batch,) = receipt["batches"]
    show.screen.say(f"  Its receipt, {receipt['id']}: {stages.pop('total')} us in the server,")
    show.screen.say(
        f"  in a batch of {batch['rows']} ({WHY.get(batch['reason'])}), repeatable: {receipt['repeatable']}"
    )
    show.screen.bars([(name, us, f"{us} us") for name, us in stages.items()])


def filetype(show: Show) -> None:
    """Real files, sent as they are."""
    show.screen.say("\n2. File type: from the bytes alone, sent as they are; no file name, no JSON", "bold cyan")
    for right, (media, content) in files().items():
        url = f"{show.server.url}/predict/filetype"
        answer = show.http.post(url, content=content, headers={"Content-Type": media}).raise_for_status()
        label, score = (answer.json()["outputs"][name] for name in ("label", "score"))
        show.screen.say(f"  {len(content):7} bytes of {media:24} -> {label:8} score {score:.4f}")
        show.expect(label == right, f"{right} is right")


def files() -> dict[str, tuple[str, bytes]]:
    """The right label -> the content type it is sent with, and the content."""
    source = Path(__file__).read_bytes()
    sound = io.BytesIO()
    with wave.open(sound, "wb") as writer:
        writer.setparams((1, 2, 16_000, 0, "NONE", ""))
        writer.writeframes(b"".join(struct.pack("<h", 300 * (n % 64 - 32)) for n in range(8000)))
    with Path(sys.executable).open("rb") as program:
        head = program.read(1 << 20)
    unknown = "application/octet-stream"
    return {
        "png": ("image/png", png()),
        "python": (unknown, source),
        "gzip": (unknown, gzip.compress(source)),
        "wav": ("audio/wav", sound.getvalue()),
        "elf": (unknown, head),
    }


def png() -> bytes:
    """A picture of 64 by 64 pixels."""
    lines = b"".join(b"\0" + bytes(x * y % 256 for x in range(64 * 3)) for y in range(64))
    head = struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    body = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


def reading(show: Show) -> None:
    """Lines found, cut out and read, by three networks that are steps of one pipeline."""
    show.screen.say("\n3. Reading: a page drawn just now; three networks in one pipeline find its lines", "bold cyan")
    url = f"{show.server.url}/predict/ocr?receipt=full"
    body = show.http.post(url, content=page(PAGE), headers={"Content-Type": "image/png"}).raise_for_status().json()
    for line in body["outputs"]["lines"]:
        (left, top), _, (right, bottom), _ = line["quad"]
        show.screen.say(
            f"  {line['score']:.3f} at {left:3.0f},{top:3.0f} to {right:3.0f},{bottom:3.0f}  {line['text']}"
        )
    show.screen.say(f"  {body['receipt']['timings_us']['total'] / 1000:.0f} ms in the server")
    show.expect([line["text"] for line in body["outputs"]["lines"]] == list(PAGE), "other words are right")


def fraud(show: Show) -> None:
    """Right answers, and errors that say what is wrong with which value."""
    show.screen.say("\n4. Fraud: two card payments, judged as scikit-learn does, which trained the model", "bold cyan")
    ordered = sorted(show.payments, key=lambda entry: float(entry["fraud_probability"]))
    best, worst = ordered[0], ordered[-1]
    for entry in (worst, best):
        words = "  ".join(f"{name}={value}" for name, value in entry["payment"].items() if value is not None)
        show.screen.say(f"  {words}")
        judged(show, entry, show.client.predict("fraud", {"payment": entry["payment"]}))
    show.screen.say("  Both in one request, and between them an amount of 1e300: it fails alone")
    huge = {"payment": {**worst["payment"], "amount": 1e300}}
    outcomes = show.client.predict_many("fraud", [{"payment": worst["payment"]}, huge, {"payment": best["payment"]}])
    for given, outcome in zip((worst, None, best), outcomes, strict=True):
        judged(show, given, outcome)
    show.screen.say('  An amount of "lots", which is no number at all')
    try:
        judged(show, None, show.client.predict("fraud", {"payment": {**best["payment"], "amount": "lots"}}))
    except RequestError as error:
        judged(show, None, error)


def judged(show: Show, entry: dict[str, Any] | None, outcome: Prediction | ForwardpassError) -> None:
    """Show an outcome: right when it is scikit-learn's, or an error where there is no ``entry``."""
    if isinstance(outcome, ForwardpassError):
        show.screen.say(f"    -> {outcome.code} {outcome.message}", "yellow")
        show.expect(entry is None, "this payment is valid")
        return
    probability, is_fraud = outcome.outputs["fraud_probability"], outcome.outputs["fraud"]
    show.screen.say(f"    -> {'fraud' if is_fraud else 'fine'}, probability {probability:.6f}")
    right = None if entry is None else entry["fraud_probability"]
    show.expect(right is not None and abs(probability - right) < 1e-5, f"{right or 'an error'} is right")


def hammered(show: Show, clients: int, midway: Callable[[], None] | None = None) -> list[Reply]:
    records = [{"payment": entry["payment"]} for entry in show.payments]
    return asyncio.run(hammer(show.server.port, "fraud", records, clients=clients, seconds=LOAD_S, midway=midway))


def compare(show: Show, replies: list[Reply], alone: list[float]) -> None:
    """Every reply against the answer that the same payment got when nothing else was asked."""
    failed = sum("fraud_probability" not in reply.outputs for reply in replies)
    differences = (abs(reply.outputs.get("fraud_probability", 0.0) - alone[reply.record]) for reply in replies)
    most = max(differences)
    show.screen.say(
        f"  {len(replies)} answers, {failed} failed; largest difference from the same payment alone: {most:g}"
    )
    show.expect(not failed and most <= 1e-6, "every answer equals the one alone")


def under_load(show: Show, alone: list[float]) -> None:
    """Strangers share batches, and nobody can tell from the answers."""
    show.screen.say(f"\n5. Under load: {LOAD_S:g} s of {PAYMENTS} clients, each waiting for its answer", "bold cyan")
    before = show.batches()[-1]["id"]
    replies = hammered(show, PAYMENTS)
    times_ms = sorted(1000 * (reply.came_s - reply.sent_s) for reply in replies)
    p50, p99 = (times_ms[int(len(times_ms) * share)] for share in (0.5, 0.99))
    rate = len(replies) / (max(reply.came_s for reply in replies) - min(reply.sent_s for reply in replies))
    cpus = len(os.sched_getaffinity(0))
    show.screen.say(f"  {rate:.0f} answers/s, p50 {p50:.0f} ms, p99 {p99:.0f} ms; server and clients share {cpus} CPUs")
    compare(show, replies, alone)
    batches = show.batches(after=before)
    show.screen.say(f"  The last {len(batches)} batches by their rows:")
    counts = {name: sum(low <= batch["rows"] <= high for batch in batches) for name, (low, high) in SIZES.items()}
    show.screen.bars([(name, number, str(number)) for name, number in counts.items()])
    for reason, number in Counter(batch["reason"] for batch in batches).most_common():
        show.screen.say(f"  {number} left because: {WHY.get(reason, reason)}")


def killed(show: Show, alone: list[float]) -> None:
    """The process that computes dies, and only a clock can tell."""
    clients = PAYMENTS // 4
    show.screen.say(f"\n6. SIGKILL to the fraud worker while {clients} clients wait for it", "bold cyan")
    worker = show.fraud_worker()
    killed_s: list[float] = []

    def kill() -> None:
        os.kill(worker["pid"], signal.SIGKILL)
        killed_s.append(monotonic_s())

    replies = hammered(show, clients, kill)
    came_s = killed_s + sorted(reply.came_s for reply in replies if reply.came_s > killed_s[0])
    silence_s = max(later - earlier for earlier, later in pairwise(came_s))
    waiting = [reply for reply in replies if reply.sent_s < killed_s[0] < reply.came_s]
    receipts = [show.get(f"{show.server.admin_url}/receipts/{reply.request_id}") for reply in waiting]
    again = sum(receipt["batches"][0]["reason"] == "rerun_alone" for receipt in receipts)
    now = show.fraud_worker()
    show.screen.say(f"  process {worker['pid']} is dead, process {now['pid']} has taken its place")
    show.screen.say(
        f"  {len(waiting)} requests were waiting; {again} of them were lost with it and run again, each alone"
    )
    compare(show, replies, alone)
    show.screen.say(f"  {1000 * silence_s:.0f} ms without an answer; no client had to send anything twice")
    show.expect(now["deaths"] == worker["deaths"] + 1, "one worker died")


def what_next(show: Show) -> None:
    """Lines to paste; every one works while the demo is up."""
    url, admin = show.server.url, show.server.admin_url
    payment = json.dumps({"payment": show.payments[0]["payment"]})
    receipt = show.client.predict("sentences", {"text": QUERY}).request_id
    program = "forwardpass" if shutil.which("forwardpass") else f"{sys.executable} -m forwardpass"
    say_json = "-H 'Content-Type: application/json'"
    show.screen.say(f"\nYour turn: the server is up at {url}, its operator's side at {admin}", "bold cyan")
    for line in (
        f"curl -s '{url}/predict/fraud?receipt=full' {say_json} -d '{payment}'",
        f'curl -s {url}/predict/sentences {say_json} -d \'{{"text": "{QUERY}"}}\'',
        f"curl -s {url}/predict/filetype -H 'Content-Type: application/octet-stream' --data-binary @{sys.argv[0]}",
        f"{program} receipt {receipt} --url {admin}",
        f"curl -s {url}/v2/models/fraud/batches",
        f"curl -s {admin}/status",
        f"curl -s {admin}/metrics",
    ):
        show.screen.paste(f"  {line}")


def show_all(show: Show) -> None:
    sentences(show)
    filetype(show)
    reading(show)
    fraud(show)
    answers = [show.client.predict("fraud", {"payment": entry["payment"]}) for entry in show.payments]
    alone = [answer.outputs["fraud_probability"] for answer in answers]
    under_load(show, alone)
    killed(show, alone)
    what_next(show)


def run(models: Path, *, once: bool) -> int:
    screen = Screen()
    reference = models / "fraud" / "1" / "reference.json"
    if not reference.exists():
        raise Ended(f"{models} does not hold the examples; build them: python examples/build.py")
    payments = json.loads(reference.read_text())[:PAYMENTS]
    screen.say(f"forwardpass serve {models}/{{{','.join(SHOWN)}}}", "bold")
    with (
        serving([models / name for name in SHOWN], models.parent / "data") as server,
        Client(server.url, retries=RetryBudget(attempts_max=1)) as client,
        httpx.Client(timeout=10.0) as http,
    ):
        show = Show(screen, server, client, http, payments)
        with screen.busy("  loading; trying known answers; testing that strangers may share a batch ..."):
            wait_until_ready(show)
        show_all(show)
        if not once:
            screen.say("Ctrl-C ends it.")
            try:
                raise Ended(f"the server ended with status {server.process.wait()}; see {server.log}")
            except KeyboardInterrupt:
                screen.say("\nstopping ...")
    return 1 if show.wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="?", type=Path, default=MODELS, help="what build.py made (%(default)s)")
    models = parser.parse_args().models
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)  # however the demo is ended, it ends its server
    try:
        return run(models, once=os.environ.get("DEMO_ONCE") == "1")
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT
    except (Ended, ForwardpassError, httpx.HTTPError, OSError) as error:
        print(f"the demo cannot go on: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
