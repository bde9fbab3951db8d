"""A process that forks workers: it has imported what each of them needs, and holds nothing of any version.

It is a single thread, so a worker has no lock that another thread held, and its box binds all of it. A worker is forked
twice, so that its parent is the front: that alone tells how it ended, and it does not end with this process.
"""

import gc
import os
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


def main() -> None:
    """``python -m forwardpass.execution.forking``, started by ``template.py`` only; its control is its standard input."""
    control = socket.socket(fileno=os.dup(0))
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
            if _forked(control):
                _take_over(packet, descriptors)
                return True
        except OSError as error:
            control.send(PID.pack(-(error.errno or 1)))
        for descriptor in descriptors:
            os.close(descriptor)


def _forked(control: socket.socket) -> bool:
    """True in the worker, once the front is its parent and knows its pid. Raises OSError when there can be no process."""
    gone, between = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            worker = os.fork()
        except OSError as error:
            os._exit(min(error.errno or 1, 255))
        if worker:
            os._exit(0)
        os.close(between)
        if not os.read(gone, 1):
            os._exit(0)  # this process's maker was ended, and the front has given up on it
        os.close(gone)
        os.setsid()
        control.send(PID.pack(os.getpid()))
        return True
    os.close(gone)
    _, status = os.waitpid(middle, 0)  # from here on the front is the worker's parent
    failed = os.waitstatus_to_exitcode(status)
    if not failed:
        os.write(between, b"+")
    os.close(between)
    if failed:
        raise OSError(failed, "fork")
    return False


def _take_over(packet: bytes, descriptors: list[int]) -> None:
    """The state in which ``boxed`` begins: its arguments, and its descriptors alone."""
    end, marks, output = descriptors
    for descriptor, place in ((end, 0), (output, 1), (output, 2), (marks, MARKS)):
        os.dup2(descriptor, place)
    os.closerange(MARKS + 1, 2**20)
    parent, memory_max_bytes, folder = packet.split(b"\0")
    sys.argv[1:] = [parent.decode(), memory_max_bytes.decode(), str(MARKS), os.fsdecode(folder)]
    if "numpy.random" in sys.modules:  # Python's own generator is seeded anew by fork itself
        sys.modules["numpy.random"].seed()


if __name__ == "__main__":
    main()
