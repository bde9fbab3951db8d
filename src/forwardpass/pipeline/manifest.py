"""The manifest of a version: size and sha256 of each of its files. Its own sha256 is the version's digest."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forwardpass.core.errors import Code, Misconfigured, Problem, show
from forwardpass.pipeline.files import name_problem, open_file

FILE_NAME = "manifest.json"
MANIFEST_BYTES_MAX = 16 * 1024 * 1024
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Entry:
    size: int
    sha256: str


Manifest = Mapping[str, Entry]
"""File name within the folder -> what it holds. The manifest itself is not listed."""


def encode(manifest: Manifest) -> bytes:
    """Canonical: the same files give the same bytes."""
    plain = {name: {"size": entry.size, "sha256": entry.sha256} for name, entry in manifest.items()}
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def decode(data: bytes, file: str) -> Manifest:
    """Strict inverse of ``encode`` (any white space). Raises Misconfigured (digest_mismatch)."""
    try:
        plain = json.loads(data, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise mismatch(Problem(file, "", "no JSON, or a key twice", "a manifest"), detail=str(error)) from error
    if not isinstance(plain, dict):
        raise mismatch(Problem(file, "", "no JSON object", "a manifest"))
    return {name: _entry(name, value, file) for name, value in plain.items()}


def digest_of(manifest: Manifest) -> str:
    """The version's digest, in hex."""
    return hashlib.sha256(encode(manifest)).hexdigest()


def compare(expected: Manifest, found: Manifest, file: str) -> None:
    """Raises Misconfigured (digest_mismatch) with every file that is missing, too many or different."""
    problems = []
    for name in sorted({*expected, *found}):
        if name not in found:
            problems.append(Problem(file, name, "is missing", "the manifest lists it"))
        elif name not in expected:
            problems.append(Problem(file, name, "is not in the manifest", "exactly the files it lists"))
        elif expected[name] != found[name]:
            entry = found[name]
            problems.append(
                Problem(file, name, f"{entry.size} bytes, sha256 {entry.sha256}", f"in the manifest: {expected[name]}")
            )
    if problems:
        raise mismatch(*problems)


def read_bytes(folder: int, name: str, size_max: int) -> bytes:
    """A small file beneath an open folder, whole. Raises Misconfigured when it is larger."""
    descriptor = open_file(folder, name)
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(size_max + 1)
    if len(data) > size_max:
        raise Misconfigured(Code.DEFINITION_INVALID, (Problem(name, "", "too large", f"at most {size_max} bytes"),))
    return data


def _entry(name: str, value: Any, file: str) -> Entry:
    match value:
        case {"size": int(size), "sha256": str(sha256)} if (
            len(value) == 2 and type(size) is int and size >= 0 and _SHA256.fullmatch(sha256) and not name_problem(name)
        ):
            return Entry(size, sha256)
    raise mismatch(Problem(file, show(name), show(value), "a plain file name with its size and sha256"))


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a key is there twice")
    return table


def mismatch(*problems: Problem, detail: str = "") -> Misconfigured:
    """Files that are not those of a manifest."""
    return Misconfigured(Code.DIGEST_MISMATCH, problems, detail=detail)
