"""Guards on one text and on the columns of a batch: what fires, what is left, and how long it takes."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.steps.conftest import Columns, Run

from forwardpass.core.errors import Code, Misconfigured
from forwardpass.core.pipeline import Field, Guard
from forwardpass.steps.guard.checks import Check, mistakes, ready
from forwardpass.steps.guard.spans import MATCHES_MAX, TooMany

TEXT = Field("text", "BYTES", (), "text")
TEXTS = Field("texts", "BYTES", (), "texts")
JSON = Field("data", "BYTES", (), "json")
STRINGS = Field("strings", "BYTES", (2,), "tensor")


def check(folder: Path = Path("/nowhere"), **options: Any) -> Check:
    return ready(Guard(**{"name": "g", "on": "input", "mode": "mask", **options}), folder)


@pytest.mark.parametrize(
    ("options", "text", "left"),
    [
        ({"deny": ("ab+",)}, "xabbx ab", "x[g]x [g]"),
        ({"deny": (r"(?i)\bkey-\d+\b", "z")}, "KEY-12 z", "[g] [g]"),
        ({"deny": ("é.",)}, "éa € éb", "[g] € [g]"),
        ({"words": ("badger",)}, "Badger, badgers and BADGER", "[g], badgers and [g]"),
        ({"words": ("naïve",)}, "NAI\u0308VE", "[g]"),  # the same in NFD
        ({"words": ("strasse",)}, "in der Straße", "in der [g]"),  # case folding, UCD CaseFolding.txt
        ({"words": ("fine",)}, "ﬁne ｆｉｎｅ 𝐟𝐢𝐧𝐞", "[g] [g] [g]"),  # NFKC
        ({"words": ("badger",)}, "b\u200bad\u2060g\u00ader", "[g]"),  # zero-width space, word joiner, soft hyphen
        ({"words": ("badger",)}, "a\u200bbadger", "a\u200b[g]"),  # what is invisible may part words as well
        ({"words": ("badger",)}, "bad\x00ger bad\x7fger bad\x85ger", "[g] [g] [g]"),
        ({"words": ("open sesame",)}, "open\u200bsesame, open\u200b\u200b\u2060\u200b\u200bsesame", "[g], [g]"),
        ({"words": ("open sesame",)}, "open\u200b \u200bses\u200bame", "[g]"),
        ({"deny": ("secret", "id-[0-9]+")}, "se\u200bcret ｓｅｃｒｅｔ id\u201142 id-٤２", "[g] [g] [g] [g]"),
        ({"deny": ("\u200b", "é")}, "a\u200bé", "a[g][g]"),  # as it is written, too
        ({"words": ("open sesame",)}, "open-Sesame! open      sesame", "[g]! open      sesame"),
        ({"words": ("笨蛋",)}, "你这个笨蛋啊", "你这个[g]啊"),
        ({"words": ("yes", "no"), "words_are": "allowed"}, "yes, maybe no", "yes, [g] no"),
    ],
)
def test_what_a_check_finds_is_masked(options: dict[str, Any], text: str, left: str) -> None:
    assert check(**options).look(text).text == left
    assert check(**options, mode="flag").look(text).text == text


@pytest.mark.parametrize(
    ("options", "passes", "fires"),
    [
        ({"allow": ("[a-z]+", "[0-9]+")}, "abc", "abc1"),
        ({"length_max": 3}, "a\u0301b", "abcd"),
        ({"length_min": 2}, "ab", "a"),
        ({"deny": ("x",)}, "abc", "x"),
    ],
)
def test_a_check_of_the_whole_text_fires_once(options: dict[str, Any], passes: str, fires: str) -> None:
    assert check(**options, mode="block").look(passes).count == 0
    assert check(**options, mode="block").look(fires).count == 1


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({}, ""),
        ({"deny": ("a",), "length_max": 1, "mode": "flag"}, "length_max"),
        ({"length_max": 1}, "mode"),
        ({"deny": ("a",), "words_are": "allowed"}, "words_are"),
        ({"length_min": 3, "length_max": 1, "mode": "block"}, "length_min"),
        ({"judge": "other", "mode": "flag"}, "when"),
        ({"deny": ("a",), "on_failure": "pass"}, "on_failure"),
    ],
)
def test_a_guard_without_sense_is_refused(options: dict[str, Any], key: str) -> None:
    assert [found for found, _, _ in mistakes(Guard(**{"name": "g", "on": "input", "mode": "mask", **options}))] == [
        key
    ]


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=a)", "", "a*", r"\C", "x" * 5000, "(?:(?:a{900}){900}){900}"])
def test_a_pattern_that_cannot_be_is_refused_by_its_place(pattern: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        check(deny=("fine", pattern))
    assert refused.value.problems[0].key == "deny[1]"


def test_a_list_in_a_file_is_one_word_a_line(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("badger\nopen sesame\n")
    assert check(tmp_path, words_file="words.txt").look("badger; open sesame").text == "[g]; [g]"


@pytest.mark.parametrize("word", ["c++", "#tag", ".net", "# a comment", "...", "x" * 300, "a - - - b"])
def test_a_word_of_which_a_part_would_not_be_compared_is_refused_by_its_line(tmp_path: Path, word: str) -> None:
    (tmp_path / "words.txt").write_text(f"badger\n{word}\n")
    with pytest.raises(Misconfigured) as refused:
        check(tmp_path, words_file="words.txt")
    (problem,) = refused.value.problems
    assert (problem.key, problem.found.split(" ")[0]) == ("words_file", "words.txt:2:")
    with pytest.raises(Misconfigured) as refused:
        check(words=("badger", word))
    assert refused.value.problems[0].key == "words[1]"


def test_an_empty_line_of_a_list_is_named_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("badger\n\notter\n")
    with pytest.raises(Misconfigured) as refused:
        check(tmp_path, words_file="words.txt")
    assert (refused.value.problems[0].key, refused.value.problems[0].found) == (
        "words_file",
        "words.txt: line 2 is empty",
    )


@pytest.mark.parametrize(
    "pattern",
    ["(?i)ignore (all|the) (previous|above) instructions", r"\bid-\d{1,8}\b", "(?i)ignore.{0,40}rules", "a+b"],
)
def test_a_pattern_that_no_text_makes_slow_is_taken(pattern: str) -> None:
    assert check(deny=(pattern,)).look("nothing of that").count == 0


@pytest.mark.parametrize("pattern", ["a.{0,200}c", "(?:a|b)*a(?:a|b){500}c"])
def test_a_pattern_that_some_text_makes_slow_is_refused(pattern: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        check(deny=("fine", pattern))
    assert (refused.value.problems[0].key, "slow" in refused.value.problems[0].found) == ("deny[1]", True)


def test_rows_that_are_blocked_fail_alone_and_say_nothing_of_the_text(run: Run) -> None:
    batch = run("guard", {"name": "no", "deny": ["secret"]}, {TEXT: ["fine", "a secret", None]})
    assert batch.columns["text"].tolist() == ["fine", None]
    assert (batch.failures[1].code, batch.failures[1].text) == (Code.GUARD_BLOCKED, 'the guard "no" blocks this')
    assert batch.notes == [(1, "guard", {"guard": "no", "on": "step", "mode": "block", "field": "text", "count": 1})]


def test_every_text_in_lists_arrays_and_json_is_masked(run: Run) -> None:
    strings = np.array([["a@example.com", b"b@example.com"]], dtype=object)
    data = {"a@example.com": ["x", {"to": "c@example.com"}, 1, None], "b@example.com": True}
    columns: Columns = {TEXTS: [["hi", "a@example.com"]], JSON: [data], STRINGS: strings}
    batch = run("guard", {"name": "g", "mode": "mask", "pii": ["email"]}, columns)
    assert batch.columns["texts"][0] == ["hi", "[email]"]
    assert batch.columns["data"][0] == {"[email]": ["x", {"to": "[email]"}, 1, None], "[email] (2)": True}
    assert batch.columns["strings"][0].tolist() == ["[email]", b"[email]"]
    assert [value["count"] for _, _, value in batch.notes] == [1, 3, 2]


@pytest.mark.parametrize(
    ("value", "fires"), [('{"age": 3}', False), ('{"age": -1}', True), ("no JSON", True), ('{"age": 3', True)]
)
def test_a_schema_reads_the_json_in_a_text(run: Run, tmp_path: Path, value: str, fires: bool) -> None:
    (tmp_path / "s.json").write_text('{"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}}')
    batch = run("guard", {"name": "g", "schema": "s.json"}, {TEXT: [value]}, tmp_path)
    assert bool(batch.failures) is fires


@pytest.mark.parametrize("schema", ['{"type": 3}', "{", '{"$ref": "https://example.com/s.json"}'])
def test_a_schema_that_is_none_or_is_elsewhere_is_refused(schema: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        check(schema=schema, mode="block")
    assert refused.value.problems[0].key == "schema"


def test_a_text_with_too_much_to_mask_is_blocked(run: Run) -> None:
    batch = run("guard", {"name": "g", "mode": "mask", "deny": ["x"]}, {TEXT: ["x" * (MATCHES_MAX + 1)]})
    assert batch.failures[0].code is Code.GUARD_BLOCKED


MIB = 2**20
HOSTILE = {
    "one letter": "a" * MIB, "at signs": "@" * MIB, "local parts": "a@" * (MIB // 2), "mails": "a@b.co " * (MIB // 7),
    "domains": "a@b." * (MIB // 4), "digits": "1" * MIB, "groups": "4111 1111 1111 1112 " * (MIB // 20),
    "singles": "1 2 3 4 " * (MIB // 8), "countries": "GB82 " * (MIB // 5), "colons": ":" * MIB, "dots": "1." * (MIB // 2),
    "pluses": "+1" * (MIB // 2), "brackets": "(" * MIB, "tokens": "eyJ" * (MIB // 3), "words": "bad " * (MIB // 4),
    "marks": "e" + "\u0301\u0323" * (MIB // 4), "unseen": "b\u200b" * (MIB // 4), "han": "笨蛋了" * (MIB // 9),
    "pairs": "aab" * (MIB // 3), "zero-width digits": "4\u200b1" * (MIB // 5), "hidden mails": "a\u200b@b.co\u200bm " * (MIB // 14),
    "quotes": '"a"@' * (MIB // 4), "controls": "a\x00" * (MIB // 2), "slices": "1::" * (MIB // 3),
    "long tokens": ("eyJ" + "a" * 500 + ".eyJ" + "a" * 899 + "-") * (MIB // 1410), "keys": "sk-" * (MIB // 3),
}  # fmt: skip
CHECKS: dict[str, dict[str, Any]] = {
    **{kind: {"pii": (kind,)} for kind in ("email", "phone", "iban", "card", "ip", "key")},
    "words": {"words": ("bad", "very bad", "naïve", "笨蛋")},
    "allowed": {"words": ("bad",), "words_are": "allowed"},
    "deny": {"deny": (r"(a+)+$", "(x|xx)+y", r"(?:a?){200}b{200}")},
}


def took_s(guard: Check, text: str) -> float:
    started = time.process_time()
    with suppress(TooMany):
        guard.look(text)
    return time.process_time() - started


@pytest.mark.alone
@pytest.mark.parametrize("name", CHECKS)
def test_no_text_of_a_mebibyte_holds_a_guard_up(name: str) -> None:
    guard = check(**CHECKS[name])
    slowest = max(HOSTILE, key=lambda text: took_s(guard, HOSTILE[text]))
    assert min(took_s(guard, HOSTILE[slowest]) for _ in range(3)) < 0.5, slowest  # 0.1 s where nothing else runs


@pytest.mark.alone
@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("text", ["marks", "unseen", "singles", "pairs"])
def test_twice_the_text_takes_no_more_than_about_twice_the_time(name: str, text: str) -> None:
    guard, whole = check(**CHECKS[name]), HOSTILE[text]
    half_s, whole_s = (min(took_s(guard, piece) for _ in range(5)) for piece in (whole[: len(whole) // 2], whole))
    assert whole_s < 4 * half_s + 0.02
