"""Replays the records of topics and partitions (Kafka's `TopicsDelta`). PURE."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from penstock.errors import InvariantBroken, invariant
from penstock.ids import uuid_text
from penstock.metadata.image import (
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    MetadataImage,
    PartitionState,
    TopicImage,
)
from penstock.metadata.layered_map import next_version, settled
from penstock.protocol.internal.metadata_topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

T = TypeVar("T")

NO_LEADER_CHANGE = -2
NO_RECOVERY_CHANGE = -1


class TopicsDelta:
    """Makes the next versions of the image's mappings on the first change, and records which topics
    and partitions changed."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._topics: MutableMapping[str, TopicImage] | None = None
        self._topic_names: MutableMapping[UUID, str] | None = None
        # Topic id -> the partitions that this delta copied and so may change in place.
        self._copied: dict[UUID, dict[int, PartitionState]] = {}
        # Those of them to which a partition was added. A change keeps the order.
        self._extended: set[UUID] = set()
        # Ordered: a dict without values.
        self._changed: dict[UUID, None] = {}
        self._changed_partitions: dict[UUID, dict[int, None]] = {}
        # Equal values are one object: most partitions of a cluster have one of a few states.
        self._shared: dict[object, Any] = {}

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        return self._image.topics if self._topics is None else self._topics

    @property
    def topic_names(self) -> Mapping[UUID, str]:
        return self._image.topic_names if self._topic_names is None else self._topic_names

    def topic(self, topic_id: UUID) -> TopicImage:
        name = self.topic_names.get(topic_id)
        if name is None:
            raise InvariantBroken(
                f"a metadata record is for topic id {uuid_text(topic_id)}, which does not exist"
            )
        return self.topics[name]

    # Records

    def replay_topic(self, record: TopicRecord) -> None:
        invariant(
            record.name not in self.topics,
            f"TopicRecord for topic {record.name}, which exists already",
        )
        invariant(
            record.topic_id not in self.topic_names,
            f"TopicRecord for topic {record.name} with an id in use, {uuid_text(record.topic_id)}",
        )
        self._add(TopicImage(record.name, record.topic_id, {}))

    def replay_remove_topic(self, record: RemoveTopicRecord) -> str:
        """Return the name of the removed topic."""
        topic = self.topic(record.topic_id)
        del self._next_topics()[topic.name], self._next_names()[topic.id]
        self._copied.pop(topic.id, None)
        self._changed_partitions.pop(topic.id, None)
        self._changed[topic.id] = None
        return topic.name

    def replay_partition(self, record: PartitionRecord) -> None:
        """Add a partition, or replace all of it, which Kafka allows."""
        topic = self.topic(record.topic_id)
        directories = record.directories or (MIGRATING_DIRECTORY,) * len(record.replicas)
        _check_directories(topic, record.partition_id, record.replicas, directories)
        self._extended.add(topic.id)
        state = PartitionState(
            replicas=self._share(record.replicas),
            isr=self._share(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=self._share(directories),
            eligible_leader_replicas=record.eligible_leader_replicas or (),
            last_known_elr=record.last_known_elr or (),
            leader_recovery_state=record.leader_recovery_state,
            adding_replicas=record.adding_replicas,
            removing_replicas=record.removing_replicas,
        )
        self._partitions(topic, record.partition_id)[record.partition_id] = self._share(state)

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self.topic(record.topic_id)
        partitions = self._partitions(topic, record.partition_id)
        state = partitions.get(record.partition_id)
        if state is None:
            raise InvariantBroken(
                f"PartitionChangeRecord for {topic.name}-{record.partition_id}, which does not "
                "exist"
            )
        changed = apply_partition_change(state, record)
        _check_directories(topic, record.partition_id, changed.replicas, changed.directories)
        partitions[record.partition_id] = self._share(changed)

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """Clear the eligible leader replicas of one topic, or of all if it has no name."""
        name = record.topic_name
        invariant(
            not name or name in self.topics,
            f"ClearElrRecord for topic {name}, which does not exist",
        )
        for topic in [self.topics[name]] if name else list(self.topics.values()):
            for index, state in topic.partitions.items():
                if state.eligible_leader_replicas or state.last_known_elr:
                    self._partitions(self.topic(topic.id), index)[index] = replace(
                        state,
                        eligible_leader_replicas=(),
                        last_known_elr=(),
                        partition_epoch=state.partition_epoch + 1,
                    )

    def _share(self, value: T) -> T:
        shared: T = self._shared.setdefault(value, value)
        return shared

    # Copies

    def _partitions(self, topic: TopicImage, changed: int) -> dict[int, PartitionState]:
        """Return the topic's partitions, of which one is to be changed in place."""
        partitions = self._copied.get(topic.id)
        if partitions is None:
            partitions = self._copied[topic.id] = dict(topic.partitions)
            self._next_topics()[topic.name] = TopicImage(topic.name, topic.id, partitions)
            self._changed[topic.id] = None
        self._changed_partitions.setdefault(topic.id, {})[changed] = None
        return partitions

    def _add(self, topic: TopicImage) -> None:
        self._next_topics()[topic.name] = topic
        self._next_names()[topic.id] = topic.name
        self._changed[topic.id] = None

    def _next_topics(self) -> MutableMapping[str, TopicImage]:
        if self._topics is None:
            self._topics = next_version(self._image.topics)
        return self._topics

    def _next_names(self) -> MutableMapping[UUID, str]:
        if self._topic_names is None:
            self._topic_names = next_version(self._image.topic_names)
        return self._topic_names

    # Results

    def settled_topics(self) -> Mapping[str, TopicImage]:
        return self._image.topics if self._topics is None else settled(self._topics)

    def settled_names(self) -> Mapping[UUID, str]:
        return self._image.topic_names if self._topic_names is None else settled(self._topic_names)

    def sort_partitions(self) -> None:
        """Order the partitions of each extended topic by index: Kafka may log them in any order."""
        for topic_id in self._extended & self._copied.keys():
            partitions = self._copied[topic_id]
            if any(index != position for position, index in enumerate(partitions)):
                ordered = sorted(partitions.items())
                partitions.clear()
                partitions.update(ordered)

    def changes(
        self, after: MetadataImage
    ) -> dict[UUID, tuple[TopicImage | None, TopicImage | None]]:
        """Return the changed topics before and after, without those created and removed again."""
        changes = {
            topic_id: (self._image.topic_by_id(topic_id), after.topic_by_id(topic_id))
            for topic_id in self._changed
        }
        return {topic_id: change for topic_id, change in changes.items() if change != (None, None)}

    def changed_partitions(self) -> Mapping[UUID, Sequence[int]]:
        """Return the partitions that were added or changed, of the topics that exist."""
        return {topic_id: sorted(indexes) for topic_id, indexes in self._changed_partitions.items()}


def apply_partition_change(state: PartitionState, record: PartitionChangeRecord) -> PartitionState:
    """Return the partition after the change.

    Every change increments the partition epoch. A change that names a leader increments the leader
    epoch, even if it names the current one.
    """
    has_leader = record.leader != NO_LEADER_CHANGE
    recovery = record.leader_recovery_state
    # Spelled out: the failure of a broker may change ten thousand partitions, and
    # dataclasses.replace takes twice as long.
    return PartitionState(
        replicas=_changed(record.replicas, state.replicas),
        isr=_changed(record.isr, state.isr),
        leader=record.leader if has_leader else state.leader,
        leader_epoch=state.leader_epoch + has_leader,
        partition_epoch=state.partition_epoch + 1,
        directories=record.directories or _directories(state, record),
        eligible_leader_replicas=_changed(
            record.eligible_leader_replicas, state.eligible_leader_replicas
        ),
        last_known_elr=_changed(record.last_known_elr, state.last_known_elr),
        leader_recovery_state=state.leader_recovery_state
        if recovery == NO_RECOVERY_CHANGE
        else recovery,
        adding_replicas=_changed(record.adding_replicas, state.adding_replicas),
        removing_replicas=_changed(record.removing_replicas, state.removing_replicas),
    )


def _changed(change: tuple[int, ...] | None, current: tuple[int, ...]) -> tuple[int, ...]:
    return current if change is None else change


def _directories(state: PartitionState, record: PartitionChangeRecord) -> tuple[UUID, ...]:
    """Remaining replicas keep their directory; new ones have none yet."""
    if record.replicas is None:
        return state.directories
    directory_of = dict(zip(state.replicas, state.directories, strict=True))
    return tuple(directory_of.get(replica, UNASSIGNED_DIRECTORY) for replica in record.replicas)


def _check_directories(
    topic: TopicImage, index: int, replicas: tuple[int, ...], directories: tuple[UUID, ...]
) -> None:
    if len(directories) != len(replicas):
        raise InvariantBroken(
            f"{topic.name}-{index} has {len(replicas)} replicas, but directories for "
            f"{len(directories)}"
        )
