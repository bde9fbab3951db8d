"""What the document says of every endpoint of the route table, beside what the table says itself."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forwardpass.core.pipeline import TaskKind
from forwardpass.ingress.openapi import infer_bodies as infer
from forwardpass.ingress.openapi import server_bodies as server
from forwardpass.ingress.openapi import task_bodies as task
from forwardpass.ingress.openapi.parameters import INFER, RECEIPT, TURN
from forwardpass.ingress.openapi.served import Content, Schema, Served

ContentOf = Callable[[Sequence[Served]], Content]
"""A body as these versions take or give it: of a path of its own one, else all that may be asked there."""


@dataclass(frozen=True, slots=True)
class Operation:
    """``apart``: each pipeline has a path of its own in the document, as its signature decides the bodies.

    ``tasks``: only versions with one of these are asked there, ``sequences``: only those that have such. A GET has no
    body, though the endpoint takes one elsewhere.
    """

    answer: ContentOf | None  # None: it only refuses
    body: ContentOf | None = None
    body_required: bool = True
    apart: bool = False
    tasks: tuple[TaskKind, ...] = ()
    sequences: bool = False
    parameters: tuple[str, ...] = ()

    def asks(self, served: Served) -> bool:
        """Whether this version can be asked there."""
        task = served.signature.task
        able = not self.tasks or (task is not None and task.kind in self.tasks)
        return able and (not self.sequences or served.definition.sequence is not None)


def _always(content: Content) -> ContentOf:
    return lambda subjects: content


def _says(content: Content) -> Operation:
    return Operation(_always(content))


def _apart(body: ContentOf, answer: ContentOf, *parameters: str) -> Operation:
    return Operation(answer, body, apart=True, parameters=parameters)


def _task(body: ContentOf, answer: ContentOf, *tasks: TaskKind) -> Operation:
    return Operation(answer, body, tasks=tasks, parameters=INFER)


def _told(asked: Content, answer: Content, *, required: bool = False) -> Operation:
    return Operation(_always(answer), _always(asked), body_required=required)


def _events(subjects: Sequence[Served]) -> Content:
    data: Schema = {"type": "string", "contentMediaType": "application/json"}
    event: Schema = {"type": "object", "properties": {"data": data}, "required": ["data"]}
    return {"text/event-stream; charset=utf-8": {"schema": {**event, "description": "each server-sent event"}}}


OPERATIONS: dict[str, Operation] = {
    "predict": _apart(infer.predict_body, infer.predict_answer, *RECEIPT, *TURN),
    "end_sequence": Operation(
        _always(server.NOTHING), apart=True, sequences=True, parameters=("deadline", "sequence_ended")
    ),
    "v2_infer": _apart(infer.infer_body, infer.infer_answer, *RECEIPT),
    "generate": _apart(infer.generate_body, infer.generate_answer, *RECEIPT),
    "generate_stream": _apart(infer.generate_body, _events, "deadline", "priority", "priority_class", "receipt"),
    "kserve_v1_predict": _apart(infer.kserve_body, infer.predictions, *RECEIPT, *TURN),
    "invocations": Operation(
        infer.invocations_answer, infer.invocations_body, apart=True, parameters=(*RECEIPT, *TURN, "target_model")
    ),
    "openai_embeddings": _task(task.embeddings_body, task.embeddings_answer, "embed"),
    "openai_moderations": _task(task.moderations_body, task.moderations_answer, "classify"),
    "rerank": _task(task.rerank_body, task.rerank_answer, "rank", "embed"),
    "cohere_rerank": _task(task.cohere_rerank_body, task.cohere_rerank_answer, "rank", "embed"),
    "tei_rerank": _task(task.tei_rerank_body, task.tei_rerank_answer, "rank", "embed"),
    "tei_embed": _task(task.tei_embed_body, task.tei_embed_answer, "embed"),
    "tei_predict": _task(task.tei_predict_body, task.tei_predict_answer, "classify"),
    "tei_any": _task(task.tei_any_body, task.tei_any_answer, "embed", "rank", "classify"),
    "tei_info": Operation(_always(server.TEI_INFO), tasks=("embed", "rank", "classify")),
    "openai_models": _says(server.OPENAI_MODELS),
    "openai_model": _says(server.OPENAI_MODEL),
    "live": _says(server.LIVE),
    "ready": _says(server.READY),
    "server_metadata": _says(server.SERVER),
    "models": _says(server.MODELS),
    "model_metadata": _says(server.METADATA),
    "model_ready": _says(server.MODEL_READY),
    "batches": _says(server.BATCHES),
    "statistics": _says(server.STATISTICS),
    "model_config": _says(server.CONFIG),
    "repository_index": _told(server.INDEX_ASKED, server.INDEX),
    "repository_load": _told(server.LOAD_ASKED, server.LOADED),
    "repository_unload": _told(server.UNLOAD_ASKED, server.UNLOADED),
    "other_repository": Operation(None),
    "log_settings": _told(server.LOG_ASKED, server.LOG),
    "ping": _says({}),
    "version": _says(server.TEXT_ONLY),
    "alive": _says(server.ALIVE),
    "container_models": _says(server.CONTAINERS),
    "container_model": _says(server.CONTAINER),
    "container_load": _told(server.CONTAINER_LOAD, server.CONTAINER, required=True),
    "container_unload": _says(server.CONTAINER),
    "openapi": _says(server.DOCUMENT),
    "try_page": _says(server.PAGE),
    "try_page_asset": _says(server.ASSET),
}  # fmt: skip
"""By the names of the route table; a test fails while one is missing."""
