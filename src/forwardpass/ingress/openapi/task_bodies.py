"""Bodies of the APIs that name a task, not a pipeline's own inputs: OpenAI's, Cohere's and TEI's."""

from collections.abc import Callable, Sequence

from forwardpass.ingress.dialects import openai_embeddings, openai_moderations, rerank
from forwardpass.ingress.dialects.task_body import TEXTS_MAX
from forwardpass.ingress.openapi.served import Content, Schema, Served, list_of, object_of

_TEXT: Schema = {"type": "string", "minLength": 1}
_NUMBER: Schema = {"type": "number"}
_ELEMENT: Schema = {"anyOf": [_NUMBER, {"type": "null"}], "description": "null where it is no finite number"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_TRUTH: Schema = {"type": "boolean"}
_CUT: dict[str, Schema] = {
    "truncate": {"type": ["boolean", "null"], "description": "false: what would be cut is refused"},
    "truncation_direction": {"enum": ["left", "right", "Left", "Right", None]},
}
_ANY: Schema = {"description": "accepted and without effect"}
_USAGE = object_of({"prompt_tokens": _COUNT, "total_tokens": _COUNT})
_SENTENCE = "The quick brown fox jumps over the lazy dog."
_DOCUMENTS = ["A fox is an animal.", "Paris is a city."]


def embeddings_body(subjects: Sequence[Served]) -> Content:
    members = {
        "input": _texts_or_ids(subjects),
        "encoding_format": {"enum": ["float", "base64", None]},
        **_dimensions(subjects),
    }
    return _json(_named(members, subjects, openai_embeddings.HARMLESS), _for(subjects, {"input": _SENTENCE}))


def embeddings_answer(subjects: Sequence[Served]) -> Content:
    vector: Schema = {"anyOf": [list_of(_ELEMENT), {"type": "string", "contentEncoding": "base64"}]}
    each = object_of({"object": {"const": "embedding"}, "index": _COUNT, "embedding": vector})
    members = {"object": {"const": "list"}, "data": list_of(each), "model": _TEXT, "usage": _USAGE}
    return _json(object_of(members))


def moderations_body(subjects: Sequence[Served]) -> Content:
    url = object_of({"url": {"type": "string", "description": "data:image/TYPE;base64,…; nothing is fetched"}})
    text = object_of({"type": {"const": "text"}, "text": _TEXT})
    picture = object_of({"type": {"const": "image_url"}, "image_url": url})
    several = list_of({"anyOf": [_TEXT, text, picture]}, minItems=1, maxItems=TEXTS_MAX)
    members = {"input": {"anyOf": [_TEXT, several]}}
    return _json(_named(members, subjects, openai_moderations.HARMLESS), _for(subjects, {"input": _SENTENCE}))


def moderations_answer(subjects: Sequence[Served]) -> Content:
    result = object_of(
        {
            "flagged": _TRUTH,
            "categories": {"type": "object", "additionalProperties": _TRUTH},
            "category_scores": {"type": "object", "additionalProperties": _NUMBER},
            "category_applied_input_types": {"type": "object", "additionalProperties": list_of(_TEXT)},
        }
    )
    return _json(object_of({"id": _TEXT, "model": _TEXT, "results": list_of(result)}))


def rerank_body(subjects: Sequence[Served]) -> Content:
    return _json(_named(_ranked(), subjects, rerank.HARMLESS), _for(subjects, _ASKED))


def cohere_rerank_body(subjects: Sequence[Served]) -> Content:
    return _json(_named(_ranked(), subjects, rerank.COHERE_HARMLESS), _for(subjects, _ASKED))


def rerank_answer(subjects: Sequence[Served]) -> Content:
    members = {"object": {"const": "list"}, "model": _TEXT, "usage": _USAGE}
    return _json(object_of({"id": _TEXT, **members, "results": _results(), "meta": {"type": "object"}}))


def cohere_rerank_answer(subjects: Sequence[Served]) -> Content:
    return _json(object_of({"id": _TEXT, "results": _results(), "meta": {"type": "object"}}))


def tei_rerank_body(subjects: Sequence[Served]) -> Content:
    texts = list_of({"type": "string"}, minItems=1, maxItems=TEXTS_MAX)
    flags = {"raw_scores": _optional("boolean"), "return_text": _optional("boolean"), **_CUT}
    asked = {"query": "What is a fox?", "texts": _DOCUMENTS}
    return _json(object_of({"query": _TEXT, "texts": texts, **flags}, tuple(flags)), asked)


def tei_rerank_answer(subjects: Sequence[Served]) -> Content:
    return _json(list_of(object_of({"index": _COUNT, "text": {"type": "string"}, "score": _NUMBER}, ("text",))))


def tei_embed_body(subjects: Sequence[Served]) -> Content:
    options = {"normalize": _optional("boolean"), **_CUT, **_dimensions(subjects)}
    return _json(object_of({"inputs": _texts_or_ids(subjects), **options}, tuple(options)), {"inputs": _SENTENCE})


def tei_embed_answer(subjects: Sequence[Served]) -> Content:
    return _json(list_of(list_of(_ELEMENT)))


def tei_predict_body(subjects: Sequence[Served]) -> Content:
    one = list_of(_TEXT, minItems=1, maxItems=1)
    inputs: Schema = {"anyOf": [_TEXT, one, list_of(one, minItems=1, maxItems=TEXTS_MAX)]}
    empty: Schema = {"type": ["object", "null"], "maxProperties": 0}
    options = {"raw_scores": {"enum": [False, None]}, "parameters": empty, **_CUT}
    return _json(object_of({"inputs": inputs, **options}, tuple(options)), {"inputs": _SENTENCE})


def tei_predict_answer(subjects: Sequence[Served]) -> Content:
    scores = list_of(object_of({"label": {"type": "string"}, "score": _NUMBER}))
    return _json({"anyOf": [scores, list_of(scores)]})


def tei_any_body(subjects: Sequence[Served]) -> Content:
    return _either(subjects, (tei_embed_body, tei_rerank_body, tei_predict_body))


def tei_any_answer(subjects: Sequence[Served]) -> Content:
    return _either(subjects, (tei_embed_answer, tei_rerank_answer, tei_predict_answer))


def _either(subjects: Sequence[Served], contents: Sequence[Callable[[Sequence[Served]], Content]]) -> Content:
    """One of an embedder's, a ranker's and a classifier's, each of those that there are."""
    schemas: list[Schema] = []
    for tasks, content in zip((("embed",), ("rank", "embed"), ("classify",)), contents, strict=True):
        able = [each for each in subjects if each.signature.task is not None and each.signature.task.kind in tasks]
        schemas += [content(able)["application/json"]["schema"]] if able else []
    return _json({"anyOf": schemas})


_ASKED: Schema = {"query": "What is a fox?", "documents": _DOCUMENTS}


def _ranked() -> dict[str, Schema]:
    documents = list_of({"anyOf": [{"type": "string"}, object_of({"text": {"type": "string"}})]})
    return {
        "query": _TEXT,
        "documents": {**documents, "minItems": 1, "maxItems": TEXTS_MAX},
        "top_n": {"type": ["integer", "null"], "minimum": 1},
        "return_documents": _optional("boolean"),
        "truncation": _optional("boolean"),
        "max_tokens_per_doc": {"type": ["integer", "null"], "minimum": 1},
    }


def _results() -> Schema:
    document = object_of({"text": {"type": "string"}})
    return list_of(object_of({"index": _COUNT, "relevance_score": _NUMBER, "document": document}, ("document",)))


def _texts_or_ids(subjects: Sequence[Served]) -> Schema:
    forms = [_TEXT, list_of(_TEXT, minItems=1, maxItems=TEXTS_MAX)]
    if any(served.signature.token_inputs for served in subjects):
        ids = list_of(_COUNT, minItems=1)
        forms += [ids, list_of(ids, minItems=1, maxItems=TEXTS_MAX)]
    return {"anyOf": forms, "description": "one text or several; token ids where the pipeline has a tokenizer"}


def _dimensions(subjects: Sequence[Served]) -> dict[str, Schema]:
    """How long the vectors of any of these are, or may be cut to."""
    lengths: set[int] = set()
    for served in subjects:
        task = served.signature.task
        assert task is not None, "these are the versions with the task"
        full = [output.shape[0] for output in served.signature.outputs if output.name == task.output and output.shape]
        lengths |= {*task.dimensions, *[length for length in full if length > 0]}
    return {"dimensions": {"enum": [*sorted(lengths), None]}}


def _optional(kind: str) -> Schema:
    return {"type": [kind, "null"]}


def _named(members: dict[str, Schema], subjects: Sequence[Served], harmless: Sequence[str]) -> Schema:
    """With the pipeline's name, which may be left out where only one has the task; what is required is told by names."""
    names = [name for served in subjects for name in served.names]
    whole = {"model": {"enum": names}, **members, **dict.fromkeys(harmless, _ANY)}
    required = {"input", "query", "documents"} | ({"model"} if len({each.pipeline for each in subjects}) > 1 else set())
    return object_of(whole, tuple(name for name in whole if name not in required))


def _for(subjects: Sequence[Served], asked: Schema) -> Schema:
    return {"model": subjects[0].pipeline, **asked}


def _json(schema: Schema, example: Schema | None = None) -> Content:
    media: Schema = {"schema": schema}
    if example is not None:
        media["examples"] = {"made_up": {"summary": "made up", "value": example}}
    return {"application/json": media}
