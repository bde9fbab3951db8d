"""A run of ``make bench-peers`` keeps what it has found, whatever becomes of one server or of itself."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench.load.served import NotServed, Question, free_port, served
from bench.peers import measure
from bench.peers.models import answer, make
from bench.peers.peer import Launch, Layout, Peer
from bench.peers.plan import Plan
from bench.peers.registry import ALL
from bench.peers.run import Run, resumed


def peer(name: str, program: str, start_limit_s: float = 1.0) -> Peer:
    def start(model: str, port: int, layout: Layout) -> Launch:
        return Launch((sys.executable, "-c", program, str(port)), {})

    like = next(each for each in ALL if each.name == "fastapi")
    return replace(like, name=name, forms={"tabular_binary": "floats"}, start=start, start_limit_s=start_limit_s)


def run_of(peers: list[Peer], output: Path, limit_s: float = 60.0) -> Run:
    found: dict[str, Any] = {"peers": {each.name: {} for each in peers}, "seconds": 1, "rounds": 1, "models": []}
    found |= {"lives": [], "limits": [], "layouts": [], "took_s": 0.0, "left_out": [], "machine": {}}
    return Run(Plan(peers, ["tabular_binary"], 1, 1.0), found, output, limit_s)


@pytest.fixture(scope="module", autouse=True)
def models() -> None:
    make()


def test_a_server_that_fails_and_one_that_hangs_leave_the_others_their_turn(tmp_path: Path) -> None:
    ends, hangs = peer("ends", "raise SystemExit(3)"), peer("hangs", "import time; time.sleep(60)")
    run_of([ends, hangs, replace(ends, name="last")], tmp_path / "found.json").all()
    lives = json.loads((tmp_path / "found.json").read_text())["lives"]
    assert [life["peer"] for life in lives] == ["ends", "hangs", "last"]
    assert "status 3" in lives[0]["failed"] and "nobody listens" in lives[1]["failed"]


def test_what_there_is_no_time_for_is_left_out_and_said(tmp_path: Path) -> None:
    run = run_of([peer("ends", "raise SystemExit(3)")], tmp_path / "found.json", limit_s=1.0)
    run.all()
    assert (run.found["lives"], run.found["left_out"]) == ([], ["ends, tabular_binary, round 1: no time left"])


def test_a_run_that_is_resumed_keeps_whole_lives_and_measures_the_others(tmp_path: Path) -> None:
    output, ends = tmp_path / "found.json", peer("ends", "raise SystemExit(3)")
    other = replace(ends, name="other")
    first = run_of([ends, other], output)
    first.all()
    first.found["lives"][0]["mark"] = "kept"
    first.found["lives"][1]["done"] = False
    output.write_text(json.dumps(first.found))
    second = run_of([ends, other], output)
    second.found |= resumed(second.found, output)
    second.all()
    assert [(life["peer"], life.get("mark"), life["done"]) for life in second.found["lives"]] == [
        ("ends", "kept", True),
        ("other", None, True),
    ]


def test_a_run_of_another_plan_is_not_resumed(tmp_path: Path) -> None:
    output = tmp_path / "found.json"
    run = run_of([peer("ends", "raise SystemExit(3)")], output)
    output.write_text(json.dumps(run.found | {"rounds": 7}))
    with pytest.raises(SystemExit, match="rounds = 7"):
        resumed(run.found, output)


@pytest.mark.alone  # SIGALRM has one owner in a process, and a fuzzer takes it for itself
def test_what_takes_too_long_is_ended_with_a_word() -> None:
    with pytest.raises(TimeoutError, match="not done after"), measure.within(0.1):
        subprocess.run(["sleep", "30"], check=False)


def test_a_server_has_the_time_to_start_that_it_is_given(tmp_path: Path) -> None:
    def wrong(status: int, headers: Mapping[str, str], body: bytes) -> str:
        return ""

    asked = Question("/", b"", {}, wrong)
    command = (shutil.which("sleep") or "sleep", "30")
    log = tmp_path / "log"
    with (
        pytest.raises(NotServed, match="nobody listens"),
        served(command, {}, tmp_path, free_port(), asked, log, start_limit_s=0.2),
    ):
        pass


SERVER = """
import sys, http.server
class Served(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = bytes.fromhex(ANSWER)
        self.send_response(200); self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", "4"); self.end_headers(); self.wfile.write(body)
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer.request_queue_size = 128
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Served).serve_forever()
"""


@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_a_server_that_gives_everybody_the_first_ones_answer_has_no_figures(tmp_path: Path) -> None:
    first = answer("tabular_binary", 0).astype("<f4").tobytes().hex()
    program = SERVER.replace("ANSWER", repr(first))
    run = run_of([peer("same", program, start_limit_s=20.0)], tmp_path / "found.json")
    run.all()
    (life,) = run.found["lives"]
    assert life["failed"].startswith("31 of 32 asked at once: a wrong answer")
    assert "closed" not in life
