"""OffsetFetch: what a group has committed. PURE, and changes nothing."""

from __future__ import annotations

from uuid import UUID

from penstock.coordinator.groups.table import Groups
from penstock.coordinator.offsets.committed import Committed
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, UNKNOWN_OFFSET, TopicPartition
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_TOPIC_ID_VERSION = 10

Asked = OffsetFetchRequest.Group
Answered = OffsetFetchResponse.Group
Topic = OffsetFetchResponse.Group.Topic
Partition = OffsetFetchResponse.Group.Topic.Partition


def fetch(groups: Groups, asked: Asked, require_stable: bool, version: int) -> Answered:
    """A group that is not there has committed nothing."""
    group = groups.by_id.get(asked.group_id)
    if group is not None:
        try:
            group.check_fetch(asked.member_id, asked.member_epoch)
        except KafkaError as error:
            return Answered(group_id=asked.group_id, error_code=error.code)
    reading = _Reading(groups, asked.group_id, require_stable, version)
    topics = (
        reading.everything()
        if asked.topics is None
        else tuple(reading.topic(topic) for topic in asked.topics)
    )
    return Answered(group_id=asked.group_id, topics=topics)


class _Reading:
    def __init__(self, groups: Groups, group_id: str, require_stable: bool, version: int) -> None:
        self.groups = groups
        self.group_id = group_id
        self.require_stable = require_stable
        self.by_id = version >= _TOPIC_ID_VERSION

    def topic(self, asked: Asked.Topic) -> Topic:
        name = self.groups.image.topic_names.get(asked.topic_id) if self.by_id else asked.name
        if name is None:
            refused = (
                _nothing(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in asked.partition_indexes
            )
            return Topic(topic_id=asked.topic_id, partitions=tuple(refused))
        found = tuple(
            self._partition(TopicPartition(name, index), asked.topic_id)
            for index in asked.partition_indexes
        )
        return Topic(name=name, topic_id=asked.topic_id, partitions=found)

    def everything(self) -> tuple[Topic, ...]:
        """By id, topics that are gone cannot be named."""
        indexes: dict[str, list[int]] = {}
        for partition in self.groups.offsets.of_group(self.group_id):
            indexes.setdefault(partition.topic, []).append(partition.partition)
        topics = ((name, self._topic_id(name), found) for name, found in indexes.items())
        return tuple(
            Topic(
                name=name,
                topic_id=topic_id,
                partitions=tuple(self._partition(TopicPartition(name, i), topic_id) for i in found),
            )
            for name, topic_id, found in topics
            if topic_id != NO_UUID or not self.by_id
        )

    def _topic_id(self, name: str) -> UUID:
        topic = self.groups.image.topics.get(name) if self.by_id else None
        return NO_UUID if topic is None else topic.id

    def _partition(self, partition: TopicPartition, topic_id: UUID) -> Partition:
        if self.require_stable and self.groups.offsets.is_unstable(self.group_id, partition):
            return _nothing(partition.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = self.groups.offsets.get(self.group_id, partition)
        if committed is None or _is_of_another(committed, topic_id):
            return _nothing(partition.partition)
        return Partition(
            partition_index=partition.partition,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
        )


def _is_of_another(committed: Committed, topic_id: UUID) -> bool:
    """Whether it was committed for an earlier topic of the same name."""
    return NO_UUID not in (committed.topic_id, topic_id) and committed.topic_id != topic_id


def _nothing(index: int, code: ErrorCode = ErrorCode.NONE) -> Partition:
    return Partition(
        partition_index=index, committed_offset=UNKNOWN_OFFSET, metadata="", error_code=code
    )
