"""A pipeline written in Python: tried in this process, saved as the folder that a server serves.

pipeline = Pipeline(
    inputs={"text": "text"},
    steps=[use.tokenize("tokenizer.json", tokens_max=256), use.model("model.onnx"), use.softmax()],
)
pipeline.predict({"text": "lovely"}).outputs
pipeline.save("models/reviews/1")
"""

import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from shutil import rmtree
from types import TracebackType
from typing import Any, Self, overload

from forwardpass import client_wire as wire
from forwardpass.building import answers, versions
from forwardpass.building.folder import Paths, gathered
from forwardpass.building.functions import Function, function_of
from forwardpass.building.session import Session
from forwardpass.client_retry import ForwardpassError
from forwardpass.client_wire import Prediction
from forwardpass.core.errors import Code, Misconfigured, Problem
from forwardpass.core.pipeline import (
    Batch,
    Cache,
    Checks,
    Field,
    Golden,
    Guard,
    Input,
    InputType,
    Price,
    Queue,
    Rule,
    Sequences,
    Step,
    Task,
    Version,
    Workers,
)
from forwardpass.core.pipeline import Pipeline as Definition
from forwardpass.core.request import Turn
from forwardpass.execution.kinds import kinds
from forwardpass.pipeline.golden import expected
from forwardpass.pipeline.golden_files import in_files
from forwardpass.pipeline.repository import files_of, is_pipeline_name
from forwardpass.settings import Settings

Record = Mapping[str, object]
Inputs = Sequence[Input] | Mapping[str, InputType]
Made = Step | Callable[..., object]


@dataclass(frozen=True, slots=True)
class Checked:
    """What loading a pipeline has shown."""

    inputs: tuple[Field, ...]
    outputs: tuple[Field, ...]
    batching: str  # "on", or "off" and why
    golden: int  # examples, all of which hold
    warnings: tuple[str, ...]
    load_s: float


class Pipeline:
    """Inputs, steps and what holds around them, checked as it is written. Nothing in it changes afterwards.

    ``steps`` are made by ``use`` or are typed functions (see ``step``); ``inputs`` name each input's type. The first
    call that needs the model loads it into this process: no worker process and no box around it, so run only models
    that you would trust with your machine. Close it, or use it in a ``with`` block.
    """

    definition: Definition
    files: dict[str, Path | bytes]  # of its folder: name -> where it is here, or what is in it
    name: str
    _own: tuple[Function, ...]
    _threads: int
    _version: Version | None
    _loaded: Session | None
    _lock: threading.Lock
    _ending: "weakref.finalize[..., Any]"

    def __init__(
        self,
        steps: Sequence[Made],
        *,
        inputs: Inputs = (),
        outputs: str | Sequence[str] = (),
        description: str = "",
        rules: Sequence[Rule] = (),
        guards: Sequence[Guard] = (),
        checks: Checks | None = None,
        batch: Batch | None = None,
        queue: Queue | None = None,
        workers: Workers | None = None,
        sequence: Sequences | None = None,
        cache: Cache | None = None,
        task: Task | None = None,
        price: Price | None = None,
        golden: Sequence[Golden] = (),
        files: Paths | None = None,
        name: str = "pipeline",
        threads: int | None = None,
    ) -> None:
        """``files`` names those of the folder: name -> path here; a path given to a step need not be in it.

        Raises Misconfigured with every problem that shows without loading a model.
        """
        functions = {each: function_of(each) for each in steps if not isinstance(each, Step)}
        written = tuple(each if isinstance(each, Step) else functions[each].step for each in steps)
        named, paths = gathered(written, files or {}, kinds())
        given = _inputs(inputs)
        examples, pictures = in_files([_plain(each) for each in golden], given, paths)
        definition = Definition(
            steps=named,
            inputs=given,
            outputs=(outputs,) if isinstance(outputs, str) else tuple(outputs),
            description=description,
            rules=tuple(rules),
            guards=tuple(guards),
            checks=checks or Checks(),
            batch=batch or Batch(),
            queue=queue or Queue(),
            workers=workers or Workers(),
            sequence=sequence,
            cache=cache,
            task=task,
            price=price or Price(),
            golden=examples,
        )
        own = _distinct(functions.values())
        contents: dict[str, Path | bytes] = {**paths, **pictures}
        versions.check(definition, contents, own)
        self._start(definition, contents, own, name, threads)

    @classmethod
    def open(cls, path: str | PathLike[str], *, trusted: bool = False, threads: int | None = None) -> Self:
        """The pipeline of a version's folder, or of a model file, as it is there now.

        ``trusted`` lets the folder's own code run in this process. Raises Misconfigured.
        """
        folder = Path(tempfile.mkdtemp(prefix="forwardpass-"))
        try:
            version = versions.taken_in(Path(path), folder, trusted=trusted)
        except BaseException:
            rmtree(folder, ignore_errors=True)
            raise
        opened = cls.__new__(cls)
        opened._start(versions.as_written(version), files_of(version), (), version.pipeline, threads)
        opened._keep(folder)
        opened._version = version
        return opened

    @overload
    def predict(self, records: Record, *, sequence: Turn | None = None) -> Prediction: ...
    @overload
    def predict(
        self, records: Iterable[Record], *, sequence: Turn | None = None
    ) -> list[Prediction | ForwardpassError]: ...

    def predict(
        self, records: Record | Iterable[Record], *, sequence: Turn | None = None
    ) -> Prediction | list[Prediction | ForwardpassError]:
        """The answer to one record, or one outcome per record of many, as ``forwardpass.client.Client`` gives them.

        ``sequence`` says which one it goes on with, for a pipeline that keeps what it saw of each.
        Raises ForwardpassError when the only record, or every one, has no answer, or when one does not fit the inputs.
        An own function's traceback is a note of the error.
        """
        with self._session() as session:
            if isinstance(records, Mapping):
                return answers.one(session, records, sequence)
            several = list(records)
            return answers.many(session, several, sequence) if several else []

    def predict_json(self, records: Record | Iterable[Record]) -> bytes:
        """The body of the answer that ``POST /predict/{pipeline}`` gives to these. Raises Failure."""
        with self._session() as session:
            return answers.body(session, records if isinstance(records, Mapping) else list(records))

    def check(self) -> Checked:
        """Load it, if it is not, and see that its golden examples hold. Raises Misconfigured with what is wrong."""
        with self._session() as session:
            variant = session.variant
        assert variant.loaded is not None, "a session's version has loaded"
        return Checked(
            variant.signature.columns,
            variant.signature.outputs,
            variant.batching_reason,
            len(self.definition.golden),
            tuple(variant.loaded.warnings),
            variant.loaded.load_s,
        )

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write the folder of a version, such as ``models/reviews/1``: ``pipeline.toml``, its files, and ``steps.py``.

        The folder must not exist. Own functions must stand by themselves (``source.py`` has the rule), and run on a
        server only after ``forwardpass trust FOLDER``. Raises Misconfigured.
        """
        versions.write(self.definition, self.files, self._own, Path(folder))
        return Path(folder)

    def close(self) -> None:
        """Unload it, once the calls of other threads have ended. The next call that needs it loads it again."""
        with self._lock:
            ending, self._ending = self._ending, weakref.finalize(self, _nothing)
            self._loaded = None
        ending()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        steps = ", ".join(step.use for step in self.definition.steps)
        return f"Pipeline({self.name}: {', '.join(each.name for each in self.definition.inputs) or '…'} -> {steps})"

    def _start(
        self,
        definition: Definition,
        files: Mapping[str, Path | bytes],
        own: Sequence[Function],
        name: str,
        threads: int | None,
    ) -> None:
        if not is_pipeline_name(name):
            problem = Problem("", "name", f'found "{name}"', "lower-case letters, digits, '.', '_', '-'; at most 64")
            raise Misconfigured(Code.DEFINITION_INVALID, (problem,))
        self.definition = definition
        self.files = dict(files)
        self.name = name
        self._own = tuple(own)
        self._threads = threads or Settings().threads
        self._version = None
        self._loaded = None
        self._lock = threading.Lock()
        self._ending = weakref.finalize(self, _nothing)

    @contextmanager
    def _session(self) -> Iterator[Session]:
        """Loaded, and not unloaded in the block."""
        with self._lock:
            session = self._loaded or self._load()
            session.enter()
        try:
            yield session
        finally:
            session.exit()

    def _load(self) -> Session:
        if self._version is None:
            folder = Path(tempfile.mkdtemp(prefix="forwardpass-"))
            self._keep(folder)
            self._version = versions.staged(self.name, self.definition, self.files, self._own, folder)
        own = {function.step.use: function.kind for function in self._own}
        self._loaded = Session(self._version, threads=self._threads, own=own)
        self._ending = weakref.finalize(self, self._loaded.close)
        self._ending.atexit = False  # by then its thread is no more
        return self._loaded

    def _keep(self, folder: Path) -> None:
        """The folder goes when this object, or the process, does."""
        weakref.finalize(self, rmtree, folder, ignore_errors=True)


def _inputs(inputs: Inputs) -> tuple[Input, ...]:
    if isinstance(inputs, Mapping):
        return tuple(Input(name, type) for name, type in inputs.items())
    return tuple(inputs)


def _plain(example: Golden) -> Golden:
    """As TOML can hold it, but for bytes."""
    request, expect = wire.plain(example.request, wire.as_it_is), wire.plain(example.expect, wire.as_it_is)
    return replace(example, request=request, expect=expected(expect))


def _distinct(functions: Iterable[Function]) -> tuple[Function, ...]:
    named: dict[str, Function] = {}
    for function in functions:
        if named.setdefault(function.name, function) is not function:
            problem = Problem("", f"steps.{function.name}", "two functions of this name", "a name of its own for each")
            raise Misconfigured(Code.DEFINITION_INVALID, (problem,))
    return tuple(named.values())


def _nothing() -> None:
    """What ends a pipeline that is not loaded."""
