"""The box around a worker, put on by itself before it touches a model or a request (FAULTS R6).

no_new_privs, no capabilities, death with the parent, limits on memory, files, threads and core dumps, and Landlock
where the kernel has it: read the libraries and the version's folder, write nothing, connect nowhere, signal nobody
outside; what Landlock does not know is refused by a filter of system calls. Not covered, and a matter for a container's
limits: a worker can use every core, can move others of its user to other cores, can read the command lines of other
processes (so no secret stands on one), can see of any path whether it is there, its size and times (``stat``), can fill
memory files, which RLIMIT_AS does not count (each as large as its limit), and as root can make threads without number.
Sources: prctl(2), capabilities(7), landlock(7).
"""

import ctypes
import os
import resource
import signal
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

from forwardpass.execution.system_calls import refuse_calls

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_VERSION_FLAG = 1
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_ALL_FILES_ABI_1 = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_ALL_TCP = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_CAPABILITY_VERSION_3 = 0x20080522
THREADS_MAX = 32768
"""Of all processes of the worker's user on the machine, in whatever containers; the kernel does not count those of root."""
_SYSTEM_PATHS = (
    "/usr",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/proc",
    "/sys",
    "/dev/null",
    "/dev/urandom",
    "/dev/zero",
)


def close_box(readable: Sequence[str], *, memory_max_bytes: int, parent: int) -> list[str]:
    """Close it for good. Returns what this kernel could not do, for the log; exits when the parent is gone already."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # Root's capabilities would go past Landlock: with CAP_PERFMON the server's environment can be read in /proc.
    libc.capset(struct.pack("<Ii", _CAPABILITY_VERSION_3, 0), bytes(24))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    _limit_threads()
    resource.setrlimit(resource.RLIMIT_AS, (memory_max_bytes, memory_max_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (memory_max_bytes, memory_max_bytes))  # of each memory file
    paths = {*_SYSTEM_PATHS, sys.prefix, sys.base_prefix, *(entry for entry in sys.path if entry), *readable}
    unfiltered = refuse_calls(libc)
    return [*unfiltered, *_landlock(libc, sorted(paths), alone=bool(unfiltered))]


def lacking(abi: int) -> list[str]:
    """What a kernel's Landlock of that version does not know, where no filter of system calls stands beside it."""
    since = {3: "cutting files off", 4: "TCP", 6: "signals and abstract Unix sockets"}
    return [f"this kernel's Landlock cannot refuse {what}" for version, what in since.items() if abi < version]


def _limit_threads() -> None:
    """Never raised: a lower limit than ours stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    limit = min((each for each in (soft, hard) if each != resource.RLIM_INFINITY), default=THREADS_MAX)
    resource.setrlimit(resource.RLIMIT_NPROC, (min(limit, THREADS_MAX),) * 2)


def _landlock(libc: ctypes.CDLL, readable: Sequence[str], *, alone: bool) -> list[str]:
    """``alone``: no filter of system calls stands beside it."""
    abi = libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    if abi < 1:
        return ["this kernel has no Landlock: the worker can read and write what its user can"]
    files = _ALL_FILES_ABI_1 | (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0)
    files |= _IOCTL_DEV if abi >= 5 else 0
    attributes = struct.pack("<Q", files)
    if abi >= 4:
        attributes += struct.pack("<Q", _ALL_TCP)
    if abi >= 6:
        attributes += struct.pack("<Q", _ABSTRACT_SOCKETS_AND_SIGNALS)
    ruleset = libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    if ruleset < 0:
        return [f"Landlock refused the ruleset: {os.strerror(ctypes.get_errno())}"]
    missing = lacking(abi) if alone else []
    try:
        for path in readable:
            _allow(libc, ruleset, path)
        if libc.syscall(_RESTRICT_SELF, ruleset, 0) != 0:
            missing.append(f"Landlock could not be enforced: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(ruleset)
    return missing


def _allow(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    if not os.path.exists(path):
        return
    rights = _READ_FILE | _EXECUTE | (_READ_DIR if Path(path).is_dir() else 0)
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("<Qi", rights, descriptor)
        libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)
