"""The store of keys: what it keeps, what it never keeps, and what becomes of it in other hands."""

import hashlib
import os
import re
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.store.keys import FILE, Key, KeyStore, digest_of, new_id, new_secret


def key(id: str = "k1", **more: object) -> Key:
    given: dict[str, object] = {"id": id, "tenant": "acme", "scopes": frozenset({"infer"}), "created_s": 1.0}
    return Key(**(given | more))  # type: ignore[arg-type]  # each test gives what it is about


def test_a_key_has_an_id_that_may_be_told_and_256_random_bits() -> None:
    id = new_id()
    secret = new_secret(id)
    assert re.fullmatch(r"fp_[a-z2-7]{8}_[A-Za-z0-9_-]{43}", secret)
    assert secret.startswith(f"fp_{id}_")
    assert len({new_secret(id) for _ in range(100)}) == 100


def test_what_is_kept_of_a_key_is_its_sha256() -> None:
    assert digest_of(b"abc").hex() == hashlib.sha256(b"abc").hexdigest()


def test_a_key_comes_back_as_it_was_put_in(tmp_path: Path) -> None:
    store = KeyStore(tmp_path)
    put = key(digest=b"d" * 32, priority="critical", expires_s=9.5, note="cron'; DROP TABLE keys;--", subject="CN=a")
    store.add(put)
    assert store.listed() == (put,)


def test_the_file_is_for_its_owner_only_and_never_holds_a_secret(tmp_path: Path) -> None:
    secret = new_secret("abcdefgh")
    KeyStore(tmp_path / "new").add(key(digest=digest_of(secret.encode())))
    file = tmp_path / "new" / FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert secret.encode() not in file.read_bytes()


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    store = KeyStore(tmp_path)
    store.add(key())
    (tmp_path / FILE).chmod(0o644)
    store.add(key("k2"))
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_a_key_is_revoked_once_and_stays_listed(tmp_path: Path) -> None:
    store = KeyStore(tmp_path)
    store.add(key())
    assert store.revoke("k1", 5.0)
    assert store.revoke("k1", 7.0)
    (found,) = store.listed()
    assert (found.revoked_s, found.holds(2.0)) == (5.0, False)


def test_a_key_that_is_not_there_cannot_be_revoked(tmp_path: Path) -> None:
    assert not KeyStore(tmp_path).revoke("k1", 5.0)
    KeyStore(tmp_path).add(key())
    assert not KeyStore(tmp_path).revoke("' OR 1=1--", 5.0)


@pytest.mark.parametrize(("expires_s", "now_s", "holds"), [(None, 9e9, True), (10.0, 9.9, True), (10.0, 10.0, False)])
def test_a_key_holds_until_it_expires(expires_s: float | None, now_s: float, holds: bool) -> None:
    assert key(expires_s=expires_s).holds(now_s) is holds


def test_two_keys_that_hold_cannot_have_one_subject(tmp_path: Path) -> None:
    store = KeyStore(tmp_path)
    store.add(key(subject="CN=a"))
    with pytest.raises(Misconfigured) as refused:
        store.add(key("k2", subject="CN=a"))
    assert refused.value.code is Code.CONFLICT
    store.revoke("k1", 2.0)
    store.add(key("k3", subject="CN=a"))


def test_every_change_leaves_another_mark(tmp_path: Path) -> None:
    store = KeyStore(tmp_path)
    marks = [store.mark()]
    for change in (lambda: store.add(key()), lambda: store.add(key("k2")), lambda: store.revoke("k1", 2.0)):
        change()
        marks.append(store.mark())
    assert marks[0] is None
    assert len(set(marks)) == 4
    store.listed()
    assert store.mark() == marks[-1]


def test_an_expired_key_that_has_a_subject_is_named(tmp_path: Path) -> None:
    KeyStore(tmp_path).add(key(subject="CN=a", expires_s=5.0))
    with pytest.raises(Misconfigured, match="k1 has it, though it has expired; forwardpass keys revoke k1 first"):
        KeyStore(tmp_path).add(key("k2", subject="CN=a", created_s=9.0))


def _a_folder(place: Path) -> None:
    place.mkdir()


def _a_link(place: Path) -> None:
    KeyStore(place.parent / "other").add(key())
    place.symlink_to(place.parent / "other" / FILE)


def _for_others_to_write(place: Path) -> None:
    KeyStore(place.parent).add(key())
    place.chmod(0o666)


def _of_somebody_else(place: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    KeyStore(place.parent).add(key())
    os.chown(place, 12345, -1)


def _in_a_folder_for_others(place: Path) -> None:
    KeyStore(place.parent).add(key())
    place.parent.chmod(0o777)


def _beside_a_journal_of_others(place: Path) -> None:
    KeyStore(place.parent).add(key())
    journal = place.with_name(f"{FILE}-journal")
    journal.touch()
    journal.chmod(0o666)


ODD: list[Callable[[Path], None]] = [
    _a_folder, _a_link, os.mkfifo, _for_others_to_write, _of_somebody_else, _in_a_folder_for_others,
    _beside_a_journal_of_others,
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(odd.__name__))
def test_a_store_that_others_could_have_written_is_not_believed(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    odd(tmp_path / FILE)
    store = KeyStore(tmp_path)
    for use in (store.listed, store.mark, lambda: store.add(key("k2")), lambda: store.revoke("k1", 2.0)):
        with pytest.raises(Misconfigured, match=f"{FILE}.*is of user .*this is user") as refused:
            use()
        assert refused.value.code is Code.STORE_LOCKED


def test_a_store_is_not_made_where_everybody_may_write_but_in_a_folder_like_tmp(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert KeyStore(tmp_path).listed() == ()
    with pytest.raises(Misconfigured, match="everybody may write in its folder"):
        KeyStore(tmp_path).add(key())
    assert not (tmp_path / FILE).exists()
    tmp_path.chmod(0o1777)
    KeyStore(tmp_path).add(key())


def test_a_store_below_what_is_no_folder_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Misconfigured, match=FILE) as refused:
        KeyStore(tmp_path / "file").listed()
    assert refused.value.code is Code.STORE_LOCKED


def test_a_store_that_is_no_database_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database, and longer than a header is" * 10)
    with pytest.raises(Misconfigured, match=FILE) as refused:
        KeyStore(tmp_path).listed()
    assert refused.value.code is Code.STORE_LOCKED


def test_a_priority_that_there_is_not_cannot_get_in(tmp_path: Path) -> None:
    KeyStore(tmp_path).add(key())
    with closing(sqlite3.connect(tmp_path / FILE)) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute("UPDATE keys SET priority = 'royal'")
