"""Offsets of open transactions (KIP-447). PURE: they change only by replay.

A transactional offset is pending until the marker of its transaction. If the marker commits, it
becomes the group's offset, unless a later record of the same partition counts already: the last
record in the log wins, whatever the order of the markers, as in Kafka.

A marker may end 100,000 offsets in one step. So the offsets of a transaction in a group are one
dictionary, which becomes the group's as a whole. The order of single records is kept only while
several producers have offsets in the group, which is rare.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, KeysView, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.ids import TopicPartition

if TYPE_CHECKING:
    from penstock.coordinator.offsets.committed import Committed


@dataclass(slots=True)
class Transaction:
    """The pending offsets of one producer in one group."""

    # Those that the marker may commit, and the partitions for which a later record counts already.
    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)
    superseded: set[TopicPartition] = field(default_factory=set)
    # The order of the records among those of several producers. A record that was written before
    # the group had several is not in it, and is older than all that are.
    order: dict[TopicPartition, int] = field(default_factory=dict)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self.offsets or partition in self.superseded

    @property
    def is_empty(self) -> bool:
        return not self.offsets and not self.superseded

    def supersede(self, partition: TopicPartition) -> None:
        if self.offsets.pop(partition, None) is not None:
            self.superseded.add(partition)
            self.order.pop(partition, None)

    def supersede_before(self, ended: Transaction) -> None:
        """Another transaction was committed: what is older in the log does not count any more."""
        for partition in self.offsets.keys() & ended.offsets.keys():
            if self.order.get(partition, 0) < ended.order.get(partition, 0):
                self.supersede(partition)

    def discard(self, partition: TopicPartition) -> None:
        self.offsets.pop(partition, None)
        self.superseded.discard(partition)
        self.order.pop(partition, None)

    def copied(self) -> Transaction:
        return Transaction(dict(self.offsets), set(self.superseded), dict(self.order))


class Ended(NamedTuple):
    """The offsets of a group that a transaction has committed."""

    group_id: str
    offsets: Mapping[TopicPartition, Committed]


class _Saved(NamedTuple):
    """What a transaction has of one partition."""

    producer_id: int
    committed: Committed | None
    order: int | None


class PendingOffsets:
    __slots__ = ("_by_group", "_by_producer", "_count")

    def __init__(self) -> None:
        # By group and producer id.
        self._by_group: dict[str, dict[int, Transaction]] = {}
        # The groups of each producer.
        self._by_producer: dict[int, dict[str, None]] = {}
        # Records that were put into an order.
        self._count = 0

    def put(
        self, producer_id: int, group_id: str, partition: TopicPartition, committed: Committed
    ) -> None:
        transaction = self._transaction(producer_id, group_id)
        transaction.discard(partition)
        transaction.offsets[partition] = committed
        if len(self._by_group[group_id]) > 1:
            self._count += 1
            transaction.order[partition] = self._count

    def _transaction(self, producer_id: int, group_id: str) -> Transaction:
        transactions = self._by_group.setdefault(group_id, {})
        transaction = transactions.get(producer_id)
        if transaction is None:
            transaction = transactions[producer_id] = Transaction()
            self._by_producer.setdefault(producer_id, {})[group_id] = None
        return transaction

    def supersede(self, group_id: str, partition: TopicPartition) -> None:
        """An offset outside of a transaction was committed: earlier ones no longer count. The
        partition stays unstable until their markers."""
        for transaction in self._of_group(group_id).values():
            transaction.supersede(partition)

    def remove(self, group_id: str, partition: TopicPartition) -> None:
        """The partition's offset was deleted, and with it the pending ones."""
        for producer_id, transaction in list(self._of_group(group_id).items()):
            transaction.discard(partition)
            if transaction.is_empty:
                self._drop(producer_id, group_id)

    def end(self, producer_id: int, *, commit: bool) -> Iterator[Ended]:
        """End a transaction; yield the offsets that it commits."""
        for group_id in list(self.groups_of(producer_id)):
            ended = self._drop(producer_id, group_id)
            if commit:
                for other in self._of_group(group_id).values():
                    other.supersede_before(ended)
                yield Ended(group_id, ended.offsets)

    def _drop(self, producer_id: int, group_id: str) -> Transaction:
        transactions, groups = self._by_group[group_id], self._by_producer[producer_id]
        dropped = transactions.pop(producer_id)
        if not transactions:
            del self._by_group[group_id]
        del groups[group_id]
        if not groups:
            del self._by_producer[producer_id]
        return dropped

    # Reverting a step

    def saved(self, group_id: str, partition: TopicPartition) -> Callable[[], None]:
        """Return a call that restores what the present transactions have of a partition."""
        saved = [
            _Saved(producer_id, each.offsets.get(partition), each.order.get(partition))
            for producer_id, each in self._of_group(group_id).items()
            if partition in each
        ]
        return partial(self._restore, group_id, partition, saved)

    def _restore(self, group_id: str, partition: TopicPartition, saved: Collection[_Saved]) -> None:
        self.remove(group_id, partition)
        for producer_id, committed, order in saved:
            transaction = self._transaction(producer_id, group_id)
            if committed is None:
                transaction.superseded.add(partition)
            else:
                transaction.offsets[partition] = committed
            if order is not None:
                transaction.order[partition] = order

    def saved_transaction(self, producer_id: int) -> Callable[[], None]:
        """Return a call that restores what the end of a producer's transaction changes. Its own
        offsets are not copied: the end leaves them as they are."""
        saved = {
            group_id: {
                each_id: each if each_id == producer_id else each.copied()
                for each_id, each in self._by_group[group_id].items()
            }
            for group_id in self.groups_of(producer_id)
        }
        return partial(self._restore_transaction, producer_id, saved)

    def _restore_transaction(
        self, producer_id: int, saved: Mapping[str, dict[int, Transaction]]
    ) -> None:
        self._by_group.update(saved)
        if saved:
            self._by_producer[producer_id] = dict.fromkeys(saved)

    # Queries

    def _of_group(self, group_id: str) -> Mapping[int, Transaction]:
        return self._by_group.get(group_id, {})

    def partitions(self, group_id: str) -> Iterator[TopicPartition]:
        """Return the partitions whose offset an open transaction would change. One may occur
        several times."""
        for transaction in self._of_group(group_id).values():
            yield from transaction.offsets
            yield from transaction.superseded

    def has_group(self, group_id: str) -> bool:
        return group_id in self._by_group

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        """Return True if an open transaction would change the offset of a partition."""
        return any(partition in each for each in self._of_group(group_id).values())

    def groups_of(self, producer_id: int) -> KeysView[str]:
        """Return the groups whose offsets a producer's open transaction would change."""
        return self._by_producer.get(producer_id, {}).keys()

    def of_producer(self, producer_id: int, group_id: str) -> Mapping[TopicPartition, Committed]:
        """Return the offsets of a group that a producer's marker may commit."""
        transaction = self._of_group(group_id).get(producer_id)
        return {} if transaction is None else transaction.offsets

    def candidates(self, group_id: str, partition: TopicPartition) -> Iterator[Committed]:
        """Return the offsets of a partition that a marker may still commit."""
        for transaction in self._of_group(group_id).values():
            committed = transaction.offsets.get(partition)
            if committed is not None:
                yield committed

    def __iter__(self) -> Iterator[tuple[str, TopicPartition]]:
        return (
            (group_id, partition)
            for group_id in self._by_group
            for partition in dict.fromkeys(self.partitions(group_id))
        )
