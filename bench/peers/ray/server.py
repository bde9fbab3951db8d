"""Ray Serve: one replica that batches, behind one proxy."""

import os
from typing import Any

import ray
from bench.peers.shared.network import BATCH, WORKERS, network
from ray import serve
from starlette.requests import Request
from starlette.responses import Response


@serve.deployment(num_replicas=WORKERS, max_ongoing_requests=256)
class Served:
    def __init__(self) -> None:
        self.network = network()

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=0.001)
    async def run(self, items: list[Any]) -> list[Any]:
        return self.network.run(items)

    async def __call__(self, request: Request) -> Response:
        answer = await self.run(self.network.decode(await request.body()))
        return Response(self.network.encode(answer), media_type="application/json")


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(os.environ["PORT"])})
    serve.run(Served.bind(), blocking=True)  # type: ignore[attr-defined]  # the decorator has made it a deployment
