"""LitServe: batches in a worker process."""

import os
from collections.abc import Sequence
from typing import Any

import litserve
from bench.peers.shared.network import BATCH, WORKERS, network


class Served(litserve.LitAPI):
    def setup(self, device: str) -> None:
        self.network = network()

    def decode_request(self, request: dict[str, Any]) -> Any:  # it must be called "request"
        return self.network.item(request)

    def batch(self, inputs: Sequence[Any]) -> Sequence[Any]:
        return inputs

    def predict(self, x: Sequence[Any]) -> list[Any]:
        return self.network.run(x)

    def unbatch(self, output: list[Any]) -> list[Any]:
        return output

    def encode_response(self, output: Any) -> dict[str, Any]:
        return {"y": output.tolist()}


if __name__ == "__main__":
    api = Served(max_batch_size=BATCH, batch_timeout=0.001)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=WORKERS, fast_queue=True)
    server.run(
        host="127.0.0.1",
        port=int(os.environ["PORT"]),
        num_api_servers=1,
        generate_client_file=False,
        log_level="warning",
    )
