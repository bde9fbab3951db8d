"""``forwardpass keys``: made, shown once, listed without secrets, revoked; and the client's side of a key."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from forwardpass.asking import key_of
from forwardpass.cli import main
from forwardpass.core.errors import Refused
from forwardpass.store.keys import FILE, KeyStore, digest_of


def keys(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["keys", *arguments, "--set", f"run.data={folder}"])


def create(folder: Path, *arguments: str) -> Result:
    return keys(folder, "create", "--tenant", "acme", "--scope", "infer:fraud", *arguments)


def test_a_key_is_shown_alone_on_standard_output_and_never_again(tmp_path: Path) -> None:
    made = create(tmp_path, "--scope", "receipts", "--note", "nightly", "--priority", "sheddable")
    secret = made.stdout.strip()
    assert re.fullmatch(r"fp_[a-z2-7]{8}_[A-Za-z0-9_-]{43}", secret)
    (key,) = KeyStore(tmp_path).listed()
    assert (key.digest, key.scopes, key.priority) == (
        digest_of(secret.encode()),
        frozenset({"infer:fraud", "receipts"}),
        "sheddable",
    )
    listed = keys(tmp_path, "list").output
    assert key.id in listed and "nightly" in listed and "acme" in listed
    assert secret not in listed and secret.encode() not in (tmp_path / FILE).read_bytes()


def test_a_key_holds_as_long_as_is_said(tmp_path: Path) -> None:
    create(tmp_path, "--expires", "90d")
    (key,) = KeyStore(tmp_path).listed()
    assert key.expires_s is not None
    assert key.expires_s - key.created_s == pytest.approx(90 * 24 * 3600)


def test_a_key_is_revoked_by_its_id(tmp_path: Path) -> None:
    create(tmp_path)
    (key,) = KeyStore(tmp_path).listed()
    assert keys(tmp_path, "revoke", key.id).exit_code == 0
    assert "revoked 2" in keys(tmp_path, "list").output
    assert keys(tmp_path, "revoke", "nobody").exit_code == 1


def test_a_certificate_s_subject_has_no_secret(tmp_path: Path) -> None:
    made = create(tmp_path, "--subject", "CN=svc,O=acme")
    assert made.exit_code == 0 and made.stdout == ""
    (key,) = KeyStore(tmp_path).listed()
    assert (key.subject, key.digest) == ("CN=svc,O=acme", b"")
    assert create(tmp_path, "--subject", "CN=svc,O=acme").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--scope", "recipts"), "did you mean 'receipts'"),
        (("--scope", "infer:"), "infer:PIPELINE"),
        (("--scope", "infer:UP"), "infer:PIPELINE"),
        (("--tenant", "a b"), "--tenant"),
        (("--expires", "90"), "90d"),
        (("--expires", "0d"), "90d"),
        (("--note", "a\nb"), "--note"),
        (("--subject", "svc"), "RFC 4514"),
        (("--priority", "royal"), "critical"),
    ],
)
def test_what_a_key_cannot_have_is_refused(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    made = create(tmp_path, *arguments)
    assert made.exit_code != 0
    assert said in made.output
    assert KeyStore(tmp_path).listed() == ()


def test_a_key_to_ask_with_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text("fp_a_b\n")
    monkeypatch.delenv("FORWARDPASS_KEY", raising=False)
    assert (key_of(file), key_of(None)) == ("fp_a_b", "")
    monkeypatch.setenv("FORWARDPASS_KEY", "fp_c_d")
    assert (key_of(file), key_of(None)) == ("fp_a_b", "fp_c_d")


@pytest.mark.parametrize("content", ["", "two words", "é", "a\nb"])
def test_a_file_without_a_key_is_refused_without_showing_it(tmp_path: Path, content: str) -> None:
    file = tmp_path / "key"
    file.write_text(content)
    with pytest.raises(Refused) as refused:
        key_of(file)
    assert not content or content not in refused.value.text
