"""What a run of ``make bench-peers`` makes of what it measured: which figure counts, and against whom."""

from pathlib import Path
from typing import Any

import pytest
from bench.page import put
from bench.peers.bars import figures
from bench.peers.found import Found
from bench.peers.plan import BESIDE, MAIN, Plan
from bench.peers.registry import ALL
from bench.sampling.parts import OTHER, part_of, shares, way_text

SOURCE = Path(__file__).parents[2] / "src" / "forwardpass"


def life(peer: str, round: int, rate: float, failures: int = 0) -> dict[str, Any]:
    cell = {
        "rate_per_s": rate,
        "p50_s": 1 / rate,
        "p99_s": 2 / rate,
        "cpu_us": 10.0,
        "failures": failures,
        "valid": True,
    }
    closed = [{"connections": connections, **cell} for connections in (1, 16, 64)]
    opened = [{"share": 0.7, **cell, "valid": failures == 0}]
    return {"round": round, "workload": "tabular", "peer": peer, "failed": "", "closed": closed, "open": opened}


def found(*lives: dict[str, Any]) -> Found:
    peers = {name: {"native": name == "triton", "missing": "", "note": ""} for name in ("forwardpass", "triton", "ray")}
    return Found({"peers": peers, "lives": list(lives), "limits": []})


def figure(found: Found, *words: str) -> Any:
    return next(each for each in figures(found) if all(word in each.name for word in words))


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    """The machine halves its speed in the second round: both have half, and the ratio is what it was."""
    rounds = [life("forwardpass", 0, 300), life("triton", 0, 200), life("forwardpass", 1, 150), life("triton", 1, 100)]
    best = figure(found(*rounds), "64 connections", "best peer's")
    assert (best.value, best.met) == (1.5, True)


def test_the_best_python_peer_is_not_the_one_whose_front_is_native() -> None:
    every = found(life("forwardpass", 0, 300), life("triton", 0, 200), life("ray", 0, 60))
    assert figure(every, "16 connections", "best peer's").value == pytest.approx(1.5)
    assert figure(every, "16 connections", "best Python peer's").value == pytest.approx(5)


def test_a_cell_with_failures_or_a_late_client_is_no_figure_and_its_bar_is_missed() -> None:
    every = found(life("forwardpass", 0, 300, failures=1), life("triton", 0, 200))
    for words in (("64 connections", "best peer's"), ("tabular", "open loop")):
        missed = figure(every, *words)
        assert not missed.met
        assert "not available" in missed.spread


def test_fewer_answers_than_connections_are_no_figure() -> None:
    few = life("forwardpass", 0, 300)
    few["closed"][2]["valid"] = False
    assert not figure(found(few, life("triton", 0, 200)), "64 connections", "best peer's").met
    assert found(few).failures() == ["forwardpass, tabular, round 1, 64 connections: fewer answers than connections"]


def test_what_failed_is_told_with_the_round_and_the_load() -> None:
    assert (
        found(life("ray", 1, 5, failures=3)).failures()[0] == "ray, tabular, round 2, 1 connections: 3 requests failed"
    )


def test_the_whole_run_is_planned_for_at_most_25_minutes() -> None:
    assert Plan(ALL, (*MAIN, *BESIDE), rounds=3, seconds=2.0).takes_s() <= 25 * 60


def test_every_round_measures_every_peer_once_and_begins_with_another_one() -> None:
    plan = Plan(ALL, MAIN[:1], rounds=3, seconds=1.0)
    orders = [[life.peer.name for life in plan.lives(round)] for round in range(3)]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)
    assert len({order[0] for order in orders}) == 3


def test_a_new_run_keeps_what_was_written_by_hand(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- peers: begin, written by a program -->\nold\n<!-- peers: end -->\nafter\n")
    put("peers", "new", page)
    put("peers", "newer", page)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("<!-- peers: end -->\nafter\n")
    assert "newer" in text and "old" not in text


def test_a_page_without_the_part_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("nothing")
    with pytest.raises(ValueError, match="has no part 'peers'"):
        put("peers", "new", tmp_path / "page.md")


@pytest.mark.parametrize(
    "folder", ["ingress", "pipeline", "batching", "execution", "observe", "admit", "cache", "rollout"]
)
def test_every_function_on_a_requests_way_belongs_to_a_part(folder: str) -> None:
    files = [str(file.relative_to(SOURCE)) for file in (SOURCE / folder).rglob("*.py")]
    assert files and not [file for file in files if part_of(f"{file}:do") == OTHER]


def test_the_shares_of_the_parts_are_of_all_that_was_seen() -> None:
    seen = {"ingress/http.py:data_received": 3, "batching/queue.py:put": 1, "ingress/writer.py:write": 4}
    assert shares(seen) == {"write": 0.5, "framing": 0.375, "queue": 0.125}


def test_a_row_says_which_way_its_requests_went() -> None:
    assert way_text({"Bundles.join": 8, "Direct.alone": 2, "Exchange.begun": 3, "DataPlane.respond": 1}) == (
        "bundled 60%, by itself 30%, the long way 10%"
    )
