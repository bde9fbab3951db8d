"""Where versions come from, and that data never becomes code (rules R3 to R6), over real servers."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import fixtures_onnx
from tests.faults.audit import WATCH
from tests.faults.faulty import MODEL, settle, write_own
from tests.pipeline.model_files import pickled, zipped
from tests.serving import Reply, Server, command, forwardpass, serving, wait_until

from forwardpass.core.errors import Misconfigured
from forwardpass.execution.kinds import kinds
from forwardpass.pipeline.repository import scan, take_in
from forwardpass.pipeline.trust import Trust

SOURCE = Path(__file__).parents[2] / "src"

WATCHED = """
outputs = ["found", "y"]

[[inputs]]
name = "text"
type = "text"

[[inputs]]
name = "x"
type = "tensor"
datatype = "FP32"
shape = [4]

[[steps]]
use = "steps:look"
output = "found"
datatype = "BYTES"

"""
LOOK = """
FOUND = []
report = FOUND.append


def look(text):
    return "; ".join(FOUND)

"""


def setup(source: Path, own: object, readable: object, writable: object) -> str:
    return f"SOURCE = {str(source)!r}\nOWN_CODE = {own!r}\nREADABLE = {readable!r}\nWRITABLE = {writable!r}\n"


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("findings") / "front"


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, findings: Path) -> Iterator[Server]:
    """A server whose front and one worker are watched by the interpreter's own hook from their start."""
    root = tmp_path_factory.mktemp("watched")
    models, data, hook = root / "models", root / "data", root / "hook"
    inside = setup(SOURCE, (str(data),), (str(data),), ())
    write_own(models / "watched" / "1", WATCHED + MODEL, LOOK + inside + WATCH)
    fixtures_onnx.identity(models / "watched" / "1" / "model.onnx")
    fixtures_onnx.identity(models / "plain" / "1" / "model.onnx")
    settle(models)
    forwardpass("trust", models, data=data)
    hook.mkdir()
    told = f"def report(why):\n    with open({str(findings)!r}, 'a') as file:\n        file.write(why + '\\n')\n"
    places = setup(SOURCE, (), (str(root), str(Path.cwd())), (str(data), str(findings)))
    begun = "report('watching ' + str(os.getpid()))\n"
    (hook / "sitecustomize.py").write_text(f"import os\n{places}{told}{WATCH}{begun}")
    with serving(models, data=data, environment={"PYTHONPATH": str(hook)}, settings={"grpc.serve": "on"}) as server:
        yield server


def ask(server: Server, path: str, body: bytes, kind: str, **headers: str) -> int:
    return server.call("POST", path, body, {"Content-Type": kind, **headers}).status


BAD = {
    "a pickle as JSON": ("/predict/watched", pickled(), "application/json", {}),
    "a pickle by its type": ("/invocations", pickled(), "application/python-pickle", {}),
    "a pickle as numpy": ("/invocations", b"\x93NUMPY\x01\x00v\x00{'descr': '|O'}", "application/x-npy", {}),
    "bytes of a tensor": (
        "/v2/models/plain/infer", pickled(), "application/octet-stream", {"Inference-Header-Content-Length": "10"},
    ),
    "a name that leads away": ("/predict/..%2f..%2fetc%2fpasswd", b"{}", "application/json", {}),
    "code as a field": ("/predict/watched", b'{"text": "__import__(\'os\').system(\'x\')"}', "application/json", {}),
    "a class as a field": ("/predict/watched", b'{"py/object": "os.system"}', "application/json", {}),
    "YAML": ("/predict/watched", b"!!python/object/apply:os.system ['x']", "application/yaml", {}),
    "XML": ("/predict/watched", b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>', "application/xml", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_r3_a_request_that_would_be_code_elsewhere_is_refused_and_nothing_of_it_is_run(
    watched: Server, findings: Path, name: str
) -> None:
    path, body, kind, headers = BAD[name]
    assert 400 <= ask(watched, path, body, kind, **headers) < 500
    assert findings.read_text() == f"watching {watched.process.pid}\n"


def test_r3_neither_front_nor_worker_runs_anything_but_the_library_and_trusted_code(
    watched: Server, findings: Path
) -> None:
    for _ in range(3):
        answer = watched.predict("watched", {"text": "look", "x": [1, 2, 3, 4]})
        assert answer.json["outputs"]["found"] == "", answer.body
        assert watched.infer("plain", "x", "FP32", [1, 4], [1, 2, 3, 4]).status == 200
    assert watched.get("/metrics", admin=True).status == watched.get("/status", admin=True).status == 200
    assert findings.read_text() == f"watching {watched.process.pid}\n"


def test_r3_the_hook_finds_what_it_is_to_find(tmp_path: Path) -> None:
    """The watcher is watched: a process that does these things is reported."""
    script = f"import os\n{setup(SOURCE, (), (), ())}report = print\n{WATCH}\n{ACTS}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    said = done.stdout
    for expected in (
        "pickle.find_class",
        "marshal by",
        "exec of",
        "compile of",
        "opened",
        "wrote to",
        "started",
        "os.system",
        "connected to ('192.0.2.1', 9)",
        "connected to ('192.0.2.2', 9)",
        "loaded the library",
        "opened by a relative name ../x",
    ):
        assert expected in said, done


ACTS = """
import ctypes, marshal, pickle, socket, subprocess
code = compile("1", "made-up", "eval")
eval(code)
marshal.loads(marshal.dumps(1))
pickle.loads(pickle.dumps(int))
udp, tcp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket()
tcp.setblocking(False)
ours = {"os": os}
exec(compile("def opened(): os.open('../x', os.O_RDONLY)", SOURCE + "/made-up", "exec"), ours)
for act in (
    lambda: open("/root/x"), lambda: open("x", "w"), lambda: subprocess.run(["true"]), lambda: os.system("true"),
    lambda: tcp.connect(("192.0.2.1", 9)), lambda: udp.sendto(b"", ("192.0.2.2", 9)),
    lambda: ctypes.CDLL("./nothing.so"), ours["opened"],
):
    try:
        act()
    except OSError:
        pass
"""


MODULES_BY_NAME = {
    "core/own_code.py": "runs the source of a trusted version",
    "engines/discover.py": "engines are installed packages that say so",
    "fitted/refusal.py": "imports the libraries that the writers of versions need, by names in the source",
    "steps/catalogue.py": "imports the built-in kinds of step, by names in the source",
    "__init__.py": "imports its own parts when they are first used",
}


def test_r3_no_source_offers_a_way_from_data_to_code() -> None:
    ways = re.compile(r"allow_pickle=True|trust_remote_code|register_custom_ops|yaml\.\w*load|torch\.load|pickle\.load")
    modules = re.compile(r"import_module|spec_from_file|exec_module|entry\.load\(")
    package = SOURCE / "forwardpass"
    texts = {str(file.relative_to(package)): file.read_text("utf-8") for file in package.rglob("*.py")}
    assert [name for name, text in texts.items() if ways.search(text)] == []
    assert {name for name, text in texts.items() if modules.search(text)} == MODULES_BY_NAME.keys()


# -- R5: what is at a place that is to be taken in


def sparse(folder: Path) -> None:
    with (folder / "weights").open("wb") as file:
        file.truncate(100 * 1024**3)


R5 = {
    "sparse": (sparse, "bytes in all"),
    "a zip by a model's name": (lambda folder: (folder / "model.onnx").write_bytes(zipped({"a": b"1"})), "zip archive"),
    "a pickle by a model's name": (lambda folder: (folder / "model.onnx").write_bytes(pickled()), "Python pickle"),
    "a hard link": (lambda folder: (folder / "more").hardlink_to(folder / "model.onnx"), "hard links"),
    "a link": (lambda folder: (folder / "more").symlink_to("/etc/passwd"), "symbolic link"),
    "a pipe": (lambda folder: os.mkfifo(folder / "more"), "pipe"),
    "a socket": (lambda folder: _socket(folder / "more"), "a socket"),
    "a device": (lambda folder: os.mknod(folder / "more", 0o020600, os.makedev(1, 5)), "a device"),
}


def _socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))


@pytest.mark.parametrize("name", R5)
def test_r5_what_is_no_finished_regular_file_is_refused_before_it_is_read(tmp_path: Path, name: str) -> None:
    store = tmp_path / "data" / "store"
    place, said = R5[name]
    folder = tmp_path / "m" / "1"
    fixtures_onnx.identity(folder / "model.onnx")
    try:
        place(folder)
    except PermissionError:
        pytest.skip("only root can make a device")
    settle(folder)
    with pytest.raises(Misconfigured, match=said):
        take_in(scan(folder).found[0], store, kinds=kinds(), trusted=Trust(tmp_path / "data" / "trusted"))
    assert list(store.iterdir()) == []


# -- signed versions only


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = tmp_path_factory.mktemp("keys") / "key.pem"
    subprocess.run(command("sign", "--new-key", key), check=True, capture_output=True)
    return key


def test_a_server_with_signers_serves_what_they_signed_and_nothing_else(tmp_path: Path, key: Path) -> None:
    models, data = tmp_path / "models", tmp_path / "data"
    for name in ("signed", "unsigned", "nonsense"):
        fixtures_onnx.identity(models / name / "1" / "model.onnx")
    settle(models)
    forwardpass("sign", models / "signed", "--key", key, data=data)
    claims = (models / "signed" / "1" / "pipeline.sig").read_text().replace('"signature": "', '"signature": "\\u00e9')
    (models / "nonsense" / "1" / "pipeline.sig").write_text(claims)
    signer = json.loads((models / "signed" / "1" / "pipeline.sig").read_text())["signatures"][0]["key"]
    with serving(models, data=data, settings={"run.signers": [f"{key}.pub"]}, ready=False) as server:
        answer = _answered(server)
        assert server.version("signed")["signers"] == [signer]
        receipt = server.get(f"/receipts/{answer.headers['x-request-id']}", admin=True).json
        assert receipt["signers"] == [signer]
        assert "nobody has signed this version" in server.status()["failures"]["unsigned/1"]
        assert server.status()["failures"]["nonsense/1"]
        refused = server.call("POST", "/pipelines/unsigned/versions/1/load", admin=True)
        assert (refused.status, refused.code) == (422, "not_signed")


def _answered(server: Server) -> Reply:
    wait_until(lambda: server.infer("signed", "x", "FP32", [1, 4], [1, 2, 3, 4]).status == 200)
    return server.infer("signed", "x", "FP32", [1, 4], [1, 2, 3, 4])


def test_a_server_whose_signers_cannot_be_read_does_not_start(tmp_path: Path) -> None:
    model = fixtures_onnx.identity(tmp_path / "model.onnx")
    settings = ("--set", f"run.signers=['{tmp_path / 'nowhere.pub'}']", "--set", f"run.data={tmp_path / 'data'}")
    done = subprocess.run(command("serve", model, *settings), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "run.signers: cannot be read" in done.stderr
