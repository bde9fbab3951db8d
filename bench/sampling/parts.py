"""Which part of a request's way a function of the server belongs to, by the file it stands in; the first that fits."""

from collections import Counter
from collections.abc import Mapping

LOOP = "the event loop"
OTHER = "other"

PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("event loop and system calls", (LOOP,)),
    ("write", ("ingress/writer", "ingress/compression")),
    ("encode", ("ingress/dialects/v2_answer", "ingress/dialects/predictions", "execution/answers",
                "ingress/dialects/v2_repeated.py:_printed", "ingress/dialects/v2_repeated.py:texts_of")),
    ("decode", ("ingress/dialects/", "ingress/strict_json", "ingress/unpacking", "core/tensor", "core/request")),
    ("identity", ("ingress/identity/", "ingress/edge", "core/caller", "store/", "ingress/cors")),
    ("limits", ("ingress/rates", "ingress/in_flight", "admit/", "batching/admission",
                "pipeline/charge", "pipeline/priority")),
    ("framing", ("ingress/http", "ingress/message", "ingress/framing", "ingress/splitter",
                 "ingress/connections", "ingress/sockets")),
    ("books", ("observe/", "pipeline/books", "core/timeline")),
    ("scatter", ("batching/executed", "batching/ticket", "pipeline/joining")),
    ("hand-off", ("execution/",)),
    ("cache", ("cache/", "rollout/item_cache")),
    ("queue", ("batching/",)),
    ("routing and stages", ("ingress/", "pipeline/", "rollout/")),
)  # fmt: skip


def part_of(function: str) -> str:
    """``function``: file and name, as sampling/sitecustomize.py writes them."""
    return next((part for part, files in PARTS if function.startswith(files)), OTHER)


def shares(seen: Mapping[str, int]) -> dict[str, float]:
    """Of all that was seen, the part that each has; the largest first."""
    counted: Counter[str] = Counter()
    for function, times in seen.items():
        counted[part_of(function)] += times
    return {part: times / counted.total() for part, times in counted.most_common()}


def way_text(calls: Mapping[str, int]) -> str:
    """How many requests went which way, from how often the functions were called that a request passes once."""
    joined, apart = calls.get("Bundles.join", 0), calls.get("Direct.alone", 0)
    ways = {
        "bundled": joined - apart,
        "by itself": calls.get("Exchange.begun", 0),
        "the long way": calls.get("DataPlane.respond", 0),
    }
    total = sum(ways.values())
    return ", ".join(f"{way} {count / total:.0%}" for way, count in ways.items() if count) or "unknown"
