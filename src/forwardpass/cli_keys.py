"""``forwardpass keys``: who may ask. A key is shown once, when it is made; the store has its digest only."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forwardpass.cli_options import clearly, settings_from, settings_options

if TYPE_CHECKING:
    from forwardpass.store.keys import Key, KeyStore

SCOPES = ("infer", "infer:PIPELINE", "jobs", "receipts", "admin")
PRIORITIES = ("critical", "standard", "sheddable")
YEARS_MAX = 100
"""How long a key may hold, if not for ever."""

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"([1-9][0-9]{0,8})([smhdw])")


@click.group()
def keys() -> None:
    """Make, list and revoke the keys of callers (setting auth.required)."""


@keys.command()
@click.option("--tenant", required=True, help="Whom it belongs to: what is stored for one, no other can see.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    help=f"What it may: {', '.join(SCOPES)} (jobs is reserved: nothing asks for it yet).",
)
@click.option("--expires", default="", metavar="90d", help="How long it holds: a number and s, m, h, d or w.")
@click.option("--priority", type=click.Choice(PRIORITIES), default="standard", help="Its requests' highest class.")
@click.option("--note", default="", help="A word for whoever reads the list later.")
@click.option("--subject", default="", metavar="CN=…", help="Of a certificate that says who asks, in a key's place.")
@settings_options
@clearly
def create(
    tenant: str, scopes: tuple[str, ...], expires: str, priority: str, note: str, subject: str,
    file: Path | None, values: tuple[str, ...],
) -> None:  # fmt: skip
    """Make a key and show it: this once."""
    from typing import cast

    from forwardpass.core.caller import Priority
    from forwardpass.core.clock import wall_s
    from forwardpass.store.keys import Key, digest_of, new_id, new_secret

    _check(tenant, scopes, note)
    subject = _normal(subject) if subject else ""
    now_s, id = wall_s(), new_id()
    secret = "" if subject else new_secret(id)
    digest = digest_of(secret.encode()) if secret else b""
    until_s = now_s + _seconds(expires) if expires else None
    key = Key(
        id, tenant, frozenset(scopes), now_s, digest, cast(Priority, priority), until_s, note=note, subject=subject
    )
    store, told = _store(file, values), _told(key)
    store.add(key)
    click.echo(f"key {id} of tenant {tenant}, in {store.path}: {told}", err=True)
    if subject:
        click.echo(f"whoever shows a certificate of {subject} asks by it (auth.client_ca)", err=True)
        return
    click.echo(secret)
    click.echo("it is not shown again; send it as Authorization: Bearer KEY, or set FORWARDPASS_KEY", err=True)


@keys.command(name="list")
@settings_options
@clearly
def list_keys(file: Path | None, values: tuple[str, ...]) -> None:
    """Every key, the revoked ones too; none is shown itself."""
    store = _store(file, values)
    keys = store.listed()
    if not keys:
        click.echo(f"no keys in {store.path}", err=True)
    for key in keys:
        subject, note = f" {key.subject}" if key.subject else "", f"  # {key.note}" if key.note else ""
        click.echo(f"{key.id}  {key.tenant:20} {_told(key)}{subject}{note}")


@keys.command()
@click.argument("id")
@settings_options
@clearly
def revoke(id: str, file: Path | None, values: tuple[str, ...]) -> None:
    """Have a key refused from now on; a running server does so within a second."""
    from forwardpass.core.clock import wall_s
    from forwardpass.core.errors import Code, Refused, show

    if not _store(file, values).revoke(id, wall_s()):
        raise Refused(Code.INVALID_INPUT, f'there is no key "{show(id)}"; forwardpass keys list', field="ID")
    click.echo(f"revoked: {id}")


def _store(file: Path | None, values: tuple[str, ...]) -> "KeyStore":
    from forwardpass.store.keys import KeyStore

    return KeyStore(settings_from(file, values).data_folder)


def _told(key: "Key") -> str:
    """What it may and how long, on one line."""
    from forwardpass.core.clock import wall_s

    if key.revoked_s is not None:
        until = f"revoked {_when(key.revoked_s)}"
    elif key.expires_s is not None:
        until = f"{'expires' if key.holds(wall_s()) else 'expired'} {_when(key.expires_s)}"
    else:
        until = "holds until it is revoked"
    return f"{' '.join(sorted(key.scopes))}; {key.priority}; {until}"


def _when(wall_s: float) -> str:
    """Whatever number is stored."""
    from forwardpass.core.clock import iso8601

    try:
        return iso8601(wall_s)
    except (OverflowError, ValueError, OSError):
        return f"{wall_s:g} s after 1970"


def _check(tenant: str, scopes: tuple[str, ...], note: str) -> None:
    """Raises Refused for what a key cannot have."""
    from forwardpass.core.caller import is_scope, is_tenant
    from forwardpass.core.errors import Code
    from forwardpass.pipeline.bounds import refuse, unknown_field
    from forwardpass.store.keys import NOTE_CHARACTERS_MAX

    if not is_tenant(tenant):
        raise refuse(Code.INVALID_INPUT, "--tenant", "expected 1 to 64 letters, digits and . _ - @")
    for scope in scopes:
        if not is_scope(scope):
            raise unknown_field(scope, SCOPES, "--scope")
    if not (note.isprintable() and len(note) <= NOTE_CHARACTERS_MAX):
        raise refuse(Code.INVALID_INPUT, "--note", f"expected a line of at most {NOTE_CHARACTERS_MAX} characters")


def _normal(subject: str) -> str:
    """As a certificate's subject is compared. Raises Refused."""
    from forwardpass.core.errors import Code
    from forwardpass.ingress.identity.subjects import normal_subject
    from forwardpass.pipeline.bounds import refuse
    from forwardpass.store.keys import SUBJECT_CHARACTERS_MAX

    try:
        normal = normal_subject(subject)
    except ValueError as error:
        expected = f"expected a name as RFC 4514 writes it, CN=client,O=company: {error}"
        raise refuse(Code.INVALID_INPUT, "--subject", expected) from error
    if not (normal.isprintable() and len(normal) <= SUBJECT_CHARACTERS_MAX):
        expected = f"expected at most {SUBJECT_CHARACTERS_MAX} printable characters"
        raise refuse(Code.INVALID_INPUT, "--subject", expected)
    return normal


def _seconds(text: str) -> float:
    from forwardpass.core.errors import Code
    from forwardpass.pipeline.bounds import refuse

    found = _DURATION.fullmatch(text)
    if found is None:
        raise refuse(Code.INVALID_INPUT, "--expires", "expected a number and s, m, h, d or w: 90d")
    seconds = int(found[1]) * _UNITS_S[found[2]]
    if seconds > YEARS_MAX * 365 * _UNITS_S["d"]:
        raise refuse(Code.INVALID_INPUT, "--expires", f"expected at most {YEARS_MAX} years: {YEARS_MAX * 365}d")
    return float(seconds)
