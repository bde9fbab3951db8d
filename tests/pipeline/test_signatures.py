"""Who vouches for a version: what is signed, what counts, and what is refused with its reason."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Version
from forwardpass.pipeline.intake import Patience
from forwardpass.pipeline.repository import digest_of, scan, take_in
from forwardpass.pipeline.signatures import Statement, decode, encode, joined, new_key, read_signers, sign
from forwardpass.pipeline.trust import Trust
from forwardpass.steps.protocol import StepKind

AT_ONCE = Patience(settle_s=0.0)
DEFINITION = '[[steps]]\nuse = "model"\nengine = "onnxruntime"\nfile = "model.onnx"\n'

TakeIn = Callable[..., Version]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    new_key(tmp_path / "key.pem")
    return tmp_path / "key.pem"


@pytest.fixture
def version(model_folder: Path) -> Path:
    (model_folder / "pipeline.toml").write_text(DEFINITION)
    return model_folder


@pytest.fixture
def take(tmp_path: Path, step_kinds: Mapping[str, StepKind]) -> TakeIn:
    """Take a place in, asking for the signature of one of these keys."""

    def act(place: Path, *keys: Path) -> Version:
        signers = read_signers([f"{key}.pub" for key in keys])
        store, trust = tmp_path / "data" / "store", Trust(tmp_path / "data" / "trusted")
        found = scan(place).found[0]
        return take_in(found, store, kinds=step_kinds, trusted=trust, signers=signers, patience=AT_ONCE)

    return act


def signed(place: Path, key: Path, store: Path, into: str = "pipeline.sig") -> Path:
    """Sign what is at a place, as the command does."""
    (found,) = scan(place).found
    made = sign(Statement(found.pipeline, found.number, digest_of(found, store, patience=AT_ONCE)), key)
    file = found.folder / into
    file.write_bytes(encode((made,)))
    return file


def refusal(take: TakeIn, place: Path, *keys: Path, code: Code = Code.NOT_SIGNED) -> str:
    with pytest.raises(Misconfigured) as caught:
        take(place, *keys)
    assert caught.value.code is code, str(caught.value)
    return str(caught.value)


def test_what_is_signed_is_four_lines_that_anybody_can_verify(tmp_path: Path) -> None:
    private = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    file = tmp_path / "made-elsewhere.pem"
    file.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    made = sign(Statement("reviews", 3, "ab" * 32), file)
    text = f"forwardpass version, signature 1\nreviews\n3\n{'ab' * 32}\n".encode()
    private.public_key().verify(base64.b64decode(made.signature), text)


def test_a_new_key_is_for_its_owner_only_and_never_written_over(key: Path) -> None:
    assert (key.stat().st_mode & 0o777, key.read_bytes()[:27]) == (0o600, b"-----BEGIN PRIVATE KEY-----")
    with pytest.raises(Misconfigured):
        new_key(key)
    Path(f"{key}.pub").unlink()
    with pytest.raises(Misconfigured):
        new_key(key)


def test_a_signed_version_is_taken_in_and_says_by_whom(version: Path, key: Path, take: TakeIn, tmp_path: Path) -> None:
    signed(version, key, tmp_path / "data")
    taken = take(version, key)
    assert taken.signers == tuple(read_signers([f"{key}.pub"]).keys)
    assert not list(Path(taken.folder).glob("*.sig"))


def test_a_signature_is_no_part_of_the_digest(version: Path, key: Path, take: TakeIn, tmp_path: Path) -> None:
    before = take(version).digest
    signed(version, key, tmp_path / "data")
    assert take(version).digest == before
    assert take(version).signers == ()


def test_a_public_key_may_be_given_as_base64(key: Path) -> None:
    file = Path(f"{key}.pub")
    (by_file,) = read_signers([str(file)]).keys.values()
    raw = base64.b64encode(by_file.public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()
    assert read_signers([raw]).keys.keys() == read_signers([str(file)]).keys.keys()


def test_a_version_that_nobody_signed_is_refused(version: Path, key: Path, take: TakeIn) -> None:
    assert "nobody has signed" in refusal(take, version, key)


def test_the_signature_of_a_key_that_does_not_count_is_refused(
    version: Path, key: Path, take: TakeIn, tmp_path: Path
) -> None:
    signed(version, key, tmp_path / "data")
    new_key(tmp_path / "other.pem")
    assert "run.signers does not name" in refusal(take, version, tmp_path / "other.pem")
    assert len(take(version, key, tmp_path / "other.pem").signers) == 1


def test_files_changed_after_they_were_signed_are_refused(
    version: Path, key: Path, take: TakeIn, tmp_path: Path
) -> None:
    signed(version, key, tmp_path / "data")
    (version / "labels.txt").write_text("more")
    assert "they have changed since" in refusal(take, version, key)


def test_a_signature_does_not_pass_under_another_name_or_number(
    version: Path, key: Path, take: TakeIn, tmp_path: Path
) -> None:
    signed(version, key, tmp_path / "data")
    renamed = version.rename(tmp_path / "payments")
    assert "signed adder version 1, and this is payments version 1" in refusal(take, renamed, key)
    (tmp_path / "adder").mkdir()
    numbered = renamed.rename(tmp_path / "adder" / "2")
    assert "this is adder version 2" in refusal(take, numbered, key)


def test_what_a_signature_file_claims_besides_proves_nothing(
    version: Path, key: Path, take: TakeIn, tmp_path: Path
) -> None:
    file = signed(version, key, tmp_path / "data")
    (version / "more.txt").write_text("changed")
    claims = json.loads(file.read_bytes())
    (found,) = scan(version).found
    claims["signatures"][0]["digest"] = digest_of(found, tmp_path / "data", patience=AT_ONCE)
    file.write_text(json.dumps(claims))
    assert "damaged, or was not made by that key" in refusal(take, version, key)


def test_a_flipped_bit_of_a_signature_is_refused(version: Path, key: Path, take: TakeIn, tmp_path: Path) -> None:
    file = signed(version, key, tmp_path / "data")
    claims = json.loads(file.read_bytes())
    raw = bytearray(base64.b64decode(claims["signatures"][0]["signature"]))
    raw[10] ^= 1
    claims["signatures"][0]["signature"] = base64.b64encode(raw).decode()
    file.write_text(json.dumps(claims))
    assert "damaged" in refusal(take, version, key)


def changed(data: bytes, value: str, field: str = "signature") -> bytes:
    claims = json.loads(data)
    claims["signatures"][0][field] = value
    return json.dumps(claims).encode()


BAD_FILES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut": (lambda data: data[:-40], "cut short, or no JSON"),
    "empty": (lambda data: b"", "cut short, or no JSON"),
    "10 MB": (lambda data: data + b" " * 10_000_000, "too large"),
    "not UTF-8": (lambda data: b"\xff\xfe" + data, "cut short, or no JSON"),
    "no list": (lambda data: b"{}", "no list of"),
    "too many": (lambda data: encode(decode(data, "") * 33), "no list of"),
    "deep": (lambda data: b"[" * 60_000, "no JSON"),
    "another field": (lambda data: data.replace(b'"key"', b'"kez"'), "exactly"),
    "true for a number": (lambda data: data.replace(b'"version": 1', b'"version": true'), "exactly"),
    "an endless number": (lambda data: data.replace(b'"version": 1', b'"version": ' + b"9" * 4000), "exactly"),
    "another algorithm": (lambda data: data.replace(b"ed25519", b"none"), 'algorithm "none"'),
    "letters": (lambda data: changed(data, "\u00e9\u00e9"), "damaged"),
    "half a letter": (lambda data: changed(data, "\ud800"), "damaged"),
    "half a letter for a key": (lambda data: changed(data, "\ud800", "key"), "does not name"),
    "no base64": (lambda data: data.replace(b'"signature": "', b'"signature": "!'), "damaged"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_signature_file_that_is_none_is_refused_in_words(
    version: Path, key: Path, take: TakeIn, tmp_path: Path, name: str
) -> None:
    change, said = BAD_FILES[name]
    file = signed(version, key, tmp_path / "data")
    file.write_bytes(change(file.read_bytes()))
    assert said in refusal(take, version, key)


def test_a_signature_file_that_is_a_link_or_a_pipe_is_refused(
    version: Path, key: Path, take: TakeIn, tmp_path: Path
) -> None:
    file = signed(version, key, tmp_path / "data")
    elsewhere = file.rename(tmp_path / "elsewhere.sig")
    file.symlink_to(elsewhere)
    assert "a symbolic link" in refusal(take, version, key, code=Code.MODEL_INVALID)
    file.unlink()
    os.mkfifo(file)
    assert "a pipe" in refusal(take, version, key, code=Code.MODEL_INVALID)


def test_a_bare_model_file_is_signed_beside_it(model_folder: Path, key: Path, take: TakeIn, tmp_path: Path) -> None:
    model = model_folder / "model.onnx"
    assert "nobody has signed" in refusal(take, model, key)
    file = signed(model, key, tmp_path / "data", into="model.onnx.sig")
    assert len(take(model, key).signers) == 1
    elsewhere = file.rename(tmp_path / "elsewhere.sig")
    file.symlink_to(elsewhere)
    assert "a symbolic link" in refusal(take, model, key)


def test_signing_a_model_file_leaves_the_signature_of_its_folder_whole(
    version: Path, key: Path, take: TakeIn, tmp_path: Path
) -> None:
    signed(version, key, tmp_path / "data")
    signed(version / "model.onnx", key, tmp_path / "data", into="model.onnx.sig")
    taken = take(version, key)
    assert len(taken.signers) == 1
    assert not list(Path(taken.folder).glob("*.sig"))
    (version / "other.onnx.sig").write_text("of no model here: a file like any other")
    assert "they have changed since" in refusal(take, version, key)


def test_no_more_signatures_are_written_than_are_read(key: Path, tmp_path: Path) -> None:
    made = sign(Statement("reviews", 2, "b" * 64), key)
    others = [replace(made, key=f"{number:032x}") for number in range(31)]
    assert len(decode(encode(joined(others, made)), "")) == 32
    with pytest.raises(Misconfigured, match="33 signatures"):
        joined([*others, replace(made, key="f" * 32)], made)
    with pytest.raises(Misconfigured, match="65536 bytes"):
        joined([replace(made, key="f" * 70_000)], made)


@pytest.mark.parametrize("name", [".", "/", "x" * 300, "x" * 253, "no/such/folder", "..", "there/"])
def test_a_new_key_that_cannot_be_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misconfigured):
        new_key(Path(name))
    assert [each.name for each in tmp_path.iterdir()] == ["there"]


def test_a_key_that_cannot_be_written_whole_is_not_left_in_part(tmp_path: Path) -> None:
    script = (
        "import resource, pathlib\nfrom forwardpass.core.errors import Misconfigured\n"
        "from forwardpass.pipeline.signatures import new_key\nresource.setrlimit(resource.RLIMIT_FSIZE, (115, 115))\n"
        f"try:\n    new_key(pathlib.Path({str(tmp_path / 'key.pem')!r}))\nexcept Misconfigured as failure:\n    print(failure)"
    )
    done = subprocess.run([sys.executable, "-B", "-c", script], capture_output=True, text=True, check=True)
    assert "cannot be written" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_signature_of_several_is_kept_and_an_old_one_is_not(key: Path, tmp_path: Path) -> None:
    new_key(tmp_path / "second.pem")
    now, before = Statement("reviews", 2, "b" * 64), Statement("reviews", 1, "a" * 64)
    first, second = sign(now, key), sign(now, tmp_path / "second.pem")
    assert joined((first,), second) == (first, second)
    assert joined((first, second), first) == (second, first)
    assert joined((sign(before, key),), second) == (second,)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no public key in PEM"),
        (b"x" * 20_000, "too large"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "no public key in PEM"),
    ],
)
def test_a_setting_that_names_no_key_is_refused_before_anything_is_served(
    tmp_path: Path, content: bytes, said: str
) -> None:
    file = tmp_path / "wrong.pub"
    file.write_bytes(content)
    for value in (str(file), str(tmp_path / "nowhere"), str(tmp_path), "\0"):
        with pytest.raises(Misconfigured) as caught:
            read_signers([value])
        assert caught.value.code is Code.SETTINGS_INVALID
        assert said in str(caught.value) or value != str(file)


def test_a_private_key_is_no_signer_and_a_public_one_cannot_sign(key: Path) -> None:
    with pytest.raises(Misconfigured):
        read_signers([str(key)])
    with pytest.raises(Misconfigured):
        sign(Statement("a", 1, "0" * 64), Path(f"{key}.pub"))
