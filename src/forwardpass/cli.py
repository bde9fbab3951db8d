"""The command line. Heavy modules are imported by the command that needs them, so that ``--help`` is quick."""

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forwardpass.cli_cache import cache
from forwardpass.cli_keys import keys
from forwardpass.cli_options import clearly, found_at, key_option, settings_from, settings_options, settings_told, told
from forwardpass.cli_supply import inspect, sign, signed_lines
from forwardpass.core.errors import Failure

if TYPE_CHECKING:
    from forwardpass.core.pipeline import Task
    from forwardpass.execution.template import Template
    from forwardpass.pipeline.repository import Found
    from forwardpass.settings import Settings

SERVER = "http://127.0.0.1:8000"


@click.group()
@click.version_option(package_name="forwardpass")
def main() -> None:
    """Serve a model plus the exact steps around it as one versioned pipeline."""


for _command in (keys, sign, inspect, cache):
    main.add_command(_command)


@main.command()
@click.argument("sources", nargs=-1, type=click.Path(path_type=Path))
@click.option("--port", type=int, help="Port of the data plane (0: any).")
@click.option("--grpc-port", type=int, help="Port of gRPC (0: any).")
@click.option("--admin-port", type=int, help="Port of the admin plane (0: any).")
@click.option("--fronts", type=int, help="Processes that listen for HTTP, sharing the workers.")
@settings_options
@clearly
def serve(
    sources: tuple[Path, ...],
    port: int | None,
    grpc_port: int | None,
    admin_port: int | None,
    fronts: int | None,
    file: Path | None,
    values: tuple[str, ...],
) -> None:
    """Serve model files, pipeline folders or repositories of <pipeline>/<version>/; run.source if none is named."""
    import resource

    from forwardpass.execution.template import Template

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # memory holds what was sent, and secrets
    with Template() as template:  # before all that takes time: it imports beside this process
        flags = {"data.port": port, "grpc.port": grpc_port, "admin.port": admin_port, "run.fronts": fronts}
        given = {key: value for key, value in flags.items() if value is not None}
        sys.exit(_serve(settings_from(file, values, given), sources, template))


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--static", is_flag=True, help="Do not load the model: check files and definition only.")
@settings_options
@clearly
def check(path: Path, static: bool, file: Path | None, values: tuple[str, ...]) -> None:
    """Validate a model file, a pipeline folder or a repository: definition, files, model, golden examples."""
    settings = settings_told(file, values)
    worst = 0
    for found in found_at(path):
        label = f"{found.pipeline} version {found.number}"
        try:
            version = _taken_in(found, settings)
            report = [] if static else asyncio.run(_report(version, settings))
        except Failure as failure:
            worst = max(worst, told(failure))
            click.echo(f"bad: {label}")
            continue
        click.echo(f"ok: {label}{': definition and files' if static else ''}, digest {version.digest}")
        for line in signed_lines(found, version.signers):
            click.echo(line)
        for line in report:
            click.echo(line)
    sys.exit(worst)


@main.command()
@click.argument("name")
@click.option(
    "--from", "path", required=True, type=click.Path(path_type=Path), help="The model file, or a folder with one."
)
@click.option("--output", type=click.Path(path_type=Path), default=Path("."), help="The repository to write to.")
@settings_options
@clearly
def init(name: str, path: Path, output: Path, file: Path | None, values: tuple[str, ...]) -> None:
    """Write a commented starting pipeline NAME/1/ around a model, with golden examples it computed.

    The steps around a model of a known family are written too: classifiers of texts, pairs, tokens and pictures,
    embedders, detectors and classical models, told by the file and by what lies beside it.
    """
    from forwardpass.starting import start_pipeline

    started = asyncio.run(start_pipeline(name, path, output, settings_told(file, values)))
    click.echo(f"golden examples written: {started.examples}")
    if started.why_none:
        click.echo(f"warning: no golden example: {started.why_none}")
    if started.family:
        click.echo(f"recognised: {started.family}")
    else:
        click.echo(f"not recognised, so there are no steps around it: {started.why_plain}")
    click.echo(f"{started.folder} is ready to be edited; then: forwardpass check {started.folder}")


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--why", default="", help="A word for whoever reads the list later.")
@click.option("--remove", is_flag=True, help="Take the trust back.")
@settings_options
@clearly
def trust(path: Path, why: str, remove: bool, file: Path | None, values: tuple[str, ...]) -> None:
    """Let the own code of exactly these versions run on this machine."""
    from forwardpass.pipeline.repository import digest_of
    from forwardpass.pipeline.trust import Trust

    folder = settings_from(file, values).data_folder
    for found in found_at(path):
        digest = digest_of(found, folder / "store")
        trusted, label = Trust(folder / "trusted"), f"{found.pipeline} version {found.number}"
        if remove:
            done = "no longer trusted" if trusted.remove(digest) else "was not trusted"
        else:
            trusted.add(digest, why or label)
            done = "trusted"
        click.echo(f"{done}: {label}, digest {digest}")


@main.command()
@click.argument("pipeline")
@click.argument("fields", nargs=-1, required=True, metavar="FIELD=VALUE|@FILE ...")
@click.option("--url", help=f"The server, when PIPELINE is a name; {SERVER} if not given.")
@click.option("--receipt", is_flag=True, help="Show the receipt too.")
@key_option
@settings_options
@clearly
def predict(
    pipeline: str, fields: tuple[str, ...], url: str | None, receipt: bool, key_file: Path | None,
    file: Path | None, values: tuple[str, ...],
) -> None:  # fmt: skip
    """Ask a pipeline: a NAME at a running server, or a PATH, which is run here once. FIELD=@FILE sends a file.

    A PATH has a "/", begins with "." or ends like a model file; all else is a NAME.
    """
    from forwardpass.asking import ask_here, ask_server, key_of
    from forwardpass.pipeline.definition import is_model_file

    if "/" in pipeline or pipeline.startswith(".") or is_model_file(pipeline):
        if url is not None or key_file is not None:
            option = "--url" if url is not None else "--key-file"
            raise click.UsageError(f"{option} has no effect: {pipeline} is a path, which is run here")
        (found, *more) = found_at(Path(pipeline))
        if more:
            raise click.UsageError(f"{pipeline} holds several versions: name one folder")
        settings = settings_told(file, values)
        answer = asyncio.run(ask_here(_taken_in(found, settings), fields, settings, receipt=receipt))
    else:
        if file is not None or values:
            hint = f"; for a folder write ./{pipeline}" if Path(pipeline).exists() else ""
            raise click.UsageError(f"--set and --settings have no effect: a server is asked for {pipeline}{hint}")
        answer = ask_server(url or SERVER, pipeline, fields, receipt=receipt, key=key_of(key_file))
    click.echo(json.dumps(answer, indent=2, ensure_ascii=False))


@main.command()
@settings_options
@clearly
def config(file: Path | None, values: tuple[str, ...]) -> None:
    """Print every setting in force, with what it is for."""
    from dataclasses import fields

    from forwardpass.observe.redaction import Redaction
    from forwardpass.settings import SECTIONS

    settings = settings_from(file, values)
    for section, kind in SECTIONS.items():
        click.echo(f"[{section}]")
        for option in fields(kind):
            value = Redaction().field(option.name, getattr(getattr(settings, section), option.name))
            click.echo(f"{option.name} = {json.dumps(value)}  # {option.metadata['doc']}")
    for rule in settings.quotas:
        click.echo("[[quotas]]")
        for option in fields(rule):
            if value := getattr(rule, option.name):
                click.echo(f"{option.name} = {json.dumps(value)}")


@main.command()
@settings_options
@clearly
def routes(file: Path | None, values: tuple[str, ...]) -> None:
    """Print every route of both planes: plane, protocol, method, path, scope, largest body, what it does."""
    from forwardpass.ingress.platform_routes import data_routes
    from forwardpass.ingress.route_table import routes_of

    data = settings_from(file, values).data
    over_http = data_routes(data.health_route, data.predict_route)
    for route in (*over_http, *routes_of("data", "grpc"), *routes_of("admin")):
        needs = f" (needs {route.needs})" if route.needs else ""
        where = f"{route.plane:6}{route.protocol:5}{route.method.decode():7}{route.pattern:58}"
        click.echo(f"{where}{route.scope:9}{route.body:6}{route.summary}{needs}")


@main.command()
@clearly
def steps() -> None:
    """Print every kind of step."""
    from forwardpass.execution.kinds import kinds

    for name, kind in sorted(kinds().items()):
        text = " ".join((getattr(kind, "options", kind).__doc__ or "").split())
        click.echo(f"{name:16}{text}")


@main.command()
@click.argument("id")
@click.option("--url", default="http://127.0.0.1:8002", help="The server's admin plane.")
@key_option
@clearly
def receipt(id: str, url: str, key_file: Path | None) -> None:
    """Print what a server knows of one request."""
    from forwardpass.asking import fetch_receipt, key_of

    click.echo(json.dumps(fetch_receipt(url, id, key=key_of(key_file)), indent=2))


def _serve(settings: "Settings", sources: tuple[Path, ...], template: "Template") -> int:
    from dataclasses import asdict
    from functools import partial

    import uvloop

    from forwardpass.app import App
    from forwardpass.execution.process import WorkerProcess
    from forwardpass.observe import log
    from forwardpass.observe.redaction import secrets_of

    log.start(settings.run.log, secrets_of(asdict(settings)))

    async def run() -> int:
        make_worker = partial(WorkerProcess, begin=template.begin)
        app = App(settings, sources or (Path(settings.run.source),), make_worker)
        running = asyncio.create_task(app.run())
        for event, tell in ((app.started, _tell_started), (app.ready, _tell_ready)):
            waiting = asyncio.create_task(event.wait())
            await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if not running.done():
                tell(app)
        return await running

    return int(uvloop.run(run()))


def _taken_in(found: "Found", settings: "Settings") -> Any:
    from forwardpass.execution.kinds import kinds
    from forwardpass.pipeline.guard_policy import read_policy
    from forwardpass.pipeline.repository import take_in
    from forwardpass.pipeline.signatures import read_signers
    from forwardpass.pipeline.trust import Trust

    folder = settings.data_folder
    signers = read_signers(settings.run.signers)
    trust = Trust(folder / "trusted")
    version = take_in(found, folder / "store", kinds=kinds(), trusted=trust, signers=signers)
    return read_policy(settings.run.guards).around(version)


async def _report(version: Any, settings: "Settings") -> list[str]:
    from forwardpass.steps.kind import describe
    from forwardpass.trial import trial

    async with trial(version, threads=settings.threads, deadline_s=settings.limits.deadline_s) as running:
        variant = running.variant
        assert variant.loaded is not None, "a trial's version has loaded"
        differ = f"; rows differ by at most {variant.loaded.max_difference:.2g}" if variant.loaded.independent else ""
        columns, outputs = variant.signature.columns, variant.signature.outputs
        return [
            *(f"    input  {describe(column)}" for column in columns),
            *(f"    output {describe(field)}" for field in outputs),
            *(f"    task   {_described(task)}" for task in (variant.signature.task,) if task is not None),
            f"    batching {variant.batching_reason}{differ}",
            f"    loaded in {variant.loaded.load_s:.2f} s; {len(version.definition.golden)} golden examples hold",
            *(f"    engine   {line}" for model in variant.loaded.settings for line in model.get("auto", ())),
            *(f"warning: {warning}" for warning in variant.loaded.warnings),
        ]


def _described(task: "Task") -> str:
    return f"{task.kind}, scale {task.scale}" if task.kind == "rank" else task.kind


def _tell_started(app: Any) -> None:
    click.echo(f"forwardpass listens on {app.addresses.data} (admin: {app.addresses.admin}); loading …")


def _tell_ready(app: Any) -> None:
    names = ", ".join(f"{v.version.pipeline}/{v.version.number}" for v in app.routes.variants())
    click.echo(f"ready: {names}")
