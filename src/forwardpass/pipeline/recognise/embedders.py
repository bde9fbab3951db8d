"""Models that make a vector of a text, as sentence-transformers keeps them."""

from typing import Any

from forwardpass.core.pipeline import Input, Step
from forwardpass.pipeline.onnx_facts import Value
from forwardpass.pipeline.recognise.recognised import Notes, Placed, Recognised
from forwardpass.pipeline.recognise.source import Source, Unfit
from forwardpass.pipeline.recognise.tokens import EXAMPLES, model_step, tokenize_step

_WHOLE = ("sentence_embedding", "text_embeds", "embeddings")
"""Outputs that are the vector of the whole text already."""
_TOKENS = ("token_embeddings", "last_hidden_state")
_MODULES = ("Transformer", "Pooling", "Normalize")
_POOLING = {"pooling_mode_mean_tokens": "mean_pool", "pooling_mode_cls_token": "first_token"}
_SAID = {"mean_pool": "the mean of its tokens' vectors", "first_token": "its first token's vector"}


def is_embedder(source: Source, kind: str) -> bool:
    """By modules.json, or as a bare encoder ("BertModel") without any head."""
    return bool(source.rows("modules.json")) or (kind.endswith("Model") and bool(source.facts.outputs))


def embedder(source: Source, config: dict[str, Any], kind: str) -> Recognised:
    """Raises Unfit for a module or a pooling that no step does."""
    notes = Notes()
    if kind:
        notes.know(f"config.json, architectures: {kind}")
    modules = _modules(source, notes)
    steps: list[Placed] = []
    if source.table("sentence_bert_config.json").get("do_lower_case") is True:
        steps.append(Placed(Step("normalize_text", {"form": "none", "lower": True}), ("do_lower_case: true",)))
        notes.know("sentence_bert_config.json, do_lower_case: true")
    steps += [tokenize_step(source, config, notes, {}), model_step(source)]
    vector = _named(source, _WHOLE, 2)
    if vector is None:
        pooling = _pooling(source, modules, notes)
        tokens = _named(source, _TOKENS, 3) or _only(source, 3)
        steps.append(Placed(Step(pooling, {"input": tokens.name, "output": "embedding"})))
        output = "embedding"
    else:
        notes.know(f"the model's output {vector.name} is the vector of the whole text")
        output = vector.name
    if "Normalize" in modules or not modules:
        (notes.know if modules else notes.assume)(
            "modules.json, Normalize: vectors have length 1" if modules else "vectors are brought to length 1"
        )
        steps.append(Placed(Step("l2_norm", {"input": output})))
    prompts = source.table("config_sentence_transformers.json").get("prompts")
    if isinstance(prompts, dict) and any(prompts.values()):
        notes.assume(f"no prompt is put before a text; there are prompts for {', '.join(map(str, prompts))}")
    return Recognised(
        "an embedder: a vector for a text",
        tuple(notes.known),
        tuple(notes.assumed),
        (Input("text", "text", bytes_max=100_000),),
        tuple(steps),
        (output,),
        {**source.files(), "tokenizer.json": source.folder / "tokenizer.json"},
        tuple({"text": text} for text in EXAMPLES),
    )


def _modules(source: Source, notes: Notes) -> dict[str, str]:
    """Kind of module -> its folder, in their order."""
    modules: dict[str, str] = {}
    for each in source.rows("modules.json"):
        written = str(each.get("type", "")) if isinstance(each, dict) else ""
        name = written.rpartition(".")[2]
        if name not in _MODULES:
            raise Unfit(f"modules.json names a module {name or 'without a type'}, for which there is no step")
        modules[name] = str(each.get("path", ""))
    if modules:
        notes.know(f"modules.json: {', '.join(modules)}")
    return modules


def _pooling(source: Source, modules: dict[str, str], notes: Notes) -> str:
    if not modules:
        notes.assume("a text's vector is the mean of its tokens' vectors")
        return "mean_pool"
    if "Pooling" not in modules:
        raise Unfit("modules.json names no Pooling, and the model answers with a vector for each token")
    file = f"{modules['Pooling']}/config.json"
    config = source.table(file)
    chosen = [key for key, on in config.items() if key.startswith("pooling_mode_") and on is True]
    if len(chosen) != 1 or chosen[0] not in _POOLING:
        raise Unfit(f"{file} says {', '.join(chosen) or 'no pooling'}: only the mean and the first token have a step")
    notes.know(f"{file}, {chosen[0]}: a text's vector is {_SAID[_POOLING[chosen[0]]]}")
    return _POOLING[chosen[0]]


def _named(source: Source, names: tuple[str, ...], axes: int) -> Value | None:
    return next(
        (
            value
            for name in names
            for value in source.facts.outputs
            if value.name == name and value.shape is not None and len(value.shape) == axes
        ),
        None,
    )


def _only(source: Source, axes: int) -> Value:
    found = [value for value in source.facts.outputs if value.shape is not None and len(value.shape) == axes]
    if len(found) != 1:
        raise Unfit(f"{len(found)} of its outputs have {axes} axes, as a vector for each token has")
    return found[0]
