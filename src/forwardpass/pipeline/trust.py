"""The operator's list of version digests whose own Python may run: data never becomes code without it (FAULTS R3)."""

import fcntl
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from forwardpass.core.clock import random_id
from forwardpass.core.errors import Code, Misconfigured, Problem, show
from forwardpass.pipeline.files import sync_folder, write_file

TRUST_BYTES_MAX = 4 * 1024 * 1024
WHY_CHARACTERS_MAX = 200
_HEADING = "# Digests of versions whose own code may run; written by `forwardpass trust`.\n"
_LINE = re.compile(r"([0-9a-f]{64})(?: (.*))?")


@dataclass(frozen=True, slots=True)
class Trust:
    """The list kept in the file ``path``. Every question reads the file anew: it is changed from other processes."""

    path: Path

    def __contains__(self, digest: str) -> bool:
        return digest in self.reasons()

    def add(self, digest: str, why: str) -> None:
        """Trust a digest from now on; ``why`` is one line for whoever reads the file later."""
        if not _LINE.fullmatch(digest) or " " in digest:
            raise _invalid("", show(digest), "a digest: 64 hexadecimal digits")
        if not why.isprintable() or len(why) > WHY_CHARACTERS_MAX:
            raise _invalid("", show(why), f"a reason of at most {WHY_CHARACTERS_MAX} printable characters")
        with self._locked():
            self._rewrite({**self.reasons(), digest: why})

    def remove(self, digest: str) -> bool:
        """Trust a digest no more; False when it was not trusted."""
        with self._locked():
            reasons = self.reasons()
            known = reasons.pop(digest, None) is not None
            self._rewrite(reasons)
        return known

    def reasons(self) -> dict[str, str]:
        """Trusted digest -> why. Raises Misconfigured (settings_invalid) for a file with any other line."""
        try:
            with self.path.open("rb") as file:
                data = file.read(TRUST_BYTES_MAX + 1)
            text = data.decode()
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise _invalid(str(self.path), "cannot be read as UTF-8 text", "", detail=str(error)) from error
        if len(data) > TRUST_BYTES_MAX:
            raise _invalid(str(self.path), "too large", f"at most {TRUST_BYTES_MAX} bytes")
        reasons = {}
        for number, line in enumerate(text.split("\n"), start=1):
            if not line or line.startswith("#"):
                continue
            found = _LINE.fullmatch(line)
            if not found:
                raise _invalid(
                    str(self.path), show(line), "a digest (64 hexadecimal digits), a space, a reason", number
                )
            reasons[found[1]] = found[2] or ""
        return reasons

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time, over all processes; the lock goes with the descriptor."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_name(f"{self.path.name}.lock").open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _rewrite(self, reasons: dict[str, str]) -> None:
        draft = self.path.with_name(f".tmp-{random_id()}")
        lines = "".join(f"{digest} {why}".rstrip() + "\n" for digest, why in reasons.items())
        try:
            write_file(draft, (_HEADING + lines).encode())
            draft.replace(self.path)
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(self.path.parent)


def not_trusted(source: Path, digest: str) -> Misconfigured:
    """What to answer when a version with own code is not in the list: exactly how to put it there."""
    problem = Problem(
        str(source),
        "",
        f"this version has code of its own and nobody has said that it may run (digest {digest})",
        f"read it, then run: forwardpass trust {shlex.quote(str(source))}",
    )
    return Misconfigured(Code.NOT_TRUSTED, (problem,))


def _invalid(file: str, found: str, allowed: str, line: int | None = None, *, detail: str = "") -> Misconfigured:
    return Misconfigured(Code.SETTINGS_INVALID, (Problem(file, "", found, allowed, line),), detail=detail)
