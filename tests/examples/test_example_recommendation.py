"""The recommendation example against the plain product of its own vectors, which another test has from the model."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.examples.ways import outputs_by_every_way
from tests.serving import Server

from forwardpass.core.errors import Code
from forwardpass.steps.protocol import Batch

Ask = Callable[[str, Sequence[Mapping[str, object]]], Batch]

TASTES = {
    "moby-dick": {"the-sea-wolf", "captains-courageous", "lord-jim", "typhoon", "two-years-before-the-mast"},
    "elements": {"principia-mathematica", "how-to-solve-it", "a-mathematicians-apology", "relativity"},
    "the-c-programming-language": {
        "structure-and-interpretation-of-computer-programs",
        "the-art-of-computer-programming",
    },
}


def books(ask: Ask, *liked: str) -> list[dict[str, Any]]:
    (found,) = ask("recommendation", [{"liked": list(liked)}]).columns["books"]
    answer: list[dict[str, Any]] = found
    return answer


@pytest.mark.parametrize("liked", TASTES)
def test_whoever_likes_a_book_gets_others_of_its_kind(ask: Ask, liked: str) -> None:
    assert len({each["id"] for each in books(ask, liked)} & TASTES[liked]) >= 2


def test_books_come_nearest_first_with_the_cosine_to_the_mean_of_what_is_liked(
    ask: Ask, folder_of: Callable[[str], Path]
) -> None:
    liked = ("dracula", "emma", "cosmos")
    folder = folder_of("recommendation")
    ids = [json.loads(line)["id"] for line in (folder / "books.jsonl").read_text("utf-8").splitlines()]
    vectors = np.load(folder / "vectors.npy").astype(np.float64)
    taste = vectors[[ids.index(each) for each in liked]].mean(axis=0)
    scores = dict(zip(ids, vectors @ taste / np.linalg.norm(taste), strict=True))
    expected = sorted((each for each in ids if each not in liked), key=lambda each: -scores[each])[:5]
    found = books(ask, *liked)
    assert [each["id"] for each in found] == expected
    assert [each["score"] for each in found] == pytest.approx([scores[each] for each in expected], abs=1e-6)


def test_a_book_comes_with_all_that_the_catalogue_has_of_it(ask: Ask) -> None:
    assert set(books(ask, "emma")[0]) == {"id", "title", "author", "year", "about", "score"}


def test_what_is_liked_is_never_recommended(ask: Ask) -> None:
    liked = ["dracula"]
    for _ in range(5):
        found = [each["id"] for each in books(ask, *liked)]
        assert not set(found) & set(liked)
        liked.append(found[0])


def test_a_book_that_is_not_in_the_catalogue_is_refused_by_name_and_alone(ask: Ask) -> None:
    batch = ask("recommendation", [{"liked": ["emma", "my-own-novel"]}, {"liked": ["emma"]}])
    assert batch.failures[0].code is Code.INVALID_INPUT
    assert "my-own-novel" in batch.failures[0].text
    assert list(batch.columns["books"]) == [books(ask, "emma")]


def test_every_way_in_gives_the_same_bytes(
    served: Callable[[str], Server], folder_of: Callable[[str], Path], data: Path
) -> None:
    given = {"liked": ["moby-dick", "the-sea-wolf"]}
    answers = outputs_by_every_way(served("recommendation"), folder_of("recommendation"), given, data)
    assert b'"title":"Captains Courageous"' in answers["http"]
    assert len(set(answers.values())) == 1, answers
