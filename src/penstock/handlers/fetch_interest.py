"""What one fetcher wants: partitions, from where on, and which of them may have something new for
it.

A sessionless fetch has an interest for one request, a fetch session one for its life. `due` are the
partitions to look at. The others have nothing to give and are watched: they cost nothing until they
change, which makes them due again. Knows nothing of budgets and responses.
"""

from __future__ import annotations

import asyncio
import weakref
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.protocol.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from penstock.node.partition.partition import Partition

# Topics are named from v13 on by their id, before by their name; within one interest always in the
# same way.
Key = tuple[str | UUID, int]
Asked = FetchRequest.Topic.Partition

UNTOLD = -1
NO_REPLICA = -1


class Wanted:
    """One partition, as it was last asked for, and what its fetcher was last told of it."""

    __slots__ = (
        "acknowledged",
        "asked",
        "notice",
        "told_high_watermark",
        "told_log_start",
        "watched",
    )

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        # Of a follower: the last of what it asked that was taken for its progress.
        self.acknowledged: Asked | None = None
        self.told_high_watermark = UNTOLD
        self.told_log_start = UNTOLD
        # Weak, so that sessions, which outlive requests, keep no deleted partition and no stopped
        # node alive.
        self.watched: weakref.ref[Partition] | None = None
        self.notice: partial[None] | None = None


class Interest:
    """Close it when it is over: partitions hold on to whom they must tell."""

    def __init__(self, uses_ids: bool, replica_id: int = NO_REPLICA) -> None:
        self.uses_ids = uses_ids
        self.replica_id = replica_id
        self.partitions: dict[Key, Wanted] = {}
        # A dict for its order: who was served goes to the end, so that none starves when a response
        # is full.
        self.due: dict[Key, None] = {}
        # Requests that wait for a change: nearly always one.
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False

    def want(self, key: Key, asked: Asked) -> None:
        wanted = self.partitions.get(key)
        if wanted is None:
            self.partitions[key] = Wanted(asked)
        else:
            wanted.asked = asked
        self.due[key] = None

    def forget(self, key: Key) -> None:
        wanted = self.partitions.pop(key, None)
        self.due.pop(key, None)
        if wanted is not None:
            _unwatch(wanted)

    def mark(self, key: Key) -> None:
        if key in self.partitions:
            self.due[key] = None
            self.wake()

    async def wait_changed(self) -> None:
        """Until a partition becomes due, or `wake`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if not waiter.done() or waiter.cancelled():
                self._waiters.remove(waiter)

    def wake(self) -> None:
        """Whoever waits looks again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def watch(self, key: Key, partition: Partition) -> None:
        """From now on a change of the partition makes it due. A topic deleted and made again has
        another partition of that name."""
        wanted = self.partitions[key]
        if self._closed:
            return
        if wanted.watched is not None:
            if wanted.watched() is partition:
                return
            _unwatch(wanted)
        wanted.notice = partial(self.mark, key)
        wanted.watched = weakref.ref(partition)
        self._listen(partition, wanted.notice)

    def _listen(self, partition: Partition, notice: partial[None]) -> None:
        partition.on_change(notice)

    def unwatch(self, key: Key) -> None:
        _unwatch(self.partitions[key])

    def close(self) -> None:
        """A request of a session that is closed meanwhile goes on to its deadline, and watches
        nothing any more."""
        self._closed = True
        for wanted in self.partitions.values():
            _unwatch(wanted)


def _unwatch(wanted: Wanted) -> None:
    partition = wanted.watched() if wanted.watched is not None else None
    if partition is not None and wanted.notice is not None:
        partition.off_change(wanted.notice)
    wanted.watched = wanted.notice = None
