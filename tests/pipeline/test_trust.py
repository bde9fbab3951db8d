from pathlib import Path

import pytest

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.pipeline.trust import Trust

ONE, OTHER = "1" * 64, "a" * 64


def test_a_digest_is_trusted_from_its_adding_to_its_removal(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "data" / "trusted")
    assert ONE not in trust
    trust.add(ONE, "read by Ana, 3 May")
    trust.add(OTHER, "")
    assert Trust(trust.path).reasons() == {ONE: "read by Ana, 3 May", OTHER: ""}
    assert trust.remove(ONE)
    assert ONE not in trust and OTHER in trust


def test_removing_what_is_not_trusted_says_so(tmp_path: Path) -> None:
    assert not Trust(tmp_path / "trusted").remove(ONE)


def test_a_change_by_another_process_counts_at_once(tmp_path: Path) -> None:
    ours, theirs = Trust(tmp_path / "trusted"), Trust(tmp_path / "trusted")
    assert ONE not in ours
    theirs.add(ONE, "")
    assert ONE in ours


def test_comments_and_empty_lines_are_allowed(tmp_path: Path) -> None:
    (tmp_path / "trusted").write_text(f"# ours\n\n{ONE} why not\n")
    assert ONE in Trust(tmp_path / "trusted")


@pytest.mark.parametrize("line", ["x", ONE[1:], ONE.replace("1", "A"), f"{ONE}x", f" {ONE}", f"{ONE}\twhy"])
def test_any_other_line_is_refused_with_its_number(line: str, tmp_path: Path) -> None:
    (tmp_path / "trusted").write_text(f"{OTHER} fine\n{line}\n")
    with pytest.raises(Misconfigured) as caught:
        assert OTHER in Trust(tmp_path / "trusted")
    assert caught.value.code == Code.SETTINGS_INVALID and caught.value.problems[0].line == 2


@pytest.mark.parametrize(
    ("digest", "why"), [("1" * 63, ""), (f"{ONE} {ONE}", ""), (ONE, "two\nlines"), (ONE, "x" * 201)]
)
def test_a_bad_digest_or_reason_is_refused_and_changes_nothing(digest: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured):
        Trust(tmp_path / "trusted").add(digest, why)
    assert Trust(tmp_path / "trusted").reasons() == {}


@pytest.mark.parametrize("data", [b"\xff\xfe", b"#" * (4 * 1024 * 1024 + 1)])
def test_a_file_that_is_no_list_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "trusted").write_bytes(data)
    with pytest.raises(Misconfigured):
        Trust(tmp_path / "trusted").reasons()
