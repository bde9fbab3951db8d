"""``forwardpass sign`` and ``inspect``: what they say, what they write, and their exit status."""

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests import fixtures_onnx
from tests.faults.faulty import settle
from tests.pipeline.model_files import pickled, text
from tests.serving import forwardpass

from forwardpass.cli import main


def run(*arguments: str | Path, data: Path | None = None) -> Result:
    settings = ["--set", f"run.data={data}"] if data else []
    return CliRunner().invoke(main, [*map(str, arguments), *settings])


@pytest.fixture
def adder(tmp_path: Path) -> Path:
    fixtures_onnx.identity(tmp_path / "adder" / "1" / "model.onnx")
    settle(tmp_path / "adder")
    return tmp_path / "adder"


@pytest.fixture
def key(tmp_path: Path) -> Path:
    assert run("sign", "--new-key", tmp_path / "key.pem").exit_code == 0
    return tmp_path / "key.pem"


def test_a_version_is_signed_and_check_says_by_whom(adder: Path, key: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    made = run("sign", adder, "--key", key, data=data)
    assert made.exit_code == 0, made.output
    (signature,) = json.loads((adder / "1" / "pipeline.sig").read_text())["signatures"]
    signers = ("--set", f'run.signers=["{key}.pub"]')
    asked = forwardpass("check", "--static", adder, *signers, data=data)
    assert f"    signed by key {signature['key']}\n" in asked.stdout
    assert "which was not verified" in forwardpass("check", "--static", adder, data=data).stdout


def test_check_refuses_what_no_signer_signed(adder: Path, key: Path, tmp_path: Path) -> None:
    signers = ("--set", f'run.signers=["{key}.pub"]')
    result = forwardpass("check", "--static", adder, *signers, data=tmp_path / "data", check=False)
    assert result.returncode == 2
    assert "nobody has signed this version" in result.stderr


def test_several_people_sign_and_signing_again_adds_nothing(adder: Path, key: Path, tmp_path: Path) -> None:
    run("sign", "--new-key", tmp_path / "second.pem")
    for each in (key, tmp_path / "second.pem", key):
        assert run("sign", adder, "--key", each, data=tmp_path / "data").exit_code == 0
    assert len(json.loads((adder / "1" / "pipeline.sig").read_text())["signatures"]) == 2
    assert [each.name for each in (adder / "1").iterdir() if each.name.startswith(".")] == []


def test_a_bare_model_file_is_signed_beside_it(adder: Path, key: Path, tmp_path: Path) -> None:
    model = adder / "1" / "model.onnx"
    assert run("sign", model, "--key", key, data=tmp_path / "data").exit_code == 0
    assert json.loads((adder / "1" / "model.onnx.sig").read_text())["signatures"][0]["pipeline"] == "model"


@pytest.mark.parametrize("arguments", [[], ["PATH"], ["PATH", "--new-key", "x"], ["--key", "x", "--new-key", "y"]])
def test_sign_wants_a_path_and_a_key_or_a_new_key(arguments: list[str], tmp_path: Path) -> None:
    result = run("sign", *arguments)
    assert result.exit_code == 2
    assert "either PATH and --key FILE, or --new-key FILE alone" in result.output


def test_a_key_that_others_can_read_is_warned_of(adder: Path, key: Path, tmp_path: Path) -> None:
    key.chmod(0o644)
    assert "can be read by others" in run("sign", adder, "--key", key, data=tmp_path / "data").stderr


def test_the_private_key_is_never_printed(adder: Path, key: Path, tmp_path: Path) -> None:
    secret = key.read_text().splitlines()[1]
    assert secret not in run("sign", adder, "--key", key, data=tmp_path / "data").output


def test_inspect_ends_with_0_for_what_would_be_taken_in_1_for_what_not_2_for_what_cannot_be_read(
    adder: Path, tmp_path: Path
) -> None:
    (tmp_path / "model.pkl").write_bytes(pickled())
    good, bad, away = run("inspect", adder), run("inspect", tmp_path / "model.pkl"), run("inspect", tmp_path / "away")
    assert (good.exit_code, bad.exit_code, away.exit_code) == (0, 1, 2)
    assert good.output.endswith("would be taken in\n")
    assert "imports: posix.system" in bad.output and "runs code when it is loaded" in bad.output
    assert "cannot be read" in away.stderr


def test_inspect_tells_programs_in_json(adder: Path) -> None:
    told = json.loads(run("inspect", adder, "--json").output)
    assert (told["taken_in"], told["versions"]) == (True, ["adder version 1"])
    assert told["files"]["1/model.onnx"]["operators"] == {"Identity": 1}


def test_inspect_prints_nothing_that_a_terminal_would_act_on(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"\x1b[2J\x07clear": 1, "architectures": ["\x1b]0;title\x07"]}))
    assert "\x1b" not in run("inspect", tmp_path / "config.json").output


def test_inspect_prints_no_name_as_it_is(adder: Path) -> None:
    (adder / "1" / "\x1b]0;title\x07").write_text("x")
    (adder / "\x1b[2Jx").mkdir()
    os.close(os.open(os.fsencode(adder / "1") + b"/\xff.txt", os.O_CREAT | os.O_WRONLY))
    output = run("inspect", adder).output
    assert ("\x1b" in output, "\x07" in output) == (False, False)
    assert "1/\\x1b]0;title\\x07: text" in output and "1/\\udcff.txt: an empty file" in output
    assert json.loads(run("inspect", adder, "--json").output)["files"]["1/\udcff.txt"]["kind"] == "an empty file"


@pytest.mark.parametrize("name", ["gguf", "xgboost.json"])
def test_inspect_prints_no_number_that_json_does_not_have(tmp_path: Path, name: str) -> None:
    content = {
        "gguf": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("general.name") + struct.pack("<If", 6, float("nan")),
        "xgboost.json": b'{"learner": {}, "version": [1e999, NULL, {"x": 1e999}]}'.replace(b"NULL", b"2"),
    }[name]
    (tmp_path / name).write_bytes(content)
    told = json.loads(run("inspect", tmp_path / name, "--json").output, parse_constant=pytest.fail)
    assert told["files"][name]["problem"] == ""


@pytest.mark.parametrize("arguments", [["--new-key", "."], ["--new-key", "x" * 300], [".", "--key", "x" * 300]])
def test_a_name_that_no_file_can_have_is_an_error_in_words(
    adder: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(adder)
    result = run("sign", *arguments)
    assert (result.exit_code, result.stderr.startswith("error: ")) == (2, True), result.output


def test_inspect_loads_no_parser_of_models(adder: Path) -> None:
    script = (
        "import sys\nfrom forwardpass.cli import main\n"
        f"try:\n    main(['inspect', {str(adder)!r}])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('onnxruntime', 'tokenizers', 'onnx', 'pickle', 'xml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] in ("[]", "['pickle']")  # numpy imports pickle, and uses it for nothing here
