"""mosec: its Rust front batches, workers are processes."""

from collections.abc import Sequence
from typing import Any

from bench.peers.shared.network import BATCH, WORKERS, WORKLOAD, network
from mosec import Server, Worker


class Served(Worker):
    resp_mime_type = "application/octet-stream" if WORKLOAD in ("image", "tabular_binary") else "application/json"

    def __init__(self) -> None:
        self.network = network()

    def deserialize(self, data: bytes) -> Any:
        return self.network.decode(data)

    def forward(self, data: Sequence[Any]) -> list[Any]:
        return self.network.run(data)

    def serialize(self, data: Any) -> bytes:
        return self.network.encode(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(Served, num=WORKERS, max_batch_size=BATCH, max_wait_time=1)
    server.run()
