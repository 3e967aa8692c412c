"""Looks into the nodes of a simulated cluster while they run, and notes what happens to their
partitions and to the quorum.

Product code knows nothing of it: its methods are wrapped while a run lasts. It sees every node at
once, which no node can.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from penstock.ids import TopicPartition
from penstock.metadata.image import MetadataDelta, MetadataImage, PartitionState
from penstock.node.node import Node
from penstock.node.partition.follower import FollowerRole
from penstock.node.partition.leader import LeaderRole
from penstock.node.partition.partition import Partition
from penstock.sim.cluster.history import (
    Advanced,
    Appended,
    Counted,
    Cut,
    Elected,
    Event,
    History,
    Led,
)
from penstock.sim.cluster.logs import batches_below, shared_end
from penstock.sim.patching import replaced


class Observer:
    """`lives` are the nodes' present processes by id, or the last ones where they are down; `ended`
    says of one that it lost data then."""

    def __init__(self, history: History, now: Callable[[], float]) -> None:
        self.lives: dict[int, Node] = {}
        self._history = history
        self._now = now
        self._lost: list[Node] = []
        self._watermarks: dict[TopicPartition, dict[int, int]] = {}
        self._seen_changes: set[tuple[TopicPartition, int]] = set()

    def note(self, event: Event) -> None:
        self._history.events.append(event)

    def lost_data(self, node_id: int) -> None:
        """What this node had is no longer all there."""
        if node_id in self.lives:
            self._lost.append(self.lives[node_id])

    def watermark(self, partition: TopicPartition) -> int:
        """The highest that any leader ever had."""
        return max(self._watermarks.get(partition, {}).values(), default=0)

    def _watermark_before(self, partition: TopicPartition, epoch: int) -> int:
        """The highest of leaders of earlier epochs: one that hears late of its election need not
        have what came after it."""
        return max(
            (one for led, one in self._watermarks.get(partition, {}).items() if led < epoch),
            default=0,
        )

    @contextlib.contextmanager
    def looking_on(self) -> Iterator[None]:
        wraps: list[tuple[type, str, Callable[[Any], Any]]] = [
            (Node, "__init__", self._on_birth),
            (Node, "apply", self._on_applied),
            (Partition, "become", self._on_become),
            (Partition, "advance_high_watermark", self._on_commit),
            (LeaderRole, "append", self._on_append),
            (Partition, "follower_fetched", self._on_fetched),
            (FollowerRole, "_truncate_log", self._on_cut),
        ]
        with contextlib.ExitStack() as stack:
            for owner, name, make in wraps:
                stack.enter_context(replaced(owner, name, make))
            yield

    # Nodes

    def _on_birth(self, init: Callable[..., None]) -> Callable[..., None]:
        def born(node: Node, *args: Any, **kwargs: Any) -> None:
            init(node, *args, **kwargs)
            self.lives[node.config.node_id] = node

        return born

    def _on_applied(self, apply: Callable[..., Iterator[None]]) -> Callable[..., Iterator[None]]:
        def applied(node: Node, image: MetadataImage, delta: MetadataDelta) -> Iterator[None]:
            for before, after in delta.topics.values():
                if before is not None and after is not None:
                    for index, state in after.partitions.items():
                        if index in before.partitions:
                            self._changed(
                                TopicPartition(after.name, index), before.partitions[index], state
                            )
            return apply(node, image, delta)

        return applied

    def _changed(
        self, partition: TopicPartition, before: PartitionState, after: PartitionState
    ) -> None:
        """Noted once, from the first node that learns of it; several changes at once do not show
        who could be elected at each."""
        change = (partition, after.partition_epoch)
        if after.partition_epoch != before.partition_epoch + 1 or change in self._seen_changes:
            return
        self._seen_changes.add(change)
        if after.leader != before.leader:
            left = (*after.isr, *after.eligible_leader_replicas)
            eligible = tuple(
                replica
                for replica in (*before.isr, *before.eligible_leader_replicas)
                if replica in left
            )
            self.note(
                Elected(
                    self._now(),
                    partition,
                    after.leader,
                    after.replicas[0],
                    after.leader_epoch,
                    eligible,
                    before.last_known_elr,
                )
            )

    # Partitions

    def _on_become(self, become: Callable[..., None]) -> Callable[..., None]:
        def became(partition: Partition, state: PartitionState) -> None:
            before = partition.leader
            become(partition, state)
            if partition.leader is not None and partition.leader is not before:
                name = partition.topic_partition
                self.note(
                    Led(
                        self._now(),
                        _node_id(partition),
                        name,
                        partition.leader.epoch,
                        partition.log_end_offset,
                        self._watermark_before(name, partition.leader.epoch),
                    )
                )

        return became

    def _on_commit(self, commit: Callable[..., None]) -> Callable[..., None]:
        def committed(partition: Partition, offset: int) -> None:
            leader, name = partition.leader, partition.topic_partition
            if leader is not None:
                epochs = self._watermarks.setdefault(name, {})
                epochs[leader.epoch] = max(epochs.get(leader.epoch, 0), offset)
                in_sync = self._true_ends(partition)
                self.note(
                    Advanced(
                        self._now(),
                        _node_id(partition),
                        name,
                        leader.epoch,
                        offset,
                        len(leader.isr),
                        leader.min_insync,
                        in_sync,
                    )
                )
            commit(partition, offset)

        return committed

    def _true_ends(self, partition: Partition) -> dict[int, int]:
        """Of the in-sync replicas that still live the life in which they fetched, or died in it
        without losing anything."""
        leader = partition.leader
        assert leader is not None
        ends = {_node_id(partition): partition.log_end_offset}
        for replica in leader.isr:
            life = self.lives.get(replica)
            progress = leader.followers.get(replica)
            if (
                life is None
                or progress is None
                or progress.broker_epoch not in (-1, life.lifecycle.broker_epoch)
                or life in self._lost
            ):
                continue
            theirs = life.replicas.partitions.get(partition.topic_partition)
            if theirs is not None and theirs.directory.failure is None:
                ends[replica] = theirs.log_end_offset
        return ends

    def _on_append(self, append: Callable[..., Any]) -> Callable[..., Any]:
        def appended(role: LeaderRole, *args: Any, **kwargs: Any) -> Any:
            result = append(role, *args, **kwargs)
            partition, epoch = role.partition, role.leader.epoch
            name, node_id = partition.topic_partition, _node_id(partition)
            known = self._known_state(node_id, name)
            if known is not None:
                self.note(
                    Appended(self._now(), node_id, name, epoch, known.leader, known.leader_epoch)
                )
            return result

        return appended

    def _known_state(self, node_id: int, name: TopicPartition) -> PartitionState | None:
        topic = self.lives[node_id].metadata.image.topics.get(name.topic)
        return None if topic is None else topic.partitions.get(name.partition)

    def _on_fetched(self, fetched: Callable[..., Any]) -> Callable[..., Any]:
        def counted(
            partition: Partition, replica_id: int, broker_epoch: int, *args: Any, **kwargs: Any
        ) -> Any:
            diverging = fetched(partition, replica_id, broker_epoch, *args, **kwargs)
            node_id = _node_id(partition)
            broker = self.lives[node_id].metadata.image.brokers.get(replica_id)
            if diverging is None and broker is not None:
                self.note(
                    Counted(
                        self._now(),
                        node_id,
                        partition.topic_partition,
                        replica_id,
                        broker_epoch,
                        broker.epoch,
                    )
                )
            return diverging

        return counted

    def _on_cut(
        self, cut: Callable[..., Coroutine[Any, Any, None]]
    ) -> Callable[..., Coroutine[Any, Any, None]]:
        async def was_cut(role: FollowerRole, work: Coroutine[Any, Any, None], offset: int) -> None:
            partition = role.partition
            before = partition.log_end_offset
            after = max(offset, partition.log_start_offset)
            if after < before:
                name = partition.topic_partition
                self.note(
                    Cut(
                        self._now(),
                        _node_id(partition),
                        name,
                        before,
                        after,
                        self._shared(partition),
                    )
                )
            await cut(role, work, offset)

        return was_cut

    def _shared(self, partition: Partition) -> int | None:
        """How far a follower's log is the same as its leader's, where that leader is at hand."""
        life = self.lives.get(partition.leader_id)
        theirs = (
            life.replicas.partitions.get(partition.topic_partition) if life is not None else None
        )
        if theirs is None or theirs.leader is None or theirs.leader.epoch != partition.leader_epoch:
            return None
        ours = batches_below(partition, partition.log_end_offset)
        return shared_end(ours, batches_below(theirs, theirs.log_end_offset))


def _node_id(partition: Partition) -> int:
    return partition.env.node_id
