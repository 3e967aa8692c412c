"""The state and the settings of the transaction machine: the transactional ids of one partition of
__transaction_state. PURE.

`TransactionStep` changes it; everything else reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import NamedTuple

from penstock.coordinator.runtime.deadlines import Deadlines
from penstock.coordinator.transactions.transaction import Partitions, Transaction
from penstock.ids import TopicPartition


class TransactionSettings(NamedTuple):
    """Defaults are Kafka's."""

    # transaction.max.timeout.ms
    max_timeout_ms: int = 900_000
    # transactional.id.expiration.ms and transaction.remove.expired.transaction.cleanup.interval.ms
    id_expiration_ms: int = 604_800_000
    id_expiration_interval_ms: int = 3_600_000
    # transaction.two.phase.commit.enable
    two_phase_commit: bool = False
    # The finalized feature transaction.version.
    transaction_version: int = 2
    # max.message.bytes of __transaction_state: the most that one step may write.
    max_batch_bytes: int = 1_048_588


class MarkerPartitions(Collection[TopicPartition]):
    """The partitions of a transaction, made when they are iterated: there may be 100,000."""

    __slots__ = ("_by_topic",)

    def __init__(self, by_topic: Partitions) -> None:
        self._by_topic = by_topic

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def __iter__(self) -> Iterator[TopicPartition]:
        return chain.from_iterable(
            map(TopicPartition, repeat(topic), indexes) for topic, indexes in self._by_topic.items()
        )

    def __contains__(self, partition: object) -> bool:
        return isinstance(partition, TopicPartition) and partition.partition in self._by_topic.get(
            partition.topic, ()
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Collection) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._by_topic!r})"


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """The machine's effect: write these markers, then pass this object to `markers_written`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    partitions: Collection[TopicPartition]
    transaction_version: int


class TransactionTable:
    """`deadlines` are the timeouts of ongoing transactions. `markers` are the effects in progress
    by transactional id. `unstarted` are transactional ids of the loaded log whose deadlines and
    markers have not been started yet."""

    __slots__ = ("by_id", "coordinator_epoch", "deadlines", "markers", "settings", "unstarted")

    def __init__(self, settings: TransactionSettings, coordinator_epoch: int) -> None:
        self.settings = settings
        self.coordinator_epoch = coordinator_epoch
        self.by_id: dict[str, Transaction] = {}
        self.deadlines: Deadlines[tuple[str]] = Deadlines()
        self.markers: dict[str, WriteMarkers] = {}
        self.unstarted: dict[str, None] = {}
