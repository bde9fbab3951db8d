"""Keys as the SDKs of OpenAI, Cohere and Hugging Face send them, at a server that wants one."""

from functools import partial
from pathlib import Path

import cohere
import openai
from cohere.core.api_error import ApiError
from huggingface_hub import InferenceClient
from tests.clients.checks import Served, Suite, near, refused, run, same, says
from tests.clients.expected import embedding

of_openai = Suite("openai", "keys")
of_cohere = Suite("cohere", "keys")
of_hugging_face = Suite("huggingface_hub", "keys")

TEXT = "the small river sings"


def url(served: Served) -> str:
    return f"http://{served.alone['keyed']}"


def key(served: Served) -> str:
    return Path(served.folder, "key").read_text().strip()


@of_openai("the right key is let in, and sees what it may ask")
def _(served: Served) -> None:
    client = openai.OpenAI(base_url=f"{url(served)}/v1", api_key=key(served), max_retries=0)
    near(list(client.embeddings.create(model="embedder", input=TEXT).data[0].embedding), embedding(TEXT))
    same([model.id for model in client.models.list()], ["embedder"])


@of_openai("a wrong key and a pipeline that is somebody else's: the client's own exceptions, readable")
def _(served: Served) -> None:
    wrong = openai.OpenAI(base_url=f"{url(served)}/v1", api_key="wrong", max_retries=0)
    error = refused(openai.AuthenticationError, lambda: wrong.embeddings.create(model="embedder", input=TEXT))
    says(error, "not accepted")
    client = openai.OpenAI(base_url=f"{url(served)}/v1", api_key=key(served), max_retries=0)
    error = refused(openai.PermissionDeniedError, lambda: client.embeddings.create(model="ranker", input=TEXT))
    says(error, "infer:ranker")


@of_cohere("a key that may not ask a ranker is told so, and a wrong one too")
def _(served: Served) -> None:
    for given, status in ((key(served), 403), ("wrong", 401)):
        with cohere.ClientV2(given, base_url=url(served)) as client:
            error = refused(ApiError, partial(client.rerank, model="ranker", query=TEXT, documents=[TEXT]))
            same(error.status_code, status)


@of_hugging_face("its token is read")
def _(served: Served) -> None:
    client = InferenceClient(base_url=f"{url(served)}/embed", token=key(served))
    near([float(each) for each in client.feature_extraction(TEXT)[0]], embedding(TEXT))


if __name__ == "__main__":
    run(of_openai, of_cohere, of_hugging_face)
