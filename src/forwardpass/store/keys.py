"""The keys of callers, in one SQLite file that only its owner can read. Of a key its digest is kept, never itself."""

import base64
import hashlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args
from urllib.parse import quote

from forwardpass.core.caller import Caller, Priority
from forwardpass.core.clock import random_bytes
from forwardpass.core.errors import Code, Misconfigured, Problem

FILE = "keys.sqlite"
SECRET_BYTES = 32
ID_BYTES = 5  # 8 characters
LOCKED_S = 5.0  # how long another process may keep us waiting
NOTE_CHARACTERS_MAX = 200
SUBJECT_CHARACTERS_MAX = 512
_CHANGES_AT = 24  # of SQLite's file format: these 4 bytes count the changes
_SUFFIXES = ("-journal", "-wal", "-shm")  # of what SQLite keeps beside the file
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_TABLE = f"""CREATE TABLE IF NOT EXISTS keys (
    id TEXT PRIMARY KEY, digest BLOB UNIQUE, tenant TEXT NOT NULL, scopes TEXT NOT NULL,
    priority TEXT NOT NULL CHECK (priority IN {get_args(Priority)}),
    created_s REAL NOT NULL, expires_s REAL, revoked_s REAL, note TEXT NOT NULL, subject TEXT NOT NULL
)"""
_COLUMNS = "id, digest, tenant, scopes, priority, created_s, expires_s, revoked_s, note, subject"


@dataclass(frozen=True, slots=True)
class Key:
    """One caller. It is told by its secret, of which ``digest`` is the SHA-256, or by a certificate's ``subject``."""

    id: str
    tenant: str
    scopes: frozenset[str]
    created_s: float
    digest: bytes = field(default=b"", repr=False)
    priority: Priority = "standard"
    expires_s: float | None = None
    revoked_s: float | None = None
    note: str = ""
    subject: str = ""

    @property
    def caller(self) -> Caller:
        return Caller(self.tenant, self.id, self.scopes, self.priority, self.expires_s)

    def holds(self, now_s: float) -> bool:
        """Whether it is neither revoked nor expired; ``now_s`` since 1970."""
        return self.revoked_s is None and (self.expires_s is None or now_s < self.expires_s)


def digest_of(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def new_id() -> str:
    return base64.b32encode(random_bytes(ID_BYTES)).decode().lower()


def new_secret(id: str) -> str:
    """``fp_ID_`` and 256 random bits."""
    return f"fp_{id}_{base64.urlsafe_b64encode(random_bytes(SECRET_BYTES)).decode().rstrip('=')}"


class KeyStore:
    """Every call opens the file anew, which must be a plain one of ours or root's that nobody else may write: whoever
    writes it says who may ask. All raise Misconfigured store_locked when it cannot be used, and say whose it is."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def add(self, key: Key) -> None:
        """Raises Misconfigured conflict where a key that is not revoked has the same subject."""
        with self._opened(create=True) as connection:
            connection.execute("BEGIN IMMEDIATE")  # nobody else adds between the look and the insertion
            taken = "SELECT id, expires_s FROM keys WHERE subject = ? AND subject != '' AND revoked_s IS NULL"
            for id, expires_s in connection.execute(taken, (key.subject,)):
                expired = ", though it has expired" if expires_s is not None and expires_s <= key.created_s else ""
                problem = Problem("", "subject", f"key {id} has it{expired}", f"forwardpass keys revoke {id} first")
                raise Misconfigured(Code.CONFLICT, (problem,))
            values = (
                key.id, key.digest or None, key.tenant, " ".join(sorted(key.scopes)), key.priority,
                key.created_s, key.expires_s, key.revoked_s, key.note, key.subject,
            )  # fmt: skip
            connection.execute(f"INSERT INTO keys ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def listed(self) -> tuple[Key, ...]:
        """All there are, the revoked ones too, the oldest first; none where there is no file."""
        if self.mark() is None:
            return ()
        with self._opened() as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM keys ORDER BY created_s, id").fetchall()
        return tuple(
            Key(id, tenant, frozenset(scopes.split()), created_s, digest or b"", priority, expires_s, revoked_s, *rest)
            for id, digest, tenant, scopes, priority, created_s, expires_s, revoked_s, *rest in rows
        )

    def revoke(self, id: str, now_s: float) -> bool:
        """Whether there is such a key; one that is revoked already stays so."""
        if self.mark() is None:
            return False
        with self._opened() as connection:
            change = "UPDATE keys SET revoked_s = coalesce(revoked_s, ?) WHERE id = ?"
            return connection.execute(change, (now_s, id)).rowcount > 0

    def mark(self) -> object:
        """Another one after a change of the file, without a query; None where there is no file.

        A change that another program made in SQLite's WAL mode is not seen.
        """
        with self._usable():
            try:
                # A FIFO must not keep us waiting, nor a link lead elsewhere.
                file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                found = os.fstat(file)
                _check(found, "it")
                self._check_beside()
                counter = os.pread(file, 4, _CHANGES_AT)
            finally:
                os.close(file)
            return found.st_ino, found.st_ctime_ns, found.st_size, counter

    def _check_beside(self) -> None:
        """SQLite carries out a journal that it finds. Raises OSError where somebody else could have put one there."""
        folder = self.path.parent.stat()
        if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
            raise OSError("everybody may write in its folder")
        for suffix in _SUFFIXES:
            try:
                found = os.lstat(f"{self.path}{suffix}")
            except FileNotFoundError:
                continue
            _check(found, f"its {suffix}")

    @contextmanager
    def _opened(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection; what was done is kept at the end of the block."""
        with self._usable():
            if create:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                if self.mark() is None:
                    self._check_beside()
                    os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
                self.path.chmod(0o600)
            place = f"file:{quote(str(self.path))}?mode=rw"
            with closing(sqlite3.connect(place, LOCKED_S, uri=True)) as connection, connection:
                if create:
                    connection.execute(_TABLE)
                yield connection

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            found = f"cannot be used ({_owner(self.path)}, this is user {os.geteuid()}): {why}"
            expected = (
                "a plain file of this user's or root's that nobody else may write (chmod 600), nor put another beside"
            )
            raise Misconfigured(Code.STORE_LOCKED, (Problem(str(self.path), "", found, expected),)) from error


def _check(found: os.stat_result, what: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{what} is no plain file")
    if found.st_uid not in (0, os.geteuid()):
        raise OSError(f"{what} belongs to somebody else")
    if found.st_mode & _OTHERS_WRITE:
        raise OSError(f"others may write {what}")


def _owner(path: Path) -> str:
    """Whose it is, or the nearest folder that can be looked at."""
    for place in (path, *path.parents):
        try:
            return f"{'it' if place == path else place} is of user {place.lstat().st_uid}"
        except OSError:
            continue
    return "nobody can say whose it is"
