"""A cluster client for synchronous code, which is what Spark calls: the client runs in an event
loop in its own thread.

`iterate` fetches ahead: while Spark processes one item, the next is on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, TypeVar

from penstock.client.client import Client
from penstock.errors import ErrorCode, KafkaError
from penstock.spark.options import ConnectionOptions
from penstock.world import World
from penstock.world.real import run

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
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock", daemon=True)
        self._error: BaseException | None = None

    def open(self) -> BlockingClient:
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error
        return self

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

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
        return asyncio.run_coroutine_threadsafe(request(self._client), self._loop).result()

    def iterate(self, items: Callable[[Client], AsyncIterator[T]]) -> Iterator[T]:
        """Iterate over an async iterator; the next item is fetched while the caller processes
        one."""
        iterator = items(self._client)

        async def next_item() -> tuple[T] | None:
            async for item in iterator:
                return (item,)
            return None

        ahead = asyncio.run_coroutine_threadsafe(next_item(), self._loop)
        try:
            while (result := ahead.result()) is not None:
                ahead = asyncio.run_coroutine_threadsafe(next_item(), self._loop)
                yield result[0]
        finally:
            ahead.cancel()

    def _run(self) -> None:
        try:
            run(self._serve)
        except BaseException as error:  # noqa: BLE001 - `open` raises it in the caller's thread
            self._error = error
        finally:
            self._started.set()

    async def _serve(self, world: World) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        options = self._options
        client = Client(
            world,
            options.bootstrap_servers,
            client_id=options.client_id,
            request_timeout_s=options.request_timeout_s,
        )
        async with _opened(client, options.bootstrap_servers) as self._client:
            self._started.set()
            await self._stop.wait()


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
