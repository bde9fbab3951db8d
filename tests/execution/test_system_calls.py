"""The filter of system calls, run by a small interpreter of BPF: what it says to each call, on both machines."""

import errno
import struct

import pytest

from forwardpass.execution.box import lacking
from forwardpass.execution.system_calls import program

ALLOWED = 0x7FFF0000
KILLED = 0x80000000
PID = 4242
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
THREAD, NEW_USER = 0x3D0F00, 0x10000000
CALLS: dict[str, tuple[int, int]] = {  # from the kernel's asm/unistd_64.h and asm-generic/unistd.h
    "read": (0, 63), "write": (1, 64), "mmap": (9, 222), "futex": (202, 98), "openat": (257, 56), "sendmsg": (46, 211),
    "recvmsg": (47, 212), "memfd_create": (319, 279), "exit_group": (231, 94), "sched_setaffinity": (203, 122),
    "socket": (41, 198), "connect": (42, 203), "execve": (59, 221), "ptrace": (101, 117), "bpf": (321, 280),
    "unshare": (272, 97), "process_vm_writev": (311, 271), "pidfd_open": (434, 434), "keyctl": (250, 219),
    "mount": (165, 40), "shmget": (29, 194), "clone3": (435, 435), "io_uring_setup": (425, 425), "clone": (56, 220),
    "utimensat": (280, 88), "fchmodat2": (452, 452), "setxattrat": (463, 463), "truncate": (76, 45),
    "inotify_init1": (294, 26), "openat2": (437, 437), "fcntl": (72, 25), "ioctl": (16, 29), "kill": (62, 129), "tgkill": (234, 131), "prlimit64": (302, 261), "prctl": (157, 167), "socketpair": (53, 199),
}  # fmt: skip


def said(machine: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """Runs the filter as the kernel does, over ``struct seccomp_data``."""
    data = struct.pack("<IIQ6Q", number, audit or AUDIT[machine], 0, *arguments, *[0] * (6 - len(arguments)))
    lines = [struct.unpack("<HBBI", line) for line in program(machine, PID)]
    place = value = 0
    while True:
        code, if_true, if_false, constant = lines[place]
        place += 1
        match code:
            case 0x20:
                (value,) = struct.unpack_from("<I", data, constant)
            case 0x54:
                value &= constant
            case 0x06:
                return int(constant)
            case 0x15 | 0x35 | 0x45:
                holds = {0x15: value == constant, 0x35: value >= constant, 0x45: bool(value & constant)}[code]
                place += if_true if holds else if_false
            case _:
                raise AssertionError(f"{code:#x} is no instruction of the filter")


def refused(error: int) -> int:
    return 0x00050000 | error


CASES = [
    *((name, (), ALLOWED) for name in list(CALLS)[:10]),
    *((name, (), refused(errno.EPERM)) for name in list(CALLS)[10:21]),
    ("clone3", (), refused(errno.ENOSYS)), ("io_uring_setup", (), refused(errno.ENOSYS)),
    *((name, (), refused(errno.EPERM)) for name in ("utimensat", "fchmodat2", "setxattrat", "truncate", "inotify_init1")),
    ("openat2", (), refused(errno.ENOSYS)),
    ("openat", (2**32 - 100, 0, 0o2000000), ALLOWED), ("openat", (0, 0, 0o1000), refused(errno.EPERM)),
    *(("fcntl", (0, command), refused(errno.EPERM)) for command in (8, 10, 15, 1024)),
    *(("fcntl", (0, command), ALLOWED) for command in (1, 2, 3, 4, 5, 6, 7, 9, 16, 1030, 1033)),
    *(("ioctl", (0, command), refused(errno.EPERM)) for command in (0x8901, 0x8902, 0x40086602, 0x401C5820)),
    *(("ioctl", (0, command), ALLOWED) for command in (0x5401, 0x5421, 0x541B)),
    ("clone", (THREAD,), ALLOWED), ("clone", (17,), refused(errno.EPERM)),
    ("clone", (NEW_USER | 17,), refused(errno.EPERM)),
    ("kill", (PID,), ALLOWED), ("kill", (PID - 1,), refused(errno.EPERM)), ("kill", (2**32 - 1,), refused(errno.EPERM)),
    ("tgkill", (PID,), ALLOWED), ("tgkill", (1,), refused(errno.EPERM)),
    ("prlimit64", (0,), ALLOWED), ("prlimit64", (PID,), ALLOWED), ("prlimit64", (1,), refused(errno.EPERM)),
    ("prctl", (15,), ALLOWED), ("prctl", (1,), refused(errno.EPERM)),
    ("socketpair", (1, 1), ALLOWED), ("socketpair", (1, 0o2000001), ALLOWED),
    ("socketpair", (1, 2), refused(errno.EPERM)), ("socketpair", (2, 1), refused(errno.EPERM)),
]  # fmt: skip


@pytest.mark.parametrize("machine", AUDIT)
@pytest.mark.parametrize(("name", "arguments", "expected"), CASES)
def test_each_call_is_allowed_or_refused(machine: str, name: str, arguments: tuple[int, ...], expected: int) -> None:
    number = CALLS[name][list(AUDIT).index(machine)]
    assert said(machine, number, *arguments) == expected


@pytest.mark.parametrize("machine", AUDIT)
def test_calls_by_the_numbers_of_another_instruction_set_end_the_process(machine: str) -> None:
    assert said(machine, 0, audit=0x40000003) == KILLED


def test_calls_in_the_x32_numbers_are_refused() -> None:
    assert said("x86_64", 0x40000000 | 41) == refused(errno.EPERM)


def test_calls_that_only_one_machine_has_are_refused_there() -> None:
    for number in (
        90,
        92,
        94,
        132,
        235,
        261,
        85,
        253,
    ):  # chmod, chown, lchown, utime, utimes, futimesat, creat, inotify
        assert said("x86_64", number) == refused(errno.EPERM)
    assert said("x86_64", 2, 0, 0o1101) == refused(errno.EPERM)
    assert said("x86_64", 2, 0, 0o2000000) == ALLOWED


@pytest.mark.parametrize(("abi", "count"), [(1, 3), (2, 3), (3, 2), (4, 1), (5, 1), (6, 0), (9, 0)])
def test_what_an_old_landlock_does_not_know_is_said(abi: int, count: int) -> None:
    assert len(lacking(abi)) == count
