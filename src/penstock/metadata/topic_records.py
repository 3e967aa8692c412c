"""What the records about topics and partitions do to an image. PURE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from penstock.errors import InvariantBroken, invariant
from penstock.ids import uuid_text
from penstock.metadata.draft import Draft
from penstock.metadata.image import (
    MIGRATING_DIRECTORY,
    TOPIC,
    UNASSIGNED_DIRECTORY,
    PartitionState,
    TopicImage,
)
from penstock.protocol.internal.metadata_topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

NO_LEADER_CHANGE = -2
NO_RECOVERY_CHANGE = -1


def _topic(draft: Draft, record: TopicRecord) -> None:
    invariant(
        record.name not in draft.topics, f"topic {record.name} is created, but exists already"
    )
    invariant(
        record.topic_id not in draft.topic_names,
        f"topic {record.name} is created with an id in use, {uuid_text(record.topic_id)}",
    )
    draft.add_topic(TopicImage(record.name, record.topic_id, {}))


def _partition(draft: Draft, record: PartitionRecord) -> None:
    """Also replaces a partition as a whole, as Kafka allows."""
    topic = draft.topic(record.topic_id)
    directories = record.directories or (MIGRATING_DIRECTORY,) * len(record.replicas)
    _check_directories(topic, record.partition_id, record.replicas, directories)
    draft.partitions_of(topic)[record.partition_id] = PartitionState(
        replicas=record.replicas,
        isr=record.isr,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        directories=directories,
        eligible_leader_replicas=record.eligible_leader_replicas or (),
        last_known_elr=record.last_known_elr or (),
        leader_recovery_state=record.leader_recovery_state,
        adding_replicas=record.adding_replicas,
        removing_replicas=record.removing_replicas,
    )


def _partition_change(draft: Draft, record: PartitionChangeRecord) -> None:
    topic = draft.topic(record.topic_id)
    partitions = draft.partitions_of(topic)
    state = partitions.get(record.partition_id)
    if state is None:
        raise InvariantBroken(
            f"a metadata record changes {topic.name}-{record.partition_id}, which does not exist"
        )
    changed = changed_partition(state, record)
    _check_directories(topic, record.partition_id, changed.replicas, changed.directories)
    partitions[record.partition_id] = changed


def changed_partition(state: PartitionState, record: PartitionChangeRecord) -> PartitionState:
    """Every change is a new partition epoch; every word about the leader a new leader epoch, even
    if it names the same one."""
    leads_anew = record.leader != NO_LEADER_CHANGE
    recovery = record.leader_recovery_state
    # Spelled out: a broker that dies may change ten thousand partitions, and dataclasses.replace
    # takes twice the time.
    return PartitionState(
        replicas=_given(record.replicas, state.replicas),
        isr=_given(record.isr, state.isr),
        leader=record.leader if leads_anew else state.leader,
        leader_epoch=state.leader_epoch + leads_anew,
        partition_epoch=state.partition_epoch + 1,
        directories=record.directories or _kept_directories(state, record),
        eligible_leader_replicas=_given(
            record.eligible_leader_replicas, state.eligible_leader_replicas
        ),
        last_known_elr=_given(record.last_known_elr, state.last_known_elr),
        leader_recovery_state=state.leader_recovery_state
        if recovery == NO_RECOVERY_CHANGE
        else recovery,
        adding_replicas=_given(record.adding_replicas, state.adding_replicas),
        removing_replicas=_given(record.removing_replicas, state.removing_replicas),
    )


def _given(said: tuple[int, ...] | None, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    return otherwise if said is None else said


def _kept_directories(state: PartitionState, record: PartitionChangeRecord) -> tuple[Any, ...]:
    """Replicas that stay keep their directory; new ones have none yet."""
    if record.replicas is None:
        return state.directories
    where = dict(zip(state.replicas, state.directories, strict=True))
    return tuple(where.get(replica, UNASSIGNED_DIRECTORY) for replica in record.replicas)


def _check_directories(
    topic: TopicImage, index: int, replicas: tuple[int, ...], directories: tuple[Any, ...]
) -> None:
    if len(directories) != len(replicas):
        raise InvariantBroken(
            f"{topic.name}-{index} has {len(replicas)} replicas, but directories for "
            f"{len(directories)}"
        )


def _remove_topic(draft: Draft, record: RemoveTopicRecord) -> None:
    """Its settings go with it."""
    topic = draft.topic(record.topic_id)
    draft.remove_topic(topic)
    if (TOPIC, topic.name) in draft.configs:
        draft.set_config((TOPIC, topic.name), {})


def _clear_elr(draft: Draft, record: ClearElrRecord) -> None:
    invariant(
        not record.topic_name or record.topic_name in draft.topics,
        f"ClearElrRecord for {record.topic_name}, which does not exist",
    )
    topics = [draft.topics[record.topic_name]] if record.topic_name else list(draft.topics.values())
    for topic in topics:
        for index, state in topic.partitions.items():
            if state.eligible_leader_replicas or state.last_known_elr:
                cleared = replace(
                    state,
                    eligible_leader_replicas=(),
                    last_known_elr=(),
                    partition_epoch=state.partition_epoch + 1,
                )
                draft.partitions_of(draft.topic(topic.id))[index] = cleared


APPLY: Mapping[type, Callable[[Draft, Any], None]] = {
    TopicRecord: _topic,
    PartitionRecord: _partition,
    PartitionChangeRecord: _partition_change,
    RemoveTopicRecord: _remove_topic,
    ClearElrRecord: _clear_elr,
}
