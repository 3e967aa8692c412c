"""One fetch's reading: the partitions that are due are read under the request's bounds on bytes,
until there is enough to answer.

Knows what a response may hold; the order and the memory of partitions are the interest's, the
response itself is `fetch`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from penstock.config.cluster_settings import REPLICA_SELECTOR_CLASS
from penstock.errors import ErrorCode, KafkaError, NotInMemory
from penstock.handlers.fetch_interest import Asked, Interest, Key
from penstock.limits import FETCH_PARTITIONS_A_TURN, MAX_FETCH_BYTES
from penstock.metadata.image import PartitionState, TopicImage
from penstock.protocol.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from penstock.config.node import NodeConfig
    from penstock.node.metadata import MetadataView
    from penstock.node.partition.partition import Partition, ReadResult
    from penstock.node.replication.replicas import Replicas
    from penstock.world import Offload

READ_COMMITTED = 1
# Consumers that know of preferred replicas may read from followers (KIP-392); others would read on
# from one that lags, and never know.
_FOLLOWERS_SINCE = 11
_RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"

# Errors that may pass while the fetch waits; any other one is answered at once.
_ABSENT = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
# With these the response says who leads.
_ELSEWHERE = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class Parts(Protocol):
    offload: Offload
    config: NodeConfig
    metadata: MetadataView
    replicas: Replicas


class Found(NamedTuple):
    """What there is of one partition: a read, or an error, or where the fetcher's log diverged. No
    `partition`: it is not here."""

    partition: Partition | None
    read: ReadResult | None
    error: ErrorCode = ErrorCode.NONE
    diverging: tuple[int, int] | None = None
    leader: PartitionState | None = None
    preferred_replica: int = -1

    @property
    def size(self) -> int:
        return len(self.read.range) if self.read is not None and self.read.range is not None else 0

    @property
    def outdated(self) -> bool:
        """Whether the partition has moved since the read. The last stable offset moves only when
        the high watermark does."""
        if self.partition is None or self.read is None:
            return False
        moved = self.partition.high_watermark != self.read.high_watermark
        return moved or self.partition.log_start_offset != self.read.log_start_offset

    @property
    def absent(self) -> bool:
        return self.error in _ABSENT

    @property
    def urgent(self) -> bool:
        """Something that the fetcher must know now, however few bytes there are."""
        return (
            self.diverging is not None
            or self.preferred_replica >= 0
            or (self.error is not ErrorCode.NONE and not self.absent)
        )


class Gathering:
    def __init__(
        self, parts: Parts, interest: Interest, request: FetchRequest, version: int
    ) -> None:
        self.found: dict[Key, Found] = {}
        self._parts = parts
        self._interest = interest
        self._max_bytes = min(max(request.max_bytes, 0), MAX_FETCH_BYTES)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._allow_follower = version >= _FOLLOWERS_SINCE
        self._rack = request.rack_id if parts.config[REPLICA_SELECTOR_CLASS] == _RACK_AWARE else ""
        self._size = 0
        self._urgent = False
        self._expired = False
        # Partitions that are due, but to be fetched from the disk before, and how; and those for
        # which that was done.
        self._cold: dict[Key, Callable[[], None]] = {}
        self._warmed: set[Key] = set()

    @property
    def enough(self) -> bool:
        """Also where there is nothing to wait for: none of the partitions is here."""
        if self._size >= self._min_bytes or self._urgent:
            return True
        return not any(
            key not in self.found or not self.found[key].absent for key in self._interest.partitions
        )

    def read_due(self) -> bool:
        """Reads the partitions that are due, but not more than a turn of the loop may take. Whether
        some are left."""
        interest = self._interest
        for key in list(islice(interest.due, FETCH_PARTITIONS_A_TURN)):
            del interest.due[key]
            wanted = interest.partitions.get(key)
            if wanted is None:
                continue
            previous = self.found.pop(key, None)
            if previous is not None:
                self._size -= previous.size
            try:
                found = self.found[key] = self._find(key, wanted.asked)
            except NotInMemory as missing:
                self._cold[key] = missing.warm
                continue
            self._size += found.size
            self._urgent = self._urgent or found.urgent
        return bool(interest.due or self._cold)

    async def wait(self, deadline: float) -> None:
        """Until there is enough, or the deadline, in seconds of the loop's clock. What changed
        since the first look, which was perhaps some turns of the loop ago, is looked at again."""
        interest = self._interest
        timer = asyncio.get_running_loop().call_at(deadline, self._expire)
        try:
            await self._read_rest()
            self._watch(self.found)
            interest.due.update((key, None) for key, found in self.found.items() if found.outdated)
            if interest.due:
                self.read_due()
            while not (self.enough or self._expired):
                await (self._next_turn() if interest.due or self._cold else interest.wait_changed())
                self.read_due()
        finally:
            timer.cancel()

    async def _read_rest(self) -> None:
        """Every partition is looked at once, whatever there is in the first ones; what becomes due
        meanwhile is not waited for."""
        left = len(self._interest.due)
        while left > 0 or self._cold:
            await self._next_turn()
            self.read_due()
            left -= FETCH_PARTITIONS_A_TURN

    async def _next_turn(self) -> None:
        """The loop goes on, and what is cold is fetched from the disk meanwhile."""
        if self._cold:
            await self._parts.offload.thread(_call_all, tuple(self._cold.values()))
            self._warmed.update(self._cold)
            self._put_back()
        else:
            await asyncio.sleep(0)

    def _put_back(self) -> None:
        self._interest.due.update(dict.fromkeys(self._cold))
        self._cold.clear()

    def _expire(self) -> None:
        """The time is up: what there is goes out."""
        self._expired = True
        self._interest.wake()

    def settle(self) -> None:
        """For a session: what is idle is watched until the next fetch. The rest stays due; who was
        served now comes last."""
        self._put_back()
        idle = {key for key in self.found if self._is_idle(key)}
        self._watch(idle)
        unserved: dict[Key, None] = {}
        served: dict[Key, None] = {}
        for key, found in self.found.items():
            if key not in idle and key in self._interest.partitions:
                (served if found.size else unserved)[key] = None
        meanwhile = {key: None for key in self._interest.due if key not in served}
        self._interest.due = {**unserved, **meanwhile, **served}

    def _is_idle(self, key: Key) -> bool:
        """Whether the fetcher has read all that it may see. One that got nothing because the
        response was full has not."""
        found, wanted = self.found[key], self._interest.partitions.get(key)
        if found.read is None or wanted is None:
            return False
        readable = (
            found.read.last_stable_offset if self._committed_only else found.read.high_watermark
        )
        return wanted.asked.fetch_offset >= readable

    def restore(self) -> None:
        """The response will never leave: all that was found is to be looked at again."""
        self._put_back()
        self._interest.due.update(
            (key, None) for key in self.found if key in self._interest.partitions
        )

    def _watch(self, keys: Iterable[Key]) -> None:
        for key in keys:
            partition = self.found[key].partition
            if partition is not None and key in self._interest.partitions:
                self._interest.watch(key, partition)

    def _find(self, key: Key, asked: Asked) -> Found:
        topic_key, index = key
        topic: TopicImage | None = None
        partition: Partition | None = None
        try:
            topic = (
                self._parts.metadata.topic(topic_key)
                if isinstance(topic_key, str)
                else self._parts.metadata.topic("", topic_key)
            )
            partition = self._parts.replicas.partition(topic, index)
            partition.check_leader(asked.current_leader_epoch, allow_follower=self._allow_follower)
            preferred = (
                partition.preferred_replica(self._rack, asked.fetch_offset) if self._rack else -1
            )
            if preferred >= 0:
                return Found(partition, partition.look(), preferred_replica=preferred)
            diverging = _diverging(partition, asked)
            if diverging is not None:
                return Found(partition, None, diverging=diverging)
            return Found(partition, self._read(partition, asked, at_once=key not in self._warmed))
        except KafkaError as error:
            leader = (
                topic.partitions.get(index)
                if topic is not None and error.code in _ELSEWHERE
                else None
            )
            return Found(partition, None, error.code, leader=leader)

    def _read(self, partition: Partition, asked: Asked, *, at_once: bool) -> ReadResult:
        """The first partition that has something gives at least one batch, however small the
        bounds: the fetcher must get on."""
        allowed = max(min(asked.partition_max_bytes, self._max_bytes - self._size), 0)
        at_least_one = self._size == 0
        return partition.read(
            asked.fetch_offset,
            allowed,
            committed_only=self._committed_only,
            at_least_one=at_least_one,
            at_once=at_once,
        )


def _call_all(calls: Iterable[Callable[[], None]]) -> None:
    for call in calls:
        call()


def _diverging(partition: Partition, asked: Asked) -> tuple[int, int] | None:
    """Where the fetcher's log leaves ours, if it says what it fetched last (KIP-595)."""
    if asked.last_fetched_epoch < 0:
        return None
    epoch, end_offset = partition.end_offset_for_epoch(asked.last_fetched_epoch)
    if epoch < 0:
        message = f"the last fetched epoch {asked.last_fetched_epoch} is not in the log"
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
    return (
        (epoch, end_offset)
        if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset
        else None
    )
