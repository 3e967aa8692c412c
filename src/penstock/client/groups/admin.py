"""Administration of consumer groups: which there are, who is in them, and how far they have read.
Nobody joins one here."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import groupby

from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.faults import check, error_of
from penstock.client.groups.coordinators import Coordinators
from penstock.client.leaders import by_topic
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    decode_consumer_protocol,
)
from penstock.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

CONSUMER = "consumer"
NO_GENERATION = -1
# Later versions name topics by id, or ask for many groups at once.
_LAST_COMMIT_BY_NAME = 9
_LAST_FETCH_OF_ONE = 7


@dataclass(frozen=True, slots=True)
class GroupListing:
    """`kind` is Classic or Consumer (KIP-848); empty where the broker is too old to say."""

    id: str
    protocol_type: str
    state: str
    kind: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """`epoch` is there with the new protocol alone."""

    id: str
    kind: str
    state: str
    assignor: str
    coordinator: str
    members: tuple[GroupMember, ...]
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Committed:
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Membership:
    """On whose behalf offsets are committed: a member of a generation, or nobody in particular."""

    member_id: str = ""
    generation: int = NO_GENERATION
    instance_id: str | None = None


OUTSIDE = Membership()


class Groups:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.coordinators = Coordinators(cluster)

    async def listed(self) -> list[GroupListing]:
        """Every broker is asked for those that it coordinates."""

        async def attempt() -> list[GroupListing]:
            await self._cluster.topics([])
            listings = await asyncio.gather(
                *(self._listed_by(broker) for broker in self._cluster.metadata.brokers)
            )
            return sorted((one for listing in listings for one in listing), key=lambda one: one.id)

        return await self._cluster.retry(attempt)

    async def _listed_by(self, broker: int) -> list[GroupListing]:
        answer = await (await self._cluster.broker(broker)).call(
            ListGroupsRequest(), ListGroupsResponse
        )
        check(answer.error_code, f"broker {broker} cannot list its groups")
        return [
            GroupListing(
                one.group_id, one.protocol_type, one.group_state, one.group_type.capitalize()
            )
            for one in answer.groups
        ]

    async def describe(self, group_id: str) -> GroupDescription:
        """The new protocol's groups are asked for first; a classic one, or a broker that knows no
        other, is described as such."""
        try:
            return await self.coordinators.retry(
                group_id, lambda connection: _describe_consumer(connection, group_id)
            )
        except KafkaError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
        return await self.coordinators.retry(
            group_id, lambda connection: _describe_classic(connection, group_id)
        )

    async def committed(
        self,
        group_id: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        stable: bool = False,
    ) -> dict[TopicPartition, Committed]:
        """How far a group has read: of these partitions or, without any, of all that it has read.
        What it has not is left out."""
        topics = None
        if partitions is not None:
            grouped = by_topic(partitions).items()
            topics = tuple(
                OffsetFetchRequest.Topic(name=topic, partition_indexes=tuple(indexes))
                for topic, indexes in grouped
            )
        request = OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=stable)

        async def ask(connection: Connection) -> dict[TopicPartition, Committed]:
            answer = await connection.call(request, OffsetFetchResponse, ceiling=_LAST_FETCH_OF_ONE)
            check(answer.error_code, f"the offsets of group {group_id} cannot be fetched")
            found = {}
            for topic in answer.topics:
                for one in topic.partitions:
                    check(
                        one.error_code,
                        (
                            f"the offset of group {group_id} in {topic.name}-{one.partition_index} "
                            "cannot be fetched"
                        ),
                    )
                    if one.committed_offset >= 0:
                        at = Committed(
                            one.committed_offset, one.metadata or "", one.committed_leader_epoch
                        )
                        found[TopicPartition(topic.name, one.partition_index)] = at
            return found

        return await self.coordinators.retry(group_id, ask)

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, Committed],
        membership: Membership = OUTSIDE,
    ) -> None:
        """The first partition's error that there is, is raised; the others are committed even
        so."""
        part = OffsetCommitRequest.Topic.Partition
        topics = tuple(
            OffsetCommitRequest.Topic(
                name=topic,
                partitions=tuple(_commit_part(part, one.partition, at) for one, at in theirs),
            )
            for topic, theirs in groupby(sorted(offsets.items()), key=lambda item: item[0].topic)
        )
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=membership.generation,
            member_id=membership.member_id,
            group_instance_id=membership.instance_id,
            topics=topics,
        )

        async def ask(connection: Connection) -> None:
            answer = await connection.call(
                request, OffsetCommitResponse, ceiling=_LAST_COMMIT_BY_NAME
            )
            for topic in answer.topics:
                for one in topic.partitions:
                    check(
                        one.error_code,
                        (
                            f"the offset of group {group_id} in {topic.name}-{one.partition_index} "
                            "was not committed"
                        ),
                    )

        await self.coordinators.retry(group_id, ask)

    async def delete(self, group_id: str) -> None:
        async def ask(connection: Connection) -> None:
            answer = await connection.call(
                DeleteGroupsRequest(groups_names=(group_id,)), DeleteGroupsResponse
            )
            for one in answer.results:
                check(one.error_code, f"group {group_id} was not deleted")

        await self.coordinators.retry(group_id, ask)

    async def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """What became of each; None where its offset is gone."""
        part = OffsetDeleteRequest.Topic.Partition
        topics = tuple(
            OffsetDeleteRequest.Topic(
                name=topic, partitions=tuple(part(partition_index=index) for index in indexes)
            )
            for topic, indexes in by_topic(partitions).items()
        )

        async def ask(connection: Connection) -> dict[TopicPartition, KafkaError | None]:
            answer = await connection.call(
                OffsetDeleteRequest(group_id=group_id, topics=topics), OffsetDeleteResponse
            )
            check(answer.error_code, f"the offsets of group {group_id} were not deleted")
            return {
                TopicPartition(topic.name, one.partition_index): error_of(
                    one.error_code, "its offset was not deleted"
                )
                if one.error_code
                else None
                for topic in answer.topics
                for one in topic.partitions
            }

        return await self.coordinators.retry(group_id, ask)


def _commit_part(
    part: type[OffsetCommitRequest.Topic.Partition], index: int, at: Committed
) -> OffsetCommitRequest.Topic.Partition:
    return part(
        partition_index=index,
        committed_offset=at.offset,
        committed_leader_epoch=at.leader_epoch,
        committed_metadata=at.metadata,
    )


async def _describe_consumer(connection: Connection, group_id: str) -> GroupDescription:
    answer = await connection.call(
        ConsumerGroupDescribeRequest(group_ids=(group_id,)), ConsumerGroupDescribeResponse
    )
    group = answer.groups[0]
    check(group.error_code, group.error_message or f"group {group_id} cannot be described")
    members = tuple(
        GroupMember(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            tuple(
                TopicPartition(topic.topic_name, index)
                for topic in one.assignment.topic_partitions
                for index in topic.partitions
            ),
            one.member_epoch,
        )
        for one in group.members
    )
    return GroupDescription(
        group_id,
        "Consumer",
        group.group_state,
        group.assignor_name,
        connection.address,
        members,
        epoch=group.group_epoch,
    )


async def _describe_classic(connection: Connection, group_id: str) -> GroupDescription:
    answer = await connection.call(
        DescribeGroupsRequest(groups=(group_id,)), DescribeGroupsResponse
    )
    group = answer.groups[0]
    check(group.error_code, group.error_message or f"group {group_id} cannot be described")
    if group.group_state == "Dead":  # what older brokers say of a group that is not there
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id}")
    members = tuple(
        GroupMember(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            _assigned(one.member_assignment) if group.protocol_type == CONSUMER else (),
        )
        for one in group.members
    )
    return GroupDescription(
        group_id, "Classic", group.group_state, group.protocol_data, connection.address, members
    )


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Nothing while the group rebalances."""
    if not assignment:
        return ()
    decoded = decode_consumer_protocol(ConsumerProtocolAssignment, assignment)
    return tuple(
        TopicPartition(topic.topic, index)
        for topic in decoded.assigned_partitions
        for index in topic.partitions
    )
