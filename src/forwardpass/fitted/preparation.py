"""Takes a fitted scikit-learn estimator apart: steps for categories and what is missing, a graph for all after them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forwardpass.core.pipeline import Step
from forwardpass.fitted import lightgbm_trees
from forwardpass.fitted.encoders import Block, Encoding, encodes
from forwardpass.fitted.refusal import listed, refused
from forwardpass.fitted.sample import ColumnKind, Sample


@dataclass
class Preparation:
    """``steps`` make numbers of the columns; ``names`` are joined to a row; ``rest`` goes on with it, then ``final``."""

    final: Any
    steps: list[Step]
    names: list[str]
    width: int  # of the joined row
    rest: list[tuple[str, Any]] = field(default_factory=list)  # transformers of scikit-learn on the joined row
    encoded: frozenset[str] = frozenset()
    unused: tuple[str, ...] = ()


@dataclass
class Branch:
    """Columns that go through a chain of transformers by themselves; ``rest`` is what no step can do."""

    name: str
    blocks: list[Block]
    rest: list[Any]
    steps: list[Step] = field(default_factory=list)


def prepare(estimator: Any, sample: Sample) -> Preparation:
    """Raises Misconfigured for a category that reaches something which only takes numbers here."""
    *chain, final = flattened(estimator)
    _refuse_functions(chain)
    kinds = sample.kinds
    if chain and type(chain[0]).__name__ == "ColumnTransformer":
        branches, weights, after = list(_branches(chain[0], kinds)), chain[0].transformer_weights, chain[1:]
    else:
        branches, weights, after = [Branch("all", [Block(*each) for each in kinds.items()], chain)], None, []
    shared = _shared(branches)
    if not chain and type(final).__module__.startswith("lightgbm."):
        _encode_pandas(branches[0], lightgbm_trees.categories(final), sample)
    for branch in branches:
        _encode(branch, shared)
        _refuse_categories(branch, final)
    if len(branches) == 1 and not after and weights is None:
        branches[0].rest, after = [], branches[0].rest
    blocks = {block.name: block for branch in branches for block in branch.blocks}
    names = list(blocks)
    starts = dict(zip(names, _starts([blocks[name].size for name in names]), strict=True))
    width = sum(block.size for block in blocks.values())
    joined = _joined(branches, starts, width, weights)
    return Preparation(
        final=final,
        steps=[step for branch in branches for step in branch.steps],
        names=names,
        width=width,
        rest=[*joined, *((f"then{place}", each) for place, each in enumerate(after))],
        encoded=frozenset(name for name, block in blocks.items() if block.encoded),
        unused=tuple(name for name in kinds if name not in blocks),
    )


def flattened(estimator: Any) -> list[Any]:
    """A pipeline's steps in order, of pipelines in it too; a search stands for the best that it found."""
    if hasattr(estimator, "best_estimator_"):
        return flattened(estimator.best_estimator_)
    if type(estimator).__name__ == "FunctionTransformer" and estimator.func is None:
        return []
    if type(estimator).__name__ == "Pipeline" and hasattr(estimator, "steps"):
        steps = [step for _, step in estimator.steps if step is not None and not isinstance(step, str)]
        return [part for step in steps for part in flattened(step)]
    return [] if isinstance(estimator, str) else [estimator]


def _branches(transformer: Any, kinds: Mapping[str, ColumnKind]) -> Iterator[Branch]:
    names = list(kinds)
    for name, part, _ in transformer.transformers_:
        places = transformer._transformer_to_input_indices.get(name, ())
        if (isinstance(part, str) and part == "drop") or not len(places):
            continue
        yield Branch(name, [Block(names[place], kinds[names[place]]) for place in places], flattened(part))


def _shared(branches: Sequence[Branch]) -> set[str]:
    """Columns that several branches read: a step writes a column in its place, so these must stay as they came."""
    counted = Counter(block.name for branch in branches for block in branch.blocks)
    return {name for name, count in counted.items() if count > 1}


def _encode(branch: Branch, shared: set[str]) -> None:
    """Moves what steps can do out of the branch's chain."""
    both = [block.name for block in branch.blocks if block.name in shared]
    must = any(block.kind == "category" for block in branch.blocks) or any(map(encodes, branch.rest))
    if both and must:
        allowed = "one encoding for a column: copy it under another name before"
        raise refused((listed(both), "a category that goes two ways", allowed))
    if both:
        return
    encoding = Encoding(branch.blocks)
    taken = 0
    while taken < len(branch.rest) and encoding.take(branch.rest[taken]):
        taken += 1
    if not must and taken < len(branch.rest):  # numbers only: then the graph does all of it
        return
    branch.steps, branch.rest = [*branch.steps, *encoding.steps], branch.rest[taken:]


def _encode_pandas(branch: Branch, learned: Sequence[Sequence[Any]], sample: Sample) -> None:
    """LightGBM sees a pandas category as its place among those of the training, any other as missing."""
    names = [
        column.name
        for column, dtype in zip(sample.columns, getattr(sample.rows, "dtypes", ()), strict=False)
        if str(dtype) == "category"
    ]
    if len(names) != len(learned):
        found = f"{len(names)} columns of the dtype category, and {len(learned)} learned"
        raise refused(("sample", found, "the dtypes that the model was fitted with"))
    categories = dict(zip(names, learned, strict=True))
    if not categories:
        return
    plain = {name: [str(each) if isinstance(each, str) else float(each) for each in categories[name]] for name in names}
    branch.steps.append(Step("ordinal", {"categories": plain, "unknown": "missing", "missing": "missing"}))
    for block in branch.blocks:
        block.encoded = block.name in categories


def _refuse_functions(chain: Sequence[Any]) -> None:
    inner = [part for each in chain for _, part, _ in getattr(each, "transformers_", ()) for part in flattened(part)]
    if any(type(each).__name__ == "FunctionTransformer" for each in (*chain, *inner)):
        allowed = "none: compute its columns before, or in a step of your own (steps.py)"
        raise refused(("FunctionTransformer", "a Python function, which no graph can hold", allowed))


def _refuse_categories(branch: Branch, final: Any) -> None:
    left = [block.name for block in branch.blocks if block.kind == "category" and not block.encoded]
    if left:
        by = type(branch.rest[0] if branch.rest else final).__name__
        allowed = "OneHotEncoder or OrdinalEncoder, after a SimpleImputer where one is needed"
        raise refused((listed(left), f"a category that goes to {by}", allowed))


def _starts(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:place]) for place in range(len(sizes))]


def _joined(
    branches: Sequence[Branch], starts: Mapping[str, int], width: int, weights: Mapping[str, float] | None
) -> list[tuple[str, Any]]:
    """The ColumnTransformer that is left: nothing where the joined row already is what it would make."""
    places = [[starts[block.name] + place for block in branch.blocks for place in block.kept] for branch in branches]
    in_order = [place for each in places for place in each] == list(range(width))
    if in_order and weights is None and not any(branch.rest for branch in branches):
        return []
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline

    parts = []
    for branch, columns in zip(branches, places, strict=True):
        chain = [(str(place), each) for place, each in enumerate(branch.rest)]
        parts.append((branch.name, Pipeline(chain) if chain else "passthrough", columns))
    joined = ColumnTransformer(parts, transformer_weights=weights)
    joined.transformers_ = parts  # as if fitted: the parts are
    return [("columns", joined)]
