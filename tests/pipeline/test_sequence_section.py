"""The section [sequence]: what it may hold, and that it is not accepted where it does nothing."""

from pathlib import Path

import pytest

from forwardpass.core.errors import Misconfigured
from forwardpass.core.pipeline import Pipeline, Sequences
from forwardpass.execution.kinds import kinds
from forwardpass.pipeline.definition import parse, to_toml

MODEL = '[[steps]]\nuse = "model"\nengine = "onnxruntime"\nfile = "m.onnx"\n'
STATE = MODEL + 'state = { h = "hn" }\n'


def parsed(folder: Path, text: str) -> Pipeline:
    (folder / "m.onnx").write_bytes(b"never read")
    return parse(text, file="pipeline.toml", folder=folder, kinds=kinds())


def test_sequences_are_kept_only_where_the_section_is_written(tmp_path: Path) -> None:
    assert parsed(tmp_path, STATE).sequence is None
    assert parsed(tmp_path, STATE + "[sequence]\n").sequence == Sequences(60.0, 1024)
    written = parsed(tmp_path, STATE + "[sequence]\nidle_s = 5\nsequences_max = 9\n")
    assert written.sequence == Sequences(5.0, 9)
    assert parsed(tmp_path, to_toml(written)) == written


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (STATE + "[sequence]\nidle_s = 0\n", "sequence.idle_s: 0; a number above 0 to 86400"),
        (STATE + "[sequence]\nsequences_max = 0\n", "sequence.sequences_max: 0; a whole number from 1 to 1000000"),
        (STATE + "[sequence]\nidle = 1\n", "sequence.idle: unknown key"),
        (MODEL + "[sequence]\n", "sequence: has no effect, as no step keeps anything from one request to the next"),
    ],
)
def test_what_is_wrong_with_it_is_told(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        parsed(tmp_path, text)
    assert problem in str(caught.value)
