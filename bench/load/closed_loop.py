"""A closed loop by wrk: so many connections, each with one request under way; latencies from wrk's own histogram."""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 10
LUA = """
local file = io.open("{body}", "rb"); wrk.body = file:read("*a"); file:close()
wrk.method = "POST"
{headers}
function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    'FOUND {{"requests": %d, "seconds": %.6f, "refused": %d, "lost": %d, "p50_s": %.6f, "p90_s": %.6f, "p99_s": %.6f, '
    .. '"p999_s": %.6f, "max_s": %.6f}}\\n',
    summary.requests, summary.duration / 1e6, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50) / 1e6, latency:percentile(90) / 1e6, latency:percentile(99) / 1e6,
    latency:percentile(99.9) / 1e6, latency.max / 1e6))
end
"""


@dataclass(frozen=True, slots=True)
class Closed:
    """What wrk found. ``refused``: another status than 2xx or 3xx; ``lost``: no answer."""

    requests: int
    seconds: float
    refused: int
    lost: int
    p50_s: float
    p90_s: float
    p99_s: float
    p999_s: float
    max_s: float

    @property
    def rate_per_s(self) -> float:
        return self.requests / self.seconds

    @property
    def failed(self) -> int:
        """A run with one of these is no figure."""
        return self.refused + self.lost


def close_loop(url: str, body: bytes, headers: Mapping[str, str], connections: int, seconds: float) -> Closed:
    """wrk counts in whole seconds: ``seconds`` is rounded, and at least one. Raises where wrk itself fails."""
    with tempfile.TemporaryDirectory() as scratch:
        content, script = Path(scratch, "body"), Path(scratch, "post.lua")
        content.write_bytes(body)
        lines = "\n".join(f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}" for name, value in headers.items())
        script.write_text(LUA.format(body=content, headers=lines))
        command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", f"--timeout={TIMEOUT_S}s"]
        command += ["-s", str(script), url]
        text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds + 60).stdout
    found = next(line for line in text.splitlines() if line.startswith("FOUND "))
    return Closed(**json.loads(found.removeprefix("FOUND ")))
