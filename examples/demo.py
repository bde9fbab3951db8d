"""Serve the built examples and show what the server does with them: python examples/demo.py [MODELS] [--data FOLDER]

It stays up until Ctrl-C; with DEMO_ONCE=1 it ends after the show. The exit status is 1 when an answer was wrong.
"""

import argparse
import asyncio
import gzip
import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import wave
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this file may run as a script

from examples.showing import Screen
from forwardpass.client import Client, ForwardpassError, Prediction, RequestError, RetryBudget
from forwardpass.core.clock import monotonic_s, pause

WORK = Path(__file__).resolve().parent / ".work"
START_LIMIT_S = 120.0
STOP_LIMIT_S = 15.0
LOAD_S = 2.0
CONNECTIONS, FEW = 64, 16
INTERRUPTED_EXIT = 130

QUERY = "A man is eating pasta."
COSINES = {  # as the model's authors publish them
    "A man is eating food.": 0.7035,
    "A man is eating a piece of bread.": 0.5272,
    "A man is riding a horse.": 0.1889,
    "A cheetah is running behind its prey.": 0.0980,
}
REASONS = {
    "worker_free": "a worker was free: take what waits",
    "rows_max": "full",
    "rerun_alone": "its first batch was lost",
}
SIZES = ((1, 1), (2, 7), (8, 15), (16, 31), (32, 32))


class Ended(Exception):
    """The show cannot go on. The text says why."""


@dataclass(frozen=True, slots=True)
class Server:
    process: "subprocess.Popen[bytes]"
    port: int
    admin_port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self.admin_port}"


@dataclass(slots=True)
class Show:
    """What every story needs. ``wrong`` counts answers that were not the known right ones."""

    screen: Screen
    server: Server
    client: Client
    http: httpx.Client
    payments: list[dict[str, Any]]  # with scikit-learn's own "fraud_probability"
    wrong: int = 0

    def expect(self, right: bool, what: str) -> None:
        if not right:
            self.wrong += 1
            self.screen.say(f"  WRONG: {what}", "bold red")

    def get(self, url: str) -> Any:
        return self.http.get(url).raise_for_status().json()

    def batches_after(self, last: int) -> list[dict[str, Any]]:
        """Reports of the fraud pipeline's latest batches, those with a higher id than ``last``."""
        return [b for b in self.get(f"{self.server.url}/v2/models/fraud/batches")["batches"] if b["id"] > last]

    def last_batch(self) -> int:
        return max((batch["id"] for batch in self.batches_after(0)), default=0)

    def fraud_worker(self) -> dict[str, Any]:
        versions = self.get(f"{self.server.admin_url}/status")["versions"]
        worker: dict[str, Any] = next(v for v in versions if v["pipeline"] == "fraud")["workers"][0]
        return worker


@contextmanager
def serving(models: Path, data: Path) -> Iterator[Server]:
    """The server as a process of its own; asked to end when the block is left, and made to if it does not."""
    data.mkdir(parents=True, exist_ok=True)
    port, admin_port = _port(8000), _port(8001)
    command = [sys.executable, "-m", "forwardpass", "serve", str(models), "--port", str(port)]
    command += ["--admin-port", str(admin_port), "--set", f"run.data={data}"]
    command += ["--set", "run.ready_grace_s=0", "--set", "run.log=text"]
    log = data / "server.log"
    with log.open("wb") as sink:  # a session of its own: Ctrl-C here is not a Ctrl-C there
        process = subprocess.Popen(command, stdout=sink, stderr=sink, start_new_session=True)
    try:
        yield Server(process, port, admin_port, log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _port(preferred: int) -> int:
    """The preferred port, or any when somebody has it."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise Ended("no port is free")


def wait_until_ready(show: Show) -> None:
    """Says which version is ready as it becomes so. Raises Ended when the server ends or takes too long."""
    started, told = monotonic_s(), set()
    while monotonic_s() - started < START_LIMIT_S:
        if show.server.process.poll() is not None:
            raise Ended(f"the server ended:\n{show.server.log.read_text()[-2000:]}")
        pause(0.05)
        try:
            status = show.get(f"{show.server.admin_url}/status")
        except httpx.TransportError:
            continue
        for version in status["versions"]:
            if version["ready"] and version["pipeline"] not in told:
                told.add(version["pipeline"])
                digest = version["digest"][:12]
                show.screen.say(
                    f"  {version['pipeline']:10} ready: loaded, tried and tested in {version['load_s']:.1f} s, digest {digest}"
                )
        if status["ready"]:
            show.screen.say(f"  all ready {monotonic_s() - started:.1f} s after the start")
            return
    raise Ended(f"not ready after {START_LIMIT_S:.0f} s; see {show.server.log}")


def sentences(show: Show) -> None:
    """What alike texts have in common, and where the time of one answer went."""
    show.screen.title(1, f'Sentences: which one is most like "{QUERY}"')
    found = show.client.predict_many("sentences", [{"text": text} for text in COSINES])
    asked = show.client.predict("sentences", {"text": QUERY}, receipt=True)
    rows = []
    for (text, right), answer in zip(COSINES.items(), found, strict=True):
        assert isinstance(answer, Prediction), answer
        pairs = zip(asked.outputs["embedding"], answer.outputs["embedding"], strict=True)
        cosine = sum(a * b for a, b in pairs)
        rows.append((f"{text:40}", cosine, f"{cosine:.3f}"))
        show.expect(abs(cosine - right) < 1e-3, f"{right} is right")
    show.screen.bars(rows)
    receipt = asked.receipt or {}
    times = dict(receipt["timings_us"])
    batch = receipt["batches"][0]
    show.screen.say(f"  Its receipt {receipt['id']}: {times.pop('total')} us from last byte to answer,")
    show.screen.say(f"  batch of {batch['rows']} ({REASONS[batch['reason']]}), repeatable: {receipt['repeatable']}")
    show.screen.bars([(name, us, f"{us} us") for name, us in times.items()])


def filetype(show: Show) -> None:
    """Real files, sent as they are."""
    show.screen.title(2, "File type: the bytes alone, as a raw body; no name, no extension")
    for right, (media, content) in files().items():
        headers = {"Content-Type": media}
        url = f"{show.server.url}/predict/filetype"
        answer = show.http.post(url, content=content, headers=headers).raise_for_status().json()["outputs"]
        show.screen.say(f"  {len(content):7} bytes of {media:25} -> {answer['label']:8} score {answer['score']:.4f}")
        show.expect(answer["label"] == right, f"{right} is right")


def files() -> dict[str, tuple[str, bytes]]:
    """The right label -> a content type and the content."""
    source = Path(__file__).read_bytes()
    sound = io.BytesIO()
    with wave.open(sound, "wb") as writer:
        writer.setparams((1, 2, 16_000, 0, "NONE", ""))
        writer.writeframes(b"".join(struct.pack("<h", 300 * (n % 64 - 32)) for n in range(8000)))
    with Path(sys.executable).open("rb") as program:
        head = program.read(1 << 20)
    raw = "application/octet-stream"
    return {
        "png": ("image/png", png()),
        "python": (raw, source),
        "gzip": (raw, gzip.compress(source)),
        "wav": ("audio/wav", sound.getvalue()),
        "elf": (raw, head),
    }


def png() -> bytes:
    """A picture of 64 by 64 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + bytes(x * y % 256 for x in range(64 * 3)) for y in range(64))
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def fraud(show: Show) -> None:
    """Right answers, and errors that say what is wrong with which value."""
    show.screen.title(3, "Fraud: two card payments; scikit-learn, which trained the model, says the same")
    ordered = sorted(show.payments, key=lambda entry: float(entry["fraud_probability"]))
    worst, best = ordered[-1], ordered[0]
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
    """Show one outcome; it is right when it is scikit-learn's, or an error where there is no ``entry``."""
    if isinstance(outcome, ForwardpassError):
        show.screen.say(f"    -> {outcome.code}: {outcome.message}", "yellow")
        show.expect(entry is None, "this payment is valid")
        return
    probability = outcome.outputs["fraud_probability"]
    decision = "fraud" if outcome.outputs["fraud"] else "fine"
    show.screen.say(f"    -> {decision}, probability {probability:.6f}")
    show.expect(entry is not None and abs(probability - entry["fraud_probability"]) < 1e-5, f"{entry} is right")


@dataclass(frozen=True, slots=True)
class Reply:
    payment: int
    sent_s: float
    came_s: float
    probability: float | None  # None: an error


async def hammer(show: Show, connections: int, midway: Callable[[], None] | None = None) -> list[Reply]:
    """For LOAD_S, plain connections that send a payment as soon as they have the answer to the last one.

    Plain, because a comfortable client in this same process would be the slowest part of what is measured.
    """
    end_s = monotonic_s() + LOAD_S
    replies: list[Reply] = []

    async def one(first: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", show.server.port)
        for turn in count():
            if monotonic_s() > end_s:
                break
            payment = (first + 7 * turn) % len(show.payments)
            body = json.dumps({"payment": show.payments[payment]["payment"]}).encode()
            head = f"Host: demo\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            sent_s = monotonic_s()
            writer.write(b"POST /predict/fraud HTTP/1.1\r\n" + head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            told = json.loads(await reader.readexactly(length)).get("outputs", {})
            replies.append(Reply(payment, sent_s, monotonic_s(), told.get("fraud_probability")))
        writer.close()

    async with asyncio.TaskGroup() as group:
        for first in range(connections):
            group.create_task(one(first))
        if midway is not None:
            await asyncio.sleep(LOAD_S / 4)
            midway()
    return replies


def wrong_ones(show: Show, replies: list[Reply], alone: list[float]) -> int:
    """How many are not, to the bit, what the same payment got alone; a wrong one is told of."""
    wrong = sum(reply.probability != alone[reply.payment] for reply in replies)
    show.expect(wrong == 0, f"{wrong} of {len(replies)} answers differ from those alone")
    return wrong


def under_load(show: Show, alone: list[float]) -> None:
    """Strangers share batches, and nobody can tell from the answers."""
    show.screen.title(4, f"Under load: {CONNECTIONS} clients at once on the fraud pipeline, {LOAD_S:g} s")
    before = show.last_batch()
    replies = asyncio.run(hammer(show, CONNECTIONS))
    times_ms = sorted(1000 * (reply.came_s - reply.sent_s) for reply in replies)
    p50, p99 = (times_ms[int(len(times_ms) * share)] for share in (0.5, 0.99))
    rate = len(replies) / (max(reply.came_s for reply in replies) - min(reply.sent_s for reply in replies))
    show.screen.say(
        f"  {rate:.0f} answers/s on {os.cpu_count()} CPUs, clients included   p50 {p50:.0f} ms   p99 {p99:.0f} ms"
    )
    if not wrong_ones(show, replies, alone):
        show.screen.say(f"  all {len(replies)} answers equal, to the bit, to those of the same payments alone")
    batches = show.batches_after(before)
    show.screen.say(f"  Sizes of the last {len(batches)} batches, and why they left when they did:")
    for reason, many in Counter(batch["reason"] for batch in batches).most_common():
        show.screen.say(f"    {many:4} {reason}: {REASONS.get(reason, '')}")
    names = [(f"{low}" if low == high else f"{low} to {high}", low, high) for low, high in SIZES]
    sizes = [(name, sum(low <= batch["rows"] <= high for batch in batches)) for name, low, high in names]
    show.screen.bars([(f"{name} rows", many, str(many)) for name, many in sizes])


def killed(show: Show, alone: list[float]) -> None:
    """The process that computes dies, and nobody notices but by the clock."""
    show.screen.title(5, f"SIGKILL to the fraud worker, with {FEW} clients in the middle of their requests")
    before, worker = show.last_batch(), show.fraud_worker()
    killed_s = []

    def kill() -> None:
        os.kill(worker["pid"], signal.SIGKILL)
        killed_s.append(monotonic_s())

    replies = asyncio.run(hammer(show, FEW, kill))
    (at_s,) = killed_s
    flying = [reply for reply in replies if reply.sent_s < at_s < reply.came_s]
    came = [at_s, *sorted(reply.came_s for reply in replies if reply.came_s > at_s)]
    silence_s = max(later - earlier for earlier, later in pairwise(came))
    now = show.fraud_worker()
    again = sum(batch["reason"] == "rerun_alone" for batch in show.batches_after(before))
    show.screen.say(
        f"  process {worker['pid']} killed, process {now['pid']} answers in its place; deaths: {now['deaths']}"
    )
    show.expect(now["deaths"] == worker["deaths"] + 1, "one worker should have died")
    if not wrong_ones(show, replies, alone):
        show.screen.say(
            f"  {len(flying)} requests were in flight: all answered, all right; {again} of them had to run again"
        )
    show.screen.say(
        f"  {silence_s * 1000:.0f} ms until the next answer; {len(replies)} requests in all, none failed, none retried by a client"
    )


def what_next(show: Show) -> None:
    """Lines to paste; every one works while the demo is up."""
    url, admin, say = show.server.url, show.server.admin_url, show.screen.say
    record = json.dumps({"payment": show.payments[0]["payment"]}).replace(" ", "")
    receipt = show.client.predict("sentences", {"text": QUERY}).request_id
    json_type = "-H 'Content-Type: application/json'"
    say()
    say(f"Now you. The server is up: {url} (requests) and {admin} (its operator)", "bold cyan")
    for line in (
        f"curl -s '{url}/predict/fraud?receipt=full' {json_type} -d '{record}'",
        f'curl -s {url}/predict/sentences {json_type} -d \'{{"text":"{QUERY}"}}\'',
        f"curl -s {url}/predict/filetype -H 'Content-Type: application/octet-stream' --data-binary @Makefile",
        f"forwardpass receipt {receipt} --url {admin}",
        f"curl -s {url}/v2/models/fraud/batches",
        f"curl -s {admin}/status",
        f"curl -s {admin}/metrics",
    ):
        show.screen.command(line)


def show_all(show: Show) -> None:
    sentences(show)
    filetype(show)
    fraud(show)
    alone = [
        show.client.predict("fraud", {"payment": entry["payment"]}).outputs["fraud_probability"]
        for entry in show.payments
    ]
    under_load(show, alone)
    killed(show, alone)
    what_next(show)


def run(models: Path, data: Path, *, once: bool) -> int:
    screen = Screen()
    payments = json.loads((models / "fraud" / "1" / "reference.json").read_text())[:64]
    screen.say(f"forwardpass serve {models}", "bold")
    with (
        serving(models, data) as server,
        Client(server.url, retries=RetryBudget(attempts_max=1)) as client,
        httpx.Client(timeout=10.0) as http,
    ):
        show = Show(screen, server, client, http, payments)
        with screen.busy("  each pipeline is loaded, its golden examples tried, its batching tested ..."):
            wait_until_ready(show)
        show_all(show)
        if not once:
            screen.say("Ctrl-C ends the server.")
            try:
                raise Ended(f"the server ended by itself with status {server.process.wait()}; see {server.log}")
            except KeyboardInterrupt:
                screen.say("\nstopping ...")
    return 1 if show.wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "models", nargs="?", type=Path, default=WORK / "models", help="what build.py made (%(default)s)"
    )
    parser.add_argument("--data", type=Path, default=WORK / "data", help="the server's own folder (%(default)s)")
    arguments = parser.parse_args()
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)  # whatever ends the demo, it ends its server first
    try:
        return run(arguments.models, arguments.data, once=os.environ.get("DEMO_ONCE") == "1")
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT
    except (Ended, ForwardpassError, httpx.HTTPError) as error:
        print(f"the demo cannot go on: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
