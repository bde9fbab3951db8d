"""How full the memory is that this process may use, and what is done without when it runs short.

The tightest of the control groups it is in (v1 and v2) and of the machine counts; of a group's use, what the system can
drop at once does not: pages of files, however often they were read, and caches of its own. What to do is decided by ``next_level``, one step at each look: first what is kept for comfort
shrinks, then new work is refused, then loads are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from forwardpass.core.clock import jitter
from forwardpass.core.errors import Code, Failed

LOOK_S = 0.5
LET_GO = 0.03  # a level ends only when so much of the limit is free again beyond where it began
RETRY_S = 2.0
STANDING_S = 10.0  # work refused for so long is no passing shortage
KEPT_SHARE = 0.02  # of the limit: so much of what could be dropped is counted as in use, or half of it if that is less
ROOT = Path("/")


class Level(IntEnum):
    """Each includes those before it."""

    CALM = 0
    SHRINK = 1
    REFUSE_WORK = 2
    REFUSE_LOADS = 3


@dataclass(frozen=True, slots=True)
class _Files:
    """Where a group tells its limits, of which the lowest holds, its use, and how much of that is idle."""

    limits: Sequence[str]
    used: str
    idle: Sequence[str]


_VERSION_1 = _Files(("memory.limit_in_bytes",), "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))
_VERSION_2 = _Files(
    ("memory.max", "memory.high"), "memory.current", ("inactive_file", "active_file", "slab_reclaimable")
)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes in use, and how many there may be."""

    used: int
    limit: int

    @property
    def share(self) -> float:
        return self.used / self.limit


def begins_at(level: Level, share_max: float) -> float:
    """The share of the limit from which on a level holds: with 0.92 at 0.92, 0.94 and 0.96."""
    return share_max + (level - 1) * (1.0 - share_max) / 4


def next_level(level: Level, share: float, share_max: float) -> Level:
    """One level up where the next one has begun, down to the one that still holds; ``share_max`` 1 is never."""
    if share_max >= 1.0:
        return Level.CALM
    if level < Level.REFUSE_LOADS and share >= begins_at(Level(level + 1), share_max):
        return Level(level + 1)
    while level > Level.CALM and share < begins_at(level, share_max) - LET_GO:
        level = Level(level - 1)
    return level


class Pressure:
    """The level now. ``look`` is called every LOOK_S; in between nothing is read."""

    def __init__(self, share_max: float, root: Path | None = None) -> None:
        self.level = Level.CALM
        self.memory: Memory | None = None
        self._refusing_s = 0.0
        self._share_max = share_max
        self._root = ROOT if root is None else root

    def look(self) -> Level:
        self.memory = memory_of(self._root)
        if self.memory is not None:
            self.level = next_level(self.level, self.memory.share, self._share_max)
        self._refusing_s = self._refusing_s + LOOK_S if self.level >= Level.REFUSE_WORK else 0.0
        return self.level

    @property
    def standing(self) -> bool:
        """Whether new requests have been refused for longer than a passing shortage lasts."""
        return self._refusing_s > STANDING_S

    def let_go(self) -> None:
        """Nobody looks any more: what was last seen holds for nothing."""
        self.level, self.memory, self._refusing_s = Level.CALM, None, 0.0

    def refuse_work(self) -> None:
        """Raises Failed memory_full."""
        if self.level >= Level.REFUSE_WORK:
            raise work_refused()

    def refuse_load(self) -> None:
        """Raises Failed memory_full."""
        if self.level >= Level.REFUSE_LOADS:
            raise _full("no version is loaded")


def work_refused() -> Failed:
    """What who brings new work is told while memory is short."""
    return _full("new requests are refused")


def memory_of(root: Path) -> Memory | None:
    """The tightest there is; None where the system tells nothing."""
    found = [*_groups(root), *_machine(root)]
    return max(found, key=lambda memory: memory.share, default=None)


def _machine(root: Path) -> Iterator[Memory]:
    kilobytes = _fields(root / "proc/meminfo")
    total, available = kilobytes.get("MemTotal:"), kilobytes.get("MemAvailable:")
    if total and available is not None:
        yield Memory((total - available) * 1024, total * 1024)


def _groups(root: Path) -> Iterator[Memory]:
    """The groups of this process and those around them; of a container's only what it sees of them."""
    mounts = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            mount, files = mounts, _VERSION_2
        elif "memory" in controllers.split(","):
            mount, files = mounts / "memory", _VERSION_1
        else:
            continue
        inside = mount / path.strip("/")
        for folder in (inside, *inside.parents):
            yield from _group(folder, files)
            if folder == mount:
                break


def _group(folder: Path, files: _Files) -> Iterator[Memory]:
    told = [_text(folder / name).strip() for name in files.limits]
    limits = [int(limit) for limit in told if limit.isdecimal() and int(limit) > 0]  # "max" is none
    used = _text(folder / files.used).strip()
    if limits and used.isdecimal():
        fields, limit = _fields(folder / "memory.stat"), min(limits)
        idle = sum([fields.get(name, 0) for name in files.idle])
        idle -= min(idle // 2, int(KEPT_SHARE * limit))  # as the machine's MemAvailable is told
        yield Memory(max(0, int(used) - idle), limit)


def _fields(path: Path) -> dict[str, int]:
    words = [line.split() for line in _text(path).splitlines()]
    return {each[0]: int(each[1]) for each in words if len(each) > 1 and each[1].isdecimal()}


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""


def _full(what: str) -> Failed:
    text = f"limits.memory_share_max: the memory is nearly full, so {what}"
    return Failed(Code.MEMORY_FULL, text, retry_after_s=RETRY_S * jitter())
