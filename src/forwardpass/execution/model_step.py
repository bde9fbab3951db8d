"""The ``model`` step: a model file in an engine, its inputs taken from fields and its outputs made fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forwardpass.core.errors import Code, Misconfigured, Problem, show
from forwardpass.core.pipeline import Field, Options, Step
from forwardpass.core.tensor import DATATYPES
from forwardpass.engines.discover import EngineKind, engine_kind, engine_names
from forwardpass.engines.protocol import ModelFile
from forwardpass.execution.binding import ALL, Bound, Rows, bind, fail_unfit
from forwardpass.execution.carried import Carried
from forwardpass.execution.groups import predicted
from forwardpass.execution.model import Model
from forwardpass.steps.kind import FILE, describe, invalid
from forwardpass.steps.options import (
    Rule,
    Trouble,
    Wrong,
    did_you_mean,
    field_name,
    file_name,
    option,
    read,
    table,
    text,
)
from forwardpass.steps.protocol import Batch, Column, Context, FieldMap, Prepared


def _any_table(value: object) -> Any:
    if not isinstance(value, dict):
        raise Wrong(f"{show(value)}", "a table")
    return value


def _declaration(value: object) -> dict[str, Any]:
    """An input or output that own code declares: ``{ datatype = "FP32", shape = [4], field = "x" }``."""
    if not isinstance(value, dict) or not {"datatype"} <= value.keys() <= {"datatype", "shape", "field"}:
        raise Wrong(show(value), DECLARED_ALLOWED)
    shape = value.get("shape", [])
    right = isinstance(shape, list | tuple) and all(type(size) is int and size >= -1 for size in shape)
    if value["datatype"] not in DATATYPES or value["datatype"] == "BF16" or not right:
        raise Wrong(show(value), DECLARED_ALLOWED)
    if "field" in value:
        field_name().read(value["field"])
    return value


DECLARED_ALLOWED = 'a table such as { datatype = "FP32", shape = [4] }, and field = "name" where that differs'
TABLE = Rule("a table", _any_table)
MAPPED = table(field_name())
CONSTANTS = table(Rule("a value: a number, text, true, false, or lists of these", lambda value: value))
DECLARED = table(Rule(DECLARED_ALLOWED, _declaration))


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Runs ``file`` in ``engine``. Graph inputs take the fields of their names; a single one the latest that fits.
    ``inputs`` and ``outputs`` map names of the graph to fields; own code declares its whole signature with them.
    Inputs in ``state`` take an output of the step before, zeros at first: steps are the elements of a row in their order,
    or with [sequence] the requests of one sequence. One axis of a state is free, that of the rows.

    Makes a field of each graph output, of its datatype and shape; ragged where a ragged input left that open. A row
    fails with `missing_field` or `invalid_utf8` (text that is none), `shape_mismatch` (a size the graph does not take),
    `engine_failed`, `engine_out_of_memory`, or `bad_output_shape` (another answer than the graph declares)."""

    engine: str = option(text(), "the runtime")
    file: str = option(file_name(), "the model file")
    inputs: Mapping[str, Any] | None = option(TABLE, "graph input = field", None)
    outputs: Mapping[str, Any] | None = option(TABLE, "graph output = field", None)
    state: Mapping[str, str] | None = option(MAPPED, "graph input = the graph output of the step before", None)
    constants: Mapping[str, Any] | None = option(CONSTANTS, "graph input = what it is in every call", None)


OWN = ("engine", "file", "inputs", "outputs", "state", "constants")


class ModelStep:
    """A StepKind. Without a context, as in the front, only ``check`` works, and nothing is loaded.

    With one it is one step of one version: ``model`` loads the file once, ``fields`` and ``prepare`` use it.
    """

    name = "model"
    options = ModelOptions
    level = 0
    exportable = True

    def __init__(self, context: Context | None = None, shared: dict[str, Model] | None = None) -> None:
        """``shared`` holds the models that other steps of the version have loaded."""
        self._context = context
        self._shared = {} if shared is None else shared
        self._owner = False
        self.known: Mapping[str, Any] | None = None  # settings that an earlier load of this version found right
        self.tolerance: Mapping[str, float] | None = None  # of an engine that is chosen among candidates
        self._model: Model | None = None
        self.warnings: list[str] = []
        self.platform = ""
        self.settings: dict[str, Any] = {}  # the engine and its options in effect
        self.place = ""
        self.mixed = False  # rows of different items have gone through the model together, since somebody cleared it

    def check(self, options: Options, folder: Path) -> Sequence[Trouble]:
        values, troubles = read(ModelOptions, {key: value for key, value in options.items() if key in OWN}, folder)
        engine = options.get("engine")
        if not isinstance(engine, str):
            return troubles
        if engine not in engine_names():
            installed = engine_names()
            allowed = f"installed: {', '.join(installed)}{did_you_mean(engine, installed)}"
            return [*troubles, ("engine", f"no engine {show(engine)}", allowed)]
        kind = engine_kind(engine)
        troubles += _engine_troubles(kind, {key: value for key, value in options.items() if key not in OWN})
        return troubles if values is None else troubles + _table_troubles(kind, values)

    def fields(self, options: Options, known: FieldMap) -> Sequence[Field]:
        model = self.model(options)
        return _made(model, options, self._bound(options, known))

    def prepare(self, options: Options, known: FieldMap, context: Context) -> Prepared:
        model, bound = self.model(options), self._bound(options, known)
        made = zip(model.signature.outputs, _made(model, options, bound), strict=True)
        self.place = context.place
        return _runner(self, bound, {graph.name: field for graph, field in made})

    def takes_token_ids(self, options: Options) -> bool:
        return False

    @property
    def loaded(self) -> Model:
        """The model, once it has been loaded."""
        assert self._model is not None, "whoever asks has built the plan"
        return self._model

    def model(self, options: Options) -> Model:
        """The loaded model; the first call loads it. Raises Misconfigured."""
        assert self._context is not None, "a model is loaded in a worker only"
        if self._model is None:
            troubles = self.check(options, self._context.folder)
            if troubles:
                raise Misconfigured(Code.DEFINITION_INVALID, tuple(Problem(FILE, *trouble) for trouble in troubles))
            kind = engine_kind(options["engine"])
            if kind.own_code and not self._context.trusted:
                text = f"{options['file']} is own code, which runs only in a trusted version"
                raise Misconfigured(Code.NOT_TRUSTED, text)
            name = options["engine"]
            file = _model_file(kind, options, self._context)
            if kind.candidates:
                name, file = self._candidate(kind, file)
            self._model = self._load(name, file)
            self.platform = kind.platform
            self.settings = {"engine": name, "threads": file.threads, **self._model.file.options}
            if kind.candidates:
                self.settings["auto"] = self.known["auto"] if self.known else []
        return self._model

    def _candidate(self, kind: EngineKind, file: ModelFile) -> tuple[str, ModelFile]:
        """The engine that an earlier load has chosen, or the reference that others are compared with."""
        self.tolerance = file.options["tolerance"]
        if self.known is None:
            name, options = kind.candidates[0]
            return name, replace(file, options=engine_kind(name).settings(options))
        name = self.known["engine"]
        assert name in dict(kind.candidates), "it was chosen among them"
        return name, replace(file, options=engine_kind(name).settings({}), threads=self.known["threads"])

    def close(self) -> None:
        if self._model is not None and self._owner:
            self._model.close()

    def _load(self, engine: str, file: ModelFile) -> Model:
        """Once for all steps of the version that run the same file in the same way."""
        kind = engine_kind(engine)
        key = f"{engine} {file} {self.tolerance}"
        if key in self._shared:
            return self._shared[key]
        self._owner = True
        if self.known is None:
            from forwardpass.execution import reference  # in a worker only: it brings numpy's generators

            model, self.warnings = reference.load(kind, file)
        else:
            model = Model(kind.make(), replace(file, options={name: self.known[name] for name in file.options}))
        self._shared[key] = model
        return model

    def _bound(self, options: Options, known: FieldMap) -> list[Bound]:
        kind = engine_kind(options["engine"])
        mapped = _mapped(options.get("inputs"))
        inputs = self.model(options).signature.inputs
        _all_there("inputs", mapped, inputs)
        return [bind(wanted, mapped, known, kind.own_code, alone=len(inputs) == 1) for wanted in inputs]


def is_open(step: Step) -> bool:
    """Whether its engine is chosen among candidates."""
    return step.use == ModelStep.name and bool(engine_kind(step.options["engine"]).candidates)


def fits_settings(step: Step, settings: Mapping[str, Any]) -> bool:
    """Whether the model step can be loaded by these: an engine that it may have, and options that this one takes."""
    engine, threads = settings.get("engine"), settings.get("threads")
    chosen = settings.get("auto")
    if is_open(step):
        allowed = [name for name, _ in engine_kind(step.options["engine"]).candidates]
        if not isinstance(chosen, list) or not chosen or not all(isinstance(line, str) for line in chosen):
            return False
    else:
        allowed = [step.options["engine"]]
    if engine not in allowed or type(threads) is not int or threads < 1:
        return False
    kind = engine_kind(str(engine))
    return (not kind.own_code or {"inputs", "outputs"} <= settings.keys()) and all(
        name in settings and option_.test(settings[name]) for name, option_ in kind.options.items()
    )


def _runner(step: ModelStep, bound: Sequence[Bound], made: Mapping[str, Field]) -> Prepared:
    model = step.loaded
    strings = [each for each in bound if each.wanted.datatype == "BYTES"]
    ragged = {graph for graph, field in made.items() if field.kind == "ragged"}

    def run(batch: Batch) -> None:
        for each in strings:
            fail_unfit(batch, each.source)
        batch.settle()
        carried = Carried(model, batch, step.place) if model.state else None

        def predict(rows: Rows) -> dict[str, Column]:
            inputs = {each.wanted.name: each.rows_of(batch, rows) for each in bound}
            first, last = (0, -1) if rows is ALL else (rows[0], rows[-1])
            step.mixed = step.mixed or batch.origin[first] != batch.origin[last]  # the rows of an item are neighbours
            if carried is not None:
                return carried.predict(inputs, rows)
            return model.predict(inputs, batch.rows if rows is ALL else len(rows))

        fixed = model.signature.fixed_rows
        if fixed and batch.rows % fixed and batch.failures:  # those that are left cannot run without the others
            raise next(iter(batch.failures.values()))
        if batch.rows:
            outputs = predicted(batch, bound, ragged, predict, carried.steps() if carried else (ALL,))
            if carried is not None:
                carried.keep()
            batch.columns.update({made[graph].name: column for graph, column in outputs.items()})

    return run


def _made(model: Model, options: Options, bound: Sequence[Bound]) -> list[Field]:
    """Rows with shapes of their own have answers with shapes of their own, where the graph leaves these open."""
    mapped = _mapped(options.get("outputs"))
    outputs = model.signature.outputs
    _all_there("outputs", mapped, outputs)
    ragged = any(each.ragged for each in bound)
    made = [
        replace(
            field,
            name=mapped.get(field.name, field.name),
            kind="ragged" if ragged and -1 in field.shape and field.datatype != "BYTES" else field.kind,
        )
        for field in outputs
    ]
    if len({field.name for field in made}) < len(made):
        raise invalid("outputs", "two outputs become one field", "a field of its own for each")
    return made


def _all_there(key: str, mapped: Mapping[str, str], graph: Sequence[Field]) -> None:
    for name in mapped:
        if name not in {field.name for field in graph}:
            there = f"{key} of the model: {', '.join(map(describe, graph))}"
            raise invalid(f"{key}.{name}", f"the model has no {name!r} among its {key}", there)


def _mapped(written: Mapping[str, Any] | None) -> dict[str, str]:
    """Graph name -> field, from either form of the table."""
    return {
        graph: value if isinstance(value, str) else value.get("field", graph)
        for graph, value in (written or {}).items()
    }


def _model_file(kind: EngineKind, options: Options, context: Context) -> ModelFile:
    settings = kind.settings(options)
    if kind.own_code:
        settings |= {"inputs": options["inputs"], "outputs": options["outputs"]}
    state, constants = options.get("state", {}), options.get("constants", {})
    return ModelFile(str(context.folder / options["file"]), settings, context.threads, state, constants)


def _engine_troubles(kind: EngineKind, written: Mapping[str, Any]) -> list[Trouble]:
    troubles: list[Trouble] = []
    for key, option_ in kind.options.items():
        if key not in written and not option_.test(option_.default):
            troubles.append((key, "missing", option_.allowed))
    for key, value in written.items():
        if key not in kind.options:
            allowed = f"options here: {', '.join((*OWN, *kind.options))}{did_you_mean(key, (*OWN, *kind.options))}"
            troubles.append((key, "unknown option", allowed))
        elif not kind.options[key].test(value):
            troubles.append((key, show(value), kind.options[key].allowed))
    return troubles


def _table_troubles(kind: EngineKind, values: ModelOptions) -> list[Trouble]:
    rule: Rule = DECLARED if kind.own_code else MAPPED
    troubles: list[Trouble] = []
    for key, apart in (("state", values.state), ("constants", values.constants)):
        if apart and not kind.apart:
            troubles.append((key, "this engine has no such inputs", "leave it out, or the engine onnxruntime"))
    for name in {*(values.state or {})} & {*(values.constants or {})}:
        troubles.append((f"constants.{name}", "is a state too", "one of the two"))
    for key, written in (("inputs", values.inputs), ("outputs", values.outputs)):
        if written is None:
            if kind.own_code:
                troubles.append((key, "missing", f"own code declares them: {DECLARED_ALLOWED}"))
            continue
        try:
            rule.read(written)
        except Wrong as wrong:
            troubles.append((key + wrong.at, wrong.found, wrong.allowed))
    return troubles
