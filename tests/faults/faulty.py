"""Pipelines that can be driven into every fault: graphs that end the process or ask for all memory, own code that tries."""

import os
from pathlib import Path

from onnx import TensorProto
from tests import fixtures_onnx
from tests.e2e.pipelines import OWN_CODE, OWN_MODEL

SECRET = "canary-3f1c9a7e5b"
"""In the server's environment: no worker, no answer and no log line may know it."""

CONTROL = "control"

MODEL = '[[steps]]\nuse = "model"\nengine = "onnxruntime"\nfile = "model.onnx"\n'
SETTINGS = {
    "divide": "[batch]\nwait_ms = 300\n",  # so that strangers share a batch with the one that kills
    "huge": "[workers]\nmemory_max_mb = 4096\n",
}
GRAPHS = {
    CONTROL: fixtures_onnx.identity,
    "identity": fixtures_onnx.identity,
    "half": lambda path: fixtures_onnx.identity(path, ("N", 2), TensorProto.FLOAT16),
    "divide": fixtures_onnx.div_int32,
    "unique": fixtures_onnx.unique_axis0,
    "huge": fixtures_onnx.constant_of_shape,
    "large": fixtures_onnx.constant_of_shape,
    "nan": fixtures_onnx.nan_maker,
    "strings": fixtures_onnx.text_identity,
}

PROBE_CODE = """
import ctypes
import fcntl
import os
import resource
import socket
import subprocess
import tempfile
import threading

LIBC = ctypes.CDLL(None, use_errno=True)


def _connect(where):
    with socket.create_connection(("127.0.0.1", int(where)), 2):
        return "connected"


def _listen(where):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return "bound"


def _write(where):
    with open(where, "w") as file:
        return str(file.write("x"))


def _read(where):
    with open(where, "rb") as file:
        return repr(file.read(4096))


def _run(where):
    done = subprocess.run(["/bin/cat", where], capture_output=True)
    if done.returncode != 0:
        raise PermissionError(done.returncode, "the program failed")
    return repr(done.stdout)


def _print(where):
    line = "FPW1 \\x1b[31m\\x01" + "y" * (int(where) - 20) + "\\n"
    os.write(1, line.encode()) if where == "1" else print(line * 200)
    return "printed"


def _called(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), "the kernel said no")
    return str(result)


def _send(where):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        return str(sender.sendto(b"x", ("127.0.0.1", int(where))))


def _fork(where):
    child = os.fork()
    if child == 0:
        os._exit(0)
    return str(os.waitpid(child, 0))


def _link(where):
    os.symlink("/etc/passwd", where)
    return _read(where)


def _open_many(where):
    opened = []
    try:
        for _ in range(int(where)):
            opened.append(open("/dev/null"))
    finally:
        for file in opened:
            file.close()
    return "opened"


def _threads(where):
    made = []
    threads = [threading.Thread(target=made.append, args=(n,)) for n in range(int(where))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return str(len(made))


def _write_temporary(where):
    with tempfile.TemporaryFile() as file:
        return str(file.write(b"x"))


def _raise_limit(where):
    limit = getattr(resource, where)
    resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return "raised"


def _send_by_pair(where):
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return str(one.sendto(b"x", where))


def _each_call(where):
    # given nonsense: what is refused is so before any place or descriptor is looked at
    passed = []
    for number in map(int, where.split(",")):
        ctypes.set_errno(0)
        done = LIBC.syscall(number, -1, -1, -1, -1, -1)
        if done != -1 or ctypes.get_errno() != 1:
            passed.append(number)
    return repr(passed)


REACHING = {
    "send": _send,
    "unix-socket": lambda where: str(socket.socket(socket.AF_UNIX).connect(where)),
    "unix-pair": _send_by_pair,
    "other-socket": lambda where: str(socket.socket(int(where), socket.SOCK_RAW)),
    "fork": _fork,
    "spawn": lambda where: str(os.posix_spawn(where, [where], {})),
    "replace": lambda where: str(os.execv(where, [where])),
    "signal": lambda where: str(os.kill(int(where), 0)),
    "signal-everybody": lambda where: str(os.kill(-1, 0)),
    "limit-server": lambda where: str(resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (3, 3))),
    "slow-server": lambda where: str(os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)),
    "trace-server": lambda where: _called(LIBC.ptrace(16, os.getppid(), 0, 0)),
    "read-server": lambda where: _called(LIBC.process_vm_readv(os.getppid(), None, 0, None, 0, 0)),
    "hold-server": lambda where: _called(LIBC.syscall(434, os.getppid(), 0)),
    "own-namespace": lambda where: _called(LIBC.unshare(0x10000000)),
    "mount": lambda where: _called(LIBC.mount(b"none", b"/tmp", b"tmpfs", 0, None)),
    "kernel-ring": lambda where: _called(LIBC.syscall(425, 1, ctypes.create_string_buffer(256))),
    "shared-memory": lambda where: _called(LIBC.shmget(0, 4096, 0o1600)),
    "own-signal-to-server": lambda where: str(fcntl.fcntl(0, int(where), os.getppid())),
    "own-ioctl-to-server": lambda where: str(fcntl.ioctl(0, int(where), b"\\0" * 8)),
    "cut": lambda where: str(os.truncate(where, 0)),
    "cut-by-opening": lambda where: str(os.open(where, os.O_RDONLY | os.O_TRUNC)),
    "mode": lambda where: str(os.chmod(where, 0o777)),
    "owner": lambda where: str(os.chown(where, 0, 0)),
    "times": lambda where: str(os.utime(where)),
    "attribute": lambda where: str(os.setxattr(where, "user.left", b"x")),
    "outlive-server": lambda where: _called(LIBC.prctl(1, 0, 0, 0, 0)),
    "link": _link,
    "open-many": _open_many,
    "raise-limit": _raise_limit,
    "take-memory": lambda where: str(len(bytearray(int(where)))),
    "write-temporary": _write_temporary,
    "write-home": lambda where: _write(os.path.join(os.environ.get("HOME", "/root"), "left-by-a-worker")),
}
ACTS = {
    **REACHING,
    "each-call": _each_call,
    "threads": _threads,
    "limits": lambda where: repr(resource.getrlimit(getattr(resource, where))),
    "descriptors": lambda where: repr([os.readlink(f"/proc/self/fd/{n}") for n in range(3)]),
    "read": _read,
    "write": _write,
    "list": lambda where: repr(os.listdir(where)),
    "make": lambda where: str(os.mkdir(where)),
    "connect": _connect,
    "listen": _listen,
    "run": _run,
    "print": _print,
    "environment": lambda where: repr(dict(os.environ)),
    "environment-of-server": lambda where: _read(f"/proc/{os.getppid()}/environ"),
    "memory-of-server": lambda where: _read(f"/proc/{os.getppid()}/maps"),
    "root-of-server": lambda where: _read(f"/proc/{os.getppid()}/root{where}"),
    "signal-server": lambda where: str(os.kill(os.getppid(), 0)),
}


def attempt(text: str) -> str:
    act, _, where = text.partition(" ")
    try:
        return ACTS[act](where) if act in ACTS else act.upper()
    except (OSError, MemoryError, ValueError) as error:
        return f"refused: {type(error).__name__}"
"""

PROBE = """
[[inputs]]
name = "text"
type = "text"

[[steps]]
use = "steps:attempt"
output = "result"
datatype = "BYTES"

[[golden]]
request = { text = "hello" }
expect = { result = "HELLO" }
"""

GUARDED = """
[[inputs]]
name = "text"
type = "text"
bytes_max = 2097152

[[steps]]
use = "normalize_text"
output = "clean"

[[guards]]
name = "private"
on = "input"
mode = "mask"
pii = ["email", "phone", "iban", "card", "ip", "key"]

[[guards]]
name = "words"
on = "input"
words = ["badger", "open sesame"]

[[guards]]
name = "patterns"
on = "input"
deny = ["(a+)+b", "(x|xx)+y$"]

[[guards]]
name = "out"
on = "output"
mode = "mask"
pii = ["email"]
"""


def write_faulty(root: Path) -> None:
    """One folder a pipeline, version 1."""
    for name, graph in GRAPHS.items():
        folder = root / name / "1"
        graph(folder / "model.onnx")
        if name in SETTINGS:
            (folder / "pipeline.toml").write_text(MODEL + SETTINGS[name])
    write_own(root / "own" / "1", OWN_MODEL, OWN_CODE)
    write_own(root / "probe" / "1", PROBE, PROBE_CODE)
    write_own(root / "guarded" / "1", GUARDED, "")
    settle(root)


def write_own(folder: Path, definition: str, code: str) -> None:
    folder.mkdir(parents=True)
    (folder / "pipeline.toml").write_text(definition)
    (folder / "steps.py").write_text(code)


def settle(root: Path) -> None:
    """Date everything back: files that were just written are given a second to settle."""
    for path in root.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000), follow_symlinks=False)
