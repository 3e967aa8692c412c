"""The partitions that one consumer or follower fetches, and which of them may have news for it.

A fetch without a session has a `FetchState` for one request, a fetch session has one for its life.
`due` are the partitions to read. The others have nothing to return: they are watched, and cost
nothing until a change makes them due again.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.limits import FETCH_PARTITIONS_A_TURN, UNWATCHED_PARTITIONS_A_TURN

if TYPE_CHECKING:
    from penstock.node.fetch.delayed import DelayedFetch
    from penstock.node.partition.partition import Partition
    from penstock.protocol.messages.fetch import FetchRequest

    RequestedPartition = FetchRequest.Topic.Partition

# A topic and a partition index. Requests name topics by id from v13 on, and by name before; all
# requests of one session do it in the same way.
Key = tuple[str | UUID, int]

CONSUMER_ID = -1
NEVER_SENT = -1


class FetchPartition:
    """One partition: what the last request asked for, and what the last response said. It is the
    callback of a watched partition: a follower may watch 100,000."""

    __slots__ = (
        "_key",
        "_state",
        "acknowledged",
        "requested",
        "sent_high_watermark",
        "sent_log_start",
        "watched",
    )

    def __init__(self, requested: RequestedPartition) -> None:
        self.requested = requested
        # The request of a follower whose offset was last taken as an acknowledgement.
        self.acknowledged: RequestedPartition | None = None
        self.sent_high_watermark = NEVER_SENT
        self.sent_log_start = NEVER_SENT
        # Weak: sessions outlive requests, and must not keep deleted partitions or stopped nodes
        # alive.
        self.watched: weakref.ref[Partition] | None = None
        # While it is watched. Otherwise the state of a single fetch would be a cycle.
        self._state: FetchState | None = None
        self._key: Key | None = None

    def watch(self, partition: Partition, state: FetchState, key: Key) -> None:
        """Make the partition due in a state after its next change."""
        self._state, self._key = state, key
        self.watched = weakref.ref(partition)
        if state.replica_id == CONSUMER_ID:
            partition.on_change(self)
        else:
            partition.on_growth(self)

    def __call__(self) -> None:
        if self._state is not None and self._key is not None:
            self._state.mark_due(self._key)

    def unwatch(self) -> None:
        partition = self.watched() if self.watched is not None else None
        if partition is not None:
            partition.off_change(self)
        self.watched = self._state = self._key = None


class FetchState:
    """Close it at the end: watched partitions have its callbacks.

    `replica_id` is that of a follower, or CONSUMER_ID.
    """

    __slots__ = (
        "_is_closed",
        "cold",
        "delayed",
        "due",
        "is_warming",
        "partitions",
        "replica_id",
        "throttled",
        "uses_topic_ids",
        "warmed",
    )

    def __init__(self, uses_topic_ids: bool, replica_id: int = CONSUMER_ID) -> None:
        self.uses_topic_ids = uses_topic_ids
        self.replica_id = replica_id
        self.partitions: dict[Key, FetchPartition] = {}
        # Ordered: a partition that was served goes to the end, so that none starves when responses
        # are full.
        self.due: dict[Key, None] = {}
        self.delayed: DelayedFetch | None = None
        # Partitions that are not in memory at a fetch offset, and the calls that read them into it;
        # and the fetch offsets for which that is done.
        self.cold: dict[Key, tuple[int, Callable[[], None]]] = {}
        self.warmed: dict[Key, int] = {}
        self.is_warming = False
        # Partitions that a throttle holds back. They are not due, so that others do not wait behind
        # them, and become due again with a later request.
        self.throttled: dict[Key, None] = {}
        self._is_closed = False

    def request(self, key: Key, requested: RequestedPartition) -> None:
        """Add a partition, or change its offset and bounds."""
        partition = self.partitions.get(key)
        if partition is None:
            self.partitions[key] = FetchPartition(requested)
        else:
            partition.requested = requested
        self.due[key] = None

    def release_throttled(self) -> None:
        """Make some of the throttled partitions due, those that wait the longest."""
        for key in list(islice(self.throttled, FETCH_PARTITIONS_A_TURN)):
            del self.throttled[key]
            if key in self.partitions:
                self.due[key] = None

    def forget(self, key: Key) -> None:
        partition = self.partitions.pop(key, None)
        self.due.pop(key, None)
        if partition is not None:
            partition.unwatch()

    def mark_due(self, key: Key) -> None:
        if key in self.partitions:
            self.due[key] = None
            if self.delayed is not None:
                self.delayed.wake()

    def watch(self, key: Key, partition: Partition) -> None:
        """Make the partition due after its next change. Followers watch the log's end as well.

        A topic that is deleted and created again has another partition under the same key.
        """
        fetched = self.partitions.get(key)
        if fetched is None or self._is_closed:
            return
        if fetched.watched is not None:
            if fetched.watched() is partition:
                return
            fetched.unwatch()
        fetched.watch(partition, self, key)

    def close(self) -> None:
        """Stop watching. A delayed fetch of a session that is closed meanwhile ends at its
        deadline."""
        self._is_closed = True
        _unwatch(iter([each for each in self.partitions.values() if each.watched is not None]))


def _unwatch(partitions: Iterator[FetchPartition]) -> None:
    """Stop watching partitions, some per turn of the event loop."""
    some = list(islice(partitions, UNWATCHED_PARTITIONS_A_TURN))
    for partition in some:
        partition.unwatch()
    if len(some) == UNWATCHED_PARTITIONS_A_TURN:
        asyncio.get_running_loop().call_soon(_unwatch, partitions)
