"""Unix sockets: who may use them, and what is done about what is there already."""

import socket
import stat
from pathlib import Path

import pytest

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.ingress.sockets import at_path, at_port


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666])
def test_a_socket_has_its_permissions_and_is_taken_away_at_the_end(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "x.sock"
    with at_path(str(path), mode):
        assert stat.S_IMODE(path.stat().st_mode) == mode
    assert not path.exists()


def test_what_a_dead_server_left_is_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    with at_path(str(path), 0o600), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_living_server_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    with at_path(path, 0o600):
        with pytest.raises(Misconfigured, match="another server listens there") as refusal, at_path(path, 0o600):
            pass
        assert refusal.value.code is Code.PORT_IN_USE
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_no_socket_is_never_taken_away(tmp_path: Path, kind: str) -> None:
    path, target = tmp_path / "x.sock", tmp_path / "target"
    target.write_text("kept")
    match kind:
        case "file":
            path.write_text("kept")
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(target)
    with pytest.raises(Misconfigured, match="no socket"), at_path(str(path), 0o600):
        pass
    assert path.exists() and target.read_text() == "kept"


def test_the_path_of_another_server_that_came_meanwhile_stays(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    with at_path(str(path), 0o600), socket.socket(socket.AF_UNIX) as other:
        path.unlink()
        other.bind(str(path))
    assert path.exists()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="No such file"), at_path(str(tmp_path / "no" / "x.sock"), 0o600):
        pass


def test_a_port_in_use_is_said() -> None:
    with at_port("data", "127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(Misconfigured, match=r"data\.port: cannot listen") as refusal:
            at_port("data", "127.0.0.1", port)
    assert refusal.value.code is Code.PORT_IN_USE
