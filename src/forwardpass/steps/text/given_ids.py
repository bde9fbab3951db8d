"""A text that came as token ids: checked, cut, and made what the tokenizers library makes of a text."""

from dataclasses import dataclass
from typing import Any

from forwardpass.core.errors import Code, Refused
from forwardpass.core.tokens import TokenIds

Ids = tuple[int, ...]


@dataclass(slots=True)
class GivenTokens:
    """As much of the library's Encoding as is needed before special tokens are added: a length, and cutting."""

    ids: Ids

    @classmethod
    def of(cls, library: Any, name: str, given: TokenIds, around: tuple[Ids, Ids]) -> "GivenTokens":
        """Without the special tokens of one text, if all of these are there. Raises Refused for an unknown id."""
        place = next((place for place, each in enumerate(given.ids) if library.id_to_token(each) is None), None)
        if place is not None:
            size = library.get_vocab_size()
            text = f"{name}/{place}: token id {given.ids[place]} is not in the vocabulary of {size} tokens"
            raise Refused(Code.OUT_OF_RANGE, text, field=name)
        before, behind = around
        end = len(given.ids) - len(behind)
        there = end >= len(before) and given.ids[: len(before)] == before and given.ids[end:] == behind
        return cls(given.ids[len(before) : end] if there else given.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def truncate(self, length: int, *, direction: str) -> None:
        """Keep ``length`` of them; ``direction`` is the side that is cut off."""
        self.ids = self.ids[:length] if direction == "right" else self.ids[len(self.ids) - length :]

    def encoding(self) -> Any:
        """The library makes an Encoding only of words, so each id becomes a word, in a vocabulary of just these."""
        from tokenizers import Tokenizer, models

        words = Tokenizer(models.WordLevel({str(each): each for each in self.ids}))
        return words.encode(list(map(str, self.ids)), is_pretokenized=True, add_special_tokens=False)


def special_around(library: Any) -> tuple[Ids, Ids]:
    """The special tokens that a tokenizer puts before and behind one text; none where its template has it twice."""
    whole = library.post_process(GivenTokens((0,)).encoding())
    own = [place for place, number in enumerate(whole.sequence_ids) if number == 0]
    if len(own) != 1:
        return (), ()
    return tuple(whole.ids[: own[0]]), tuple(whole.ids[own[0] + 1 :])
