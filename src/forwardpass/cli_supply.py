"""Commands about where a model comes from: who signed a version, and what is in a file."""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forwardpass.cli_options import MISCONFIGURED_EXIT, clearly, found_at, settings_from, settings_options, told
from forwardpass.core.clock import random_id
from forwardpass.core.errors import Failure, Misconfigured

if TYPE_CHECKING:
    from forwardpass.pipeline.inspection.places import Inspection
    from forwardpass.pipeline.repository import Found

NOT_TAKEN_IN_EXIT = 1
FACT_CHARACTERS_MAX = 1000


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--key", type=click.Path(path_type=Path), help="The private key to sign with.")
@click.option("--new-key", type=click.Path(path_type=Path), help="Write a new private key there, and FILE.pub.")
@settings_options
@clearly
def sign(path: Path | None, key: Path | None, new_key: Path | None, file: Path | None, values: tuple[str, ...]) -> None:
    """Sign the versions at PATH: their files, under their pipeline's name and number.

    Writes pipeline.sig into the folder of each, or MODEL.onnx.sig beside a model file; other signers' stay in it.
    """
    if new_key is not None and path is None and key is None and not file and not values:
        _make_key(new_key)
    elif path is not None and key is not None and new_key is None:
        store = settings_from(file, values).data_folder / "store"
        for found in found_at(path):
            _sign(found, key, store)
    else:
        raise click.UsageError("either PATH and --key FILE, or --new-key FILE alone")


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
@clearly
def inspect(path: Path, as_json: bool) -> None:
    """Say what a model file or a folder holds and whether it would be taken in. No model is loaded, no code is run.

    Exit status: 0 it would be taken in, 1 it would not, 2 it cannot be read.
    """
    from forwardpass.execution.kinds import kinds
    from forwardpass.pipeline.inspection.places import inspect_place

    try:
        found = inspect_place(path, kinds())
    except Failure as failure:
        told(failure)
        sys.exit(MISCONFIGURED_EXIT)
    if as_json:
        click.echo(json.dumps(found.plain(), indent=2, ensure_ascii=True))
    else:
        _tell(found)
    sys.exit(0 if found.taken_in else NOT_TAKEN_IN_EXIT)


def signed_lines(found: "Found", signers: Sequence[str]) -> list[str]:
    """What ``check`` says of who signed a version."""
    from forwardpass.pipeline.repository import signatures_of

    if signers:
        return [f"    signed by key {signer}" for signer in signers]
    try:
        claimed = signatures_of(found)
    except Misconfigured as failure:
        return [f"warning: {failure}"]
    return [
        f"    signed by key {each.key[:64]!r}, which was not verified: run.signers names no key" for each in claimed
    ]


def _make_key(file: Path) -> None:
    from forwardpass.pipeline.signatures import new_key

    public, key = new_key(file)
    click.echo(f"private key: {file} (keep it secret)")
    click.echo(f"public key:  {public}, id {key}; for those who serve: run.signers")


def _sign(found: "Found", key: Path, store: Path) -> None:
    from forwardpass.pipeline import signatures
    from forwardpass.pipeline.files import write_file
    from forwardpass.pipeline.repository import digest_of, signatures_of

    if _read_by_others(key):
        click.echo(f"warning: {key} can be read by others than its owner: chmod 600 {key}", err=True)
    statement = signatures.Statement(found.pipeline, found.number, digest_of(found, store))
    made = signatures.sign(statement, key)
    try:
        old = signatures_of(found)
    except Misconfigured as failure:
        click.echo(f"warning: replaced: {failure}", err=True)
        old = ()
    place = found.folder / (found.model_file + signatures.SUFFIX if found.model_file else signatures.FILE_NAME)
    draft = place.with_name(f".tmp-{random_id()}")
    try:
        write_file(draft, signatures.encode(signatures.joined(old, made)))
        draft.replace(place)
    except OSError as error:
        raise signatures.cannot_write(place, str(error)) from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    click.echo(
        f"signed: {found.pipeline} version {found.number}, digest {statement.digest}, by key {made.key}: {place}"
    )


def _read_by_others(key: Path) -> bool:
    try:
        return key.stat().st_mode & 0o077 != 0
    except OSError:
        return False  # whoever reads it says why it cannot be read


def _tell(found: "Inspection") -> None:
    for name, report in found.reports.items():
        click.echo(f"{_plain(name)}: {_plain(report.kind)}")
        for fact, value in report.facts.items():
            for line in _lines(value):
                click.echo(f"    {fact}: {line}")
        if report.problem:
            click.echo(f"    damaged: {_plain(report.problem)}")
        elif report.unfit:
            click.echo(f"    by itself: {_plain(report.unfit)}")
    for version, why in found.refused.items():
        click.echo(f"{_plain(version)}: would not be taken in: {_plain(why)}")
    for note in found.notes:
        click.echo(_plain(note))
    if found.taken_in:
        click.echo("would be taken in")


def _lines(value: Any) -> list[str]:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return [_plain(value)] if value not in ("", {}, None) else []


def _plain(value: Any) -> str:
    """Bounded, and with nothing in it that a terminal would act on."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text[:FACT_CHARACTERS_MAX])
