"""Reads the due partitions of a fetch, up to the request's bounds on bytes.

Consumers and followers share the flow. `ConsumerReads` and `FollowerReads` have what differs: who
may fetch, how far a fetcher may read, what its offset means, and what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from penstock.errors import ErrorCode, KafkaError, NotInMemory
from penstock.limits import (
    ANSWERED_PARTITIONS_A_TURN,
    FETCH_PARTITIONS_A_TURN,
    MAX_FETCH_BYTES,
    MAX_PARTITIONS_PER_FETCH,
    STALE_WATERMARK_S,
)
from penstock.node.fetch.state import CONSUMER_ID, FetchPartition, FetchState, Key

if TYPE_CHECKING:
    from uuid import UUID

    from penstock.metadata.image import PartitionState, TopicImage
    from penstock.node.metadata import MetadataView
    from penstock.node.partition.partition import Partition, ReadResult
    from penstock.node.replication.replicas import Replicas

# The topic may be created while the fetch waits. Every other error is returned immediately.
_UNKNOWN_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
# The response to these errors names the leader (KIP-951).
_WRONG_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class FetchParams(NamedTuple):
    """The bounds of a fetch and its fetcher. `rack` is empty if the fetch must not be redirected to
    a replica in the same rack. `may_read` tells if the fetcher may read a topic; None if it may
    read all. `charge` takes the bytes of a response from the consumer's quota, and returns for how
    long the consumer is throttled instead of getting it; None if it has no quota."""

    replica_id: int
    broker_epoch: int
    max_wait_s: float
    min_bytes: int
    max_bytes: int
    read_committed: bool = False
    may_read_follower: bool = False
    rack: str = ""
    may_read: Callable[[str], bool] | None = None
    charge: Callable[[int], int] | None = None


class PartitionRead(NamedTuple):
    """The result for one partition: a read, an error, or where the fetcher's log diverges.

    `partition` is None if this broker has no replica. `end_offset` is how far the fetcher may read,
    `size` the number of bytes.
    """

    partition: Partition | None
    read: ReadResult | None
    end_offset: int = -1
    error: ErrorCode = ErrorCode.NONE
    diverging: tuple[int, int] | None = None
    leader: PartitionState | None = None
    preferred_replica: int = -1
    log_start_offset: int = -1
    size: int = 0

    @property
    def is_urgent(self) -> bool:
        """Return True if the response must not wait for more records."""
        return self.preferred_replica >= 0 or (
            self.read is None and self.error not in _UNKNOWN_TOPIC
        )

    def is_news(self, fetched: FetchPartition) -> bool:
        """Return True if the response of an incremental fetch must include this partition."""
        read = self.read
        return (
            read is None
            or read.range is not None
            or self.preferred_replica >= 0
            or read.high_watermark != fetched.sent_high_watermark
            or read.log_start_offset != fetched.sent_log_start
        )


class ConsumerReads:
    """A consumer reads up to the high watermark, or with read_committed up to the last stable
    offset."""

    # KIP-227: a fetch covers all partitions of its session. One with unread records, or with an
    # error, is returned again until the consumer fetches past it.
    redelivers: ClassVar[bool] = True
    # The response waits until records that are not in memory are read from the disk.
    waits_for_disk: ClassVar[bool] = True
    # How long a new high watermark may be held back; None: until the deadline.
    stale_watermark_s: ClassVar[float | None] = None
    # A follower whose offset is out of range restarts at the leader's log start.
    errors_have_log_start: ClassVar[bool] = False
    # Partitions in a response, besides those that must be read.
    max_partitions: ClassVar[float] = inf

    def __init__(self, params: FetchParams) -> None:
        self._read_committed = params.read_committed
        self._may_read_follower = params.may_read_follower
        self._rack = params.rack

    def must_read(self, _fetched: FetchPartition) -> bool:
        """Return True if the partition is looked at even when the response is full."""
        return True

    def read(
        self,
        partition: Partition,
        fetched: FetchPartition,
        max_bytes: int,
        *,
        at_least_one: bool,
        at_once: bool,
    ) -> PartitionRead:
        requested = fetched.requested
        offset = requested.fetch_offset
        partition.check_leader(
            requested.current_leader_epoch, allow_follower=self._may_read_follower
        )
        if self._rack:
            preferred = partition.preferred_replica(self._rack, offset)
            if preferred >= 0:
                return PartitionRead(partition, partition.look(), preferred_replica=preferred)
        if requested.last_fetched_epoch >= 0:
            diverging = partition.diverging(offset, requested.last_fetched_epoch)
            if diverging is not None:
                return PartitionRead(partition, None, diverging=diverging)
        read = partition.read(
            offset,
            max_bytes,
            committed_only=self._read_committed,
            at_least_one=at_least_one,
            at_once=at_once,
        )
        end_offset = read.last_stable_offset if self._read_committed else read.high_watermark
        if read.range is None:
            return PartitionRead(partition, read, end_offset)
        return PartitionRead(partition, read, end_offset, size=len(read.range))


class FollowerReads:
    """A follower reads up to the log's end. Its fetch offset acknowledges everything before it,
    once for each request that names the partition. A follower that is not in sync waits for the
    leader's throttle, if that applies to the partition (KIP-73)."""

    # A follower names each partition that it got records for, and each one that failed, when it can
    # continue.
    redelivers: ClassVar[bool] = False
    # Other partitions must not wait: the follower's next fetch acknowledges them.
    waits_for_disk: ClassVar[bool] = False
    stale_watermark_s: ClassVar[float | None] = STALE_WATERMARK_S
    errors_have_log_start: ClassVar[bool] = True
    max_partitions: ClassVar[float] = MAX_PARTITIONS_PER_FETCH

    def __init__(self, params: FetchParams) -> None:
        self._replica_id = params.replica_id
        self._broker_epoch = params.broker_epoch

    def must_read(self, fetched: FetchPartition) -> bool:
        return fetched.acknowledged is not fetched.requested

    def read(
        self,
        partition: Partition,
        fetched: FetchPartition,
        max_bytes: int,
        *,
        at_least_one: bool,
        at_once: bool,
    ) -> PartitionRead | None:
        """Return None if the throttle holds the partition back."""
        requested = fetched.requested
        partition.check_follower(
            requested.current_leader_epoch, self._replica_id, self._broker_epoch
        )
        if fetched.acknowledged is not requested:
            fetched.acknowledged = requested
            diverging = partition.follower_fetched(
                self._replica_id,
                self._broker_epoch,
                requested.fetch_offset,
                requested.last_fetched_epoch,
                requested.log_start_offset,
            )
            if diverging is not None:
                return PartitionRead(partition, None, diverging=diverging)
        throttle = partition.env.throttles.leader
        is_throttled = throttle.is_set and partition.is_throttled_for(throttle, self._replica_id)
        if is_throttled and throttle.is_exceeded(partition.env.world.clock.monotonic()):
            return None
        read = partition.read_for_follower(
            requested.fetch_offset, max_bytes, at_least_one=at_least_one, at_once=at_once
        )
        size = 0 if read.range is None else len(read.range)
        if is_throttled:
            throttle.record(size, partition.env.world.clock.monotonic())
        return PartitionRead(partition, read, partition.log_end_offset, size=size)


class FetchReader:
    """The reads of one request so far, in `reads`."""

    __slots__ = (
        "_max_bytes",
        "_may_read",
        "_metadata",
        "_min_bytes",
        "_replicas",
        "_size",
        "_state",
        "_urgent",
        "is_stale",
        "is_watching",
        "kind",
        "reads",
    )

    def __init__(
        self, metadata: MetadataView, replicas: Replicas, state: FetchState, params: FetchParams
    ) -> None:
        self.reads: dict[Key, PartitionRead] = {}
        self.kind: ConsumerReads | FollowerReads = (
            ConsumerReads(params) if params.replica_id == CONSUMER_ID else FollowerReads(params)
        )
        # Whether partitions are watched from their read on, and not only at the end of the fetch.
        self.is_watching = False
        # Whether the fetcher does not know the high watermark or the log start of a partition.
        self.is_stale = False
        self._metadata = metadata
        self._replicas = replicas
        self._state = state
        self._may_read = params.may_read
        self._max_bytes = min(max(params.max_bytes, 0), MAX_FETCH_BYTES)
        self._min_bytes = min(params.min_bytes, self._max_bytes)
        self._size = 0
        self._urgent = False

    @property
    def size(self) -> int:
        """The bytes of records that were read."""
        return self._size

    @property
    def is_enough(self) -> bool:
        """Return True if the response need not wait for more: min.bytes, an error, the maximum of
        partitions, or no partition that could get records."""
        if self._size >= self._min_bytes or self._urgent or self._has_max_partitions:
            return True
        reads = self.reads
        return all(
            key in reads and reads[key].error in _UNKNOWN_TOPIC for key in self._state.partitions
        )

    @property
    def _has_max_partitions(self) -> bool:
        """Partitions that are not in memory yet do not count: they have nothing to return."""
        return len(self.reads) - len(self._state.cold) >= self.kind.max_partitions

    def read_due(self) -> bool:
        """Read due partitions, but not more than one iteration of the event loop allows. Return
        True if partitions remain to be read.

        A partition that does not fit stays due, before those that become due later.
        """
        state, count = self._state, 0
        for key in list(state.due):
            fetched = state.partitions[key]
            if (
                self._size >= self._max_bytes > 0 or self._has_max_partitions
            ) and not self.kind.must_read(fetched):
                continue
            if count == FETCH_PARTITIONS_A_TURN:
                return True
            count += 1
            del state.due[key]
            self._read(key, fetched)
        return False

    def _read(self, key: Key, fetched: FetchPartition) -> None:
        previous = self.reads.pop(key, None)
        if previous is not None:
            self._size -= previous.size
        topic: TopicImage | None = None
        partition: Partition | None = None
        name, index = key
        try:
            if self._may_read is not None:
                self._check_topic(name, self._may_read)
            topic = (
                self._metadata.topic(name)
                if isinstance(name, str)
                else self._metadata.topic("", name)
            )
            partition = self._replicas.partition(topic, index)
            result = self._read_partition(key, fetched, partition)
            if result is None:
                return
        except KafkaError as error:
            result = PartitionRead(
                partition,
                None,
                error=error.code,
                leader=topic.partitions.get(index)
                if topic is not None and error.code in _WRONG_LEADER
                else None,
                log_start_offset=partition.log_start_offset
                if partition is not None and self.kind.errors_have_log_start
                else -1,
            )
        self.reads[key] = result
        self._size += result.size
        read = result.read
        if result.is_urgent or (read is None and not self.kind.redelivers):
            self._urgent = True
        elif read is not None and (
            read.high_watermark != fetched.sent_high_watermark
            or read.log_start_offset != fetched.sent_log_start
        ):
            self.is_stale = True
        if self.is_watching and partition is not None:
            self._watch(key, result)

    def _check_topic(self, name: str | UUID, may_read: Callable[[str], bool]) -> None:
        """Check the right to read at each read: it may be withdrawn during a session. A topic that
        the fetcher names may not reveal that it exists."""
        known = name if isinstance(name, str) else self._metadata.topic("", name).name
        if not may_read(known):
            raise KafkaError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"the fetcher may not read topic {known}"
            )

    def _read_partition(
        self, key: Key, fetched: FetchPartition, partition: Partition
    ) -> PartitionRead | None:
        """Return None if a consumer must wait until the records are in memory, or a follower for
        the throttle. A follower gets no records of a partition that is not in memory for now."""
        state, requested = self._state, fetched.requested
        max_bytes = min(requested.partition_max_bytes, self._max_bytes - self._size)
        if key not in state.cold:
            try:
                result = self.kind.read(
                    partition,
                    fetched,
                    max(max_bytes, 0),
                    # The first partition that has records returns a whole batch, whatever the
                    # bounds: the fetcher must make progress.
                    at_least_one=self._size == 0,
                    at_once=not state.warmed
                    or state.warmed.pop(key, None) != requested.fetch_offset,
                )
                if result is None:
                    state.throttled[key] = None
                return result
            except NotInMemory as missing:
                state.cold[key] = (requested.fetch_offset, missing.warm)
        if self.kind.waits_for_disk:
            return None
        return PartitionRead(partition, partition.look(), partition.log_end_offset)

    # Between requests

    def watch_all(self) -> None:
        """The fetch waits: its partitions become due when they change."""
        self.is_watching = True
        for key, result in self.reads.items():
            self._watch(key, result)

    def _watch(self, key: Key, result: PartitionRead) -> None:
        if result.partition is not None:
            self._state.watch(key, result.partition)

    def settle(self) -> None:
        """A session's response leaves: watch the partitions whose end the fetcher has reached, and
        leave the others due. Those that were served now come last."""
        unserved: dict[Key, None] = {}
        served: dict[Key, None] = {}
        self._settle(self.reads.items(), unserved, served)
        self._order_due(unserved, served)

    def settle_slices(self) -> Iterator[None]:
        """Do the same for some partitions at a time."""
        unserved: dict[Key, None] = {}
        served: dict[Key, None] = {}
        reads = iter(self.reads.items())
        while some := list(islice(reads, ANSWERED_PARTITIONS_A_TURN)):
            self._settle(some, unserved, served)
            yield
        self._order_due(unserved, served)

    def _settle(
        self,
        reads: Iterable[tuple[Key, PartitionRead]],
        unserved: dict[Key, None],
        served: dict[Key, None],
    ) -> None:
        state, redelivers = self._state, self.kind.redelivers
        for key, result in reads:
            fetched = state.partitions.get(key)
            if fetched is None:
                continue
            if result.read is None:
                if redelivers:
                    unserved[key] = None
                else:
                    fetched.unwatch()
                continue
            # A redirection is returned until the consumer forgets the partition.
            is_idle = (
                result.preferred_replica < 0 and fetched.requested.fetch_offset >= result.end_offset
            )
            if is_idle or not redelivers:
                self._watch(key, result)
            if is_idle:
                continue
            if not result.size:
                unserved[key] = None
            elif redelivers:
                served[key] = None

    def _order_due(self, unserved: dict[Key, None], served: dict[Key, None]) -> None:
        state = self._state
        meanwhile = {key: None for key in state.due if key not in served}
        state.due = {**unserved, **meanwhile, **served}

    def restore(self) -> None:
        """The response was not sent: all that was read is due again."""
        state = self._state
        for keys in (self.reads, state.cold):
            state.due.update((key, None) for key in keys if key in state.partitions)
