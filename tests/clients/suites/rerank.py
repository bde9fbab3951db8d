"""Rerank and embed as Cohere's SDK, Jina's and text-embeddings-inference's (TEI) clients ask for them."""

from collections.abc import Sequence
from typing import Any

import cohere
import httpx
from cohere.core.api_error import ApiError
from huggingface_hub import InferenceClient
from tests.clients.checks import Served, Suite, near, refused, run, same, says
from tests.clients.expected import LABELS, embedding, label_scores, ranking

of_cohere = Suite("cohere", "rerank")
of_jina = Suite("Jina-shaped", "rerank")
of_tei = Suite("TEI-shaped", "rerank, embed, predict")
of_hugging_face = Suite("huggingface_hub", "feature extraction")

QUERY = "the small river"
DOCUMENTS = ["why not", "the green river sings", "the small river", "kill hurt"]


def ordered(results: Sequence[Any], best: int = len(DOCUMENTS)) -> None:
    """The best first, their scores between 0 and 1 and never rising."""
    same([each["index"] for each in results], ranking(QUERY, DOCUMENTS)[:best])
    scores = [each["relevance_score"] for each in results]
    same((scores == sorted(scores, reverse=True), all(0 <= score <= 1 for score in scores)), (True, True))


def plain(results: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"index": each.index, "relevance_score": each.relevance_score} for each in results]


@of_cohere("all documents, the best first")
def _(served: Served) -> None:
    with cohere.ClientV2("none", base_url=served.url) as client:
        ordered(plain(client.rerank(model="ranker", query=QUERY, documents=DOCUMENTS).results))


@of_cohere("the best two")
def _(served: Served) -> None:
    with cohere.ClientV2("none", base_url=served.url) as client:
        answer = client.rerank(model="ranker", query=QUERY, documents=DOCUMENTS, top_n=2)
        ordered(plain(answer.results), 2)
        same(bool(answer.id), True)


@of_cohere("a model that is not there, no documents, a number too many: the client's own exceptions, readable")
def _(served: Served) -> None:
    with cohere.ClientV2("none", base_url=served.url) as client:
        error = refused(cohere.NotFoundError, lambda: client.rerank(model="renker", query=QUERY, documents=DOCUMENTS))
        says(error.body, "renker")
        error = refused(cohere.BadRequestError, lambda: client.rerank(model="ranker", query=QUERY, documents=[]))
        says(error.body, "documents")
        error = refused(ApiError, lambda: client.rerank(model="ranker", query=QUERY, documents=DOCUMENTS, top_n=0))
        same(error.status_code, 400)
        says(error.body, "top_n")


def posted(url: str, body: object) -> httpx.Response:
    return httpx.post(url, json=body, timeout=30)


@of_jina("documents as text and as objects; their text comes back where it is asked for")
def _(served: Served) -> None:
    asked = {"model": "ranker", "query": QUERY, "documents": DOCUMENTS, "top_n": 3}
    answer = posted(f"{served.url}/v1/rerank", asked).json()
    ordered(answer["results"], 3)
    same((answer["model"], answer["usage"]["total_tokens"] > 0), ("ranker", True))
    objects = [{"text": document} for document in DOCUMENTS]
    answer = posted(f"{served.url}/v1/rerank", {**asked, "documents": objects, "return_documents": True}).json()
    ordered(answer["results"], 3)
    same(
        [each["document"]["text"] for each in answer["results"]],
        [DOCUMENTS[each["index"]] for each in answer["results"]],
    )


@of_jina("an unknown field is refused with the one that was meant; a wrong model is not found")
def _(served: Served) -> None:
    asked = {"model": "ranker", "query": QUERY, "documents": DOCUMENTS}
    answer = posted(f"{served.url}/v1/rerank", {**asked, "topn": 3})
    same(answer.status_code, 400)
    says(answer.text, "topn", "top_n")
    same(posted(f"{served.url}/v1/rerank", {**asked, "model": "renker"}).status_code, 404)


@of_tei("rerank: a bare list, the best first, texts where they are asked for")
def _(served: Served) -> None:
    asked = {"query": QUERY, "texts": DOCUMENTS}
    url = f"http://{served.alone['ranker']}/rerank"
    answer = posted(url, asked).json()
    ordered([{"index": each["index"], "relevance_score": each["score"]} for each in answer])
    same("text" in answer[0], False)
    answer = posted(url, {**asked, "return_text": True, "truncate": True}).json()
    same([each["text"] for each in answer], [DOCUMENTS[each["index"]] for each in answer])


@of_tei("embed: one and several, of length 1 or not, fewer dimensions")
def _(served: Served) -> None:
    url = f"http://{served.alone['embedder']}/embed"
    near(posted(url, {"inputs": QUERY}).json()[0], embedding(QUERY))
    answer = posted(url, {"inputs": DOCUMENTS, "truncate": True, "normalize": True}).json()
    for found, text in zip(answer, DOCUMENTS, strict=True):
        near(found, embedding(text))
    near(posted(url, {"inputs": QUERY, "dimensions": 3}).json()[0], embedding(QUERY, 3))


@of_tei("predict: every label with its score, the best first")
def _(served: Served) -> None:
    answer = posted(f"http://{served.alone['classifier']}/predict", {"inputs": QUERY}).json()
    wanted = label_scores(QUERY)
    same([each["label"] for each in answer], sorted(LABELS, key=lambda label: -wanted[label]))
    near([each["score"] for each in answer], sorted(wanted.values(), reverse=True))


@of_tei("errors in its own shape")
def _(served: Served) -> None:
    answer = posted(f"http://{served.alone['embedder']}/embed", {"inputs": []})
    same((answer.status_code // 100, set(answer.json()) >= {"error", "error_type"}), (4, True))
    same(answer.json()["error_type"] in ("validation", "empty"), True)
    answer = posted(f"http://{served.alone['ranker']}/rerank", {"query": QUERY, "text": DOCUMENTS})
    says(answer.text, "texts")


@of_hugging_face("one text, over TEI's embed")
def _(served: Served) -> None:
    client = InferenceClient(f"http://{served.alone['embedder']}/embed")
    near(client.feature_extraction(QUERY).ravel().tolist(), embedding(QUERY))


@of_hugging_face("the server's bare address, as a model of its own: embed and classify")
def _(served: Served) -> None:
    client = InferenceClient(f"http://{served.alone['embedder']}")
    found = client.feature_extraction(QUERY, normalize=True, truncate=True, truncation_direction="right")
    near(found.ravel().tolist(), embedding(QUERY))
    wanted = label_scores(QUERY)
    best: Any = InferenceClient(f"http://{served.alone['classifier']}").text_classification(QUERY)
    same(best["label"], max(wanted, key=lambda label: wanted[label]))  # it takes the first for all


@of_tei("the bare address ranks too")
def _(served: Served) -> None:
    answer = posted(f"http://{served.alone['ranker']}/", {"query": QUERY, "texts": DOCUMENTS}).json()
    ordered([{"index": each["index"], "relevance_score": each["score"]} for each in answer])


@of_cohere("what its client may also say: a bound on tokens that no document reaches, a priority")
def _(served: Served) -> None:
    with cohere.ClientV2("none", base_url=served.url) as client:
        answer = client.rerank(model="ranker", query=QUERY, documents=DOCUMENTS, max_tokens_per_doc=4096, priority=1)
        ordered(plain(answer.results))


if __name__ == "__main__":
    run(of_cohere, of_jina, of_tei, of_hugging_face)
