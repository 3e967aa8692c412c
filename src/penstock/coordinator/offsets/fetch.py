"""OffsetFetch: the offsets that a group has committed. PURE; changes nothing."""

from __future__ import annotations

from uuid import UUID

from penstock.coordinator.groups.table import GroupTable
from penstock.coordinator.offsets.committed import Committed
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_UUID, UNKNOWN_OFFSET, TopicPartition
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_TOPIC_ID_VERSION = 10

GroupRequest = OffsetFetchRequest.Group
GroupResponse = OffsetFetchResponse.Group
Topic = OffsetFetchResponse.Group.Topic
Partition = OffsetFetchResponse.Group.Topic.Partition


def fetch(
    groups: GroupTable, request: GroupRequest, require_stable: bool, version: int
) -> GroupResponse:
    """A group that does not exist has committed nothing."""
    group = groups.by_id.get(request.group_id)
    if group is not None:
        try:
            group.check_fetch(request.member_id, request.member_epoch)
        except KafkaError as error:
            return GroupResponse(group_id=request.group_id, error_code=error.code)
    fetching = _Fetch(groups, request.group_id, require_stable, version)
    topics = (
        fetching.all_topics()
        if request.topics is None
        else tuple(fetching.topic(topic) for topic in request.topics)
    )
    return GroupResponse(group_id=request.group_id, topics=topics)


class _Fetch:
    def __init__(
        self, groups: GroupTable, group_id: str, require_stable: bool, version: int
    ) -> None:
        self.groups = groups
        self.group_id = group_id
        self.require_stable = require_stable
        self.by_id = version >= _TOPIC_ID_VERSION

    def topic(self, request: GroupRequest.Topic) -> Topic:
        name = self.groups.image.topic_names.get(request.topic_id) if self.by_id else request.name
        if name is None:
            errors = (
                _no_offset(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in request.partition_indexes
            )
            return Topic(topic_id=request.topic_id, partitions=tuple(errors))
        partitions = tuple(
            self._partition(TopicPartition(name, index), request.topic_id)
            for index in request.partition_indexes
        )
        return Topic(name=name, topic_id=request.topic_id, partitions=partitions)

    def all_topics(self) -> tuple[Topic, ...]:
        """Return all offsets. Deleted topics have no id, so versions with ids leave them out."""
        indexes: dict[str, list[int]] = {}
        for partition in self.groups.offsets.of_group(self.group_id):
            indexes.setdefault(partition.topic, []).append(partition.partition)
        topics = ((name, self._topic_id(name), listed) for name, listed in indexes.items())
        return tuple(
            Topic(
                name=name,
                topic_id=topic_id,
                partitions=tuple(
                    self._partition(TopicPartition(name, index), topic_id) for index in listed
                ),
            )
            for name, topic_id, listed in topics
            if topic_id != NO_UUID or not self.by_id
        )

    def _topic_id(self, name: str) -> UUID:
        topic = self.groups.image.topics.get(name) if self.by_id else None
        return NO_UUID if topic is None else topic.id

    def _partition(self, partition: TopicPartition, topic_id: UUID) -> Partition:
        if self.require_stable and self.groups.offsets.is_unstable(self.group_id, partition):
            return _no_offset(partition.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = self.groups.offsets.get(self.group_id, partition)
        if committed is None or _is_of_former_topic(committed, topic_id):
            return _no_offset(partition.partition)
        return Partition(
            partition_index=partition.partition,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
        )


def _is_of_former_topic(committed: Committed, topic_id: UUID) -> bool:
    """Return True if the offset was committed for a deleted topic of the same name."""
    return NO_UUID not in (committed.topic_id, topic_id) and committed.topic_id != topic_id


def _no_offset(index: int, code: ErrorCode = ErrorCode.NONE) -> Partition:
    return Partition(
        partition_index=index, committed_offset=UNKNOWN_OFFSET, metadata="", error_code=code
    )
