"""Which texts a caller may send as token ids: those that nothing but a tokenizer reads."""

from collections.abc import Sequence

from forwardpass.core.pipeline import Field
from forwardpass.steps.protocol import Watched


class Readers:
    """Told of each step while a pipeline is built, in their order."""

    def __init__(self, columns: Sequence[Field]) -> None:
        self._texts = {column.name: column for column in columns if column.kind == "text"}
        self._take_ids: dict[str, list[bool]] = {name: [] for name in self._texts}

    def read(self, watched: Watched, *, takes_ids: bool) -> None:
        """A step asked for these fields; one that a step before it replaced is no longer what was sent."""
        for name in watched.named & self._texts.keys():
            if watched.known.get(name) is self._texts[name]:
                self._take_ids[name].append(takes_ids)

    def token_inputs(self, outputs: Sequence[Field]) -> frozenset[str]:
        """The texts that are read by steps which take ids, and by nothing else."""
        answered = {output.name for output in outputs if output is self._texts.get(output.name)}
        return frozenset(name for name, take in self._take_ids.items() if take and all(take)) - answered
