"""The owner's folders of pipelines, and the private store their versions are taken in to.

A repository is ``<pipeline>/<version>/``. ``scan`` also understands a bare model file, the folder of one version, and
the folder of one pipeline. ``take_in`` copies a version to ``<store>/<digest>``, where nothing changes any more: what
is served is what was checked.
"""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from forwardpass.core.clock import random_id, wall_s
from forwardpass.core.errors import Code, Misconfigured, Problem, show
from forwardpass.core.pipeline import Pipeline, Version
from forwardpass.pipeline import definition, manifest, onnx_file
from forwardpass.pipeline.files import name_problem, sync_folder, write_file
from forwardpass.pipeline.golden_files import resolved
from forwardpass.pipeline.inspection.files import damage
from forwardpass.pipeline.intake import Patience, Source, references, refusals, verify
from forwardpass.pipeline.rules import has_own_code
from forwardpass.pipeline.signatures import NOBODY, Signature, Signers, Statement
from forwardpass.pipeline.trust import Trust, not_trusted
from forwardpass.steps.protocol import StepKind

NUMBER_MAX = 2**31 - 1
ENTRIES_MAX = 100_000
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_NUMBER = re.compile(r"[1-9][0-9]{0,9}")
_DRAFT_PREFIX = ".tmp-"
DRAFT_AGE_MAX_S = 3600.0


@dataclass(frozen=True, slots=True)
class Found:
    """A version as its owner keeps it: a folder, or one model file in it that is served without a definition."""

    pipeline: str
    number: int
    folder: Path
    model_file: str = ""

    @property
    def source(self) -> Path:
        """What the owner would name on a command line."""
        return self.folder / self.model_file if self.model_file else self.folder


@dataclass(frozen=True, slots=True)
class Scan:
    """Versions by pipeline and number, and what was passed over because of its name or kind."""

    found: tuple[Found, ...]
    ignored: tuple[Problem, ...] = ()


def is_pipeline_name(name: str) -> bool:
    """The one rule for names of pipelines, in folders and in requests (FAULTS R4)."""
    return _NAME.fullmatch(name) is not None and ".." not in name


def version_number(text: str) -> int | None:
    """1 to 2**31 - 1, written without leading zeros; None for anything else."""
    if not _NUMBER.fullmatch(text) or int(text) > NUMBER_MAX:
        return None
    return int(text)


def scan(root: Path) -> Scan:
    """Every version under ``root``, whichever of the four forms it has. Raises Misconfigured if it cannot be read."""
    try:
        place = root.resolve(strict=True)
        if place.is_file():
            definition.bare(place.name)  # refuses what no engine reads
            return Scan((Found(_cleaned(root.stem), 1, place.parent, place.name),))
        if onnx_file.is_onnx(place.name):
            raise onnx_file.invalid(str(root), "a folder, not a file")
        if _is_version(place):
            number = version_number(place.name)
            if number is not None and is_pipeline_name(place.parent.name):
                return Scan((Found(place.parent.name, number, place),))
            return Scan((Found(_cleaned(place.name), 1, place),))
        if any(version_number(entry.name) and _is_version(entry) for entry in _entries(place)):
            return _versions(place, _cleaned(place.name))
        return _repository(place)
    except OSError as error:
        problem = Problem(str(root), "", "cannot be read", "a model file, a pipeline's folder or a folder of pipelines")
        raise Misconfigured(Code.DEFINITION_INVALID, (problem,), detail=str(error)) from error


def take_in(
    found: Found,
    store: Path,
    *,
    kinds: Mapping[str, StepKind],
    trusted: Trust,
    signers: Signers = NOBODY,
    patience: Patience | None = None,
) -> Version:
    """Copy a version to the store and check all of it. Raises Misconfigured; nothing is left behind then.

    The same files give the same digest and so the same folder, which is hashed again before it is used again.
    With ``signers``, one of them must have signed exactly these files under this name and number.
    """
    with _drafted(found, store, patience or Patience()) as (draft, entries):
        digest = manifest.digest_of(entries)
        signed_by: tuple[str, ...] = ()
        if signers.keys:
            statement = Statement(found.pipeline, found.number, digest)
            signed_by = signers.verify(found.source, statement, signatures_of(found))
        pipeline = _definition(draft, entries, found.source, kinds)
        if has_own_code(pipeline) and digest not in trusted:
            raise not_trusted(found.source, digest)
        folder = store / digest
        if not _moved(draft, entries, folder):
            verify(folder, digest)
    understood = resolved(pipeline, folder)
    return Version(found.pipeline, found.number, digest, str(folder), understood, digest in trusted, signers=signed_by)


def examine(found: Found, *, kinds: Mapping[str, StepKind], go_on: Callable[[], None] = lambda: None) -> Pipeline:
    """What a version is to be, by looking only: nothing is copied, hashed or waited for, so that it may change afterwards.

    Raises Misconfigured with what ``take_in`` would refuse, but for digests, signatures and trust; and what ``go_on``
    raises, which is called before each file.
    """

    def one_by_one(names: Iterable[str]) -> Iterator[str]:
        for name in names:
            go_on()
            yield name

    try:
        with Source(found.folder, found.model_file) as source:
            look = source.look()
            models = [name for name in look.files if onnx_file.is_onnx(name)]
            if source.wanted:
                source.wanted |= {
                    external.location
                    for model in one_by_one(models)
                    for external in references(found.folder, model)
                    if not name_problem(external.location)
                }
                look = source.look()
        problems = refusals(look, found.folder, one_by_one(models))
    except OSError as error:
        problem = Problem(str(found.source), "", "cannot be read", "readable files")
        raise Misconfigured(Code.LOAD_FAILED, (problem,), detail=str(error)) from error
    if problems:
        raise Misconfigured(Code.MODEL_INVALID, problems)
    _check_headers(found.folder, one_by_one(look.files))
    entries = {name: manifest.Entry(size, "") for name, (_, _, size, _) in look.files.items()}
    return _definition(found.folder, entries, found.source, kinds)


def signatures_of(found: Found) -> tuple[Signature, ...]:
    """What lies beside a version, none of it checked. Raises Misconfigured not_signed for what is no such file."""
    with Source(found.folder, found.model_file) as source:
        return source.signatures()


def digest_of(found: Found, store: Path, *, patience: Patience | None = None) -> str:
    """The digest ``take_in`` would give a version, without loading it: what the operator is asked to trust."""
    with _drafted(found, store, patience or Patience()) as (_, entries):
        return manifest.digest_of(entries)


def files_of(version: Version) -> dict[str, Path]:
    """The files of a version that was taken in, but for those that describe it: name -> where it is."""
    root = Path(version.folder)
    described = (definition.FILE_NAME, manifest.FILE_NAME)
    places = {place.relative_to(root).as_posix(): place for place in sorted(root.rglob("*")) if place.is_file()}
    return {name: place for name, place in places.items() if name not in described}


def sweep(store: Path) -> None:
    """Remove the drafts that killed processes left behind: those older than any take-in lasts."""
    for draft in store.glob(f"{_DRAFT_PREFIX}*"):
        with suppress(FileNotFoundError):  # whoever drafts it has just done so
            if wall_s() - draft.stat().st_mtime > DRAFT_AGE_MAX_S:
                if draft.is_dir():
                    shutil.rmtree(draft, ignore_errors=True)
                else:
                    draft.unlink()


@contextmanager
def _drafted(found: Found, store: Path, patience: Patience) -> Iterator[tuple[Path, manifest.Manifest]]:
    """A checked copy of a version's files in the store, and its manifest; removed afterwards unless it was moved."""
    draft = store / f"{_DRAFT_PREFIX}{random_id()}"
    try:
        store.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft.mkdir(mode=0o700)
        with Source(found.folder, found.model_file) as source:
            entries = _copied(source, draft, patience)
        yield draft, entries
    except OSError as error:
        problem = Problem(str(found.source), "", "could not be copied to the store", "readable files and room for them")
        raise Misconfigured(Code.LOAD_FAILED, (problem,), detail=str(error)) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _copied(source: Source, draft: Path, patience: Patience) -> manifest.Manifest:
    """Models first: they say which other files a bare one needs, and which tensor a refused file is missed by."""
    look = source.settled(patience)
    models = [name for name in look.files if onnx_file.is_onnx(name)]
    entries = source.copy(look, models, draft)
    if source.wanted:
        for model in models:
            source.wanted |= {
                external.location for external in references(draft, model) if not name_problem(external.location)
            }
        before, look = look, source.settled(patience)
        if any(look.files.get(model) != before.files[model] for model in models):
            raise source.changed()
    problems = refusals(look, draft, models)
    if problems:
        raise Misconfigured(Code.MODEL_INVALID, problems)
    entries |= source.copy(look, [name for name in look.files if name not in entries], draft)
    _check_headers(draft, entries)
    if source.look() != look:
        raise source.changed()
    if look.has_manifest:
        expected = source.manifest()
        manifest.compare(expected, entries, str(source.folder / manifest.FILE_NAME))
    return entries


def _check_headers(folder: Path, names: Iterable[str]) -> None:
    """Raises Misconfigured for a damaged model file of a kind other than ONNX, which is looked into before."""
    found = {name: damage(folder / name) for name in names}
    problems = [Problem(name, "", problem, "a whole file of its kind") for name, problem in found.items() if problem]
    if problems:
        raise Misconfigured(Code.MODEL_INVALID, tuple(problems))


def _definition(folder: Path, entries: manifest.Manifest, source: Path, kinds: Mapping[str, StepKind]) -> Pipeline:
    """The pipeline of a private folder; problems speak of ``source``, which is what the operator knows."""
    if definition.FILE_NAME in entries:
        file = str(source / definition.FILE_NAME)
        if entries[definition.FILE_NAME].size > definition.DEFINITION_BYTES_MAX:
            problem = Problem(file, "", "too large", f"at most {definition.DEFINITION_BYTES_MAX} bytes")
            raise Misconfigured(Code.DEFINITION_INVALID, (problem,))
        data = (folder / definition.FILE_NAME).read_bytes()
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise Misconfigured(Code.DEFINITION_INVALID, (Problem(file, "", "not UTF-8", "", line),)) from error
        return definition.parse(text, file=file, folder=folder, kinds=kinds)
    models = [name for name in entries if definition.is_model_file(name) and "/" not in name]
    if len(models) != 1:
        problem = Problem(
            str(source),
            "",
            f"no {definition.FILE_NAME}, and {len(models)} model files",
            f"a {definition.FILE_NAME}, or one model file ({', '.join(definition.ENGINE_OF_SUFFIX)})",
        )
        raise Misconfigured(Code.DEFINITION_INVALID, (problem,))
    pipeline = definition.bare(models[0])
    problems = definition.check(pipeline, file=str(source), folder=folder, kinds=kinds)
    if problems:
        raise Misconfigured(Code.DEFINITION_INVALID, tuple(problems))
    return pipeline


def _moved(draft: Path, entries: manifest.Manifest, folder: Path) -> bool:
    """Make the draft the version's folder; False when there is one already."""
    write_file(draft / manifest.FILE_NAME, manifest.encode(entries))
    for place in {(draft / name).parent for name in entries}:
        sync_folder(place)
    sync_folder(draft)
    try:
        draft.rename(folder)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    sync_folder(folder.parent)
    return True


def _repository(root: Path) -> Scan:
    found: list[Found] = []
    ignored: list[Problem] = []
    for entry in _entries(root):
        if not is_pipeline_name(entry.name):
            allowed = "a pipeline's name: a-z 0-9 . _ -, at most 64, beginning with a letter or digit, no .."
            ignored.append(Problem(str(root), show(entry.name), "ignored: not the name of a pipeline", allowed))
        elif not _is_folder(entry):
            ignored.append(Problem(str(root), entry.name, "ignored: not a folder", "a folder of versions 1, 2, 3 …"))
        else:
            try:
                inner = _versions(entry, entry.name)
            except OSError:  # the others are served all the same
                ignored.append(Problem(str(root), entry.name, "ignored: cannot be read", "a readable folder"))
            else:
                found += inner.found
                ignored += inner.ignored
    return Scan(tuple(found), tuple(ignored))


def _versions(folder: Path, pipeline: str) -> Scan:
    found: list[Found] = []
    ignored: list[Problem] = []
    for entry in _entries(folder):
        number = version_number(entry.name)
        if number is None or not _is_folder(entry):
            allowed = f"a folder named by a version's number, 1 to {NUMBER_MAX}"
            ignored.append(Problem(str(folder), show(entry.name), "ignored: not a version", allowed))
        else:
            found.append(Found(pipeline, number, entry))
    return Scan(tuple(sorted(found, key=lambda version: version.number)), tuple(ignored))


def _entries(folder: Path) -> list[Path]:
    """What is in a folder, by name, without hidden entries."""
    names = os.listdir(folder)
    if len(names) > ENTRIES_MAX:
        problem = Problem(str(folder), "", f"{len(names)} entries", f"at most {ENTRIES_MAX}")
        raise Misconfigured(Code.DEFINITION_INVALID, (problem,))
    return [folder / name for name in sorted(names) if not name.startswith(".")]


def _is_folder(place: Path) -> bool:
    """A symbolic link to a folder is none: versions are taken in from where they really are."""
    return place.is_dir() and not place.is_symlink()


def _is_version(folder: Path) -> bool:
    """Whether a folder holds a version itself: a definition, or one bare model file."""
    if not _is_folder(folder):
        return False
    if (folder / definition.FILE_NAME).is_file():
        return True
    return sum(definition.is_model_file(entry.name) and entry.is_file() for entry in _entries(folder)) == 1


def _cleaned(name: str) -> str:
    """A file's or folder's name made to fit the rule for pipelines."""
    cleaned = re.sub(r"[^a-z0-9._-]+", "-", name.lower())
    cleaned = re.sub(r"\.{2,}", ".", cleaned).lstrip("._-")[:64]
    if not cleaned:
        allowed = "a name with a letter a-z or a digit"
        raise Misconfigured(Code.DEFINITION_INVALID, (Problem(show(name), "", "names no pipeline", allowed),))
    return cleaned
