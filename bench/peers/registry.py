"""Every peer, each with its smallest honest best configuration; ``python bench/peers/registry.py`` lists them.

What is best is taken from the peers' own documentation and from earlier measurements on two cores. Of Triton and mosec,
where it was not settled, each run tries ``tried`` too, and keeps what is quicker there. Triton, mosec and FastAPI are asked
everything; the others, far behind on the smallest model, rows and token ids only.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from bench.load.served import free_port
from bench.peers.environments import python_of
from bench.peers.forwardpass import configuration as forwardpass
from bench.peers.models import WORKLOADS
from bench.peers.peer import PEERS, STARTED, Launch, Layout, Peer, environment_for, served_name
from bench.peers.triton import configuration as triton

RECORD = {"tabular": "record", "tabular_binary": "floats", "minilm": "record", "sentence": "record"}
RECORD |= {"image": "floats", "jpeg": "jpeg", "cascade": "record"}
TRITON_TRIED = {"tabular": [Layout(1, 1, 64)], "minilm": [Layout(1, 2, 16)], "image": [Layout(1, 2, 8)]}
MOSEC_TRIED = {"tabular": [Layout(2, 1, 64)], "minilm": [Layout(1, 2, 16)], "image": [Layout(1, 2, 8)]}
HEAVY = ("minilm", "sentence", "image", "jpeg")


def layouts(small: Layout, heavy: Layout) -> Mapping[str, Layout]:
    return {name: heavy if name in HEAVY else small for name in WORKLOADS}


def only(forms: Mapping[str, str], *wanted: str) -> dict[str, str]:
    return {name: forms[name] for name in wanted}


def at(path: str) -> Callable[[str], str]:
    """A server with one endpoint."""
    return lambda workload: path


def v2_path(workload: str) -> str:
    return f"/v2/models/{served_name(workload)}/infer"


def script(name: str, workload: str, port: int, layout: Layout, *arguments: str) -> Launch:
    environment = environment_for(workload, port, layout)
    return Launch((str(python_of(name)), str(PEERS / name / "server.py"), *arguments), environment)


def module(name: str, program: str, workload: str, port: int, layout: Layout, *arguments: str) -> Launch:
    environment = environment_for(workload, port, layout)
    return Launch((str(python_of(name)), "-m", program, *arguments), environment)


def mosec(workload: str, port: int, layout: Layout) -> Launch:
    where = ("--address", "127.0.0.1", "--port", str(port))
    return script("mosec", workload, port, layout, *where, "--timeout", "30000")  # ms; 3 s are few for 64 at once


def fastapi(workload: str, port: int, layout: Layout) -> Launch:
    serving = (
        "bench.peers.fastapi.server:app",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        str(layout.workers),
    )
    quiet = ("--log-level", "warning", "--no-access-log")
    return module("fastapi", "uvicorn", workload, port, layout, *serving, *quiet)


def litserve(workload: str, port: int, layout: Layout) -> Launch:
    return script("litserve", workload, port, layout)


def bentoml(workload: str, port: int, layout: Layout) -> Launch:
    service = f"bench.peers.bentoml.server:{'Tokens' if workload == 'minilm' else 'Rows'}"
    home = STARTED / "bentoml"
    launch = module(
        "bentoml", "bentoml", workload, port, layout, "serve", service, "--port", str(port), "--host", "127.0.0.1"
    )
    quiet = {"BENTOML_HOME": str(home), "BENTOML_DO_NOT_TRACK": "True"}
    return Launch(launch.argv, {**launch.environment, **quiet})


def mlserver(workload: str, port: int, layout: Layout) -> Launch:
    settings = {
        "MLSERVER_HOST": "127.0.0.1",
        "MLSERVER_HTTP_PORT": str(port),
        "MLSERVER_GRPC_PORT": str(free_port()),
        "MLSERVER_METRICS_PORT": str(free_port()),
        "MLSERVER_PARALLEL_WORKERS": "0",
        "MLSERVER_DEBUG": "false",
        "MLSERVER_ENVIRONMENTS_DIR": str(STARTED / "mlserver"),
        "MLSERVER_MODEL_NAME": WORKLOADS[workload].networks[0],
        "MLSERVER_MODEL_IMPLEMENTATION": "bench.peers.mlserver.server.Served",
        "MLSERVER_MODEL_MAX_BATCH_SIZE": str(layout.batch),
        "MLSERVER_MODEL_MAX_BATCH_TIME": "0.002",
    }
    command = (str(python_of("mlserver").with_name("mlserver")), "start", str(PEERS / "mlserver"))
    return Launch(command, {**environment_for(workload, port, layout), **settings})


def ray(workload: str, port: int, layout: Layout) -> Launch:
    launch = script("ray", workload, port, layout)
    quiet = {"RAY_USAGE_STATS_ENABLED": "0"}
    return Launch(launch.argv, {**launch.environment, **quiet})


ALL = (
    Peer("forwardpass", "", forwardpass.FORMS, forwardpass.path, forwardpass.launch, False, forwardpass.NOTE,
         layouts(Layout(1, 1, 0), Layout(2, 1, 0))),
    Peer("forwardpass-auto", "", only(forwardpass.FORMS, "minilm"), forwardpass.path, forwardpass.launch_auto, False,
         forwardpass.AUTO_NOTE, layouts(Layout(1, 1, 0), Layout(2, 1, 0)), forwardpass.AUTO_ABSOLUTE, 120.0),
    Peer("triton", "triton", triton.FORMS, triton.path, triton.launch, True, triton.note(),
         layouts(Layout(2, 1, 64), Layout(2, 1, 16)), tried=TRITON_TRIED),
    Peer("mosec", "mosec", RECORD, at("/inference"), mosec, True,
         "mosec 0.9.8: Rust front, one Python worker a session, waits 1 ms for company (its least)",
         layouts(Layout(1, 1, 64), Layout(2, 1, 16)), tried=MOSEC_TRIED),
    Peer("fastapi", "fastapi", RECORD, at("/predict"), fastapi, False,
         "FastAPI 0.165 on uvicorn 0.54 (uvloop, httptools), by hand with orjson, no batching, a process a core",
         layouts(Layout(2, 1, 1), Layout(2, 1, 1))),
    Peer("litserve", "litserve", only(RECORD, "tabular", "minilm", "cascade"), at("/predict"), litserve, False,
         "LitServe 0.2.19: fast_queue, batches within 1 ms",
         layouts(Layout(1, 1, 64), Layout(2, 1, 16))),
    Peer("bentoml", "bentoml", {"tabular": "rows", "minilm": "rows"}, at("/predict"), bentoml, False,
         "BentoML 1.4.40: adaptive batching",
         layouts(Layout(1, 1, 64), Layout(1, 2, 16))),
    Peer("mlserver", "mlserver", {"tabular": "v2", "minilm": "v2"}, v2_path, mlserver, False,
         "MLServer 1.7.1: a runtime of its own with the numpy codec, in the server's process, batches within 2 ms",
         layouts(Layout(1, 1, 64), Layout(1, 2, 16))),
    Peer("ray", "ray", only(RECORD, "tabular", "minilm"), at("/"), ray, False,
         "Ray Serve 2.60: one proxy, one replica, serve.batch within 1 ms",
         layouts(Layout(1, 1, 64), Layout(1, 2, 16)), start_limit_s=120.0),
)  # fmt: skip

PEERS_BY_NAME = {peer.name: peer for peer in ALL}


def main() -> None:
    for peer in ALL:
        print(f"{peer.name}: {', '.join(peer.models)}\n    {peer.note}")


if __name__ == "__main__":
    main()
