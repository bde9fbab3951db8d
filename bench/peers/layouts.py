"""Which layout of workers, threads and batches is a peer's best here: ``python bench/peers/layouts.py PEER:WORKLOAD ...``

One line for each layout and number of connections: the median of the rounds, the layouts taking turns. Meaningful only
on a machine that does nothing else; ``make bench-peers`` itself tries what registry.py calls ``tried``.
"""

import sys
from pathlib import Path
from statistics import median

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from bench.load.closed_loop import Closed, close_loop
from bench.load.served import NotServed, free_port
from bench.peers.measure import living
from bench.peers.models import make
from bench.peers.peer import STARTED, Layout, Peer
from bench.peers.registry import PEERS_BY_NAME

CONNECTIONS = (1, 16, 64)
ROUNDS, SECONDS = 3, 2.0
CORES = ((1, 1), (2, 1), (1, 2))


def tried(peer: Peer, model: str) -> list[Layout]:
    """Its own, and the same with the other ways to use two cores, and with smaller and larger batches."""
    own = peer.layouts[model]
    batches = sorted({own.batch, 8, 16, 64}) if own.batch > 1 else [own.batch]
    return [Layout(workers, threads, own.batch) for workers, threads in CORES] + [
        Layout(own.workers, own.threads, batch) for batch in batches if batch != own.batch
    ]


def asked(peer: Peer, model: str, layout: Layout) -> dict[int, Closed]:
    """What each number of connections gets; nothing where it does not start or an answer is no success."""
    port = free_port()
    requests, url = peer.requests(model), peer.url(model, port)
    log = STARTED / f"{peer.name}-{model}.log"
    try:
        with living(peer, model, port, log, layout):
            close_loop(url, requests, max(CONNECTIONS), 1.0)
            cells = {each: close_loop(url, requests, each, SECONDS) for each in CONNECTIONS}
    except NotServed as error:
        print(f"{peer.name}:{model} {layout}: {error}", flush=True)
        return {}
    return {connections: cell for connections, cell in cells.items() if not cell.failed}


def main() -> None:
    make()
    for wanted in sys.argv[1:]:
        name, _, model = wanted.partition(":")
        peer = PEERS_BY_NAME[name]
        found: dict[tuple[Layout, int], list[Closed]] = {}
        for _ in range(ROUNDS):
            for layout in tried(peer, model):
                for connections, cell in asked(peer, model, layout).items():
                    found.setdefault((layout, connections), []).append(cell)
        for (layout, connections), cells in sorted(found.items(), key=lambda each: each[0][1]):
            rate, p99_ms = median(cell.rate_per_s for cell in cells), median(cell.p99_s for cell in cells) * 1e3
            shape = f"{layout.workers} x {layout.threads}, batch {layout.batch}"
            print(f"{wanted} {shape}, {connections} connections: {rate:.0f}/s, p99 {p99_ms:.2f} ms", flush=True)


if __name__ == "__main__":
    main()
