"""A cluster client for Spark's synchronous calls, in an event loop in its own thread.

`iterate` fetches ahead: while Spark processes one item, the next is on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, TypeVar

from penstock.client.client import Client
from penstock.errors import ErrorCode, KafkaError
from penstock.spark.options import ConnectionOptions
from penstock.world import World
from penstock.world.real.thread import LoopThread, Running

T = TypeVar("T")

# How long to wait for a first response from the brokers. A read or a write that cannot connect
# fails within seconds.
OPEN_TIMEOUT_S = 10.0


class BlockingClient:
    """`with BlockingClient(options) as blocking: blocking.call(lambda client:
    client.admin.list_topics())`.

    Opening raises KafkaError if no broker can be reached.
    """

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        self._thread = LoopThread(self._serve)

    def open(self) -> BlockingClient:
        self._client = self._thread.start()
        return self

    def close(self) -> None:
        self._thread.stop()

    def __enter__(self) -> BlockingClient:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def call(self, request: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the client and wait for its result."""
        return self._thread.submit(request(self._client)).result()

    def iterate(self, items: Callable[[Client], AsyncIterator[T]]) -> Iterator[T]:
        """Iterate over an async iterator; the next item is fetched while the caller processes
        one."""
        iterator = items(self._client)

        async def next_item() -> tuple[T] | None:
            async for item in iterator:
                return (item,)
            return None

        ahead = self._thread.submit(next_item())
        try:
            while (result := ahead.result()) is not None:
                ahead = self._thread.submit(next_item())
                yield result[0]
        finally:
            ahead.cancel()

    async def _serve(self, world: World, running: Running[Client]) -> None:
        options = self._options
        client = Client(
            world,
            options.bootstrap_servers,
            client_id=options.client_id,
            request_timeout_s=options.request_timeout_s,
        )
        async with _opened(client, options.bootstrap_servers):
            await running(client)


@contextlib.asynccontextmanager
async def _opened(client: Client, servers: str) -> AsyncIterator[Client]:
    """Connect the client; errors name the option to check."""
    advice = "check the option kafka.bootstrap.servers, and that the brokers are running"
    try:
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            await client.__aenter__()
    except TimeoutError as error:
        reason = f"no broker of {servers} responded within {OPEN_TIMEOUT_S:g} s"
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{reason}: {advice}") from error
    except KafkaError as error:
        raise KafkaError(error.code, f"{error.message}: {advice}") from error
    try:
        yield client
    finally:
        await client.__aexit__(None, None, None)
