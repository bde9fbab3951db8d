"""``forwardpass keys``: made, shown once, listed without secrets, revoked; and the client's side of a key."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from forwardpass.asking import key_of
from forwardpass.cli import main
from forwardpass.core.errors import Refused
from forwardpass.store.keys import FILE, Key, KeyStore, digest_of


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


def test_a_subject_is_kept_in_the_form_that_is_compared(tmp_path: Path) -> None:
    create(tmp_path, "--subject", "cn=svc, O=acme")
    assert [key.subject for key in KeyStore(tmp_path).listed()] == ["CN=svc,O=acme"]


def test_who_makes_or_lists_keys_is_told_where_they_are(tmp_path: Path) -> None:
    empty = keys(tmp_path, "list")
    assert (empty.stdout, empty.stderr) == ("", f"no keys in {tmp_path / FILE}\n")
    assert str(tmp_path / FILE) in create(tmp_path).stderr
    assert keys(tmp_path, "list").stderr == ""


@pytest.mark.parametrize("stored_s", [1e300, -1e300, float("inf"), 6.0e14])
def test_a_time_that_no_calendar_has_does_not_keep_keys_from_being_listed(tmp_path: Path, stored_s: float) -> None:
    KeyStore(tmp_path).add(Key("k1", "acme", frozenset({"infer"}), 1.0, expires_s=stored_s))
    KeyStore(tmp_path).add(Key("k2", "acme", frozenset({"infer"}), 1.0, revoked_s=stored_s))
    listed = keys(tmp_path, "list")
    assert (listed.exit_code, listed.stdout.count("s after 1970")) == (0, 2)


@pytest.mark.parametrize("command", [("list",), ("revoke", "k1"), ("create", "--tenant", "t", "--scope", "infer")])
def test_a_store_that_cannot_be_used_is_told_of_on_one_line(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / FILE).mkdir()
    done = keys(tmp_path, *command)
    (line,) = done.stderr.splitlines()
    assert done.exit_code == 2 and str(tmp_path / FILE) in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--scope", "recipts"), "did you mean 'receipts'"),
        (("--scope", "infer:"), "infer:PIPELINE"),
        (("--scope", "infer:UP"), "infer:PIPELINE"),
        (("--tenant", "a b"), "--tenant"),
        (("--expires", "90"), "90d"),
        (("--expires", "0d"), "90d"),
        (("--expires", "36501d"), "100 years"),
        (("--expires", "999999999w"), "100 years"),
        (("--note", "a\nb"), "--note"),
        (("--subject", "svc"), "RFC 4514"),
        (("--subject", "CN=svc;O=acme"), "RFC 4514"),
        (("--subject", "CN=" + "x" * 600), "512"),
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
