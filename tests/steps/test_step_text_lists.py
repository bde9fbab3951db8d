"""join_texts."""

from typing import TYPE_CHECKING

import pytest

from forwardpass.core.errors import Misconfigured
from forwardpass.core.pipeline import Field

if TYPE_CHECKING:
    from tests.steps.conftest import Run

LINES = Field("lines", "BYTES", (), "texts")


def test_texts_are_joined_without_the_empty_ones(run: "Run") -> None:
    batch = run("join_texts", {}, {LINES: [["one", "", "two words"], ["ö"], [], [""]]})
    assert batch.columns["text"].tolist() == ["one two words", "ö", "", ""]


def test_what_stands_between_is_the_pipelines_choice(run: "Run") -> None:
    batch = run("join_texts", {"separator": "", "output": "whole"}, {LINES: [["a", "b"]]})
    assert batch.columns["whole"].tolist() == ["ab"]


def test_a_text_is_no_list_of_texts(run: "Run") -> None:
    with pytest.raises(Misconfigured) as caught:
        run("join_texts", {"input": "word"}, {Field("word", "BYTES", (), "text"): ["a"]})
    assert "not a list of text" in caught.value.problems[0].found
