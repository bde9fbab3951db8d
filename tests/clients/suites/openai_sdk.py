"""OpenAI's SDK and LangChain's embeddings over it: the pipelines that generate nothing, as OpenAI's clients see them."""

import asyncio
from functools import partial
from typing import Any

import openai
from langchain_openai import OpenAIEmbeddings
from tests.clients.checks import Served, Suite, near, refused, run, same, says
from tests.clients.expected import HIDDEN, LABELS, embedding, label_scores, tokens, tokens_whole

embeddings = Suite("openai", "embeddings")
models = Suite("openai", "models")
moderations = Suite("openai", "moderations")
errors = Suite("openai", "errors")
langchain = Suite("langchain-openai", "embeddings")

TEXTS = ["the small river sings", "why not", "green"]
ERROR_KEYS = {"message", "type", "param", "code"}


def client(served: Served, **named: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0, **named)


def vectors(answer: Any) -> list[list[float]]:
    same([each.index for each in answer.data], list(range(len(answer.data))))
    same({each.object for each in answer.data} | {answer.object}, {"embedding", "list"})
    return [list(each.embedding) for each in answer.data]


@embeddings("one text, in the SDK's own way: base64 on the wire")
def _(served: Served) -> None:
    answer = client(served).embeddings.create(model="embedder", input=TEXTS[0])
    near(vectors(answer)[0], embedding(TEXTS[0]))
    same(answer.model, "embedder")


@embeddings("several texts, in numbers on the wire")
def _(served: Served) -> None:
    answer = client(served).embeddings.create(model="embedder", input=TEXTS, encoding_format="float")
    for found, text in zip(vectors(answer), TEXTS, strict=True):
        near(found, embedding(text))


@embeddings("how many tokens it took, the special ones counted")
def _(served: Served) -> None:
    usage = client(served).embeddings.create(model="embedder", input=TEXTS).usage
    wanted = sum(len(tokens_whole(text)) for text in TEXTS)
    same((usage.prompt_tokens, usage.total_tokens), (wanted, wanted))


@embeddings("token ids in place of text: of one, and of several")
def _(served: Served) -> None:
    answer = client(served).embeddings.create(model="embedder", input=tokens(TEXTS[0]))
    near(vectors(answer)[0], embedding(TEXTS[0]))
    answer = client(served).embeddings.create(model="embedder", input=[tokens(text) for text in TEXTS])
    for found, text in zip(vectors(answer), TEXTS, strict=True):
        near(found, embedding(text))


@embeddings("fewer dimensions: the first ones, of length 1 again")
def _(served: Served) -> None:
    answer = client(served).embeddings.create(model="embedder", input=TEXTS[0], dimensions=3)
    near(vectors(answer)[0], embedding(TEXTS[0], 3))


@embeddings("what is harmless is accepted: a user's name")
def _(served: Served) -> None:
    near(vectors(client(served).embeddings.create(model="embedder", input="green", user="u-1"))[0], embedding("green"))


@embeddings("500 texts in one request, and 32 requests at the same time")
def _(served: Served) -> None:
    answer = client(served).embeddings.create(model="embedder", input=["green"] * 500)
    same(len(vectors(answer)), 500)

    async def many() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as asking:
            return await asyncio.gather(
                *(asking.embeddings.create(model="embedder", input=TEXTS[number % 3]) for number in range(32))
            )

    for number, answer in enumerate(asyncio.run(many())):
        near(vectors(answer)[0], embedding(TEXTS[number % 3]))


@models("the list, and one of it")
def _(served: Served) -> None:
    listed = {model.id: model for model in client(served).models.list()}
    same({"embedder", "ranker", "classifier"} <= set(listed), True)
    same((listed["embedder"].object, listed["embedder"].created > 0), ("model", True))
    same(client(served).models.retrieve("embedder"), listed["embedder"])


@models("one version, by the name that it has as a model")
def _(served: Served) -> None:
    same(client(served).models.retrieve("embedder:1").id, "embedder:1")
    near(vectors(client(served).embeddings.create(model="embedder:1", input=TEXTS[0]))[0], embedding(TEXTS[0]))
    refused(openai.NotFoundError, lambda: client(served).models.retrieve("embedder:9"))


@moderations("one text: each label's score, and what is flagged")
def _(served: Served) -> None:
    answer = client(served).moderations.create(model="classifier", input="hurt the river")
    [result] = answer.results
    scores = result.category_scores.model_dump(by_alias=True)
    wanted = label_scores("hurt the river")
    near([scores[label] for label in LABELS], [wanted[label] for label in LABELS])
    flags = result.categories.model_dump(by_alias=True)
    same({label: flags[label] for label in LABELS}, {label: wanted[label] >= 0.5 for label in LABELS})
    same(result.flagged, any(score >= 0.5 for score in wanted.values()))


@moderations("several texts, in their order")
def _(served: Served) -> None:
    answer = client(served).moderations.create(model="classifier", input=TEXTS)
    found = [result.category_scores.violence for result in answer.results]
    near(found, [label_scores(text)["violence"] for text in TEXTS])


def fails(kind: type[openai.APIStatusError], code: str, words: tuple[str, ...], act: Any) -> None:
    error = refused(kind, act)
    same((set(error.body) >= ERROR_KEYS, error.code), (True, code))
    says(error.message, *words)
    same(bool(error.request_id), True)


@errors("a model that is not there")
def _(served: Served) -> None:
    ask = client(served)
    for act in (
        lambda: ask.embeddings.create(model="embeder", input="green"),
        lambda: ask.models.retrieve("embeder"),
        lambda: ask.moderations.create(model="embeder", input="green"),
    ):
        fails(openai.NotFoundError, "model_not_found", ("embeder",), act)


@errors("a model that does something else")
def _(served: Served) -> None:
    error = refused(openai.APIStatusError, lambda: client(served).embeddings.create(model="simple", input="green"))
    same(error.status_code in (400, 404), True)
    says(error.message, "model", "embed")


@errors("no input, too many dimensions, an id outside the vocabulary, an unknown field with the one that was meant")
def _(served: Served) -> None:
    ask = client(served).embeddings
    bad: list[tuple[tuple[str, ...], dict[str, Any]]] = [
        (("input",), {"input": []}),
        (("input",), {"input": ""}),
        (("dimensions",), {"input": "green", "dimensions": HIDDEN + 1}),
        (("input", "13"), {"input": [1, 9999]}),
        (("dimensions",), {"input": "green", "extra_body": {"dimension": 3}}),
    ]
    for words, named in bad:
        error = refused(openai.BadRequestError, partial(ask.create, model="embedder", **named))
        says(error.message, *words)
        same(error.type, "invalid_request_error")


@errors("what is generated is not served here, and says so")
def _(served: Served) -> None:
    messages: Any = [{"role": "user", "content": "hi"}]
    refused(openai.NotFoundError, lambda: client(served).chat.completions.create(model="embedder", messages=messages))


@langchain("documents and a query, at once and asynchronously")
def _(served: Served) -> None:
    made = OpenAIEmbeddings(
        model="embedder", base_url=f"{served.url}/v1", api_key="none", check_embedding_ctx_length=False
    )
    for found, text in zip(made.embed_documents(TEXTS), TEXTS, strict=True):
        near(found, embedding(text))
    near(made.embed_query("green"), embedding("green"))
    near(asyncio.run(made.aembed_query("why not")), embedding("why not"))


@langchain("fewer dimensions, and a model that is not there")
def _(served: Served) -> None:
    named: dict[str, Any] = {"base_url": f"{served.url}/v1", "api_key": "none", "check_embedding_ctx_length": False}
    near(OpenAIEmbeddings(model="embedder", dimensions=3, **named).embed_query("green"), embedding("green", 3))
    refused(openai.NotFoundError, lambda: OpenAIEmbeddings(model="embeder", **named).embed_query("green"))


if __name__ == "__main__":
    run(embeddings, models, moderations, errors, langchain)
