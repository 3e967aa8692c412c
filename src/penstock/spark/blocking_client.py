"""A cluster client for Spark's synchronous calls, in an event loop in its own thread.

`iterate` fetches ahead: while Spark processes one item, the next is on its way.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

from penstock.client.client import Client
from penstock.client.errors import NotABroker
from penstock.errors import ErrorCode, KafkaError
from penstock.spark.options import ConnectionOptions
from penstock.world import World
from penstock.world.real.thread import LoopThread, Running

logger = logging.getLogger(__name__)

T = TypeVar("T")

# How long to wait for a first response from the brokers without patience. A command that cannot
# connect fails within seconds.
OPEN_TIMEOUT_S = 10.0


class BlockingClient:
    """`with BlockingClient(options) as blocking: blocking.call(lambda client:
    client.admin.list_topics())`.

    Opening raises KafkaError if no broker can be reached within `patience_s`, while brokers may
    restart. Without patience there is one attempt. Host names that do not exist are an error at
    once, unless a planner has reached the cluster before.
    """

    def __init__(self, options: ConnectionOptions, *, patience_s: float = 0.0) -> None:
        self._options = options
        self._patience_s = patience_s
        self._thread = LoopThread(self._serve)

    def open(self) -> BlockingClient:
        self._client = self._thread.start()
        return self

    def close(self) -> None:
        self._thread.stop()

    @property
    def is_running(self) -> bool:
        """Return whether the client is open. It ends with its event loop, and in a forked child."""
        return self._thread.is_running

    def connection_options(self) -> ConnectionOptions:
        """Return the options with the brokers that this client knows, to be sent to tasks: a task
        connects to them when the bootstrap servers do not answer."""
        brokers = self._client.cluster.metadata.brokers.values()
        return dataclasses.replace(
            self._options, known_brokers=tuple((broker.host, broker.port) for broker in brokers)
        )

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
        future = self._thread.submit(request(self._client))
        try:
            return future.result()
        finally:
            future.cancel()  # no effect unless the wait was interrupted

    def iterate(self, items: Callable[[Client], AsyncIterator[T]]) -> Iterator[T]:
        """Iterate over an async iterator; the next item is fetched while the caller processes
        one. A caller that stops early ends the iterator."""
        fetching = _FetchAhead(items(self._client))
        ahead = self._thread.submit(fetching.next())
        try:
            while (result := ahead.result()) is not None:
                ahead = self._thread.submit(fetching.next())
                yield result[0]
        finally:
            if self.is_running:
                self._thread.submit(fetching.stop()).result()

    async def _serve(self, world: World, running: Running[Client]) -> None:
        options = self._options
        known = "".join(f",{_address(host, port)}" for host, port in options.known_brokers)
        client = Client(
            world,
            options.bootstrap_servers + known,
            client_id=options.client_id,
            request_timeout_s=options.request_timeout_s,
            api_timeout_s=options.api_timeout_s,
            security=dict(options.security),
        )
        try:
            await self._open(client)
            await running(client)
        finally:
            await client.__aexit__(None, None, None)

    async def _open(self, client: Client) -> None:
        """Connect the client; errors name the option to check."""
        limit_s = self._patience_s or OPEN_TIMEOUT_S
        servers = self._options.bootstrap_servers
        last: KafkaError | None = None

        async def attempt() -> KafkaError | None:
            """Return an error that another attempt does not change, raise one that it may."""
            nonlocal last
            try:
                await client.cluster.open()
            except KafkaError as error:
                if isinstance(error, NotABroker) and not self._options.known_brokers:
                    return error
                if last is None and self._patience_s:
                    logger.warning(
                        "no broker of %s responds; retrying for %g s: %s", servers, limit_s, error
                    )
                last = error
                raise
            return None

        failure: KafkaError | None
        try:
            async with asyncio.timeout(limit_s):
                failure = await client.cluster.retry(attempt, self._patience_s)
        except (TimeoutError, KafkaError) as error:
            failure = error if isinstance(error, KafkaError) else None
            if failure is None or (self._patience_s and failure.code.retriable):
                reason = f"no broker of {servers} responded within {limit_s:g} s"
                reason += "" if last is None else f": {last.message}"
                failure = KafkaError(ErrorCode.NETWORK_EXCEPTION, reason)
        if failure is not None:
            advice = "check the option kafka.bootstrap.servers, and that the brokers are running"
            raise KafkaError(failure.code, f"{failure.message}: {advice}") from failure


class _FetchAhead(Generic[T]):
    """The next item of an async iterator, fetched in one task at a time."""

    def __init__(self, iterator: AsyncIterator[T]) -> None:
        self._iterator = iterator
        self._task: asyncio.Task[Any] | None = None

    async def next(self) -> tuple[T] | None:
        """Return the next item in a tuple, or None at the end."""
        self._task = asyncio.current_task()
        async for item in self._iterator:
            return (item,)
        return None

    async def stop(self) -> None:
        """Cancel the fetch under way and close the iterator."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        if isinstance(self._iterator, AsyncGenerator):
            await self._iterator.aclose()


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
