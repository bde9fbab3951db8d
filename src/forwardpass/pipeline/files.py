"""Files of a pipeline folder, opened beneath it without following any link (FAULTS R5)."""

import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from forwardpass.core.errors import Code, Misconfigured, Problem

CHUNK_BYTES = 1024 * 1024
PART_BYTES_MAX = 255
DEPTH_MAX = 16
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: a FIFO put in the place of a file must not stop us before we see what it is
_OPEN_FILE = _OPEN | os.O_NONBLOCK | os.O_NOCTTY


def name_problem(name: str) -> str:
    """Why this is no plain name of a file inside a pipeline folder; "" when it is one."""
    if not name:
        return "an empty name"
    if name.startswith("/"):
        return "an absolute path"
    parts = name.split("/")
    if ".." in parts:
        return "a path that leaves the folder"
    if len(parts) > DEPTH_MAX:
        return f"a path of more than {DEPTH_MAX} parts"
    for part in parts:
        if part == "" or part.startswith("."):
            return "a path with an empty or hidden part"
        if "\\" in part or not part.isprintable() or len(part.encode("utf-8", "surrogateescape")) > PART_BYTES_MAX:
            return "a name with unprintable characters, a backslash or over 255 bytes"
    return ""


def kind_problem(status: os.stat_result) -> str:
    """Why what has this status is not taken as a file; "" when it is a regular file with one name."""
    if stat.S_ISREG(status.st_mode):
        return "" if status.st_nlink == 1 else "a file with hard links"
    kinds: tuple[tuple[Callable[[int], bool], str], ...] = (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a folder, not a file"),
        (stat.S_ISFIFO, "a pipe (FIFO), not a file"),
        (stat.S_ISSOCK, "a socket, not a file"),
    )
    return next((text for test, text in kinds if test(status.st_mode)), "a device, not a file")


def file_problem(folder: Path, name: str) -> str:
    """Why ``name`` is no file of ``folder``; "" when it is one."""
    problem = name_problem(name)
    if problem:
        return problem
    place = folder
    parts = name.split("/")
    for part in parts:
        place /= part
        try:
            status = place.lstat()
        except OSError:
            return "no such file in the folder"
        last = place == folder.joinpath(*parts)
        if not last and not stat.S_ISDIR(status.st_mode):
            return kind_problem(status) or "a path through a file"
    return kind_problem(status)


def identity(status: os.stat_result) -> tuple[int, int, int, int]:
    """What differs once a file is replaced or written to."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def open_folder(path: Path) -> int:
    """A descriptor of a folder, no part of whose resolved path is a symbolic link."""
    assert path.is_absolute(), "resolve it first"
    root = os.open("/", _OPEN | os.O_DIRECTORY)
    try:
        return open_below(root, path.parts[1:])
    finally:
        os.close(root)


def open_file(folder: int, name: str) -> int:
    """A descriptor of a regular file beneath ``folder``; raises Misconfigured when there is none of that kind."""
    problem = name_problem(name)
    if problem:
        raise _refused(name, problem)
    *parents, last = name.split("/")
    try:
        parent = open_below(folder, parents)
        try:
            before = os.stat(last, dir_fd=parent, follow_symlinks=False)  # a device is refused before it is opened
            if kind_problem(before):
                raise _refused(name, kind_problem(before))
            opened = os.open(last, _OPEN_FILE, dir_fd=parent)
        finally:
            os.close(parent)
    except OSError as error:
        raise _refused(name, "cannot be opened as a file of this folder", detail=str(error)) from error
    if kind_problem(os.fstat(opened)):
        os.close(opened)
        raise _refused(name, "changed its kind while it was opened")
    return opened


def sha256_of(descriptor: int, size_max: int, write: Callable[[bytes], object] = len) -> tuple[str, int]:
    """(sha256 in hex, bytes read) of an open file up to ``size_max`` + 1 bytes, each chunk also given to ``write``."""
    digest = hashlib.sha256()
    count = 0
    while count <= size_max:
        chunk = os.read(descriptor, min(CHUNK_BYTES, size_max + 1 - count))
        if not chunk:
            break
        digest.update(chunk)
        count += len(chunk)
        write(chunk)
    return digest.hexdigest(), count


def sync_folder(path: Path) -> None:
    """Make what was created or renamed in a folder survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes) -> None:
    """Create a file that must not exist yet, durable when this returns."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def open_below(folder: int, parts: Sequence[str]) -> int:
    """A descriptor of a folder beneath an open one, again without following links."""
    current = os.dup(folder)
    for part in parts:
        try:
            below = os.open(part, _OPEN | os.O_DIRECTORY, dir_fd=current)
        finally:
            os.close(current)
        current = below
    return current


def _refused(name: str, found: str, detail: str = "") -> Misconfigured:
    problem = Problem(name, "", found, "only regular files inside the pipeline folder are taken in")
    return Misconfigured(Code.MODEL_INVALID, (problem,), detail=detail)
