"""BentoML: adaptive batching; one file for both of its workloads, as its inputs are declared."""

from typing import Any

import bentoml
import numpy as np
from bench.peers.shared.network import BATCH, WORKERS, session

QUIET: Any = {"access": {"enabled": False}}


@bentoml.service(workers=WORKERS, traffic={"timeout": 30}, logging=QUIET)
class Rows:
    def __init__(self) -> None:
        self.session = session("tabular")

    @bentoml.api(batchable=True, max_batch_size=BATCH, max_latency_ms=1000)
    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.session.run(None, {"x": x.astype(np.float32)})[0]


@bentoml.service(workers=WORKERS, traffic={"timeout": 30}, logging=QUIET)
class Tokens:
    def __init__(self) -> None:
        self.session = session("minilm")

    @bentoml.api(batchable=True, max_batch_size=BATCH, max_latency_ms=1000)
    def predict(self, ids: np.ndarray) -> np.ndarray:
        """A row holds the token ids and then the mask: only one argument can be batched."""
        tokens: Any = ids.astype(np.int64).reshape(len(ids), 2, -1)
        return self.session.run(None, {"input_ids": tokens[:, 0], "attention_mask": tokens[:, 1]})[0]
