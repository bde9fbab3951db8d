"""Who vouches for a version: Ed25519 signatures over the digest of its files, its pipeline's name and its number.

They lie beside what they are about, in ``pipeline.sig`` or ``MODEL.onnx.sig``, and are no part of the digest: several
people can sign one version. Which of them count, the operator says by their public keys.
"""

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forwardpass.core.errors import Code, Misconfigured, Problem, show

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FILE_NAME = "pipeline.sig"
SUFFIX = ".sig"
SIGNATURE_BYTES_MAX = 64 * 1024
SIGNATURES_MAX = 32
KEY_BYTES_MAX = 16 * 1024
_CONTEXT = "forwardpass version, signature 1"
_ALGORITHM = "ed25519"
_FIELDS = ("key", "algorithm", "pipeline", "version", "digest", "signature")
_ADVICE = "pip install 'forwardpass[sign]'"


@dataclass(frozen=True, slots=True)
class Statement:
    """What a signer says: these files, and no others, are this version of this pipeline."""

    pipeline: str
    number: int
    digest: str

    def signed_bytes(self) -> bytes:
        """One line each, beginning with a line that no other thing we sign begins with; none can hold a line's end."""
        return f"{_CONTEXT}\n{self.pipeline}\n{self.number}\n{self.digest}\n".encode()


@dataclass(frozen=True, slots=True)
class Signature:
    """As it is written down. Only ``signature`` proves anything; the rest says what it was made for."""

    key: str
    algorithm: str
    pipeline: str
    version: int
    digest: str
    signature: str


@dataclass(frozen=True, slots=True)
class Signers:
    """The public keys that count, by id. ``places`` is where the operator named each. Without any, nobody is asked."""

    keys: "dict[str, Ed25519PublicKey]"
    places: dict[str, str]

    def verify(self, source: Path, statement: Statement, signatures: Sequence[Signature]) -> tuple[str, ...]:
        """Ids of the keys that signed exactly this. Raises Misconfigured not_signed when there is none, saying why."""
        if not self.keys:
            return ()
        good, problems = [], []
        for each in signatures:
            if each.key not in self.keys:
                problems.append(f'signed by key "{show(each.key)}", which run.signers does not name')
            elif not self._holds(each, statement):
                problems.append(_why_not(each, statement))
            elif each.key not in good:
                good.append(each.key)
        if not good:
            raise _not_signed(source, problems or ["nobody has signed this version"])
        return tuple(good)

    def _holds(self, signature: Signature, statement: Statement) -> bool:
        from cryptography.exceptions import InvalidSignature

        try:
            raw = base64.b64decode(signature.signature, validate=True)
            self.keys[signature.key].verify(raw, statement.signed_bytes())
        except (InvalidSignature, ValueError):  # ValueError: no base64, or letters that are not ASCII
            return False
        return signature.algorithm == _ALGORITHM


NOBODY = Signers({}, {})


def read_signers(values: Iterable[str]) -> Signers:
    """Each value a file with a public key in PEM, or its 32 bytes in base64. Raises Misconfigured settings_invalid."""
    keys: dict[str, Ed25519PublicKey] = {}
    places: dict[str, str] = {}
    for value in values:
        key = _public_key(value)
        keys[key_id(key)] = key
        places[key_id(key)] = value
    return Signers(keys, places)


def key_id(key: "Ed25519PublicKey") -> str:
    """The first half of the sha256 of a public key's 32 bytes, in hex."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:32]


def sign(statement: Statement, key_file: Path) -> Signature:
    """Raises Misconfigured for a file that holds no private Ed25519 key without a passphrase."""
    key = _private_key(key_file)
    raw = base64.b64encode(key.sign(statement.signed_bytes())).decode()
    return Signature(key_id(key.public_key()), _ALGORITHM, statement.pipeline, statement.number, statement.digest, raw)


def new_key(file: Path) -> tuple[Path, str]:
    """Write a new private key, for its owner only, and FILE.pub; returns that and the key's id. Neither may exist.

    Raises Misconfigured; neither is left behind then.
    """
    ed25519, serialization = _library()
    if not file.name:
        raise _bad_key(str(file), "names no file", "a new file in a folder")
    public_file = file.with_name(f"{file.name}.pub")
    if os.path.lexists(public_file):
        raise _bad_key(str(public_file), "is there already", "a new name")
    key = ed25519.Ed25519PrivateKey.generate()
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    with ExitStack() as undone:
        for place, data, mode in ((file, private, 0o600), (public_file, public, 0o644)):
            try:
                descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
                undone.callback(place.unlink, missing_ok=True)
                with os.fdopen(descriptor, "wb") as written:
                    written.write(data)
            except OSError as error:
                raise _bad_key(str(place), "cannot be written", "a new file in a folder", detail=str(error)) from error
        undone.pop_all()
    return public_file, key_id(key.public_key())


def encode(signatures: Sequence[Signature]) -> bytes:
    return (json.dumps({"signatures": [asdict(each) for each in signatures]}, indent=2) + "\n").encode()


def decode(data: bytes, file: str) -> tuple[Signature, ...]:
    """Strict inverse of ``encode``. Raises Misconfigured not_signed for anything else."""
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _no_signatures(file, "cut short, or no JSON", detail=str(error)) from error
    match plain:
        case {"signatures": list(listed), **rest} if not rest and 0 < len(listed) <= SIGNATURES_MAX:
            return tuple(_decoded(each, file) for each in listed)
    raise _no_signatures(file, f"no list of 1 to {SIGNATURES_MAX} signatures")


def joined(old: Sequence[Signature], new: Signature) -> tuple[Signature, ...]:
    """With the new one; without those of other files, another name or number, and what its signer said before.

    Raises Misconfigured not_signed when there are more than ``decode`` and whoever reads the file take.
    """
    said = (new.pipeline, new.version, new.digest)
    kept = [each for each in old if (each.pipeline, each.version, each.digest) == said and each.key != new.key]
    every = (*kept, new)
    if len(every) > SIGNATURES_MAX or len(encode(every)) > SIGNATURE_BYTES_MAX:
        found = f"{len(every)} signatures of these files"
        allowed = f"at most {SIGNATURES_MAX}, in {SIGNATURE_BYTES_MAX} bytes: remove those that nobody asks for"
        raise Misconfigured(Code.NOT_SIGNED, (Problem("", "", found, allowed),))
    return every


def cannot_write(place: Path, detail: str) -> Misconfigured:
    return _bad_key(str(place), "cannot be written", "a folder that may be written to", detail=detail)


def _decoded(plain: Any, file: str) -> Signature:
    match plain:
        case {
            "key": str(key), "algorithm": str(algorithm), "pipeline": str(pipeline), "version": int(version),
            "digest": str(digest), "signature": str(signature),
        } if len(plain) == len(_FIELDS) and type(version) is int and 0 < version < 2**31:  # fmt: skip
            return Signature(key, algorithm, pipeline, version, digest, signature)
    raise _no_signatures(file, f"a signature that does not have exactly {', '.join(_FIELDS)}")


def _why_not(signature: Signature, statement: Statement) -> str:
    """In words, by what the file says the signature was made for."""
    key = show(signature.key)
    if signature.algorithm != _ALGORITHM:
        return f'key "{key}": the algorithm "{show(signature.algorithm)}", not {_ALGORITHM}'
    if (signature.pipeline, signature.version) != (statement.pipeline, statement.number):
        named = f"{show(signature.pipeline)} version {signature.version}"
        return f'key "{key}" signed {named}, and this is {statement.pipeline} version {statement.number}'
    if signature.digest != statement.digest:
        return f'key "{key}" signed other files: they have changed since (digest {statement.digest})'
    return f'key "{key}": the signature is damaged, or was not made by that key'


def _not_signed(source: Path, problems: Sequence[str]) -> Misconfigured:
    allowed = "signed by a key of run.signers: forwardpass sign PATH --key FILE"
    return Misconfigured(Code.NOT_SIGNED, tuple(Problem(str(source), "", problem, allowed) for problem in problems))


def _no_signatures(file: str, found: str, detail: str = "") -> Misconfigured:
    problem = Problem(file, "", found, "what forwardpass sign writes")
    return Misconfigured(Code.NOT_SIGNED, (problem,), detail=detail)


def _public_key(value: str) -> "Ed25519PublicKey":
    ed25519, serialization = _library()
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        raw = base64.b64decode(value, validate=True)
    except ValueError:
        raw = b""
    try:
        if len(raw) == 32:
            return ed25519.Ed25519PublicKey.from_public_bytes(raw)  # type: ignore[no-any-return] # typed as Any
        key = serialization.load_pem_public_key(_key_bytes(Path(value), "run.signers"))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _bad_key(
            show(value), "no public key in PEM", "an Ed25519 public key", "run.signers", str(error)
        ) from error
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise _bad_key(show(value), "a public key of another algorithm", "an Ed25519 public key", "run.signers")
    return key  # type: ignore[no-any-return] # typed as Any


def _private_key(file: Path) -> "Ed25519PrivateKey":
    ed25519, serialization = _library()
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        key = serialization.load_pem_private_key(_key_bytes(file, "--key"), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:  # TypeError: there is a passphrase
        allowed = "what forwardpass sign --new-key writes: an Ed25519 private key in PEM, not encrypted"
        raise _bad_key(str(file), "no private key that can be used", allowed, "--key", str(error)) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise _bad_key(str(file), "a private key of another algorithm", "an Ed25519 private key", "--key")
    return key  # type: ignore[no-any-return] # typed as Any


def _key_bytes(file: Path, key: str) -> bytes:
    try:
        with file.open("rb") as opened:
            data = opened.read(KEY_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise _bad_key(show(str(file)), "cannot be read", "a file with a key in PEM", key, str(error)) from error
    if len(data) > KEY_BYTES_MAX:
        raise _bad_key(str(file), "too large for a key", f"at most {KEY_BYTES_MAX} bytes", key)
    return data


def _bad_key(file: str, found: str, allowed: str, key: str = "", detail: str = "") -> Misconfigured:
    return Misconfigured(Code.SETTINGS_INVALID, (Problem(file, key, found, allowed),), detail=detail)


def _library() -> tuple[Any, Any]:
    """Raises Misconfigured runtime_missing, naming the extra."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        problem = Problem("", "", "signatures need cryptography, which is not installed", _ADVICE)
        raise Misconfigured(Code.RUNTIME_MISSING, (problem,), detail=str(error)) from error
    return ed25519, serialization
