"""The sentences example: the cosines its model is known for, through the pipeline."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from forwardpass.steps.protocol import Batch

Ask = Callable[[str, Sequence[Mapping[str, object]]], Batch]

FOOD, BREAD, VIOLIN = "A man is eating food.", "A man is eating a piece of bread.", "A woman is playing violin."
HORSE, WHITE_HORSE = "A man is riding a horse.", "A man is riding a white horse on an enclosed ground."


@pytest.mark.parametrize(
    ("one", "other", "cosine"), [(FOOD, BREAD, 0.7553), (HORSE, WHITE_HORSE, 0.737), (FOOD, VIOLIN, -0.07)]
)
def test_two_sentences_are_as_alike_as_the_model_says(ask: Ask, one: str, other: str, cosine: float) -> None:
    first, second = ask("sentences", [{"text": one}, {"text": other}]).columns["embedding"]
    assert first @ second == pytest.approx(cosine, abs=1e-3)


def test_a_sentence_has_the_same_embedding_alone_and_beside_a_longer_one(ask: Ask) -> None:
    alone = ask("sentences", [{"text": FOOD}]).columns["embedding"][0]
    beside = ask("sentences", [{"text": "long " * 100}, {"text": FOOD}]).columns["embedding"][1]
    np.testing.assert_allclose(beside, alone, atol=1e-6)


def test_an_embedding_has_length_one(ask: Ask) -> None:
    embedding = ask("sentences", [{"text": FOOD}]).columns["embedding"][0]
    assert embedding.shape == (384,)
    assert np.linalg.norm(embedding) == pytest.approx(1.0, abs=1e-6)


def test_a_text_of_more_than_256_tokens_is_cut_and_its_answer_says_so(ask: Ask) -> None:
    batch = ask("sentences", [{"text": FOOD}, {"text": "food " * 400}])
    assert [(row, name, value["tokens"], value["kept"]) for row, name, value in batch.notes] == [
        (1, "truncated", 402, 256)
    ]
