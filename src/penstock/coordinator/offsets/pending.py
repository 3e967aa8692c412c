"""Offsets of open transactions (KIP-447). PURE: they change only by replay.

A transactional offset is pending until the marker of its transaction. If the marker commits, it
becomes the group's offset, unless a later record of the same partition counts already: the last
record in the log wins, whatever the order of the markers, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.coordinator.offsets.committed import Committed

# By producer id, in the order of the records. None: a later record has superseded the offset.
Transactions = dict[int, "Committed | None"]


class Ended(NamedTuple):
    """An offset of a transaction that was committed."""

    group_id: str
    partition: TopicPartition
    committed: Committed


class PendingOffsets:
    __slots__ = ("_by_group", "_by_producer")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[TopicPartition, Transactions]] = {}
        self._by_producer: dict[int, dict[tuple[str, TopicPartition], None]] = {}

    def put(
        self, producer_id: int, group_id: str, partition: TopicPartition, committed: Committed
    ) -> None:
        transactions = self._by_group.setdefault(group_id, {}).setdefault(partition, {})
        transactions.pop(producer_id, None)
        transactions[producer_id] = committed
        self._by_producer.setdefault(producer_id, {})[group_id, partition] = None

    def supersede(self, group_id: str, partition: TopicPartition) -> None:
        """An offset outside of a transaction was committed: earlier ones no longer count. The
        partition stays unstable until their markers."""
        transactions = self._by_group.get(group_id, {}).get(partition)
        if transactions is not None:
            transactions.update(dict.fromkeys(transactions))

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """The partition's offset was deleted, and with it the pending ones."""
        for producer_id in list(self._by_group.get(group_id, {}).get(partition, ())):
            self._remove(producer_id, group_id, partition)

    def end(self, producer_id: int, *, commit: bool) -> Iterator[Ended]:
        """End a transaction; yield the offsets that it commits."""
        for group_id, partition in list(self._by_producer.get(producer_id, ())):
            transactions = self._by_group[group_id][partition]
            committed = transactions[producer_id]
            if commit and committed is not None:
                for earlier in list(transactions):
                    if earlier == producer_id:
                        break
                    transactions[earlier] = None
                yield Ended(group_id, partition, committed)
            self._remove(producer_id, group_id, partition)

    def _remove(self, producer_id: int, group_id: str, partition: TopicPartition) -> None:
        partitions = self._by_group[group_id]
        del partitions[partition][producer_id]
        if not partitions[partition]:
            del partitions[partition]
        if not partitions:
            del self._by_group[group_id]
        del self._by_producer[producer_id][group_id, partition]
        if not self._by_producer[producer_id]:
            del self._by_producer[producer_id]

    def saved(self, group_id: str, partition: TopicPartition) -> Callable[[], None]:
        """Return a call that restores the present transactions of a partition."""
        return partial(self._restore, group_id, partition, self._copied(group_id, partition))

    def saved_all(self, keys: Iterable[tuple[str, TopicPartition]]) -> Callable[[], None]:
        """Return a call that restores the present transactions of partitions of groups."""
        return partial(self._restore_all, [(*key, self._copied(*key)) for key in keys])

    def _copied(self, group_id: str, partition: TopicPartition) -> Transactions:
        return dict(self._by_group.get(group_id, {}).get(partition, {}))

    def _restore_all(self, saved: Iterable[tuple[str, TopicPartition, Transactions]]) -> None:
        for group_id, partition, transactions in saved:
            self._restore(group_id, partition, transactions)

    def _restore(
        self, group_id: str, partition: TopicPartition, transactions: Transactions
    ) -> None:
        self.remove(group_id, partition)
        if transactions:
            self._by_group.setdefault(group_id, {})[partition] = transactions
        for producer_id in transactions:
            self._by_producer.setdefault(producer_id, {})[group_id, partition] = None

    def partitions(self, group_id: str) -> Collection[TopicPartition]:
        """Return the partitions whose offset an open transaction would change."""
        return self._by_group.get(group_id, {}).keys()

    def of_producer(self, producer_id: int) -> Collection[tuple[str, TopicPartition]]:
        """Return the groups and partitions that a producer's open transaction would change."""
        return self._by_producer.get(producer_id, {}).keys()

    def candidates(self, group_id: str, partition: TopicPartition) -> Iterator[Committed]:
        """Return the offsets of a partition that a marker may still commit."""
        transactions = self._by_group.get(group_id, {}).get(partition, {})
        return (committed for committed in transactions.values() if committed is not None)

    def __iter__(self) -> Iterator[tuple[str, TopicPartition]]:
        return (
            (group_id, partition)
            for group_id, partitions in self._by_group.items()
            for partition in partitions
        )
