"""The four clients of tritonclient, asked alike: the asynchronous ones by a loop of their own."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from tests.clients.checks import Served, Suite
from tritonclient.utils import np_to_triton_dtype

Array = Any
"""A numpy array; the clients' packages have no types."""


@dataclass(frozen=True, slots=True)
class Way:
    """A client's module and where it connects to."""

    module: ModuleType
    grpc: bool
    waits: bool  # its methods are coroutines
    options: tuple[tuple[str, int], ...] = ()  # how many connections it may open, where it must be told

    @property
    def name(self) -> str:
        return self.module.__name__


WAYS = (
    Way(tritonclient.http, grpc=False, waits=False, options=(("concurrency", 16),)),
    Way(tritonclient.http.aio, grpc=False, waits=True),
    Way(tritonclient.grpc, grpc=True, waits=False),
    Way(tritonclient.grpc.aio, grpc=True, waits=True),
)


class Asking:
    """One client. ``call`` is any of its methods, answered."""

    def __init__(self, way: Way, client: Any, runner: asyncio.Runner | None) -> None:
        self.way = way
        self.client = client
        self._runner = runner

    def call(self, method: str, *given: Any, **named: Any) -> Any:
        if self._runner is None:
            return getattr(self.client, method)(*given, **named)

        async def call() -> Any:
            return await getattr(self.client, method)(*given, **named)

        return self._runner.run(call())

    def told(self, method: str, *given: Any, **named: Any) -> Any:
        """The answer of a method that describes, as plain values."""
        return self.call(method, *given, **named, **({"as_json": True} if self.way.grpc else {}))

    def infer(self, model: str, inputs: dict[str, Array], outputs: "list[Any] | None" = None, **named: Any) -> Any:
        """All inputs as the client sends them when nobody says otherwise: binary."""
        return self.call(
            "infer", model, [self.input(name, array) for name, array in inputs.items()], outputs=outputs, **named
        )

    def input(self, name: str, array: Array, **named: Any) -> Any:
        given = self.way.module.InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype))
        given.set_data_from_numpy(array, **named)
        return given

    def output(self, name: str, **named: Any) -> Any:
        return self.way.module.InferRequestedOutput(name, **named)

    def together(self, calls: "list[tuple[str, dict[str, Array]]]") -> list[Any]:
        """All of them in flight at the same time, as this client does it; the answers in their order."""
        given = [(model, [self.input(name, array) for name, array in inputs.items()]) for model, inputs in calls]
        if self._runner is not None:

            async def gather() -> list[Any]:
                return await asyncio.gather(*(self.client.infer(model, inputs) for model, inputs in given))

            return list(self._runner.run(gather()))
        if self.way.grpc:
            return _by_callbacks(self.client, given)
        pending = [self.client.async_infer(model, inputs) for model, inputs in given]
        return [each.get_result(timeout=30) for each in pending]


def _by_callbacks(client: Any, given: "list[tuple[str, list[Any]]]") -> list[Any]:
    from queue import Queue

    ended: Queue[tuple[int, Any, Any]] = Queue()
    for place, (model, inputs) in enumerate(given):
        client.async_infer(model, inputs, lambda result, error, place=place: ended.put((place, result, error)))
    results: dict[int, Any] = {}
    while len(results) < len(given):
        place, result, error = ended.get(timeout=30)
        if error is not None:
            raise error
        results[place] = result
    return [results[place] for place in range(len(given))]


@contextmanager
def asking(way: Way, served: Served) -> Iterator[Asking]:
    address = served.grpc if way.grpc else served.http
    if not way.waits:
        client = way.module.InferenceServerClient(address, **dict(way.options))
        try:
            yield Asking(way, client, None)
        finally:
            client.close()
        return
    with asyncio.Runner() as runner:

        async def connect() -> Any:
            return way.module.InferenceServerClient(address, **dict(way.options))

        client = runner.run(connect())
        try:
            yield Asking(way, client, runner)
        finally:
            runner.run(client.close())


class EachWay:
    """A suite of every client, of the same promises: each a function of a connected client."""

    def __init__(self, name: str, ways: Sequence[Way] = WAYS) -> None:
        self.suites = {way: Suite(way.name, name) for way in ways}

    def __call__(self, promise: str) -> Callable[[Callable[[Asking], None]], None]:
        def add(check: Callable[[Asking], None]) -> None:
            for way, suite in self.suites.items():
                suite(promise)(_connected(way, check))

        return add


def _connected(way: Way, check: Callable[[Asking], None]) -> Callable[[Served], None]:
    def connected(served: Served) -> None:
        with asking(way, served) as client:
            check(client)

    return connected


def sixteen() -> dict[str, Array]:
    """Triton's own example: 0 to 15, and ones."""
    return {"INPUT0": np.arange(16, dtype=np.int32).reshape(1, 16), "INPUT1": np.ones((1, 16), np.int32)}
