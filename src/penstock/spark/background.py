"""A client of a cluster for code that does not await: an event loop in a thread of its own, asked
from the thread that Spark runs.

While Spark works on what was fetched, the next is on its way. Must never know what is asked.
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

# How long brokers that do not answer are waited for when a read or a write begins: an error is due
# within seconds.
OPEN_TIMEOUT_S = 10.0


class Background:
    """`with Background(options) as background: background.call(lambda client:
    client.admin.list_topics())`."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock", daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Background:
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def call(self, ask: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(ask(self._client), self._loop).result()

    def iterate(self, produce: Callable[[Client], AsyncIterator[T]]) -> Iterator[T]:
        """What the iterator gives; the next one is fetched while one is worked on."""
        items = produce(self._client)

        async def following() -> tuple[T] | None:
            async for item in items:
                return (item,)
            return None

        ahead = asyncio.run_coroutine_threadsafe(following(), self._loop)
        try:
            while (found := ahead.result()) is not None:
                ahead = asyncio.run_coroutine_threadsafe(following(), self._loop)
                yield found[0]
        finally:
            ahead.cancel()

    def _run(self) -> None:
        try:
            run(self._serve)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where the client is used
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
    """The client, or an error that says what to look at."""
    advice = "check the option kafka.bootstrap.servers, and that the brokers run"
    try:
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            await client.__aenter__()
    except TimeoutError as error:
        why = f"no broker of {servers} answered within {OPEN_TIMEOUT_S:g} s"
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{why}: {advice}") from error
    except KafkaError as error:
        raise KafkaError(error.code, f"{error.message}: {advice}") from error
    try:
        yield client
    finally:
        await client.__aexit__(None, None, None)
