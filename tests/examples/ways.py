"""The ways in that a user has, each asked for the same answer."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import orjson
from tests.serving import Server, command

from forwardpass import Pipeline

Given = Mapping[str, object]
"""A record; a Path is sent as the file that it names."""


def outputs_by_every_way(server: Server, folder: Path, given: Given, data: Path) -> dict[str, bytes]:
    """The outputs' JSON from HTTP, from the command line (with a server and without) and from this process.

    ``folder`` is that of the version, which the server has under the name of the folder above. Where it has code of its
    own, it is trusted in ``data``.
    """
    name = folder.parent.name
    record = {key: value.read_bytes() if isinstance(value, Path) else value for key, value in given.items()}
    words = [f"{key}=@{value}" if isinstance(value, Path) else f"{key}={_text(value)}" for key, value in given.items()]
    asked = ["--url", f"http://127.0.0.1:{server.port}"]
    alone = ["--set", f"run.data={data}"]
    with Pipeline.open(folder, trusted=True) as pipeline:
        here = pipeline.predict_json(record)
    return {
        "http": _outputs(server.call("POST", f"/predict/{name}", *_form(record)).body),
        "command line with a server": _outputs(_printed("predict", name, *words, *asked)),
        "command line": _outputs(_printed("predict", str(folder), *words, *alone)),
        "in process": _outputs(here),
    }


def _outputs(body: bytes) -> bytes:
    answer = json.loads(body)
    assert "outputs" in answer, answer
    return orjson.dumps(answer["outputs"])


def _printed(*arguments: str) -> bytes:
    done = subprocess.run(command(*arguments), capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _form(record: Mapping[str, object]) -> tuple[bytes, dict[str, str]]:
    parts = b"".join(_part(name, value) for name, value in record.items())
    return parts + b"--edge--\r\n", {"Content-Type": "multipart/form-data; boundary=edge"}


def _part(name: str, value: object) -> bytes:
    content = value if isinstance(value, bytes) else _text(value).encode()
    return b'--edge\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), content)
