"""Guards on text that comes in pieces: what leaves is what would have left of the whole, and never what is masked."""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from forwardpass.core.errors import Code, Refused
from forwardpass.core.pipeline import Guard
from forwardpass.steps.guard.checks import Check, ready
from forwardpass.steps.guard.spans import HOLD_CHARACTERS_MAX
from forwardpass.steps.guard.stream import StreamGuard

HERE = Path(__file__).parent
SECRETS = [
    "joe.bloggs@example.com", "4111 1111 1111 1111", "5500000000000004", "GB82 WEST 1234 5698 7654 32", "192.168.10.1",
    "2001:db8::ff00:42:8329", "+1 (555) 123-4567", "555-123-4567", "AKIAIOSFODNN7EXAMPLE", "BADGER", "nai\u0308ve",
    "naïve", "b\u200badger", "very  hidden", "笨蛋", "id-12345", "sk-" + "a1B2" * 8,
    "4242\u00a04242\u200b4242\u20114242", "joe＠exam\u00adple.com", '"joe bloggs"@example.com', "very\u200bhidden", "bad\x00ger",
]  # fmt: skip
PIECES = st.sampled_from(
    [
        *SECRETS,
        " ",
        "\t",
        "[",
        '"',
        "0x",
        "=",
        ".",
        ",",
        "@",
        "\u200b\u200b",
        "\u00a0",
        "a",
        "7",
        "-",
        "+",
        ":",
        "\u0301",
        "\u200b",
        "é",
        "蛋",
        "GB82 ",
    ]
)
TEXTS = st.lists(PIECES | st.text(max_size=4), max_size=12).map("".join)


def check(**options: Any) -> Check:
    return ready(Guard(**{"name": "g", "on": "output", "mode": "mask", **options}), HERE)


CHECKS = {
    "pii": check(pii=("email", "phone", "iban", "card", "ip", "key")),
    "deny": check(deny=(r"id-\d{1,8}", r"(?i)\bsecret\b", r"(?m)^x.y$")),
    "words": check(words=("badger", "very hidden", "naïve", "笨蛋")),
    "allowed": check(words=("a", "very", "7"), words_are="allowed"),
}


def streamed(checks: list[Check], text: str, cuts: list[int]) -> list[str]:
    guard = StreamGuard(checks)
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [*(guard.feed(text[start:end]) for start, end in pairwise(places)), guard.flush()]


@pytest.mark.parametrize("name", CHECKS)
@settings(max_examples=150, deadline=None)
@given(text=TEXTS, cuts=st.lists(st.integers(0, 10_000), max_size=30))
@example(text="x" * 70 + "@example.com", cuts=list(range(100)))
@example(text="1" * 25 + " 4111111111111111", cuts=list(range(60)))
@example(text="so " + "x" * 300 + "\u200bbadger eats", cuts=list(range(320)))
@example(text="a" * 40 + "\u200b" * 40 + "badger\u200b" + "\u200b" * 40 + "x", cuts=list(range(140)))
@example(text="joe@example.com\u200bamy@example.com\u200b", cuts=list(range(40)))
@example(text='a "b" "joe"@example.com', cuts=list(range(40)))
@example(text="x@" + "a." * 200 + "com", cuts=list(range(420)))
@example(text="eyJhbGciOiJIUzI1NiJ9.eyJ" + "a" * 3000 + "." + "b" * 30 + " ", cuts=list(range(0, 3060, 7)))
@example(text="x\u200bbadger badger\u200bx", cuts=list(range(30)))
def test_the_pieces_that_leave_are_the_masked_text_however_it_is_cut(name: str, text: str, cuts: list[int]) -> None:
    assert "".join(streamed([CHECKS[name]], text, cuts)) == CHECKS[name].look(text).text


@settings(max_examples=60, deadline=None)
@given(text=TEXTS)
def test_cut_into_characters_several_guards_leave_what_they_leave_of_the_whole(text: str) -> None:
    whole = text
    for each in CHECKS.values():
        whole = each.look(whole).text
    assert "".join(streamed(list(CHECKS.values()), text, list(range(len(text))))) == whole


@pytest.mark.parametrize("secret", SECRETS)
def test_no_part_of_what_is_masked_leaves_at_any_time(secret: str) -> None:
    text = f"so: {secret} and more"
    masked = [check for check in CHECKS.values() if check.look(text).count and check is not CHECKS["allowed"]]
    assert masked, "each secret is one to a guard"
    sent = ""
    for piece in streamed(masked[:1], text, list(range(len(text)))):
        sent += piece
        assert "so: [".startswith(sent) or sent.startswith("so: ["), sent


def test_a_text_without_anything_to_mask_leaves_word_by_word() -> None:
    guard = StreamGuard([CHECKS["pii"]])
    assert [guard.feed(word) for word in ("Hello ", "world, ", "again")] == ["Hello ", "world, ", ""]
    assert guard.flush() == "again"


def test_a_pattern_is_waited_for_no_longer_than_it_can_match() -> None:
    guard = StreamGuard([check(deny=("[0-9]{4}",))])
    assert guard.feed("abcdefgh") == "abc"  # four characters and one behind them are undecided


def test_a_pattern_without_a_bound_holds_everything_and_blocks_at_the_limit() -> None:
    guard = StreamGuard([check(deny=("a+b",))])
    assert guard.feed("x" * HOLD_CHARACTERS_MAX) == ""
    with pytest.raises(Refused) as refused:
        guard.feed("x")
    assert refused.value.code is Code.GUARD_BLOCKED


def test_a_guard_that_blocks_ends_the_stream_before_the_first_character_of_what_it_found() -> None:
    guard = StreamGuard([check(mode="block", deny=("secret",))])
    sent = "".join(guard.feed(each) for each in "it is secre")
    with pytest.raises(Refused, match='"g" blocks'):
        guard.feed("t, you know")
    assert "it is ".startswith(sent)


@pytest.mark.parametrize("mode", ["flag", "shadow"])
def test_a_guard_that_only_tells_lets_the_text_through_and_counts(mode: str) -> None:
    guard = StreamGuard([check(mode=mode, pii=("email",)), check(name="short", mode=mode, length_max=3)])
    text = "mail a@example.com or b@example.com"
    assert guard.feed(text) + guard.flush() == text
    assert guard.counts == {"g": 2, "short": 1}


def test_a_text_that_may_not_be_long_leaves_until_it_is() -> None:
    guard = StreamGuard([check(mode="block", length_min=3, length_max=5)])
    assert [guard.feed(each) for each in "abcde"] == ["", "", "abc", "d", "e"]
    with pytest.raises(Refused):
        guard.feed("f")


@pytest.mark.parametrize(("text", "count"), [("ab", 1), ("abc", 0), ("abcde", 0), ("abcdef", 1)])
def test_the_length_of_a_stream_is_counted(text: str, count: int) -> None:
    guard = StreamGuard([check(mode="flag", length_min=3, length_max=5)])
    assert "".join([*map(guard.feed, text), guard.flush()]) == text
    assert guard.counts.get("g", 0) == count


@pytest.mark.alone
def test_invisible_characters_one_by_one_cost_no_more_than_others() -> None:
    def took_s(character: str) -> float:
        guard, began = StreamGuard([check(words=("badger",))]), time.process_time()
        for _ in range(6000):
            guard.feed(character)
        return time.process_time() - began

    assert took_s("\u200b") < 10 * took_s("é") + 0.5


def test_a_check_of_the_whole_text_lets_nothing_out_before_it_is_right() -> None:
    guard = StreamGuard([check(mode="block", schema='{"type": "object"}')])
    assert guard.feed('{"a":') == ""
    assert guard.feed("1}") + guard.flush() == '{"a":1}'
