"""What code inside a worker can reach: its own folder and the libraries, and nothing else (rule R6)."""

import os
import platform
import socket
from pathlib import Path

from tests.faults.faulty import SECRET
from tests.serving import Server


def attempt(server: Server, act: str, where: object = "") -> str:
    """What the worker's own code saw when it tried."""
    answer = server.predict("probe", {"text": f"{act} {where}".strip()})
    assert answer.status == 200, answer.body
    result: str = answer.json["outputs"]["result"]
    return result


NOT_ITS_OWN = (
    ("read", "/etc/passwd"),
    ("read", "/etc/shadow"),
    ("run", "/etc/passwd"),
    ("list", "/"),
    ("list", "/home"),
    ("write", "/tmp/left-by-a-worker"),
    ("write", "/dev/shm/left-by-a-worker"),
    ("make", "/tmp/folder-of-a-worker"),
    ("listen", ""),
    ("environment-of-server", ""),
    ("memory-of-server", ""),
    ("root-of-server", "/etc/passwd"),
    ("signal-server", ""),
    ("read", "/proc/self/root/etc/passwd"),
    ("read", "/proc/self/cwd/../etc/passwd"),
    ("list", "/root"),
    ("list", "/tmp"),
    ("write", "left-by-a-worker"),
    ("write", "/proc/self/oom_score_adj"),
    ("write-home", ""),
    ("write-temporary", ""),
    ("link", "/tmp/link-of-a-worker"),
    ("kernel-ring", ""),
    ("open-many", "10000"),
    ("raise-limit", "RLIMIT_NOFILE"),
    ("raise-limit", "RLIMIT_CORE"),
    ("raise-limit", "RLIMIT_AS"),
    ("take-memory", str(64 * 1024**3)),
)


def test_a_worker_is_refused_what_is_not_its_own(server: Server) -> None:
    seen = {case: attempt(server, *case) for case in NOT_ITS_OWN}
    assert {case: result for case, result in seen.items() if not result.startswith("refused: ")} == {}
    assert attempt(server, "hello") == "HELLO"


REACHING = (
    ("send", "9"),
    ("unix-socket", "/run/systemd/notify"),
    ("unix-pair", "/dev/log"),
    ("other-socket", "16"),
    ("other-socket", "17"),
    ("fork", ""),
    ("spawn", "/bin/sh"),
    ("replace", "/bin/sh"),
    ("signal", "1"),
    ("signal-everybody", ""),
    ("limit-server", ""),
    ("slow-server", ""),
    ("trace-server", ""),
    ("read-server", ""),
    ("hold-server", ""),
    ("own-namespace", ""),
    ("mount", ""),
    ("shared-memory", ""),
    ("outlive-server", ""),
    ("mode", "/nowhere"),
    ("owner", "/nowhere"),
    ("times", "/nowhere"),
    ("attribute", "/nowhere"),
    ("cut", "/nowhere"),
    ("cut-by-opening", "/nowhere"),
    *(("own-signal-to-server", str(command)) for command in (8, 10, 15)),
    *(("own-ioctl-to-server", str(request)) for request in (0x8901, 0x8902)),
)


def test_a_worker_can_reach_nobody_and_start_nothing(server: Server) -> None:
    """Refused before it is looked whether there is such a place or process."""
    seen = {case: attempt(server, *case) for case in REACHING}
    assert {case: result for case, result in seen.items() if result != "refused: PermissionError"} == {}


# From asm/unistd_64.h and asm-generic/unistd.h; what one of them lacks is left out.
CHANGES = {
    "chmod": (90, 0), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, 0),
    "fchown": (93, 55), "lchown": (94, 0), "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "setxattrat": (463, 463), "removexattrat": (466, 466), "file_setattr": (469, 469), "utime": (132, 0),
    "utimes": (235, 0), "futimesat": (261, 0), "utimensat": (280, 88), "truncate": (76, 45), "creat": (85, 0),
    "inotify_init": (253, 0), "inotify_init1": (294, 26), "syslog": (103, 116),
}  # fmt: skip


def test_no_call_that_changes_a_file_by_its_name_or_owner_passes(server: Server) -> None:
    column = ("x86_64", "aarch64").index(platform.machine())
    numbers = [each[column] for each in CHANGES.values() if each[column]]
    assert attempt(server, "each-call", ",".join(map(str, numbers))) == "[]"
    harmless = {"x86_64": 3, "aarch64": 57}[platform.machine()]  # close(-1): the probe tells refused from failed
    assert attempt(server, "each-call", harmless) == f"[{harmless}]"


def test_a_worker_cannot_connect_to_the_admin_plane_nor_to_a_neighbour(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as neighbour:
        for port in (server.admin_port, server.port, neighbour.getsockname()[1]):
            assert attempt(server, "connect", port) == "refused: PermissionError"


def test_a_worker_reads_its_own_folder_and_cannot_change_it(server: Server, data: Path) -> None:
    own = next(path for path in (data / "store").rglob("steps.py") if "def attempt" in path.read_text())
    assert "import ctypes" in attempt(server, "read", own)
    assert attempt(server, "write", own).startswith("refused: ")
    assert attempt(server, "write", own.parent / "more").startswith("refused: ")


def test_a_worker_cannot_read_another_model_nor_the_store(server: Server, data: Path, repository: Path) -> None:
    own = next(path.parent for path in (data / "store").rglob("steps.py") if "def attempt" in path.read_text())
    others = [path for path in data.rglob("*") if path.is_file() and not path.is_relative_to(own)]
    assert {"model.onnx", "trusted", server.log.name} <= {path.name for path in others}
    for path in (*others, repository / "identity" / "1" / "model.onnx"):
        assert attempt(server, "read", path).startswith("refused: "), path
    assert attempt(server, "list", data / "store").startswith("refused: ")


def test_a_worker_sees_no_secret_of_the_servers_environment(server: Server) -> None:
    seen = attempt(server, "environment")
    assert "PATH" in seen
    assert SECRET not in seen
    assert "PASSWORD" not in seen


def test_every_thread_of_a_worker_is_in_the_box_also_those_of_libraries(server: Server) -> None:
    for pid in server.worker_pids("identity") + server.worker_pids("probe"):
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        assert len(threads) > 1
        for thread in threads:
            status = dict(
                line.split(":\t", 1) for line in (thread / "status").read_text().splitlines() if ":\t" in line
            )
            assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
            assert all(int(status[f"Cap{name}"], 16) == 0 for name in ("Eff", "Prm", "Inh", "Amb"))


def test_a_worker_can_make_threads_and_leaves_no_core_file(server: Server) -> None:
    assert attempt(server, "threads", 32) == "32"
    assert attempt(server, "limits", "RLIMIT_CORE") == "(0, 0)"
    soft, hard = map(int, attempt(server, "limits", "RLIMIT_NPROC").strip("()").split(","))
    assert 0 < soft == hard <= 32768


def test_a_worker_holds_no_file_but_what_it_talks_to_the_front_with(server: Server) -> None:
    for pid in server.worker_pids("probe"):
        held = [os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()]
        assert all(each.startswith(("/dev/null", "socket:", "pipe:", "/memfd:forwardpass")) for each in held), held


def test_no_two_workers_share_a_descriptor(server: Server) -> None:
    pids = [worker["pid"] for version in server.status()["versions"] for worker in version["workers"]]
    nothing = os.stat("/dev/null").st_ino
    held = [{each.stat().st_ino for each in Path(f"/proc/{pid}/fd").iterdir()} - {nothing} for pid in pids]
    assert len(held) > 5
    assert sum(map(len, held)) == len(set().union(*held))
