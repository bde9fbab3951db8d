"""A connection to Redis that scripts are sent over as they come, without waiting for the answers of those before."""

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from forwardpass.core.errors import Code, Misconfigured, Problem

if TYPE_CHECKING:
    from redis.asyncio import ConnectionPool
    from redis.asyncio.connection import AbstractConnection

CONNECT_S = 5.0
"""To connect, with all that a server asks before it answers: in the background, so nobody waits for it."""


class Line:
    """Made by ``connected``; whoever gives up on an answer disturbs nobody else's. ``run`` is its life."""

    def __init__(self, connection: "AbstractConnection", digests: dict[str, str]) -> None:
        self._connection = connection
        self._digests = digests
        self._unsent: list[bytes] = []
        self._asked = asyncio.Event()
        self._lost: ConnectionResetError | None = None
        self._answers: deque[asyncio.Future[Any]] = deque()  # in the order they were asked for

    def ask(self, script: str, keys: Sequence[str], arguments: Sequence[str]) -> "asyncio.Future[Any]":
        """What the script will answer. Fails with RedisError or OSError; an error of Redis ends the line, too."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._lost is not None:  # nobody would end it any more
            _fail(answer, self._lost)
            return answer
        self._unsent += self._connection.pack_command("EVALSHA", self._digests[script], len(keys), *keys, *arguments)
        self._answers.append(answer)
        self._asked.set()
        return answer

    async def run(self) -> None:
        """Until it is lost. Raises RedisError, OSError, as does everything then that is not answered."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._send())
                group.create_task(self._receive())
        finally:
            self._lost = ConnectionResetError("the connection to Redis is lost")
            for answer in self._answers:
                if not answer.done():
                    _fail(answer, self._lost)
            await self.close()

    async def close(self) -> None:
        await self._connection.disconnect(nowait=True)

    async def _send(self) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            unsent, self._unsent = self._unsent, []
            await self._connection.send_packed_command(unsent, check_health=False)

    async def _receive(self) -> None:
        while True:
            said = await self._connection.read_response(timeout=math.inf)
            answer = self._answers.popleft()
            if not answer.done():
                answer.set_result(said)


def _fail(answer: "asyncio.Future[Any]", lost: ConnectionResetError) -> None:
    answer.set_exception(lost)
    answer.exception()  # whoever gave up on it asks no more


async def connected(pool: "ConnectionPool", scripts: Sequence[str]) -> Line:
    """Raises RedisError, OSError, TimeoutError."""
    connection: AbstractConnection = pool.make_connection()  # type: ignore[no-untyped-call]  # of the library
    digests: dict[str, str] = {}
    async with AsyncExitStack() as stack, asyncio.timeout(CONNECT_S):
        stack.push_async_callback(connection.disconnect, nowait=True)
        await connection.connect()  # type: ignore[no-untyped-call]  # likewise
        for script in scripts:
            await connection.send_command("SCRIPT LOAD", script)
            digests[script] = (await connection.read_response()).decode()
        stack.pop_all()
    return Line(connection, digests)


def redis_at(url: str) -> "ConnectionPool":
    """Raises Misconfigured for an address that is none, or when the library is not installed."""
    try:
        from redis.asyncio import ConnectionPool
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        problem = Problem("settings", "run.redis", "redis is not installed", "pip install 'forwardpass[redis]'")
        raise Misconfigured(Code.RUNTIME_MISSING, (problem,)) from None
    try:
        return ConnectionPool.from_url(
            url, protocol=2, socket_timeout=None, socket_connect_timeout=CONNECT_S, retry=Retry(NoBackoff(), 0)
        )
    except ValueError as error:
        problem = Problem("settings", "run.redis", "not the address of a Redis", "redis://HOST:PORT/NUMBER")
        raise Misconfigured(Code.SETTINGS_INVALID, (problem,)) from error
