"""Large bodies between the processes of one server: written into a memory file once, and read there."""

import asyncio
import errno
import fcntl
import mmap
import os
from collections.abc import Sequence

from forwardpass.core.off_loop import OFF_LOOP_BYTES_MIN

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_PARTS_MAX = 512  # in one call


async def write_body(buffers: Sequence[bytes | memoryview], size: int) -> int:
    """The descriptor of a sealed memory file with these in it, much of it written in a thread. Raises OSError."""
    if size < OFF_LOOP_BYTES_MIN:
        return _written(buffers)
    writing = asyncio.get_running_loop().run_in_executor(None, _written, buffers)
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        writing.add_done_callback(_close_written)  # not now: the thread still writes there
        raise


async def read_body(memory: int) -> bytes:
    """All that is in it; the descriptor is closed. Raises OSError, ValueError for what is not sealed."""
    if memory < 0:
        raise OSError(errno.EMFILE, "there was no descriptor for it")
    if os.fstat(memory).st_size < OFF_LOOP_BYTES_MIN:
        return _read(memory)
    return await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, _read, memory))


def body_at(memory: int) -> memoryview:
    """The same without a copy. Raises OSError, ValueError for what is not sealed."""
    if memory < 0:
        raise OSError(errno.EMFILE, "there was no descriptor for it")
    try:
        _check_sealed(memory)
        return memoryview(mmap.mmap(memory, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ))
    finally:
        os.close(memory)


def _check_sealed(memory: int) -> None:
    if fcntl.fcntl(memory, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
        raise ValueError("a memory file that is not sealed")


def _read(memory: int) -> bytes:
    try:
        _check_sealed(memory)  # a file that gets shorter would be read for ever
        size = os.fstat(memory).st_size
        whole = os.pread(memory, size, 0)
        while len(whole) < size:  # one call has a limit near 2 GiB
            whole += os.pread(memory, size - len(whole), len(whole))
        return whole
    finally:
        os.close(memory)


def _written(buffers: Sequence[bytes | memoryview]) -> int:
    memory = os.memfd_create("forwardpass-body", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        _write(memory, buffers)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(memory)
        raise
    return memory


def _close_written(writing: "asyncio.Future[int]") -> None:
    if not writing.cancelled() and writing.exception() is None:
        os.close(writing.result())


def _write(memory: int, buffers: Sequence[bytes | memoryview]) -> None:
    for start in range(0, len(buffers), _PARTS_MAX):
        pending = [view for part in buffers[start : start + _PARTS_MAX] if len(view := memoryview(part).cast("B"))]
        while pending:
            written = os.writev(memory, pending)
            while pending and written >= len(pending[0]):
                written -= len(pending.pop(0))
            if written:
                pending[0] = pending[0][written:]
