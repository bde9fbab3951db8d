"""``forwardpass cache``: what a running server keeps of its answers, and away with it."""

import json
from pathlib import Path

import click

from forwardpass.cli_options import clearly, key_option

ADMIN = "http://127.0.0.1:8002"


@click.group()
def cache() -> None:
    """Show or purge the answers that a running server keeps (section [cache] of a pipeline)."""


@cache.command()
@click.option("--url", default=ADMIN, help="The server's admin plane.")
@key_option
@clearly
def show(url: str, key_file: Path | None) -> None:
    """Of each version: entries, bytes, hits, misses, the age of the oldest answer; or why none are kept."""
    from forwardpass.asking import ask_admin, key_of

    click.echo(json.dumps(ask_admin(url, "GET", "/cache", key=key_of(key_file)), indent=2))


@cache.command()
@click.argument("pipeline", required=False)
@click.option("--url", default=ADMIN, help="The server's admin plane.")
@key_option
@clearly
def purge(pipeline: str | None, url: str, key_file: Path | None) -> None:
    """Forget the kept answers of PIPELINE, or of all pipelines: in this server, and in the Redis that it shares."""
    from urllib.parse import quote

    from forwardpass.asking import ask_admin, key_of

    path = "/cache/purge" if pipeline is None else f"/pipelines/{quote(pipeline, safe='')}/cache/purge"
    told = ask_admin(url, "POST", path, key=key_of(key_file))
    click.echo(f"purged: {told['purged']}")
    if "purged_in_redis" in told:
        count = told["purged_in_redis"]
        click.echo(f"purged in Redis: {'it does not answer' if count is None else count}")
