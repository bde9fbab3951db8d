"""The search example: books found by meaning, with the cosines that the model has by the plainest way."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples.sentences.build import embed
from tests.examples.ways import outputs_by_every_way
from tests.serving import Server

from forwardpass.core.errors import Code, Refused
from forwardpass.steps.protocol import Batch

Ask = Callable[[str, Sequence[Mapping[str, object]]], Batch]

QUERIES = {
    "whales and captains": "moby-dick",
    "a detective finds out who is the murderer on a train": "murder-on-the-orient-express",
    "how free markets work": "the-wealth-of-nations",
    "evolution of species": "on-the-origin-of-species",
    "a mountain climbing disaster": "into-thin-air",
}


def books(ask: Ask, *queries: str) -> list[list[dict[str, Any]]]:
    return list(ask("search", [{"query": query} for query in queries]).columns["books"])


def catalogue(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "books.jsonl").read_text("utf-8").splitlines()]


def test_books_are_found_by_what_they_are_about(ask: Ask) -> None:
    assert [found[0]["id"] for found in books(ask, *QUERIES)] == list(QUERIES.values())


def test_a_score_is_the_cosine_of_the_models_own_vectors(ask: Ask, folder_of: Callable[[str], Path]) -> None:
    folder, query = folder_of("search"), "robots rebel against humans"
    texts = {each["id"]: f"{each['title']}. {each['about']}" for each in catalogue(folder)}
    (found,) = books(ask, query)
    expected = [float(embed(folder, texts[each["id"]]) @ embed(folder, query)) for each in found]
    assert [each["score"] for each in found] == pytest.approx(expected, abs=1e-5)


def test_every_book_has_an_id_of_its_own_and_a_vector_of_length_1(folder_of: Callable[[str], Path]) -> None:
    found, vectors = catalogue(folder_of("search")), np.load(folder_of("search") / "vectors.npy")
    assert len({each["id"] for each in found}) == len(found) == len(vectors) > 400
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)


def test_nothing_is_found_for_what_no_book_is_about(ask: Ask) -> None:
    assert books(ask, "xkcd qwerty 0x7f") == [[]]


def test_a_query_finds_the_same_alone_and_beside_longer_ones(ask: Ask) -> None:
    query = "cooking French dishes"
    _, beside = books(ask, "a very long question about love " * 25, query)
    (alone,) = books(ask, query)
    assert [each["id"] for each in beside] == [each["id"] for each in alone]
    assert [each["score"] for each in beside] == pytest.approx([each["score"] for each in alone], abs=1e-6)


def test_a_query_that_is_too_long_is_refused(ask: Ask) -> None:
    with pytest.raises(Refused) as refusal:
        ask("search", [{"query": "x" * 1001}])
    assert refusal.value.code is Code.INPUT_TOO_LARGE


def test_every_way_in_gives_the_same_bytes(
    served: Callable[[str], Server], folder_of: Callable[[str], Path], data: Path
) -> None:
    answers = outputs_by_every_way(served("search"), folder_of("search"), {"query": "survive alone on Mars"}, data)
    assert b'"title":"The Martian"' in answers["http"]
    assert len(set(answers.values())) == 1, answers
