"""A Redis of a test's own, which can be stopped, killed and started again."""

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.serving import free_port, wait_until


@dataclass
class RedisProcess:
    """Nothing is kept on disk: killed, it has forgotten everything."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        options = ("--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
        command = ["redis-server", *options, "--dir", str(self.folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(self._answers)

    def stop(self) -> None:
        """It takes connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None:
            self._signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _signal(self, number: int) -> None:
        assert self.process is not None, "it does not run"
        self.process.send_signal(number)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16) == b"+PONG\r\n"
        except OSError:
            return False


@contextmanager
def redis_process(folder: Path) -> Iterator[RedisProcess]:
    """One that runs; the test is skipped where there is no Redis to run."""
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server here: make services, or apt-get install redis-server")
    redis = RedisProcess(folder)
    redis.start()
    try:
        yield redis
    finally:
        redis.kill()
