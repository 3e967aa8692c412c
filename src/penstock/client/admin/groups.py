"""List, describe and delete consumer groups and their offsets.

Joining a group is `consumer.coordinator`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import groupby

from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.errors import check, error_of
from penstock.client.routing import Coordinators, by_topic
from penstock.errors import ErrorCode, KafkaError, ProtocolError
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
# OffsetCommit v10 identifies topics by id; OffsetFetch v8 requests several groups.
_OFFSET_COMMIT_MAX_VERSION = 9
_OFFSET_FETCH_MAX_VERSION = 7


@dataclass(frozen=True, slots=True)
class GroupListing:
    """`kind` is Classic or Consumer (KIP-848), or empty if the broker does not report it."""

    id: str
    protocol_type: str
    state: str
    kind: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """`assignment_error` says why the assignment cannot be read. `assignment` is empty then, even
    if the member has partitions."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    epoch: int | None = None
    assignment_error: str = ""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """`epoch` is None unless the group uses the consumer protocol (KIP-848)."""

    id: str
    kind: str
    state: str
    assignor: str
    coordinator: str
    members: tuple[MemberDescription, ...]
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The member and generation that commit offsets; by default none, as in an admin client."""

    member_id: str = ""
    generation: int = NO_GENERATION
    instance_id: str | None = None


NO_MEMBER = ConsumerGroupMetadata()


class GroupAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.coordinators = Coordinators(cluster)

    async def list_groups(self) -> list[GroupListing]:
        """Ask every broker for the groups it coordinates; return all, sorted by id."""

        async def attempt() -> list[GroupListing]:
            await self._cluster.topics([])
            listings = await asyncio.gather(
                *(self._list_groups_of(broker) for broker in self._cluster.metadata.brokers)
            )
            return sorted(
                (group for listing in listings for group in listing), key=lambda group: group.id
            )

        return await self._cluster.retry(attempt)

    async def _list_groups_of(self, broker: int) -> list[GroupListing]:
        response = await (await self._cluster.broker(broker)).call(
            ListGroupsRequest(), ListGroupsResponse
        )
        check(response.error_code, f"broker {broker} cannot list its groups")
        return [
            GroupListing(
                group.group_id,
                group.protocol_type,
                group.group_state,
                group.group_type.capitalize(),
            )
            for group in response.groups
        ]

    async def describe_group(self, group_id: str) -> GroupDescription:
        """Describe a group as a consumer group (KIP-848), or else as a classic group."""
        try:
            return await self.coordinators.send(
                group_id, lambda connection: _describe_consumer(connection, group_id)
            )
        except KafkaError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
        return await self.coordinators.send(
            group_id, lambda connection: _describe_classic(connection, group_id)
        )

    async def fetch_offsets(
        self,
        group_id: str,
        partitions: Collection[TopicPartition] | None = None,
        *,
        stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets of these partitions or, without any, of all.

        Partitions without a committed offset are left out. With `stable`, offsets of ongoing
        transactions are waited for (KIP-447).
        """
        topics = None
        if partitions is not None:
            topics = tuple(
                OffsetFetchRequest.Topic(name=topic, partition_indexes=tuple(indexes))
                for topic, indexes in by_topic(partitions).items()
            )
        request = OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=stable)

        async def send(connection: Connection) -> dict[TopicPartition, OffsetAndMetadata]:
            response = await connection.call(
                request, OffsetFetchResponse, max_version=_OFFSET_FETCH_MAX_VERSION
            )
            check(response.error_code, f"cannot fetch the offsets of group {group_id}")
            offsets = {}
            for topic in response.topics:
                for fetched in topic.partitions:
                    partition = TopicPartition(topic.name, fetched.partition_index)
                    check(
                        fetched.error_code,
                        f"cannot fetch the offset of group {group_id} in {partition}",
                    )
                    if fetched.committed_offset >= 0:
                        offsets[partition] = OffsetAndMetadata(
                            fetched.committed_offset,
                            fetched.metadata or "",
                            fetched.committed_leader_epoch,
                        )
            return offsets

        return await self.coordinators.send(group_id, send)

    async def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_metadata: ConsumerGroupMetadata = NO_MEMBER,
    ) -> None:
        """Commit offsets; raises the first partition's error, with the others committed."""
        topics = tuple(
            OffsetCommitRequest.Topic(
                name=topic,
                partitions=tuple(
                    OffsetCommitRequest.Topic.Partition(
                        partition_index=partition.partition,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        committed_metadata=committed.metadata,
                    )
                    for partition, committed in topic_offsets
                ),
            )
            for topic, topic_offsets in groupby(
                sorted(offsets.items()), key=lambda item: item[0].topic
            )
        )
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=group_metadata.generation,
            member_id=group_metadata.member_id,
            group_instance_id=group_metadata.instance_id,
            topics=topics,
        )

        async def send(connection: Connection) -> None:
            response = await connection.call(
                request, OffsetCommitResponse, max_version=_OFFSET_COMMIT_MAX_VERSION
            )
            for topic in response.topics:
                for result in topic.partitions:
                    partition = TopicPartition(topic.name, result.partition_index)
                    check(
                        result.error_code,
                        f"cannot commit the offset of group {group_id} in {partition}",
                    )

        await self.coordinators.send(group_id, send)

    async def delete_group(self, group_id: str) -> None:
        async def send(connection: Connection) -> None:
            response = await connection.call(
                DeleteGroupsRequest(groups_names=(group_id,)), DeleteGroupsResponse
            )
            for result in response.results:
                check(result.error_code, f"group {group_id} was not deleted")

        await self.coordinators.send(group_id, send)

    async def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete committed offsets; return each partition's error or None."""
        part = OffsetDeleteRequest.Topic.Partition
        topics = tuple(
            OffsetDeleteRequest.Topic(
                name=topic, partitions=tuple(part(partition_index=index) for index in indexes)
            )
            for topic, indexes in by_topic(partitions).items()
        )

        async def send(connection: Connection) -> dict[TopicPartition, KafkaError | None]:
            response = await connection.call(
                OffsetDeleteRequest(group_id=group_id, topics=topics), OffsetDeleteResponse
            )
            check(response.error_code, f"the offsets of group {group_id} were not deleted")
            return {
                TopicPartition(topic.name, result.partition_index): error_of(
                    result.error_code, "the offset was not deleted"
                )
                if result.error_code
                else None
                for topic in response.topics
                for result in topic.partitions
            }

        return await self.coordinators.send(group_id, send)


async def _describe_consumer(connection: Connection, group_id: str) -> GroupDescription:
    response = await connection.call(
        ConsumerGroupDescribeRequest(group_ids=(group_id,)), ConsumerGroupDescribeResponse
    )
    group = response.groups[0]
    check(group.error_code, group.error_message or f"cannot describe group {group_id}")
    members = tuple(
        MemberDescription(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            tuple(
                TopicPartition(topic.topic_name, index)
                for topic in member.assignment.topic_partitions
                for index in topic.partitions
            ),
            member.member_epoch,
        )
        for member in group.members
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
    response = await connection.call(
        DescribeGroupsRequest(groups=(group_id,)), DescribeGroupsResponse
    )
    group = response.groups[0]
    check(group.error_code, group.error_message or f"cannot describe group {group_id}")
    if group.group_state == "Dead":  # Older brokers report a missing group as Dead.
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} does not exist")
    members = tuple(_describe_member(member, group.protocol_type) for member in group.members)
    return GroupDescription(
        group_id, "Classic", group.group_state, group.protocol_data, connection.address, members
    )


def _describe_member(
    member: DescribeGroupsResponse.Group.Member, protocol_type: str
) -> MemberDescription:
    assignment: tuple[TopicPartition, ...] = ()
    problem = ""
    if protocol_type == CONSUMER:
        try:
            assignment = _decode_assignment(member.member_assignment)
        except ProtocolError as error:
            # Brokers take any bytes from the leader of a group.
            problem = str(error)
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        assignment,
        assignment_error=problem,
    )


def _decode_assignment(assignment: bytes) -> tuple[TopicPartition, ...]:
    if not assignment:  # The group is rebalancing.
        return ()
    decoded = decode_consumer_protocol(ConsumerProtocolAssignment, assignment)
    return tuple(
        TopicPartition(topic.topic, index)
        for topic in decoded.assigned_partitions
        for index in topic.partitions
    )
