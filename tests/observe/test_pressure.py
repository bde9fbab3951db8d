"""Short memory: what is read of the system, and what is done without, in which order."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from forwardpass.core.errors import Code, Failed
from forwardpass.observe.pressure import Level, Memory, Pressure, memory_of, next_level

MIB = 1024**2
CALM, SHRINK, REFUSE_WORK, REFUSE_LOADS = Level


def machine(root: Path, available_share: float) -> None:
    write(
        root / "proc/meminfo",
        f"MemTotal: 1000000 kB\nMemFree: 1 kB\nMemAvailable: {1_000_000 * available_share:.0f} kB\n",
    )


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def group_v2(folder: Path, limit: object, used: int, files: int = 0, high: object = "max") -> None:
    """Of the files half were read once, a quarter again and again; the system's own caches of files are the rest."""
    write(folder / "memory.max", limit)
    write(folder / "memory.high", high)
    write(folder / "memory.current", used)
    told = f"anon 1\ninactive_file {files // 2}\nactive_file {files // 4}\nslab_reclaimable {files // 4}"
    write(folder / "memory.stat", told)


def group_v1(folder: Path, limit: int, used: int, files: int = 0) -> None:
    write(folder / "memory.limit_in_bytes", limit)
    write(folder / "memory.usage_in_bytes", used)
    told = f"inactive_file 1\ntotal_inactive_file {files // 2}\ntotal_active_file {files // 2}"
    write(folder / "memory.stat", told)


def test_without_a_group_the_machine_counts(tmp_path: Path) -> None:
    machine(tmp_path, 0.25)
    assert memory_of(tmp_path) == Memory(750_000 * 1024, 1_000_000 * 1024)


def test_where_nothing_is_told_nothing_is_known(tmp_path: Path) -> None:
    assert memory_of(tmp_path) is None


@pytest.mark.parametrize("limit", ["max", "", "nonsense", "0"])
def test_a_group_without_a_limit_does_not_count(tmp_path: Path, limit: str) -> None:
    machine(tmp_path, 0.25)
    write(tmp_path / "proc/self/cgroup", "0::/service")
    group_v2(tmp_path / "sys/fs/cgroup/service", limit, 5 * MIB)
    assert memory_of(tmp_path) == Memory(750_000 * 1024, 1_000_000 * 1024)


def test_the_tightest_of_the_groups_around_counts_and_files_that_can_go_do_not(tmp_path: Path) -> None:
    machine(tmp_path, 0.9)
    write(tmp_path / "proc/self/cgroup", "0::/pod/container")
    group_v2(tmp_path / "sys/fs/cgroup/pod/container", 100 * MIB, 90 * MIB, files=80 * MIB)
    group_v2(tmp_path / "sys/fs/cgroup/pod", 200 * MIB, 150 * MIB, files=20 * MIB)
    assert memory_of(tmp_path) == Memory(134 * MIB, 200 * MIB)  # 2 % of the limit are taken to be needed


def test_a_service_whose_memory_is_full_of_its_model_files_has_room(tmp_path: Path) -> None:
    machine(tmp_path, 0.9)
    write(tmp_path / "proc/self/cgroup", "0::/")
    group_v2(tmp_path / "sys/fs/cgroup", 1000 * MIB, 990 * MIB, files=800 * MIB)
    assert memory_of(tmp_path) == Memory(210 * MIB, 1000 * MIB)
    group_v2(tmp_path / "sys/fs/cgroup", 1000 * MIB, 990 * MIB, files=8 * MIB)
    assert memory_of(tmp_path) == Memory(986 * MIB, 1000 * MIB)  # half of so little


@pytest.mark.parametrize(("most", "high"), [(1000 * MIB, 400 * MIB), ("max", 400 * MIB), (400 * MIB, "max")])
def test_the_lower_of_a_groups_limits_holds(tmp_path: Path, most: object, high: object) -> None:
    machine(tmp_path, 0.9)
    write(tmp_path / "proc/self/cgroup", "0::/")
    group_v2(tmp_path / "sys/fs/cgroup", most, 100 * MIB, high=high)
    assert memory_of(tmp_path) == Memory(100 * MIB, 400 * MIB)


def test_groups_of_version_1_are_read_too_also_from_inside_a_container(tmp_path: Path) -> None:
    machine(tmp_path, 0.9)
    write(tmp_path / "proc/self/cgroup", "9:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n0::/")
    group_v1(tmp_path / "sys/fs/cgroup/memory", 100 * MIB, 60 * MIB, files=10 * MIB)
    assert memory_of(tmp_path) == Memory(52 * MIB, 100 * MIB)


@pytest.mark.parametrize(
    ("level", "share", "then"),
    [
        (CALM, 0.919, CALM),
        (CALM, 0.92, SHRINK),
        (CALM, 0.99, SHRINK),  # first what is kept goes, then it is looked at again
        (SHRINK, 0.93, SHRINK),
        (SHRINK, 0.941, REFUSE_WORK),
        (REFUSE_WORK, 0.961, REFUSE_LOADS),
        (REFUSE_LOADS, 1.2, REFUSE_LOADS),
        (REFUSE_LOADS, 0.931, REFUSE_LOADS),
        (REFUSE_LOADS, 0.929, REFUSE_WORK),
        (REFUSE_WORK, 0.911, REFUSE_WORK),
        (REFUSE_WORK, 0.909, SHRINK),
        (SHRINK, 0.889, CALM),
        (REFUSE_LOADS, 0.5, CALM),
    ],
)
def test_levels_rise_one_at_a_time_and_fall_only_with_room_to_spare(level: Level, share: float, then: Level) -> None:
    assert next_level(level, share, 0.92) is then


def test_a_share_of_1_switches_it_off() -> None:
    assert next_level(CALM, 1.5, 1.0) is CALM


def test_first_what_is_kept_goes_then_requests_then_loads(tmp_path: Path) -> None:
    pressure = Pressure(0.92, tmp_path)
    machine(tmp_path, 0.02)
    assert pressure.look() is SHRINK
    pressure.refuse_work()
    assert pressure.look() is REFUSE_WORK
    pressure.refuse_load()
    with pytest.raises(Failed) as refused:
        pressure.refuse_work()
    assert (refused.value.code, 1.0 <= (refused.value.retry_after_s or 0.0) <= 5.0) == (Code.MEMORY_FULL, True)
    pressure.look()
    with pytest.raises(Failed):
        pressure.refuse_load()
    machine(tmp_path, 0.5)
    assert pressure.look() is CALM
    pressure.refuse_work()


def test_work_that_is_refused_for_long_is_no_passing_shortage(tmp_path: Path) -> None:
    pressure = Pressure(0.92, tmp_path)
    machine(tmp_path, 0.05)
    standing = [(pressure.look(), pressure.standing)[1] for _ in range(30)]
    assert standing == [False] * 21 + [True] * 9  # one look to shrink, and 10 s of looks
    machine(tmp_path, 0.5)
    pressure.look()
    assert not pressure.standing


def test_what_the_system_stops_telling_leaves_the_level_as_it_was(tmp_path: Path) -> None:
    pressure = Pressure(0.92, tmp_path)
    machine(tmp_path, 0.02)
    pressure.look()
    (tmp_path / "proc/meminfo").unlink()
    assert pressure.look() is SHRINK


FILLING = """
import sys
import subprocess
import sys
from pathlib import Path
from forwardpass.observe.pressure import Level, Pressure

Path(sys.argv[1], "cgroup.procs").write_text("0")
pressure, held, seen = Pressure(0.92), [], []
while pressure.level < Level.REFUSE_LOADS and len(held) < 200:
    held.append(b"x" * (4 << 20))
    seen.append(pressure.look().name)
held.clear()
print(*dict.fromkeys(seen), pressure.look().name)
"""


def group_of_200_mib(name: str) -> Path | None:
    """A control group of the system's own, if it lets us make one."""
    root = Path("/sys/fs/cgroup")
    for parent, limit in ((root / "memory", "memory.limit_in_bytes"), (root, "memory.max")):
        folder = parent / name
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / limit).write_text(str(200 * MIB))
            return folder
        except OSError:
            folder.rmdir()
    return None


def test_in_a_group_of_the_system_levels_rise_and_fall_and_nobody_is_killed(tmp_path: Path) -> None:
    folder = group_of_200_mib(tmp_path.name)
    if folder is None:  # not root, or in a container: then at least the machine's own files are understood
        memory = memory_of(Path("/"))
        assert memory is not None
        assert 0 < memory.used < memory.limit <= psutil.virtual_memory().total
        return
    try:
        command = [sys.executable, "-c", FILLING, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    finally:
        folder.rmdir()
    assert done.stdout.split() == ["CALM", "SHRINK", "REFUSE_WORK", "REFUSE_LOADS", "CALM"]
