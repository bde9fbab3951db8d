"""Text models as model hubs keep them: config.json, tokenizer.json and an ONNX export of it."""

from typing import Any

from forwardpass.core.pipeline import Input, Step
from forwardpass.pipeline.onnx_facts import Value
from forwardpass.pipeline.recognise import labels
from forwardpass.pipeline.recognise.embedders import embedder, is_embedder
from forwardpass.pipeline.recognise.recognised import Notes, Placed, Recognised
from forwardpass.pipeline.recognise.source import Source, Unfit
from forwardpass.pipeline.recognise.tokens import EXAMPLES, architecture, model_step, tokenize_step

_PAIRS = (
    {"query": "how long is the river", "document": "The river is 300 kilometres long."},
    {"query": "how long is the river", "document": "Small green letters sing."},
)


def text_model(source: Source) -> Recognised | None:
    """A classifier of texts, of pairs or of tokens, or an embedder. Raises Unfit."""
    config = source.table("config.json")
    kind = architecture(config)
    names = {value.name for value in source.facts.inputs}
    if "input_ids" not in names or not (kind or source.has("tokenizer.json")):
        return None
    if not source.has("tokenizer.json"):
        raise Unfit(f"config.json says {kind}, and there is no tokenizer.json beside it")
    if is_embedder(source, kind):
        return embedder(source, config, kind)
    if kind.endswith("ForSequenceClassification"):
        return _classifier(source, config, kind)
    if kind.endswith("ForTokenClassification"):
        return _token_classifier(source, config, kind)
    if not kind:
        raise Unfit("there is a tokenizer.json, and no config.json that says what the model does (architectures)")
    raise Unfit(f"config.json says {kind}: only classifiers and embedders of texts are known")


def _classifier(source: Source, config: dict[str, Any], kind: str) -> Recognised:
    notes = Notes()
    notes.know(f"config.json, architectures: {kind}")
    logits = _logits(source, 2)
    names = _labels(config, logits, notes)
    if len(names) == 1:
        if config.get("problem_type") == "regression":
            return _regressor(source, config, logits, notes)
        return _cross_encoder(source, config, logits, notes)
    if config.get("problem_type") == "regression":
        raise Unfit(f"config.json says regression, and the model has {len(names)} outputs")
    several = config.get("problem_type") == "multi_label_classification"
    if several:
        notes.know("config.json, problem_type: multi_label_classification, each label by itself")
    elif config.get("problem_type") == "single_label_classification":
        notes.know("config.json, problem_type: single_label_classification, one label of all")
    else:
        notes.assume("one label of all is right (config.json has no problem_type)")
    named, files = labels.written(names)
    if several:
        notes.assume("a label counts from a score of 0.5 on")
        answered = Placed(Step("label_set", {**named, "score_min": 0.5}), ("every label that is likely enough",))
    else:
        answered = Placed(Step("labels", {**named, "top": 1}))
    steps = (
        tokenize_step(source, config, notes, {}),
        model_step(source),
        Placed(Step("sigmoid" if several else "softmax", {"input": logits.name})),
        answered,
    )
    return Recognised(
        "a classifier of texts",
        tuple(notes.known),
        tuple(notes.assumed),
        (Input("text", "text", bytes_max=100_000),),
        steps,
        ("labels", "scores") if several else ("label", "score"),
        {**_files(source), **files},
        tuple({"text": text} for text in EXAMPLES),
    )


def _regressor(source: Source, config: dict[str, Any], logits: Value, notes: Notes) -> Recognised:
    """A number for a text, as the model gives it."""
    notes.know("config.json, problem_type: regression, one number")
    steps = (
        tokenize_step(source, config, notes, {}),
        model_step(source),
        Placed(Step("take", {"input": logits.name, "index": 0, "output": "value"})),
    )
    return Recognised(
        "a regressor of texts: a number for a text",
        tuple(notes.known),
        tuple(notes.assumed),
        (Input("text", "text", bytes_max=100_000),),
        steps,
        ("value",),
        _files(source),
        tuple({"text": text} for text in EXAMPLES),
    )


def _cross_encoder(source: Source, config: dict[str, Any], logits: Value, notes: Notes) -> Recognised:
    """One score of a pair. Its activation is where sentence-transformers keeps it."""
    notes.assume("the one score is that of a pair, a query and a document; for single texts leave pair out")
    kept = config.get("sentence_transformers")
    written = (
        kept.get("activation_fn") if isinstance(kept, dict) else config.get("sbert_ce_default_activation_function")
    )
    activation = str(written or "")
    if activation:
        notes.know(f"config.json, activation of the score: {activation.rpartition('.')[2]}")
    else:
        notes.assume("the score goes through a sigmoid, as sentence-transformers does it where nothing is said")
    if activation and not activation.endswith(("Identity", "Sigmoid")):
        raise Unfit(f"config.json names the activation {activation}, for which there is no step")
    steps = [
        tokenize_step(source, config, notes, {"input": "query", "pair": "document"}),
        model_step(source),
    ]
    if not activation.endswith("Identity"):
        steps.append(Placed(Step("sigmoid", {"input": logits.name})))
    last = logits.name if activation.endswith("Identity") else "probabilities"
    steps.append(Placed(Step("take", {"input": last, "index": 0, "output": "score"})))
    return Recognised(
        "a cross-encoder: a score for a query and a document",
        tuple(notes.known),
        tuple(notes.assumed),
        (Input("query", "text", bytes_max=100_000), Input("document", "text", bytes_max=100_000)),
        tuple(steps),
        ("score",),
        _files(source),
        _PAIRS,
    )


def _token_classifier(source: Source, config: dict[str, Any], kind: str) -> Recognised:
    notes = Notes()
    notes.know(f"config.json, architectures: {kind}")
    logits = _logits(source, 3)
    named, files = labels.written(_labels(config, logits, notes))
    notes.assume('the tokens of a word take the label of its first one (aggregate = "first")')
    steps = (
        tokenize_step(source, config, notes, {"offsets": "offsets", "words": "words"}),
        model_step(source),
        Placed(Step("softmax", {"input": logits.name})),
        Placed(Step("spans", {"input": "probabilities", "words": "words", **named, "aggregate": "first"})),
    )
    return Recognised(
        "a classifier of tokens, which finds pieces of a text",
        tuple(notes.known),
        tuple(notes.assumed),
        (Input("text", "text", bytes_max=100_000),),
        steps,
        ("spans",),
        {**_files(source), **files},
        tuple({"text": text} for text in EXAMPLES),
    )


def _logits(source: Source, axes: int) -> Value:
    """The output with the scores: by its name, or as the only one."""
    outputs = source.facts.outputs
    named = [value for value in outputs if value.name == "logits"] or (list(outputs) if len(outputs) == 1 else [])
    if not named:
        raise Unfit(f"none of its outputs ({', '.join(value.name for value in outputs)}) is named logits")
    (found,) = named
    if found.datatype not in ("FP32", "FP16") or found.shape is None or len(found.shape) != axes:
        raise Unfit(f"its output {found.name} is {found.datatype} {found.shape}; {axes} axes of FP32 were expected")
    return found


def _labels(config: dict[str, Any], logits: Value, notes: Notes) -> list[str]:
    names = labels.of_config(config)
    size = logits.shape[-1] if logits.shape else -1
    if not names:
        raise Unfit("config.json has no id2label that names every class")
    if size not in (-1, len(names)):
        raise Unfit(f"config.json names {len(names)} classes, and the model has {size}")
    notes.know(f"config.json, id2label: {', '.join(names[:6])}{', …' if len(names) > 6 else ''}")
    return names


def _files(source: Source) -> dict[str, Any]:
    return {**source.files(), "tokenizer.json": source.folder / "tokenizer.json"}
