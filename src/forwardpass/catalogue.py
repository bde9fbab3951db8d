"""What the server's sources hold, loaded or not, and loading and unloading by a pipeline's name."""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path

from forwardpass.core.errors import Code, Failed, Failure, Misconfigured, Problem, Refused, show
from forwardpass.pipeline.repository import Found, scan
from forwardpass.rollout.acts import Acts
from forwardpass.rollout.lifecycle import Stage
from forwardpass.rollout.route import Routes

Key = tuple[str, int]
_STATES = {
    Stage.LOADING: "LOADING", Stage.VERIFYING: "LOADING", Stage.READY: "READY", Stage.DRAINING: "UNLOADING",
    Stage.UNLOADED: "UNAVAILABLE", Stage.FAILED: "UNAVAILABLE",
}  # fmt: skip
_GONE = (Code.PIPELINE_NOT_FOUND, Code.VERSION_NOT_FOUND)
_log = logging.getLogger("forwardpass.app")


@dataclass(slots=True)
class Findings:
    """Versions that are in one place; those in two; sources in which there is nothing; what was passed over."""

    found: dict[Key, Found] = field(default_factory=dict)
    twice: dict[Key, Problem] = field(default_factory=dict)
    empty: list[Problem] = field(default_factory=list)
    ignored: list[Problem] = field(default_factory=list)


def find(sources: Sequence[Path]) -> Findings:
    """Looks at the disk. Raises Misconfigured for a source that cannot be read."""
    findings = Findings()
    for source in sources:
        scanned = scan(source)
        findings.ignored += scanned.ignored
        if not scanned.found:
            allowed = "a model file, a pipeline folder or a repository"
            findings.empty.append(Problem(str(source), "", "no pipeline was found here", allowed))
        for one in scanned.found:
            key = (one.pipeline, one.number)
            first = findings.found.setdefault(key, one)
            if first.source != one.source:
                text = f"{one.pipeline} version {one.number} is in {first.source} too"
                findings.twice[key] = Problem(str(one.source), "", text, "every version in one place only")
    return findings


def latest(found: Mapping[Key, Found]) -> list[Found]:
    """The newest version of each pipeline."""
    return list({pipeline: found[pipeline, number] for pipeline, number in sorted(found)}.values())


def problems_of(found: Found, failure: Failure) -> tuple[Problem, ...]:
    """Of several versions, each must say where it is: files are named from the version's folder on."""
    if isinstance(failure, Misconfigured):
        return tuple(replace(problem, file=str(found.folder / problem.file)) for problem in failure.problems)
    return (Problem(str(found.source), "", failure.text, ""),)


def log_failure(found: Found, failure: Failure) -> None:
    """Why a version could not be loaded, one line a problem."""
    for problem in problems_of(found, failure):
        event = {"pipeline": found.pipeline, "version": found.number, "code": failure.code.value}
        _log.error(str(problem), extra={"event": {**event, "detail": failure.detail}})


async def contained(load: Awaitable[None]) -> None:
    """A load, with whatever else than Failure it raises as this version's own load_failed: the others are served."""
    try:
        await load
    except Failure:
        raise
    except Exception as error:
        detail = "".join(traceback.format_exception(error))
        problem = Problem("", "", "could not be looked into: a defect of the server", "see the log")
        raise Misconfigured(Code.LOAD_FAILED, (problem,), detail=detail) from error


class Catalogue:
    """What it says may be read by clients: no path, and of what is wrong with a version no more than the error code.

    ``load`` and ``unload`` do it for one version; ``failures`` are those of the start, ``wanted`` what should be loaded;
    ``every``: a load takes all versions of a pipeline, else the newest.
    """

    def __init__(
        self,
        sources: Sequence[Path],
        routes: Routes,
        load: Callable[[Found], Awaitable[None]],
        unload: Callable[[str, int], Awaitable[None]],
        failures: Mapping[Key, Failure],
        wanted: AbstractSet[Key],
        acts: Acts,
        *,
        every: bool,
    ) -> None:
        self._sources = sources
        self._routes = routes
        self._load = load
        self._unload = unload
        self._failures = failures
        self._wanted = wanted
        self._acts = acts
        self._every = every
        self._reasons: dict[Key, Code] = {}  # why the last load that was asked for failed
        self._loading = asyncio.Lock()

    async def index(self) -> list[dict[str, str]]:
        """name, version, state and reason of every version, in the sources or loaded. Raises Failed."""
        findings = await self._find()
        loaded = {(v.version.pipeline, v.version.number): v.stage for v in self._routes.variants()}
        return [
            {
                "name": key[0],
                "version": str(key[1]),
                "state": _STATES[loaded[key]] if key in loaded else "UNAVAILABLE",
                "reason": "" if key in loaded else self._reason(key, findings),
            }
            for key in sorted(findings.found.keys() | loaded.keys())
        ]

    async def load(self, pipeline: str) -> None:
        """One load at a time, until it answers; what is loaded already is left alone. Raises Failure."""
        await self._acts.finish(self._load_newest(pipeline))

    async def unload(self, pipeline: str) -> None:
        """All its versions, the oldest first; what is not loaded is unloaded already, and no longer missed if it failed.

        Raises Failure.
        """
        await self._acts.finish(self._unload_all(pipeline))

    async def _load_newest(self, pipeline: str) -> None:
        async with self._loading:
            findings = await self._find()
            own = {key: found for key, found in findings.found.items() if key[0] == pipeline}
            if not own:
                raise self._not_there(pipeline)
            self._reasons = {key: code for key, code in self._reasons.items() if key in findings.found}
            variants = self._routes.variants()
            ready = {(v.version.pipeline, v.version.number) for v in variants if v.stage is Stage.READY}
            for found in own.values() if self._every else latest(own):
                if (pipeline, found.number) not in ready:
                    await self._load_one(found, findings)

    async def _unload_all(self, pipeline: str) -> None:
        missed = {number for name, number in self._failures.keys() | self._wanted if name == pipeline}
        numbers = sorted(missed.union(self._routes.numbers(pipeline)))
        if not numbers and all(name != pipeline for name, _ in (await self._find()).found):
            raise self._not_there(pipeline)
        for number in numbers:
            try:
                await self._unload(pipeline, number)
            except Refused as refusal:
                if refusal.code not in _GONE:  # somebody else was faster
                    raise
        self._reasons = {key: code for key, code in self._reasons.items() if key[0] != pipeline}

    async def _load_one(self, found: Found, findings: Findings) -> None:
        key = (found.pipeline, found.number)
        try:
            if key in findings.twice:
                raise Misconfigured(Code.DEFINITION_INVALID, (findings.twice[key],))
            await contained(self._load(found))
        except Refused as refusal:
            if refusal.code is not Code.CONFLICT:
                raise
            self._routes.find(*key)  # it was being loaded: whoever asks for it now is told if it does not answer yet
        except Misconfigured as failure:
            self._reasons[key] = failure.code
            log_failure(found, failure)
            text = f'"{found.pipeline}" version {found.number} could not be loaded: {failure.code}; the log says why'
            raise Failed(failure.code, text) from None
        self._reasons.pop(key, None)

    def _reason(self, key: Key, findings: Findings) -> str:
        if key in self._reasons:
            return f"could not be loaded: {self._reasons[key]}"
        if key in self._failures:
            return f"could not be loaded: {self._failures[key].code}"
        return "is in two places" if key in findings.twice else "unloaded"

    async def _find(self) -> Findings:
        try:
            return await asyncio.to_thread(find, self._sources)
        except Misconfigured as failure:
            raise Failed(Code.INTERNAL, "the repository cannot be read", detail=failure.text) from None

    def _not_there(self, pipeline: str) -> Refused:
        return Refused(Code.PIPELINE_NOT_FOUND, f'the repository has no pipeline "{show(pipeline)}"')
