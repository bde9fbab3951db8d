"""The rules of the source's shape: what may import what, how large things are, what appears nowhere."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
PRODUCT = "forwardpass"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("core",),
    ("observe", "cache", "batching", "steps", "engines", "store", "admit"),
    ("execution",),
    ("rollout",),
    ("pipeline",),
    # ``settings`` is a value that whoever builds takes apart; the parts themselves are handed what they need of it.
    # ``trial`` is one version with the path of a request around it, and no server.
    ("ingress", "jobs", "settings", "trial"),
    # ``overview`` reads the parts that ``app`` builds; ``front`` puts the data plane together for it.
    ("overview", "front", "catalogue"),
    # ``fitted`` writes versions of fitted estimators.
    ("app", "starting", "asking", "client", "use", "fitted"),
    # ``building`` is a pipeline written in Python and run in the same process: it answers as the client does.
    ("cli", "testing", "building"),
    ("use",),
    ("__main__", ""),  # "" is the package itself, which repeats names for its users
)
"""A part imports parts of the lines above it only: never one of its own line, never one below."""

SAME_PART = {
    "client_retry": "client", "client_sequence": "client", "client_wire": "client",
    "cli_cache": "cli", "cli_keys": "cli", "cli_options": "cli", "cli_supply": "cli",
}  # fmt: skip
"""One part in several files at the top."""

SPINE = (
    "ingress/http.py",
    "pipeline/handle.py",
    "batching/queue.py",
    "batching/batcher.py",
    "execution/worker.py",
    "engines/onnxruntime.py",
)
SPINE_LINES_MAX = 1200
FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
LARGE_FILES: dict[str, str] = {}
"""file -> why it may be larger; empty on purpose."""
LONG_FUNCTIONS: dict[str, str] = {}
"""file:function -> why it may be longer; empty on purpose."""

CATCHES_EVERYTHING: dict[str, str] = {
    "cache/redis_tier.py": "a border: whatever a Redis makes its library raise, it is away",
    "admit/redis_store.py": "a defect in following Redis is logged and begun anew: quotas go on",
    "core/own_code.py": "forgets a module that did not load, then raises again",
    "ingress/identity/beside.py": "a border: a defect costs one look at what the door knows",
    "ingress/http.py": "a border: a defect costs one connection",
    "ingress/data_plane.py": "a border: a defect costs one request",
    "ingress/fronts/channel.py": "a border: a defect costs one message",
    "ingress/fronts/desk.py": "a border: a defect costs one request of a front",
    "ingress/direct.py": "a border: a defect costs one request",
    "ingress/bundles.py": "a border: a defect costs one request, never the batch that it was in",
    "ingress/short.py": "a border: a defect costs one connection",
    "ingress/inference.py": "counts what ended, then raises again",
    "ingress/grpc/plane.py": "a border: a defect costs one request",
    "ingress/writer.py": "a border: an answer that breaks off costs one connection",
    "pipeline/begun.py": "takes out of the queue what could not be begun, then raises again",
    "batching/batcher.py": "a border: a defect costs one batch, never the loop",
    "execution/worker.py": "a border: whatever a model or step raises is the answer of its batch",
    "execution/local.py": "a border: whatever a model or step raises is the answer of its item, or to its load",
    "execution/apart.py": "a border: whatever a model or step raises is the answer of the part that was run",
    "execution/loading.py": "a border: whatever a model file makes a library raise is the answer to its load",
    "building/source.py": "what a function's defaults say may raise what it likes",
    "building/session.py": "whatever ends a load is raised to who waits for it, in another thread",
    "building/pipeline.py": "removes the folder of what could not be opened, then raises again",
    "execution/plan.py": "closes what was loaded, then raises again",
    "fitted/graph.py": "a converter raises what it likes",
    "fitted/original.py": "an estimator raises what it likes for a row that it does not take",
    "catalogue.py": "a defect in loading one version must not keep the others from being served",
    "rollout/fleet.py": "a defect in one variant must not end the others",
    "engines/onnxruntime.py": "the runtime raises classes of its own, which do not share an ancestor",
    "engines/openvino.py": "the runtime raises bare RuntimeError, its frontends and bindings others",
    "engines/python.py": "the code of a user raises what it likes",
    "steps/own.py": "the code of a user raises what it likes",
    "steps/text/tokenizer.py": "the tokenizers library raises bare Exception",
}

DATA_BECOMES_CODE = {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "yaml", "runpy"}
RUNS_TEXT = {"eval", "exec", "compile", "__import__", "torch.load", "numpy.load", "np.load"}
TIME_AND_CHANCE = {"time", "random", "secrets", "uuid", "datetime"}
CLOCK = "core/clock.py"
HEAVY = ("onnxruntime", "tokenizers", "numpy", "httpx", "forwardpass.app")
BANNED_NAMES = re.compile(
    r"(Manager|Handler|Helper|Utils?|Base|Common)(?![a-z])|(^|[/_])(manager|handler|helper|util|base|common)s?$"
)


@dataclass(frozen=True)
class Module:
    name: str
    place: str  # relative to the package
    text: str
    tree: ast.Module

    @property
    def part(self) -> str:
        return part_of(self.name)


def part_of(name: str) -> str:
    first = name.split(".")[1] if "." in name else ""
    return SAME_PART.get(first, first)


def _read() -> dict[str, Module]:
    modules: dict[str, Module] = {}
    for file in sorted((SOURCE / PRODUCT).rglob("*.py")):
        name = ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        text = file.read_text("utf-8")
        modules[name] = Module(name, str(file.relative_to(SOURCE / PRODUCT)), text, ast.parse(text))
    return modules


MODULES = _read()


def imported(module: Module) -> Iterator[str]:
    """Dotted names of all it imports, wherever the import stands: inside functions and TYPE_CHECKING too."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.place}:{node.lineno}: imports are written in full"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if whole in MODULES else str(node.module)


def inside(module: Module) -> set[str]:
    """Modules of the product that it imports."""
    return {name for name in imported(module) if name.split(".")[0] == PRODUCT}


def test_every_part_has_its_layer() -> None:
    assert {module.part for module in MODULES.values()} <= {part for layer in LAYERS for part in layer}


def test_imports_point_down_and_siblings_stay_apart() -> None:
    layer_of = {part: number for number, layer in enumerate(LAYERS) for part in layer}
    wrong = [
        f"{module.place} imports {name}"
        for module in MODULES.values()
        for name in inside(module)
        if module.part != part_of(name) and layer_of[part_of(name)] >= layer_of[module.part]
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    graph = {name: inside(module) - {name} for name, module in MODULES.items()}
    assert len(list(TopologicalSorter(graph).static_order())) >= len(MODULES)


def test_files_are_small() -> None:
    lines = {module.place: len(module.text.splitlines()) for module in MODULES.values()}
    large = {place: count for place, count in lines.items() if count > FILE_LINES_MAX}
    assert large.keys() == LARGE_FILES.keys(), large


def test_functions_fit_a_screen() -> None:
    long = {
        f"{module.place}:{node.name}": count
        for module in MODULES.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (count := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    }
    assert long.keys() == LONG_FUNCTIONS.keys(), long


def test_the_spine_of_a_request_can_be_read_in_one_sitting() -> None:
    lines = {place: len((SOURCE / PRODUCT / place).read_text("utf-8").splitlines()) for place in SPINE}
    assert sum(lines.values()) < SPINE_LINES_MAX, lines


def test_everything_is_caught_only_at_the_borders() -> None:
    catching = {
        module.place
        for module in MODULES.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler) and _catches_everything(node)
    }
    assert catching == CATCHES_EVERYTHING.keys()


def _catches_everything(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or bool(re.search(r"\b(Base)?Exception\b", ast.unparse(handler.type)))


def test_data_never_becomes_code() -> None:
    wrong = [
        f"{module.place} imports {name}"
        for module in MODULES.values()
        for name in imported(module)
        if name.split(".")[0] in DATA_BECOMES_CODE
    ]
    wrong += [
        f"{module.place}:{node.lineno} calls {ast.unparse(node.func)}"
        for module in MODULES.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in RUNS_TEXT
    ]
    assert not wrong, "\n".join(wrong)


def test_time_and_chance_come_in_by_one_door() -> None:
    users = {
        module.place
        for module in MODULES.values()
        if any(name.split(".")[0] in TIME_AND_CHANCE for name in imported(module)) or "os.urandom" in module.text
    }
    assert users == {CLOCK}


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\nfrom forwardpass.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('loaded:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_names_say_what_a_thing_is() -> None:
    names = {module.place.removesuffix(".py") for module in MODULES.values()}
    names |= {
        node.name for module in MODULES.values() for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)
    }
    assert not [name for name in names if BANNED_NAMES.search(name)]
