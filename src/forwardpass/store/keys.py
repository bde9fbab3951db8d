"""The keys of callers, in one SQLite file that only its owner can read. Of a key its digest is kept, never itself."""

import base64
import hashlib
import os
import sqlite3
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
_HEADER_BYTES = 28  # of SQLite's file format: bytes 24 to 27 count the changes
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
    """Every call opens the file anew. All raise Misconfigured store_locked when it cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / FILE

    def add(self, key: Key) -> None:
        """Raises Misconfigured conflict where a key that is not revoked has the same subject."""
        with self._opened(create=True) as connection:
            taken = "SELECT id FROM keys WHERE subject = ? AND subject != '' AND revoked_s IS NULL"
            for (id,) in connection.execute(taken, (key.subject,)):
                raise Misconfigured(Code.CONFLICT, (Problem("", "subject", f"key {id} has it already", "revoke that"),))
            values = (
                key.id, key.digest or None, key.tenant, " ".join(sorted(key.scopes)), key.priority,
                key.created_s, key.expires_s, key.revoked_s, key.note, key.subject,
            )  # fmt: skip
            connection.execute(f"INSERT INTO keys ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def listed(self) -> tuple[Key, ...]:
        """All there are, the revoked ones too, the oldest first; none where there is no file."""
        if not self._path.exists():
            return ()
        with self._opened() as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM keys ORDER BY created_s, id").fetchall()
        return tuple(
            Key(id, tenant, frozenset(scopes.split()), created_s, digest or b"", priority, expires_s, revoked_s, *rest)
            for id, digest, tenant, scopes, priority, created_s, expires_s, revoked_s, *rest in rows
        )

    def revoke(self, id: str, now_s: float) -> bool:
        """Whether there is such a key; one that is revoked already stays so."""
        if not self._path.exists():
            return False
        with self._opened() as connection:
            change = "UPDATE keys SET revoked_s = coalesce(revoked_s, ?) WHERE id = ?"
            return connection.execute(change, (now_s, id)).rowcount > 0

    def mark(self) -> object:
        """Another one after every change, without a query; None where there is no file. Raises OSError."""
        try:
            with self._path.open("rb") as file:
                return os.fstat(file.fileno()).st_ino, file.read(_HEADER_BYTES)[24:]
        except FileNotFoundError:
            return None

    @contextmanager
    def _opened(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection; what was done is kept at the end of the block."""
        try:
            if create:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
                self._path.chmod(0o600)
            place = f"file:{quote(str(self._path))}?mode=rw"
            with closing(sqlite3.connect(place, LOCKED_S, uri=True)) as connection, connection:
                if create:
                    connection.execute(_TABLE)
                yield connection
        except (sqlite3.Error, OSError) as error:
            problem = Problem(str(self._path), "", f"cannot be used: {error}", "the store of keys, which we may write")
            raise Misconfigured(Code.STORE_LOCKED, (problem,)) from error
