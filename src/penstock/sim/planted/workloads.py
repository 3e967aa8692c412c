"""Bugs planted where the additional workloads and faults of cluster runs look: deleted topics,
compaction, retention, settings, moves, replaced disks, consumer groups and lost power."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from penstock.controller.configs import alter
from penstock.coordinator.consumer import reconcile
from penstock.coordinator.consumer.reconcile import Reconciliation
from penstock.coordinator.consumer.timeouts import SESSION
from penstock.coordinator.offsets import commit as offset_commit
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import RESERVED_UUIDS
from penstock.log import recovery, retention
from penstock.log.compaction.filter import LastOffsets
from penstock.log.moving import Moves
from penstock.node.metadata import MetadataView
from penstock.node.partition.partition import Partition
from penstock.node.replication.replicas import Replicas
from penstock.protocol.internal.metadata_topics import ClearElrRecord
from penstock.sim.harness import replaced


def stale_topic_ids_reach_the_new_topic() -> AbstractContextManager[None]:
    """A request with the id of a deleted topic reaches the topic that has its name now."""
    names: dict[Any, str] = {}

    def make(find: Any) -> Any:
        def remembered(view: MetadataView, name: str = "", topic_id: Any = None) -> Any:
            names.update(view.image.topic_names)
            if not name and topic_id is not None and names.get(topic_id) in view.image.topics:
                return view.image.topics[names[topic_id]]
            return find(view, name, topic_id)

        return remembered

    return replaced(MetadataView, "topic", make)


def last_values_are_compacted_away() -> AbstractContextManager[None]:
    """Compaction removes the last record of a key too."""

    def make(add: Any) -> Any:
        def add_more(last: LastOffsets, *args: Any) -> None:
            add(last, *args)
            last.offsets = {key: offset + 1 for key, offset in last.offsets.items()}

        return add_more

    return replaced(LastOffsets, "add", make)


def retention_deletes_one_segment_more() -> AbstractContextManager[None]:
    """retention.bytes deletes the segment that contains the limit."""

    def make(too_much: Any) -> Any:
        def more(segments: Any, config: Any) -> int:
            count: int = too_much(segments, config)
            return min(count + 1, len(segments) - 1) if count else 0

        return more

    return replaced(retention, "_too_much", make)


def eligible_replicas_are_cleared_without_isr() -> AbstractContextManager[None]:
    """A changed min.insync.replicas leaves a partition without ISR without eligible replicas."""

    def make(clear: Any) -> Any:
        def all_of_them(*args: Any) -> list[object]:
            return [record for record in clear(*args) if isinstance(record, ClearElrRecord)]

        return all_of_them

    return replaced(alter, "_clear_elr", make)


def replaced_directories_are_offline() -> AbstractContextManager[None]:
    """A broker does not serve replicas whose assigned directory was replaced."""

    def make(new_log: Any) -> Any:
        def assigned_only(
            replicas: Replicas, topic_id: Any, name: Any, state: Any, config: Any
        ) -> Any:
            assigned = dict(zip(state.replicas, state.directories, strict=False))
            directory = assigned.get(replicas._node_id)
            if (
                directory is not None
                and directory.int >= RESERVED_UUIDS
                and all(online.id != directory for online in replicas.store.online)
            ):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "its directory is offline")
            return new_log(replicas, topic_id, name, state, config)

        return assigned_only

    return replaced(Replicas, "_new_log", make)


def moves_switch_before_everything_is_copied() -> AbstractContextManager[None]:
    """A replica that moves to another directory loses the records that are not copied yet."""

    async def early(moves: Moves, move: Any) -> bool:
        return moves._is_current(move)

    return replaced(Moves, "_has_all", lambda _original: early)


def acknowledged_before_synced() -> AbstractContextManager[None]:
    """flush.messages=1 does not delay acknowledgements until the records are synced."""
    return replaced(Partition, "must_sync", lambda _original: lambda _partition: False)


def recovery_checks_no_crc() -> AbstractContextManager[None]:
    """A damaged batch in the tail of a log is taken for a valid one after a crash."""
    return replaced(recovery, "crc_matches", lambda _original: lambda *_args: True)


def followers_serve_uncommitted_records() -> AbstractContextManager[None]:
    """A consumer that reads from a follower gets records above the high watermark."""

    def make(read: Any) -> Any:
        def ahead(partition: Partition, *args: Any, **kwargs: Any) -> Any:
            watermark = partition.high_watermark
            if not partition.is_leader:
                partition.high_watermark = partition.log_end_offset
            try:
                return read(partition, *args, **kwargs)
            finally:
                partition.high_watermark = watermark

        return ahead

    return replaced(Partition, "read", make)


def partitions_are_assigned_before_they_are_revoked() -> AbstractContextManager[None]:
    """With the consumer protocol, a member gets a partition that another one still owns."""

    def make(with_free: Any) -> Any:
        def all_of_them(step: Reconciliation, member: Any, kept: Any) -> Any:
            free = Reconciliation(
                step.target_epoch,
                step.target,
                step.subscribed,
                step.owned,
                lambda _topic, _partition: None,
            )
            return with_free(free, member, kept)

        return all_of_them

    return replaced(Reconciliation, "_with_free", make)


def heartbeats_extend_no_session() -> AbstractContextManager[None]:
    """With the consumer protocol, a member's session begins when it joins, and only then."""

    def make(extend: Any) -> Any:
        def once(step: Any, group: Any, member: Any) -> None:
            if step.groups.deadlines.get((SESSION, group.id, member.id)) is None:
                extend(step, group, member)

        return once

    return replaced(reconcile, "extend_session", make)


def replaced_static_members_are_not_fenced() -> AbstractContextManager[None]:
    """A classic group accepts every commit that names a static member."""

    def make(find_error: Any) -> Any:
        def lenient(step: Any, asked: Any) -> ErrorCode:
            if asked.instance_id is not None:
                return ErrorCode.NONE
            return ErrorCode(find_error(step, asked))

        return lenient

    return replaced(offset_commit, "_group_error", make)


PLANTED_WORKLOADS = (
    stale_topic_ids_reach_the_new_topic,
    last_values_are_compacted_away,
    retention_deletes_one_segment_more,
    eligible_replicas_are_cleared_without_isr,
    replaced_directories_are_offline,
    moves_switch_before_everything_is_copied,
    acknowledged_before_synced,
    recovery_checks_no_crc,
    followers_serve_uncommitted_records,
    partitions_are_assigned_before_they_are_revoked,
    heartbeats_extend_no_session,
    replaced_static_members_are_not_fenced,
)
