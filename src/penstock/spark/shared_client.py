"""One open client per process and connection options, which stays open between micro-batches.

Spark reuses its Python processes: workers that run tasks, and the processes that plan and commit.
Opening a client costs several round trips, so each process opens one at first use and keeps it. Of
the clients that nobody uses, the least recently used are closed beyond SPARK_SHARED_CLIENTS.

A process that was forked from one with open clients opens its own: event loops and connections do
not survive a fork. A client whose event loop ended is replaced.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Iterator

from penstock.limits import SPARK_SHARED_CLIENTS
from penstock.spark.blocking_client import BlockingClient
from penstock.spark.options import ConnectionOptions
from penstock.spark.worker_process import freeze_imports


class _OpenClient:
    """The client of some options, opened by the first caller; other threads wait for it."""

    def __init__(self) -> None:
        # How many callers are between their first and their last use of the client.
        self.users = 0
        self._lock = threading.Lock()
        self._client: BlockingClient | None = None

    def get(self, options: ConnectionOptions) -> BlockingClient:
        with self._lock:
            if self._client is None or not self._client.is_running:
                client = BlockingClient(options, patience_s=options.api_timeout_s)
                self._client = client.open()
            return self._client

    def close(self) -> None:
        if self._client is not None and self._client.is_running:
            self._client.close()


class _Clients:
    """The clients of one process, in the order of their last use."""

    def __init__(self) -> None:
        # Garbage collection may end a caller's generator, and so call `release`, at any point.
        self._lock = threading.RLock()
        self._by_options: dict[ConnectionOptions, _OpenClient] = {}

    def acquire(self, options: ConnectionOptions) -> _OpenClient:
        with self._lock:
            client = self._by_options.pop(options, None) or _OpenClient()
            self._by_options[options] = client
            client.users += 1
        self._close_unused()
        return client

    def release(self, client: _OpenClient) -> None:
        with self._lock:
            client.users -= 1
        self._close_unused()

    def _close_unused(self) -> None:
        """Close the least recently used clients that are too many. One in use may exceed the
        bound, and is closed when it is released."""
        with self._lock:
            excess = len(self._by_options) - SPARK_SHARED_CLIENTS
            unused = [options for options, client in self._by_options.items() if not client.users]
            closing = [self._by_options.pop(options) for options in unused[: max(excess, 0)]]
        for client in closing:
            client.close()

    def close(self) -> None:
        with self._lock:
            clients, self._by_options = self._by_options, {}
        for client in clients.values():
            client.close()


_clients = _Clients()
# Those of the processes from which this one was forked. They are kept and not used: closing or
# finalizing them would run the parent's event loop in this process.
_inherited: list[_Clients] = []


def _after_fork() -> None:
    """Start without clients, and with a lock that no other thread holds."""
    global _clients
    _inherited.append(_clients)
    _clients = _Clients()


os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def shared_client(options: ConnectionOptions) -> Iterator[BlockingClient]:
    """Yield this process's client for the options; it stays open afterwards.

    Raises KafkaError if no broker can be reached.
    """
    freeze_imports()
    clients = _clients
    client = clients.acquire(options)
    try:
        yield client.get(options)
    finally:
        if clients is _clients:  # not in a child that was forked meanwhile
            clients.release(client)


def close_shared_clients() -> None:
    """Close all clients of this process. The next use opens new ones."""
    _clients.close()


atexit.register(close_shared_clients)
