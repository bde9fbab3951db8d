"""Golden examples: requests whose answers are known, sent through the same path as everybody's before a version is ready."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from forwardpass.core.clock import Clock, random_id
from forwardpass.core.errors import Code, Failure, Misconfigured, Problem, show
from forwardpass.core.pipeline import Golden
from forwardpass.core.request import Request
from forwardpass.core.timeline import Timeline
from forwardpass.pipeline import fields
from forwardpass.pipeline.handle import Handle
from forwardpass.rollout.variant import Variant

NULL = {"missing": True}
"""How an example says that null must come: TOML has no word for it."""


async def verify(handle: Handle, variant: Variant, clock: Clock) -> None:
    """Raises Misconfigured golden_mismatch listing every example that does not come out as written."""
    problems: list[Problem] = []
    for index, golden in enumerate(variant.version.definition.golden):
        key = f"golden[{index}]"
        try:
            found = await answer_one(handle, variant, golden.request, clock)
        except Failure as failure:
            problems.append(Problem("pipeline.toml", key, f"the request failed: {failure.code}: {failure.text}", ""))
            continue
        problems += _differences(golden, found, key)
    if problems:
        raise Misconfigured(Code.GOLDEN_MISMATCH, tuple(problems))


async def answer_one(handle: Handle, variant: Variant, record: Mapping[str, Any], clock: Clock) -> dict[str, object]:
    """One record's outputs as plain values. Raises the Failure it ended with."""
    columns, rows = fields.encode(variant.signature, [record])
    now = clock()
    request = Request(random_id(), columns, rows, Timeline(now, now), judged=False)
    answer = await handle.answer(variant, request)
    (result,) = fields.decode(answer)
    if isinstance(result, Failure):
        raise result
    return result


def _differences(golden: Golden, found: Mapping[str, object], key: str) -> list[Problem]:
    problems: list[Problem] = []
    for name, wanted in golden.expect.items():
        if name not in found:
            text = f"there is no such output; there are: {', '.join(found)}"
            problems.append(Problem("pipeline.toml", f"{key}.expect.{name}", text, ""))
        elif not close(found[name], wanted, golden.tolerance):
            came = f"found {show(found[name])}"
            problems.append(Problem("pipeline.toml", f"{key}.expect.{name}", came, f"expected {show(wanted)}"))
    return problems


def expected(value: Any) -> Any:
    """What an example expects as TOML can say it: ``NULL`` for each None."""
    match value:
        case None:
            return dict(NULL)
        case dict():
            return {name: expected(each) for name, each in value.items()}
        case list() | tuple():
            return [expected(each) for each in value]
    return value


def close(found: object, wanted: object, tolerance: float) -> bool:
    """Equal, with numbers within ``tolerance`` (absolute, or relative to what was wanted), lists element by element.

    Of an object only the keys that are wanted count; ``NULL`` stands for null.
    """
    if found is None:
        return wanted is None or wanted == NULL
    if isinstance(wanted, bool) or isinstance(found, bool):
        return found is wanted
    if isinstance(wanted, (int, float)) and isinstance(found, (int, float)):
        return math.isclose(found, wanted, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        if not isinstance(found, Sequence) or len(found) != len(wanted):
            return False
        return all(close(one, other, tolerance) for one, other in zip(found, wanted, strict=True))
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            key in found and close(found[key], value, tolerance) for key, value in wanted.items()
        )
    return found == wanted
