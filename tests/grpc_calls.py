"""V2 over gRPC for tests: grpcio as the client, which frames, compresses and cancels in its own way."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc

from forwardpass.ingress.grpc.messages import Message, classes

SERVICE = "inference.GRPCInferenceService"
UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


def infer_request(pipeline: str, name: str, datatype: str, shape: Iterable[int], raw: bytes, **more: Any) -> Message:
    """A request with one raw input."""
    message = classes()["ModelInferRequest"](model_name=pipeline, raw_input_contents=[raw], **more)
    message.inputs.add(name=name, datatype=datatype, shape=shape)
    return message


class Channel:
    """One connection to a server's gRPC port."""

    def __init__(self, port: int, credentials: Any = None) -> None:
        address = f"127.0.0.1:{port}"
        self.raw = (
            grpc.insecure_channel(address, UNLIMITED)
            if credentials is None
            else grpc.secure_channel(address.replace("127.0.0.1", "localhost"), credentials, UNLIMITED)
        )

    def call(self, method: str, **members: Any) -> Message:
        """One of the small methods by name."""
        return self.ask(method, classes()[f"{method}Request"](**members))[0]

    def infer(self, message: Message, **options: Any) -> Message:
        return self.ask("ModelInfer", message, **options)[0]

    def ask(self, method: str, message: Message, **options: Any) -> tuple[Message, Mapping[str, Any]]:
        """The answer and its trailing metadata; raises grpc.RpcError."""
        answer, call = self._method(method).with_call(message, **{"timeout": 30, **options})
        return answer, dict(call.trailing_metadata())

    def start(self, message: Message, **options: Any) -> Any:
        """A call that runs; cancel it, or wait for its result."""
        return self._method("ModelInfer").future(message, **options)

    def stream(self, messages: Iterable[Message], **options: Any) -> Iterator[Message]:
        method = self.raw.stream_stream(
            f"/{SERVICE}/ModelStreamInfer", _serialize, classes()["ModelStreamInferResponse"].FromString
        )
        answers: Iterator[Message] = method(iter(messages), **{"timeout": 30, **options})
        return answers

    def _method(self, method: str) -> Any:
        service, _, name = method.rpartition("/")
        response = {"Check": "HealthCheckResponse"}.get(name, f"{name}Response")
        return self.raw.unary_unary(f"/{service or SERVICE}/{name}", _serialize, classes()[response].FromString)


@contextmanager
def channel(port: int, credentials: Any = None) -> Iterator[Channel]:
    opened = Channel(port, credentials)
    try:
        yield opened
    finally:
        opened.raw.close()


def _serialize(message: Message) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()
