"""What the text families share: how many tokens a model takes, and the steps before its answer."""

from typing import Any

from forwardpass.core.pipeline import Step
from forwardpass.pipeline.recognise.recognised import Notes, Placed
from forwardpass.pipeline.recognise.source import Source, Unfit, whole

EXAMPLES = ("The small green river sings because every letter is right.", "Why not? It was broken on Tuesday.")
_TOKENIZED = ("input_ids", "attention_mask", "token_type_ids")
_FROM_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer", "data2vec-text", "xlm-roberta-xl")
"""Model types that count positions from the padding id on, so that so many fewer tokens fit."""
_TOKENS_MAX = 512
_TOKENS_LEAST = 2
_TOKENS_MOST = 1_000_000  # what tokenizers write for "no limit" is far more


def architecture(config: dict[str, Any]) -> str:
    """The first of ``architectures``, or ""."""
    found = config.get("architectures")
    return found[0] if isinstance(found, list) and found and isinstance(found[0], str) else ""


def tokenize_step(source: Source, config: dict[str, Any], notes: Notes, options: dict[str, Any]) -> Placed:
    """Raises Unfit when the model takes what tokenize does not make."""
    for value in source.facts.inputs:
        if value.name not in _TOKENIZED:
            raise Unfit(f"the model also takes {value.name}, which no step makes")
        if value.datatype != "INT64" or value.shape is None or len(value.shape) != 2:
            raise Unfit(f"its input {value.name} is {value.datatype} {value.shape}; INT64 [rows, tokens] is made")
    limits = {
        "sentence_bert_config.json, max_seq_length": whole(
            source.table("sentence_bert_config.json").get("max_seq_length"), _TOKENS_LEAST, _TOKENS_MOST
        ),
        "tokenizer_config.json, model_max_length": whole(
            source.table("tokenizer_config.json").get("model_max_length"), _TOKENS_LEAST, _TOKENS_MOST
        ),
        "config.json, max_position_embeddings": _positions(config),
        "the model's own shape": next(
            (value.shape[1] for value in source.facts.inputs if value.shape and value.shape[1] > 0), None
        ),
    }
    known = {where: limit for where, limit in limits.items() if limit is not None}
    where, tokens_max = min(known.items(), key=lambda each: each[1], default=("", _TOKENS_MAX))
    if where == "the model's own shape":
        raise Unfit(f"the model takes exactly {tokens_max} tokens: export it with a free length")
    why = f"{where}: at most {tokens_max} tokens" if where else f"at most {tokens_max} tokens: nothing says how many"
    (notes.know if where else notes.assume)(why)
    notes.assume('a longer text is cut and its answer says so (overflow = "truncate")')
    return Placed(Step("tokenize", {**options, "tokenizer": "tokenizer.json", "tokens_max": tokens_max}))


def model_step(source: Source) -> Placed:
    return Placed(Step("model", {"engine": "onnxruntime", "file": source.model.name}))


def _positions(config: dict[str, Any]) -> int | None:
    positions = whole(config.get("max_position_embeddings"), _TOKENS_LEAST, _TOKENS_MOST)
    if positions is None or config.get("model_type") not in _FROM_PADDING:
        return positions
    return positions - (whole(config.get("pad_token_id"), 0) or 0) - 1
