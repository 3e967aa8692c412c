"""One open client per process and connection options, which stays open between micro-batches.

Spark reuses its Python processes: workers that run tasks, and the processes that plan and commit.
Opening a client costs several round trips, so each process opens one at first use and keeps it. A
process that was forked from one with open clients opens its own: event loops and connections do not
survive a fork. A client whose event loop ended is replaced.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Iterator

from penstock.spark.blocking_client import BlockingClient
from penstock.spark.options import ConnectionOptions
from penstock.spark.worker_process import freeze_imports


class _OpenClient:
    """The client of some options, opened by the first caller; other threads wait for it."""

    def __init__(self) -> None:
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


# Entries of other process ids were inherited by fork. They are kept and not used: closing or
# finalizing them would run the parent's event loop in this process.
_clients: dict[tuple[int, ConnectionOptions], _OpenClient] = {}


@contextlib.contextmanager
def shared_client(options: ConnectionOptions) -> Iterator[BlockingClient]:
    """Yield this process's client for the options; it stays open afterwards.

    Raises KafkaError if no broker can be reached.
    """
    freeze_imports()
    # setdefault is atomic, so no lock is needed that a fork could leave locked.
    yield _clients.setdefault((os.getpid(), options), _OpenClient()).get(options)


def close_shared_clients() -> None:
    """Close all clients of this process. The next use opens new ones."""
    for pid, options in list(_clients):
        if pid == os.getpid():
            _clients.pop((pid, options)).close()


atexit.register(close_shared_clients)
