"""FastAPI by hand: a process a core, each with its own session, one request at a time in it."""

from bench.peers.shared.network import WORKLOAD, network
from fastapi import FastAPI, Request, Response

served = network()
app = FastAPI()
media_type = "application/octet-stream" if WORKLOAD in ("image", "tabular_binary") else "application/json"


@app.post("/predict")
async def predict(request: Request) -> Response:
    (answer,) = served.run([served.decode(await request.body())])
    return Response(served.encode(answer), media_type=media_type)
