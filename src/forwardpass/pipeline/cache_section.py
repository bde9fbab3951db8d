"""The section ``[cache]``: what its keys may be, and which pipelines may have it: those that answer the same again."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from forwardpass.core.errors import Misconfigured
from forwardpass.core.pipeline import Cache, Pipeline
from forwardpass.pipeline.files import file_problem
from forwardpass.pipeline.onnx_facts import facts
from forwardpass.pipeline.onnx_file import is_onnx
from forwardpass.pipeline.toml_values import number, table, true_or_false, whole

Finding = tuple[str, str, str]

BYTES_MAX = 2**40
TTL_S_MAX = 30 * 86_400.0
RANDOM = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli")
)
"""Operators of ONNX whose outputs are others each time."""

CACHE = table(
    Cache,
    {
        "enabled": true_or_false,
        "bytes_max": whole(64 * 1024, BYTES_MAX),
        "ttl_s": number(0, TTL_S_MAX, above=True),
        "shared": true_or_false,
        "approximate": true_or_false,
    },
)


def findings(pipeline: Pipeline, folder: Path, written: Mapping[str, Any]) -> Iterator[Finding]:
    """Every broken rule of the section, as (key, found, allowed)."""
    cache = pipeline.cache
    if cache is None:
        return
    if not cache.enabled:
        for name in written:
            if name != "enabled":
                yield f"cache.{name}", "has no effect while cache.enabled is false", "leave it out or enable the cache"
        return
    if pipeline.sequence is not None:
        yield "cache", "stands beside [sequence]: an answer depends on those before it", "one of the two"
    for place, step in enumerate(pipeline.steps):
        file = step.options.get("file")
        if step.use == "model" and isinstance(file, str) and is_onnx(file):
            drawn = _random(folder, file)
            if drawn:
                found = f"steps[{place}] draws random numbers ({drawn}), so no answer is the same again"
                yield "cache", found, "a model that answers the same again"


def _random(folder: Path, file: str) -> str:
    """The first such operator of a model; a file that is no model is told of elsewhere."""
    if file_problem(folder, file):
        return ""
    with suppress(Misconfigured, OSError):
        return next(iter(sorted(RANDOM & set(facts(folder / file).makers.values()))), "")
    return ""
