"""What a model can do in process, without a server: the limit that a server's figures are given as a fraction of."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime

Feeds = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """Sessions that run at once, threads of each, rows of each batch."""

    sessions: int
    threads: int
    batch: int

    def __str__(self) -> str:
        return f"{self.sessions} session(s) x {self.threads} thread(s), batch {self.batch}"


def layouts(batches: Sequence[int]) -> list[Layout]:
    """One session with all cores, and one a core."""
    cores = len(os.sched_getaffinity(0))
    return [Layout(s, t, b) for s, t in sorted({(1, cores), (cores, 1)}) for b in batches]


class InProcess:
    """One ONNX file, run by threads of this process on inputs that are ready."""

    def __init__(self, model: Path, feeds: Callable[[int], Feeds], batches: Sequence[int]) -> None:
        self._model = model
        self._feeds = feeds
        self._batches = batches

    def best(self, seconds: float) -> Layout:
        """The quickest layout of all, by runs of ``seconds`` each."""
        return max(layouts(self._batches), key=lambda layout: self.rows_per_s(layout, seconds))

    def rows_per_s(self, layout: Layout, seconds: float) -> float:
        sessions = [self._session(layout.threads) for _ in range(layout.sessions)]
        feeds = self._feeds(layout.batch)
        for session in sessions:
            session.run(None, feeds)
        counts = [0] * layout.sessions
        started = time.perf_counter()

        def work(index: int) -> None:
            while time.perf_counter() - started < seconds:
                sessions[index].run(None, feeds)
                counts[index] += layout.batch

        running = [threading.Thread(target=work, args=(index,)) for index in range(layout.sessions)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return sum(counts) / (time.perf_counter() - started)

    def _session(self, threads: int) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        return onnxruntime.InferenceSession(str(self._model), options, providers=["CPUExecutionProvider"])
