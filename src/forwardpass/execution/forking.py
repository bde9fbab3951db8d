"""A process that forks workers: it has imported what each of them needs, and holds nothing of any version.

It is a single thread, so a worker has no lock that another thread held, and its box binds all of it. A worker is forked
twice, so that its parent is the front: that alone tells how it ended, and it does not end with this process.
"""

import ctypes
import errno
import gc
import os
import signal
import socket
import struct
import sys

from forwardpass.execution import boxed

PID = struct.Struct("<i")
"""The answer to an order: the worker's pid, or the number of the error negated."""

DESCRIPTORS = 3  # standard input, the board, standard output
MARKS = 3  # the board's in a worker
ORDER_BYTES_MAX = 65_536
USUAL_ENGINE = "onnxruntime"
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """``python -m forwardpass.execution.forking``, started by ``template.py`` only; its control is its standard input."""
    control = socket.socket(fileno=os.dup(0))
    ctypes.CDLL(None).prctl(
        _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0
    )  # stopped, it would not see that the front is gone
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    import forwardpass.execution.reference
    import forwardpass.execution.worker  # noqa: F401 - here already when a worker imports them
    from forwardpass.engines.discover import engine_kind

    engine_kind(USUAL_ENGINE)
    if not _is_single():
        sys.exit("a library has threads that outlive a fork")
    gc.collect()
    gc.freeze()  # else the collector would write to every page that workers share with this process
    if _ordered(control):
        boxed.main()


def _is_single() -> bool:
    """OpenBLAS ends its threads when a process forks, and starts them again in whichever needs them."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return len(os.listdir("/proc/self/task")) == 1


def _ordered(control: socket.socket) -> bool:
    """Fork a worker for each order. True in such a worker, with the arguments of ``boxed``; False when the front is gone."""
    while True:
        packet, descriptors, _, _ = socket.recv_fds(control, ORDER_BYTES_MAX, DESCRIPTORS)
        if not packet:
            return False
        try:
            told = _forked()
        except OSError as error:
            control.send(PID.pack(-(error.errno or errno.EAGAIN)))
        else:
            if told is not None:
                _introduce(control, told)
                _take_over(packet, descriptors)
                return True
        for descriptor in descriptors:
            os.close(descriptor)


def _forked() -> int | None:
    """In the worker, where it is told that the front is its parent; else None. Raises OSError, here only, when none can be."""
    told, between = os.pipe()
    try:
        middle = os.fork()
    except OSError:
        os.close(told)
        os.close(between)
        raise
    if middle == 0:
        try:
            worker = os.fork()
        except OSError as error:
            os._exit(min(error.errno or errno.EAGAIN, 255))
        if worker:
            os._exit(0)
        os.close(between)
        return told
    os.close(told)
    with open(between, "wb", 0) as between_us:
        _, status = os.waitpid(middle, 0)  # from here on the front is the worker's parent
        failed = os.waitstatus_to_exitcode(status)
        if failed:
            raise OSError(failed if failed > 0 else errno.EAGAIN, "fork")
        between_us.write(b"+")
    return None


def _introduce(control: socket.socket, told: int) -> None:
    """Once the front is the worker's parent, it gets to know the worker's pid."""
    if not os.read(told, 1):
        os._exit(0)  # this process's maker was ended, and the front has given up on it
    os.close(told)
    os.setsid()
    control.send(PID.pack(os.getpid()))
    control.close()  # now: its number is another's soon


def _take_over(packet: bytes, descriptors: list[int]) -> None:
    """The state in which ``boxed`` begins: its arguments, and its descriptors alone."""
    end, marks, output = descriptors
    for descriptor, place in ((end, 0), (output, 1), (output, 2), (marks, MARKS)):
        os.dup2(descriptor, place)
    os.closerange(MARKS + 1, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    parent, memory_max_bytes, folder = packet.split(b"\0")
    sys.argv[1:] = [parent.decode(), memory_max_bytes.decode(), str(MARKS), os.fsdecode(folder)]
    if "numpy.random" in sys.modules:  # Python's own generator is seeded anew by fork itself
        sys.modules["numpy.random"].seed()


if __name__ == "__main__":
    main()
