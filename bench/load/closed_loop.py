"""A closed loop by wrk: so many connections, each with one request under way; latencies from wrk's own histogram.

The requests that are given take turns, over all connections together.
"""

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

TIMEOUT_S = 10
WRK_PATIENCE_S = 30.0
LUA = """
local requests, sent = {{}}, 0
function init(arguments)
  for _, each in ipairs({{ {requests} }}) do
    local file = io.open(each.body, "rb"); local body = file:read("*a"); file:close()
    requests[#requests + 1] = wrk.format("POST", nil, each.headers, body)
  end
end
function request()
  sent = sent + 1
  return requests[(sent - 1) % #requests + 1]
end
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


class Sent(Protocol):
    """A request: the bytes of its body, and the headers that say what they are."""

    @property
    def body(self) -> bytes: ...

    @property
    def headers(self) -> Mapping[str, str]: ...


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


def close_loop(url: str, requests: Sequence[Sent], connections: int, seconds: float) -> Closed:
    """wrk counts in whole seconds: ``seconds`` is rounded, and at least one. Raises where wrk itself fails."""
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch, "post.lua")
        script.write_text(
            LUA.format(requests=", ".join(_written(Path(scratch), *each) for each in enumerate(requests)))
        )
        command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", f"--timeout={TIMEOUT_S}s"]
        command += ["-s", str(script), url]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds + WRK_PATIENCE_S)
    found = next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))
    return Closed(**json.loads(found.removeprefix("FOUND ")))


def _written(scratch: Path, number: int, sent: Sent) -> str:
    """A table of Lua: the file with the body, and its headers."""
    body = scratch / str(number)
    body.write_bytes(sent.body)
    headers = {"Host": "127.0.0.1", **sent.headers}
    fields = ", ".join(f"[{json.dumps(name)}] = {json.dumps(value)}" for name, value in headers.items())
    return f"{{ body = {json.dumps(str(body))}, headers = {{ {fields} }} }}"
