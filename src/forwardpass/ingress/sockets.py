"""The sockets that are listened on: a port of the loopback, or a path of the file system."""

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from forwardpass.core.errors import Code, Misconfigured, Problem

BACKLOG = 2048


def at_port(plane: str, host: str, port: int) -> socket.socket:
    """A listening socket. Raises Misconfigured port_in_use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        found = f"cannot listen on {host}:{port}: {error.strerror}"
        raise _in_use(f"{plane}.port", found, "a free port; 0 takes any") from error
    return _listening(sock)


def beside(sock: socket.socket) -> socket.socket:
    """A further listening socket at the same port: the system gives each its part of who connects. Raises OSError.

    Only now may others share the port: before, somebody else's server there would not have been noticed.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    further = socket.socket(sock.family, socket.SOCK_STREAM)
    try:
        further.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        further.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        further.bind(sock.getsockname())
        return _listening(further)
    except OSError:
        further.close()
        raise


@contextmanager
def at_path(path: str, mode: int) -> Iterator[socket.socket]:
    """A listening Unix socket with these permissions, whose path is taken away at the end.

    What a server that died left there is taken away first. Raises Misconfigured port_in_use when there is a server, or
    anything else.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _clear(path)
        sock.bind(path)
        os.chmod(path, mode)  # until it listens nobody is let in
        ours = os.lstat(path)
    except OSError as error:
        sock.close()
        raise _in_use("data.unix_socket", f"cannot listen on {path}: {error.strerror}", "a free path") from error
    try:
        yield _listening(sock)
    finally:
        sock.close()
        with suppress(FileNotFoundError):
            if os.path.samestat(os.lstat(path), ours):  # not when another server took the path meanwhile
                os.unlink(path)


def _clear(path: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(errno.EEXIST, "there is something that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except BlockingIOError:
            pass  # somebody listens, and is busy
    raise OSError(errno.EADDRINUSE, "another server listens there")


def _listening(sock: socket.socket) -> socket.socket:
    sock.listen(BACKLOG)
    sock.setblocking(False)
    return sock


def _in_use(key: str, found: str, allowed: str) -> Misconfigured:
    return Misconfigured(Code.PORT_IN_USE, (Problem("settings", key, found, allowed),))


def in_url(host: str) -> str:
    """A host as a URL has it."""
    return f"[{host}]" if ":" in host else host
