"""Settings from a file and from the command line."""

from pathlib import Path

import pytest

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.settings import read


def test_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("[data]\nport = 1\nhosts = ['a']\n")
    settings = read(file, {"data.port": 2, "limits.deadline_s": 5})
    assert (settings.data.port, settings.data.hosts, settings.limits.deadline_s) == (2, ("a",), 5.0)


@pytest.mark.parametrize("section", ["data = 3", "data = [1]", "[[data]]\nport = 1"])
def test_a_section_that_is_no_table_is_refused_with_and_without_an_override(tmp_path: Path, section: str) -> None:
    file = tmp_path / "server.toml"
    file.write_text(section)
    for overrides in ({}, {"data.port": 2}):
        with pytest.raises(Misconfigured, match="a table is expected") as refusal:
            read(file, overrides)
        assert refusal.value.code is Code.SETTINGS_INVALID


def test_every_problem_is_listed(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("[data]\nprot = 1\nport = 70000\n[extra]\n")
    with pytest.raises(Misconfigured) as refusal:
        read(file, {"run.threads": "many"})
    assert [problem.key for problem in refusal.value.problems] == ["extra", "data.prot", "data.port", "run.threads"]
