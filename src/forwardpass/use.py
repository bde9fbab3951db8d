"""One function for each kind of step, made of the kind's own options: ``use.tokenize("tokenizer.json", tokens_max=256)``.

Each checks what it is given at once and returns a ``Step`` for ``Pipeline(steps=[...])``. Files are named by where they
are on this machine. ``help(use.tokenize)`` lists the options; ``dir(use)`` the kinds.
"""

from collections.abc import Callable

from forwardpass.building.constructors import constructor, names
from forwardpass.core.pipeline import Step


def __getattr__(name: str) -> Callable[..., Step]:
    if name.startswith("_"):
        raise AttributeError(name)
    return constructor(name)


def __dir__() -> list[str]:
    return names()
