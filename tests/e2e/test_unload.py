"""A version that is unloaded while requests come in: the one before it answers at once, and no request fails."""

import threading
import time
from pathlib import Path

from tests.e2e.pipelines import OWN_MODEL, write_own
from tests.serving import forwardpass, serving, wait_until

UNLOAD = "/pipelines/own/versions/2/unload"


def test_under_load_the_older_version_takes_over_at_once_and_no_request_fails(tmp_path: Path, data: Path) -> None:
    write_own(tmp_path / "own" / "1", OWN_MODEL)
    write_own(tmp_path / "own" / "2", 'description = "newer"\n' + OWN_MODEL)
    forwardpass("trust", tmp_path, data=data)
    with serving(tmp_path, data=data) as server:
        for number in {1, 2} - {version["version"] for version in server.status()["versions"]}:
            assert server.call("POST", f"/pipelines/own/versions/{number}/load", admin=True).status == 200
        answers: list[tuple[float, float, int, str]] = []  # sent, answered, status, version
        over = threading.Event()

        def ask(first: float) -> None:
            sent = time.monotonic()
            answer = server.infer("own", "x", "FP64", [1, 2], [first, 2.0])
            answers.append((sent, time.monotonic(), answer.status, answer.json.get("model_version", "")))

        def ask_on() -> None:
            while not over.is_set():
                ask(1.0)

        threads = [threading.Thread(target=ask_on) for _ in range(8)]
        threads.append(threading.Thread(target=ask, args=(3000.0,)))  # holds the newer version's worker for 2 s
        for thread in threads[:-1]:
            thread.start()
        wait_until(lambda: len(answers) > 20)
        threads[-1].start()
        time.sleep(0.3)
        unloaded: list[int] = []
        unloading = threading.Thread(
            target=lambda: unloaded.append(server.call("POST", UNLOAD, admin=True).status), daemon=True
        )
        began = time.monotonic()
        unloading.start()
        time.sleep(0.3)
        ask(1.0)
        assert unloading.is_alive()  # the newer one still drains
        unloading.join(10.0)
        over.set()
        for thread in threads:
            thread.join()
    assert unloaded == [200]
    assert {status for _, _, status, _ in answers} == {200}
    assert {version for _, answered, _, version in answers if answered < began} == {"2"}
    assert {version for sent, _, _, version in answers if sent > began + 0.2} == {"1"}
