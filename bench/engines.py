"""What engines and the worker around them cost: python bench/engines.py [--rounds N]

Needs the built examples (``make examples``) and the extra ``openvino``. Everything is measured in pairs that take
turns, so that the ratios hold on a machine that is not always as quick; every figure is printed with its bar, met or
missed, and the last line is the summary.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
from bench.figures import MODELS, Figure, say, summarise  # noqa: E402
from bench.tabular import write_tabular  # noqa: E402

from forwardpass.core.pipeline import Batch, Pipeline, Step, Version  # noqa: E402
from forwardpass.engines.discover import engine_kind  # noqa: E402
from forwardpass.engines.protocol import Arrays, Engine, ModelFile  # noqa: E402
from forwardpass.execution import wire  # noqa: E402
from forwardpass.execution.choosing import tried  # noqa: E402
from forwardpass.execution.duel import answers_of  # noqa: E402
from forwardpass.execution.plan import Plan, build  # noqa: E402
from forwardpass.execution.states import States  # noqa: E402
from forwardpass.execution.wire import Kind, Run  # noqa: E402
from forwardpass.execution.worker import Worker  # noqa: E402

CORES = 2
TOLERANCE = {"absolute": 0.02, "cosine": 0.999}
TURN_BAR_US = 60.0
ITEMS = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each; medians are reported")
    arguments = parser.parse_args()
    if not (MODELS / "sentences").is_dir():
        sys.exit("the examples are not built: make examples")
    figures: list[Figure] = []
    tokens = np.random.default_rng(0).integers(1000, 20_000, (16, 32))
    text = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
    photos = {"input:0": np.random.default_rng(0).normal(size=(8, 224, 224, 3)).astype(np.float32)}
    for name, file, batch in (
        ("embedding", MODELS / "sentences" / "1" / "model.onnx", text),
        ("image", MODELS / "safety" / "1" / "open_nsfw.onnx", photos),
    ):
        figures.append(chosen(name, file, batch, arguments.rounds))
        figures.append(layouts(name, file, batch, arguments.rounds))
        figures.append(optimised_graph(name, file, arguments.rounds))
    figures.append(python_per_batch(arguments.rounds))
    summarise(figures)


def chosen(name: str, file: Path, batch: Arrays, rounds: int) -> Figure:
    """What ``engine = "auto"`` takes against onnxruntime as it is, rows per second in one worker with every core."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copyfile(file, Path(folder) / "m.onnx")
        step = Step("model", {"engine": "auto", "file": "m.onnx", "tolerance": TOLERANCE})
        plan = build(
            Version(name, 1, "0" * 64, folder, Pipeline((step,), batch=Batch(tolerance=TOLERANCE["absolute"]))),
            threads=CORES,
        )
        tried(plan.unguarded(), 32)
        settings = dict(plan.settings[0])
        for line in settings.pop("auto"):
            print(f"  {line}")
        plan.close()
    engine, threads = settings.pop("engine"), settings.pop("threads")
    first, second = loaded("onnxruntime", file, CORES), loaded(engine, file, threads, **settings)
    ratios = by_turns(lambda: seconds(first, batch), lambda: seconds(second, batch), rounds)
    what = f"{engine}, {threads} threads"
    return say(
        Figure(f"{name}: auto ({what}) against onnxruntime", median(ratios), "times", 1.6, False, spread(ratios))
    )


def layouts(name: str, file: Path, batch: Arrays, rounds: int) -> Figure:
    """Two sessions of one thread at once against one session of two threads, rows per second."""
    pair = [loaded("onnxruntime", file, 1) for _ in range(CORES)]
    whole = loaded("onnxruntime", file, CORES)
    with ThreadPoolExecutor(CORES) as pool:

        def both() -> float:
            started = time.perf_counter()
            list(pool.map(lambda engine: answers_of(engine, [batch]), pair))
            return (time.perf_counter() - started) / CORES

        ratios = by_turns(lambda: seconds(whole, batch), both, rounds)
    return say(
        Figure(f"{name}: 2 workers x 1 thread against 1 x 2", median(ratios), "times", 1.0, False, spread(ratios))
    )


def optimised_graph(name: str, file: Path, rounds: int) -> Figure:
    """How much sooner a session is there when the optimised graph lies ready: the most that keeping it could save."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "optimised.onnx"
        session(file, {}, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL, kept)
        plain = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        full = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        saved = [session(file, {}, full) - session(kept, {}, plain) for _ in range(rounds)]
    ms = [second * 1000 for second in saved]
    # The worker's box lets it write nothing: below a tenth of a second that is not worth a hole in it.
    return say(Figure(f"{name}: load time that a kept graph would save", median(ms), "ms", 100.0, True, spread(ms)))


def session(file: Path, entries: Mapping[str, str], level: Any, kept: Path | None = None) -> float:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.intra_op_num_threads = CORES
    options.log_severity_level = 4
    if kept is not None:
        options.optimized_model_filepath = str(kept)
    started = time.perf_counter()
    onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return time.perf_counter() - started


def python_per_batch(rounds: int) -> Figure:
    """CPU of the worker's thread for one batch of the tabular network, from frame to frame, beyond the model's own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "m.onnx"
        write_tabular(file)
        step = Step("model", {"engine": "onnxruntime", "file": "m.onnx"})
        version = Version("tabular", 1, "0" * 64, folder, Pipeline((step,)))
        front, end = wire.pair()
        front.setblocking(True)
        plan = build(version, threads=1)
        worker = Timed(end)
        rows = np.random.default_rng(0).random((ITEMS, 30), np.float32)
        run = wire.encode(Run(1, [1] * ITEMS, [[(30,)]], [rows.nbytes], until=[float("inf")] * ITEMS))
        model = loaded("onnxruntime", file, 1)
        beyond: list[float] = []
        with front, end:
            for _ in range(rounds):
                spent: list[float] = []
                alone: list[float] = []
                for _ in range(1000):
                    wire.send(front, Kind.RUN, run, [rows.data.cast("B")])
                    spent.append(thread_us(lambda: worker.turn(plan)))
                    wire.receive(front)
                    alone.append(thread_us(lambda: answers_of(model, [{"x": rows}])))
                beyond.append(median(spent) - median(alone))
    name = f"tabular: Python per batch of {ITEMS} requests, beyond the model"
    return say(Figure(name, median(beyond), "us of CPU", TURN_BAR_US, True, spread(beyond)))


class Timed(Worker):
    """A worker whose turns are taken one by one, in the caller's thread."""

    def turn(self, plan: Plan) -> None:
        self._states = States(None)
        self._turn(plan)


def thread_us(call: Callable[[], object]) -> float:
    started = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - started) / 1000


def loaded(name: str, file: Path, threads: int, **options: Any) -> Engine:
    kind = engine_kind(name)
    engine = kind.make()
    engine.load(ModelFile(str(file), kind.settings(options), threads))
    return engine


def seconds(engine: Engine, batch: Arrays) -> float:
    started = time.perf_counter()
    answers_of(engine, [batch])
    return time.perf_counter() - started


def by_turns(first: Callable[[], float], second: Callable[[], float], rounds: int) -> list[float]:
    """How many times as quick the second is, turn by turn, after one of each that does not count."""
    first(), second()
    return [first() / second() for _ in range(rounds)]


def spread(values: list[float]) -> str:
    return f"{min(values):.3g} to {max(values):.3g}, {len(values)} turns"


if __name__ == "__main__":
    main()
