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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cors_origins", ["*"]), ("cors_origins", ["null"]), ("cors_origins", ["https://a.example/"]),
        ("cors_origins", ["https://A.example"]), ("cors_origins", ["a.example"]), ("cors_origins", ["https://*.example"]),
        ("unix_socket", "x.sock"), ("unix_socket", "/" + "x" * 107), ("unix_socket", "/a\0b"),
        ("unix_socket_mode", "rw-------"), ("unix_socket_mode", "1777"), ("unix_socket_mode", "0999"),
    ],
)  # fmt: skip
def test_what_opens_the_data_plane_is_checked_before_anything_listens(key: str, value: object) -> None:
    with pytest.raises(Misconfigured) as refusal:
        read(None, {f"data.{key}": value})
    assert [problem.key for problem in refusal.value.problems] == [f"data.{key}"]


def test_origins_are_whole_and_exact() -> None:
    origins = ["https://a.example", "http://localhost:3000", "http://[::1]:8080", "chrome-extension://abcdef"]
    assert read(None, {"data.cors_origins": origins}).data.cors_origins == tuple(origins)


def test_every_problem_is_listed(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("[data]\nprot = 1\nport = 70000\n[extra]\n")
    with pytest.raises(Misconfigured) as refusal:
        read(file, {"run.threads": "many"})
    assert [problem.key for problem in refusal.value.problems] == ["extra", "data.prot", "data.port", "run.threads"]


def test_the_room_for_bodies_holds_the_largest_twice_beside_what_is_kept_for_small_ones() -> None:
    """16/7 of 4096 are 9362.3: an eighth is for small ones, and one address has half of the rest."""
    with pytest.raises(Misconfigured) as refusal:
        read(None, {"limits.body_bytes_max": 4096, "limits.bytes_in_flight_max": 9362})
    assert [problem.key for problem in refusal.value.problems] == ["limits.bytes_in_flight_max"]
    assert read(None, {"limits.body_bytes_max": 4096, "limits.bytes_in_flight_max": 9363}).limits.body_bytes_max == 4096
