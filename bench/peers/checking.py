"""Whether a peer answers right: ``python bench/peers/checking.py [PEER[:WORKLOAD] ...]``, one line each."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from bench.load.served import NotServed, free_port, together
from bench.peers import environments
from bench.peers.measure import living, questions_for
from bench.peers.models import make
from bench.peers.peer import STARTED, Peer
from bench.peers.registry import ALL


def check(peer: Peer, model: str) -> float:
    """Starts the peer, asks it, once and then all requests at once, ends it: seconds until the first right answer.

    Raises NotServed, with why.
    """
    port = free_port()
    log = STARTED / f"{peer.name}-{model}.log"
    with living(peer, model, port, log) as running:
        if wrong := together(questions_for(peer, model), port):
            raise NotServed(wrong)
        return running.cold_s


def main() -> None:
    make()
    wanted = sys.argv[1:]
    for peer in ALL:
        if wanted and not any(each.split(":")[0] == peer.name for each in wanted):
            continue
        if peer.environment and (why := environments.make_all([peer.environment])):
            print(f"{peer.name}: {why[peer.environment]}", flush=True)
            continue
        for model in peer.models:
            if not wanted or {peer.name, f"{peer.name}:{model}"} & set(wanted):
                try:
                    print(f"{peer.name}:{model}: right after {check(peer, model):.2f} s", flush=True)
                except NotServed as error:
                    print(f"{peer.name}:{model}: WRONG: {error}", flush=True)


if __name__ == "__main__":
    main()
