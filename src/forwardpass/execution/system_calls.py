"""The system calls a boxed worker does without, refused by a filter in the kernel (seccomp; FAULTS R6).

Landlock knows files, TCP and signals; this closes what it does not: other sockets, new processes, other people's
processes, owners, modes and times of files, and the parts of the kernel that only an attacker needs; and what an older
Landlock does not yet know, signals and cutting files off. Threads can still be made. Nothing takes it off.
Sources: seccomp(2), bpf(4), landlock(7), asm/unistd_64.h, asm-generic/unistd.h, linux/fs.h.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

_SET_MODE_FILTER = 1
_TO_ALL_THREADS = 1
_LOAD_WORD, _JUMP_EQUAL, _JUMP_ANY_BIT, _JUMP_AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x54, 0x06
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _MACHINE_AT, _ARGUMENTS_AT = 0, 4, 16  # struct seccomp_data; both machines are little-endian
_X32_BIT = 0x40000000
_CLONE_THREAD = 0x00010000
_UNIX, _STREAM, _TYPE_BITS = 1, 1, 0xF
_PR_SET_PDEATHSIG = 1
_CUT_OFF = 0o1000  # O_TRUNC: a file that may only be read can be opened with it
_FCNTL_REFUSED = (8, 10, 15, 1024)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX: the kernel then signals whomever they name; F_SETLEASE: others wait to open a file."""
_IOCTL_REFUSED = (0x8901, 0x8902, 0x40086602, 0x40046602, 0x401C5820, 0x40806685)
"""FIOSETOWN and SIOCSPGRP, as above; FS_IOC_SETFLAGS (two forms), FS_IOC_FSSETXATTR and FS_IOC_ENABLE_VERITY change a
file that is only open for reading."""

_REFUSED: dict[str, tuple[int | None, int | None]] = {
    # new processes: what a worker starts would outlive it, and there is no other limit on how many
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    # every way to talk to anybody but the front
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180),
    # other processes of the same user: the server and its neighbours
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "move_pages": (279, 239),
    "migrate_pages": (256, 238), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "setpriority": (141, 140), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274), "ioprio_set": (251, 30),
    # owners, modes, times and attributes of every file that the worker's user owns: Landlock has no right for them
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "setxattrat": (463, 463), "removexattrat": (466, 466), "file_setattr": (469, 469), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    # the length of files, which Landlock knows from its version 3 on; and who reads which file when
    "truncate": (76, 45), "creat": (85, None), "inotify_init": (253, None), "inotify_init1": (294, 26),
    # new namespaces and mounts give their maker rights that were taken away
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "move_mount": (429, 429), "open_tree": (428, 428), "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    # large parts of the kernel that no model needs
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "memfd_secret": (447, 447), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "personality": (135, 92), "fanotify_init": (300, 262), "syslog": (103, 116),
}  # fmt: skip
"""name -> its number on x86_64 and on aarch64, None where there is no such call."""

_UNKNOWN: dict[str, tuple[int, int]] = {
    "clone3": (435, 435), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "openat2": (437, 437),
}  # fmt: skip
"""As if this kernel had none: the C library then uses ``clone`` and ``openat``, whose flags a filter can see."""


@dataclass(frozen=True, slots=True)
class _Machine:
    """What differs between processors: the kernel's name for one, and the numbers of the calls that are looked into."""

    audit: int
    column: int
    seccomp: int
    clone: int
    kill: int
    tgkill: int
    prlimit: int
    prctl: int
    socketpair: int
    fcntl: int
    ioctl: int
    opens: tuple[tuple[int, int], ...]  # the calls that open by a name, and which argument holds the flags


_MACHINES = {
    "x86_64": _Machine(0xC000003E, 0, 317, 56, 62, 234, 302, 157, 53, 72, 16, ((2, 1), (257, 2))),
    "aarch64": _Machine(0xC00000B7, 1, 277, 220, 129, 131, 261, 167, 199, 25, 29, ((56, 2),)),
}


def refuse_calls(libc: ctypes.CDLL) -> list[str]:
    """Put the filter on every thread of this process, for good; needs no_new_privs. Returns what could not be done."""
    name = os.uname().machine
    if name not in _MACHINES:
        return [f"no filter of system calls is known for {name}: a worker can open sockets and processes"]
    machine = _MACHINES[name]
    code = b"".join(program(name, os.getpid()))
    memory = ctypes.create_string_buffer(code, len(code))
    described = struct.pack("@HP", len(code) // 8, ctypes.addressof(memory))
    if libc.syscall(machine.seccomp, _SET_MODE_FILTER, _TO_ALL_THREADS, described) != 0:
        why = os.strerror(ctypes.get_errno())
        return [f"this kernel took no filter of system calls ({why}): a worker can open sockets and processes"]
    return []


def program(name: str, pid: int) -> Sequence[bytes]:
    """Classic BPF for a machine, ``x86_64`` or ``aarch64``, eight bytes an instruction.

    Each call that is looked into ends in a return of its own, so that no jump is longer than a few.
    """
    machine = _MACHINES[name]
    lines = [
        _line(_LOAD_WORD, _MACHINE_AT),
        _line(_JUMP_EQUAL, machine.audit, 1, 0),
        _line(_RETURN, _KILL),  # another instruction set of the same processor has other numbers
        _line(_LOAD_WORD, _NUMBER_AT),
        _line(_JUMP_AT_LEAST, _X32_BIT, 0, 1),
        _line(_RETURN, _REFUSE | errno.EPERM),
    ]
    for numbers, error in ((_REFUSED, errno.EPERM), (_UNKNOWN, errno.ENOSYS)):
        for each in numbers.values():
            number = each[machine.column]
            if number is not None:
                lines += [_line(_JUMP_EQUAL, number, 0, 1), _line(_RETURN, _REFUSE | error)]
    lines += _when(machine.clone, [_line(_LOAD_WORD, _argument(0)), _line(_JUMP_ANY_BIT, _CLONE_THREAD, 1, 0)])
    for call in (machine.kill, machine.tgkill):
        lines += _when(call, [_line(_LOAD_WORD, _argument(0)), _line(_JUMP_EQUAL, pid, 1, 0)])
    own = [_line(_JUMP_EQUAL, 0, 2, 0), _line(_JUMP_EQUAL, pid, 1, 0)]
    lines += _when(machine.prlimit, [_line(_LOAD_WORD, _argument(0)), *own])
    lines += _when(machine.prctl, [_line(_LOAD_WORD, _argument(0)), _line(_JUMP_EQUAL, _PR_SET_PDEATHSIG, 0, 1)])
    pair = [
        _line(_LOAD_WORD, _argument(0)),
        _line(_JUMP_EQUAL, _UNIX, 0, 3),
        _line(_LOAD_WORD, _argument(1)),
        _line(_AND, _TYPE_BITS),  # a pair of datagram sockets could send to anybody
        _line(_JUMP_EQUAL, _STREAM, 1, 0),
    ]
    lines += _when(machine.socketpair, pair)
    lines += _when(machine.fcntl, _none_of(1, _FCNTL_REFUSED))
    lines += _when(machine.ioctl, _none_of(1, _IOCTL_REFUSED))
    for call, flags in machine.opens:
        lines += _when(call, [_line(_LOAD_WORD, _argument(flags)), _line(_JUMP_ANY_BIT, _CUT_OFF, 0, 1)])
    return [*lines, _line(_RETURN, _ALLOW)]


def _when(number: int, test: Sequence[bytes]) -> list[bytes]:
    """For this call only: ``test``, which falls through to be refused, or jumps one further to be allowed."""
    ends = [_line(_RETURN, _REFUSE | errno.EPERM), _line(_RETURN, _ALLOW)]
    return [_line(_JUMP_EQUAL, number, 0, len(test) + 2), *test, *ends]


def _none_of(place: int, values: Sequence[int]) -> list[bytes]:
    """A test for ``_when``: an argument is none of these."""
    last = len(values) - 1
    tests = [_line(_JUMP_EQUAL, value, last - at, 1 if at == last else 0) for at, value in enumerate(values)]
    return [_line(_LOAD_WORD, _argument(place)), *tests]


def _argument(place: int) -> int:
    """Where the low half of an argument lies; the numbers that are compared are ints to the kernel as well."""
    return _ARGUMENTS_AT + 8 * place


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
