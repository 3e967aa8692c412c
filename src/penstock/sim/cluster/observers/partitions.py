"""Observes the partitions of all nodes: leadership, high watermarks, appends, fetches,
truncations.

It sees all nodes at the same moment, which no node can.
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
from penstock.sim.cluster.events import (
    BecameLeader,
    Event,
    FollowerFetchAccepted,
    HighWatermarkAdvanced,
    LeaderAppended,
    LeaderElected,
    LogTruncated,
    incarnation,
)
from penstock.sim.cluster.history import History
from penstock.sim.cluster.observers.logs import common_end, read_batches
from penstock.sim.harness import replaced


class PartitionObserver:
    """`processes` are the nodes by id: the current process of each, or its last if it is down."""

    def __init__(self, history: History, now: Callable[[], float]) -> None:
        self.processes: dict[int, Node] = {}
        self._history = history
        self._now = now
        self._lost_data: list[Node] = []
        # The highest high watermark of each leader epoch.
        self._high_watermarks: dict[TopicPartition, dict[int, int]] = {}
        self._seen_changes: set[tuple[TopicPartition, int]] = set()

    def note(self, event: Event) -> None:
        self._history.events.append(event)

    def mark_data_lost(self, node_id: int) -> None:
        """Record that the current process of a node no longer has all of its data."""
        if node_id in self.processes:
            self._lost_data.append(self.processes[node_id])

    def _name(self, partition: Partition) -> TopicPartition:
        """Return the name under which the history knows a partition."""
        name = partition.topic_partition
        if name.topic in self._history.recreated_topics:
            return incarnation(name, partition.topic_id)
        return name

    def max_high_watermark(self, partition: TopicPartition) -> int:
        """Return the highest high watermark that any leader has had."""
        return max(self._high_watermarks.get(partition, {}).values(), default=0)

    def _max_high_watermark_before(self, partition: TopicPartition, epoch: int) -> int:
        """Return the highest high watermark of earlier epochs. A node that learns of its election
        late need not have what later leaders committed."""
        by_epoch = self._high_watermarks.get(partition, {})
        return max((mark for leader, mark in by_epoch.items() if leader < epoch), default=0)

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """Observe until the block ends."""
        wraps: list[tuple[type, str, Callable[[Any], Any]]] = [
            (Node, "__init__", self._on_init),
            (Node, "apply", self._on_apply),
            (Partition, "become", self._on_become),
            (Partition, "advance_high_watermark", self._on_high_watermark),
            (LeaderRole, "append", self._on_append),
            (Partition, "follower_fetched", self._on_fetched),
            (FollowerRole, "_truncate_log", self._on_truncate),
        ]
        with contextlib.ExitStack() as stack:
            for owner, name, make in wraps:
                stack.enter_context(replaced(owner, name, make))
            yield

    # Nodes

    def _on_init(self, init: Callable[..., None]) -> Callable[..., None]:
        def observed(node: Node, *args: Any, **kwargs: Any) -> None:
            init(node, *args, **kwargs)
            self.processes[node.config.node_id] = node

        return observed

    def _on_apply(self, apply: Callable[..., Iterator[None]]) -> Callable[..., Iterator[None]]:
        def observed(node: Node, image: MetadataImage, delta: MetadataDelta) -> Iterator[None]:
            for before, after in delta.topics.values():
                if before is not None and after is not None and before.id == after.id:
                    for index, state in after.partitions.items():
                        name = TopicPartition(after.name, index)
                        if after.name in self._history.recreated_topics:
                            name = incarnation(name, after.id)
                        if index in before.partitions:
                            self._changed(name, before.partitions[index], state)
            return apply(node, image, delta)

        return observed

    def _changed(
        self, partition: TopicPartition, before: PartitionState, after: PartitionState
    ) -> None:
        """Record a change of leader once, when the first node applies it. A delta that spans
        several changes is skipped: it does not show who was eligible at each of them."""
        change = (partition, after.partition_epoch)
        if after.partition_epoch != before.partition_epoch + 1 or change in self._seen_changes:
            return
        self._seen_changes.add(change)
        if after.leader != before.leader:
            remaining = (*after.isr, *after.eligible_leader_replicas)
            # The change that completes a reassignment also brings its last replicas into the ISR:
            # the leader has proposed them.
            is_completed = before.removing_replicas and not after.removing_replicas
            eligible = tuple(
                replica
                for replica in (
                    *before.isr,
                    *before.eligible_leader_replicas,
                    *(after.isr if is_completed else ()),
                )
                if replica in remaining
            )
            self.note(
                LeaderElected(
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
        def observed(partition: Partition, state: PartitionState) -> None:
            before = partition.leader
            become(partition, state)
            if partition.leader is not None and partition.leader is not before:
                name = self._name(partition)
                self.note(
                    BecameLeader(
                        self._now(),
                        _node_id(partition),
                        name,
                        partition.leader.epoch,
                        partition.log_end_offset,
                        self._max_high_watermark_before(name, partition.leader.epoch),
                    )
                )

        return observed

    def _on_high_watermark(self, advance: Callable[..., None]) -> Callable[..., None]:
        def observed(partition: Partition, offset: int) -> None:
            leader, name = partition.leader, self._name(partition)
            if leader is not None:
                epochs = self._high_watermarks.setdefault(name, {})
                epochs[leader.epoch] = max(epochs.get(leader.epoch, 0), offset)
                self.note(
                    HighWatermarkAdvanced(
                        self._now(),
                        _node_id(partition),
                        name,
                        leader.epoch,
                        offset,
                        len(leader.isr),
                        leader.min_insync,
                        self._isr_ends(partition),
                    )
                )
            advance(partition, offset)

        return observed

    def _isr_ends(self, partition: Partition) -> dict[int, int]:
        """Return the log end offsets of in-sync replicas. A replica counts if its process is the
        one that fetched, or that process died without losing data."""
        leader = partition.leader
        assert leader is not None
        ends = {_node_id(partition): partition.log_end_offset}
        for replica in leader.isr:
            process = self.processes.get(replica)
            progress = leader.followers.get(replica)
            if (
                process is None
                or progress is None
                or progress.broker_epoch not in (-1, process.lifecycle.broker_epoch)
                or process in self._lost_data
            ):
                continue
            follower = process.replicas.partitions.get(partition.topic_partition)
            if (
                follower is not None
                and follower.topic_id == partition.topic_id
                and follower.directory.failure is None
                # A replica that was removed and added again has another log. The leader has not
                # learned of the new leader epoch yet, and the controller does not count the replica
                # as in sync.
                and not (self._history.has_reassignments and follower.leader_epoch > leader.epoch)
            ):
                ends[replica] = follower.log_end_offset
        return ends

    def _on_append(self, append: Callable[..., Any]) -> Callable[..., Any]:
        def observed(role: LeaderRole, *args: Any, **kwargs: Any) -> Any:
            result = append(role, *args, **kwargs)
            node_id = _node_id(role.partition)
            known = self._known_state(node_id, role.partition)
            if known is not None:
                self.note(
                    LeaderAppended(
                        self._now(),
                        node_id,
                        self._name(role.partition),
                        role.leader.epoch,
                        known.leader,
                        known.leader_epoch,
                    )
                )
            return result

        return observed

    def _known_state(self, node_id: int, partition: Partition) -> PartitionState | None:
        """Return what a node's metadata says of a partition, or None if its topic is deleted."""
        name = partition.topic_partition
        topic = self.processes[node_id].metadata.image.topics.get(name.topic)
        if topic is None or topic.id != partition.topic_id:
            return None
        return topic.partitions.get(name.partition)

    def _on_fetched(self, fetched: Callable[..., Any]) -> Callable[..., Any]:
        def observed(
            partition: Partition, replica_id: int, broker_epoch: int, *args: Any, **kwargs: Any
        ) -> Any:
            diverging = fetched(partition, replica_id, broker_epoch, *args, **kwargs)
            node_id = _node_id(partition)
            broker = self.processes[node_id].metadata.image.brokers.get(replica_id)
            if diverging is None and broker is not None:
                self.note(
                    FollowerFetchAccepted(
                        self._now(),
                        node_id,
                        self._name(partition),
                        replica_id,
                        broker_epoch,
                        broker.epoch,
                    )
                )
            return diverging

        return observed

    def _on_truncate(
        self, truncate: Callable[..., Coroutine[Any, Any, None]]
    ) -> Callable[..., Coroutine[Any, Any, None]]:
        async def observed(
            role: FollowerRole, work: Coroutine[Any, Any, None], offset: int
        ) -> None:
            partition = role.partition
            before = partition.log_end_offset
            after = max(offset, partition.log_start_offset)
            if after < before:
                self.note(
                    LogTruncated(
                        self._now(),
                        _node_id(partition),
                        self._name(partition),
                        before,
                        after,
                        self._common_end(partition),
                    )
                )
            await truncate(role, work, offset)

        return observed

    def _common_end(self, partition: Partition) -> int | None:
        """Return where a follower's log begins to differ from its leader's, or None if that leader
        no longer leads."""
        process = self.processes.get(partition.leader_id)
        leader = (
            process.replicas.partitions.get(partition.topic_partition)
            if process is not None
            else None
        )
        if (
            leader is None
            or leader.leader is None
            or leader.leader.epoch != partition.leader_epoch
            or leader.topic_id != partition.topic_id
        ):
            return None
        ours = read_batches(partition, partition.log_end_offset)
        return common_end(ours, read_batches(leader, leader.log_end_offset))


def _node_id(partition: Partition) -> int:
    return partition.env.node_id
