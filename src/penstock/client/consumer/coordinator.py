"""ConsumerCoordinator, which joins a classic group, syncs, sends heartbeats and leaves.

Must not know about fetching.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar

from penstock.client.admin.groups import CONSUMER, ConsumerGroupMetadata
from penstock.client.connection import Connection
from penstock.client.errors import check
from penstock.client.routing import Coordinators, by_topic
from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.ids import Buffer, TopicPartition
from penstock.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_consumer_protocol,
    encode_consumer_protocol,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

T = TypeVar("T", ConsumerProtocolSubscription, ConsumerProtocolAssignment)

_RANGE = "range"
# LeaveGroup v3 replaces the member id by a list of members.
_LEAVE_GROUP_MAX_VERSION = 2
# The group has a new generation or does not know this member: the member must rejoin.
_REJOIN_ERRORS = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
)


class ConsumerCoordinator:
    """Call `join` whenever `rejoin_needed` is set."""

    def __init__(
        self,
        coordinators: Coordinators,
        group_id: str,
        topics: Sequence[str],
        *,
        instance_id: str | None = None,
        session_timeout_s: float = 45.0,
        rebalance_timeout_s: float = 300.0,
        heartbeat_interval_s: float = 3.0,
    ) -> None:
        self.rejoin_needed = True
        self.group_metadata = ConsumerGroupMetadata(instance_id=instance_id)
        self._coordinators = coordinators
        self._cluster = coordinators.cluster
        self._group_id = group_id
        self._topics = tuple(topics)
        self._session_timeout_s = session_timeout_s
        self._rebalance_timeout_s = rebalance_timeout_s
        self._heartbeat_interval_s = heartbeat_interval_s
        self._heartbeat_task: asyncio.Task[None] | None = None

    async def join(self) -> list[TopicPartition]:
        """Join the group's next generation and return the assigned partitions."""
        self._stop_heartbeat()
        assigned = await self._cluster.retry(self._join_once, timeout_s=self._rebalance_timeout_s)
        self.rejoin_needed = False
        self._heartbeat_task = asyncio.get_running_loop().create_task(self._send_heartbeats())
        return assigned

    async def leave(self) -> None:
        """Leave the group, except as a static member.

        A static member that returns before its session times out keeps its partitions (KIP-345).
        """
        self._stop_heartbeat()
        if self.group_metadata.member_id and self.group_metadata.instance_id is None:
            request = LeaveGroupRequest(
                group_id=self._group_id, member_id=self.group_metadata.member_id
            )

            async def send(connection: Connection) -> None:
                response = await connection.call(
                    request, LeaveGroupResponse, max_version=_LEAVE_GROUP_MAX_VERSION
                )
                check(response.error_code, f"LeaveGroup failed for group {self._group_id}")

            await self._coordinators.send_once(self._group_id, send)

    def check_rejoin(self, error: KafkaError) -> bool:
        """Return True, and set `rejoin_needed`, if the error means that the member must rejoin."""
        if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.group_metadata = ConsumerGroupMetadata(instance_id=self.group_metadata.instance_id)
        self.rejoin_needed |= error.code in _REJOIN_ERRORS
        return error.code in _REJOIN_ERRORS

    async def _join_once(self) -> list[TopicPartition]:
        while True:
            try:
                return await self._join_generation()
            except KafkaError as error:
                if not self.check_rejoin(error):
                    raise

    async def _join_generation(self) -> list[TopicPartition]:
        joined = await self._coordinators.send_once(self._group_id, self._send_join)
        self.group_metadata = ConsumerGroupMetadata(
            joined.member_id, joined.generation_id, self.group_metadata.instance_id
        )
        assignments = await self._assign(joined)
        return await self._coordinators.send_once(
            self._group_id, lambda connection: self._send_sync(connection, assignments)
        )

    async def _send_join(self, connection: Connection) -> JoinGroupResponse:
        subscription = encode_consumer_protocol(
            ConsumerProtocolSubscription(topics=self._topics), version=0
        )
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=int(self._session_timeout_s * 1000),
            rebalance_timeout_ms=int(self._rebalance_timeout_s * 1000),
            member_id=self.group_metadata.member_id,
            group_instance_id=self.group_metadata.instance_id,
            protocol_type=CONSUMER,
            protocols=(JoinGroupRequest.Protocol(name=_RANGE, metadata=subscription),),
        )
        timeout_s = self._rebalance_timeout_s + self._cluster.request_timeout_s
        response = await connection.call(request, JoinGroupResponse, timeout_s=timeout_s)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            # The coordinator chose a member id and expects JoinGroup again with it (KIP-394).
            self.group_metadata = ConsumerGroupMetadata(
                response.member_id, instance_id=self.group_metadata.instance_id
            )
            return await self._send_join(connection)
        check(response.error_code, f"JoinGroup failed for group {self._group_id}")
        return response

    async def _assign(self, joined: JoinGroupResponse) -> tuple[SyncGroupRequest.Assignment, ...]:
        """Compute all members' assignments if this member is the leader, else return none."""
        if joined.leader != joined.member_id or joined.skip_assignment:
            return ()
        subscriptions = {
            member.member_id: self._decoded(
                ConsumerProtocolSubscription, member.metadata, f"member {member.member_id!r}"
            ).topics
            for member in joined.members
        }
        counts = {
            name: len((await self._cluster.topic(name)).partitions)
            for name in sorted({*sum(subscriptions.values(), ())})
        }
        return tuple(
            SyncGroupRequest.Assignment(member_id=member, assignment=_encode_assignment(partitions))
            for member, partitions in assign_ranges(subscriptions, counts).items()
        )

    async def _send_sync(
        self, connection: Connection, assignments: tuple[SyncGroupRequest.Assignment, ...]
    ) -> list[TopicPartition]:
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self.group_metadata.generation,
            member_id=self.group_metadata.member_id,
            group_instance_id=self.group_metadata.instance_id,
            protocol_type=CONSUMER,
            protocol_name=_RANGE,
            assignments=assignments,
        )
        timeout_s = self._rebalance_timeout_s + self._cluster.request_timeout_s
        response = await connection.call(request, SyncGroupResponse, timeout_s=timeout_s)
        check(response.error_code, f"SyncGroup failed for group {self._group_id}")
        if not response.assignment:
            return []
        decoded = self._decoded(ConsumerProtocolAssignment, response.assignment, "the leader")
        return [
            TopicPartition(topic.topic, index)
            for topic in decoded.assigned_partitions
            for index in topic.partitions
        ]

    def _decoded(self, cls: type[T], data: Buffer, sender: str) -> T:
        """Decode what another member sent. The coordinator passes any bytes on. As in Kafka's
        consumer, `poll` raises an error; the next one joins again."""
        try:
            return decode_consumer_protocol(cls, data)
        except ProtocolError as error:
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"group {self._group_id}: what {sender} of the group sent cannot be read: {error}. "
                "All members must be Kafka consumers; use another group id for other clients.",
            ) from error

    async def _send_heartbeats(self) -> None:
        """Send heartbeats until a rejoin is needed.

        Retriable errors are ignored: if the session times out meanwhile, a later heartbeat is
        refused with UNKNOWN_MEMBER_ID.
        """
        while not self.rejoin_needed:
            await asyncio.sleep(self._heartbeat_interval_s)
            try:
                await self._coordinators.send_once(self._group_id, self._send_heartbeat)
            except KafkaError as error:
                if not self.check_rejoin(error) and not error.code.retriable:
                    self.rejoin_needed = True

    async def _send_heartbeat(self, connection: Connection) -> None:
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=self.group_metadata.generation,
            member_id=self.group_metadata.member_id,
            group_instance_id=self.group_metadata.instance_id,
        )
        response = await connection.call(request, HeartbeatResponse)
        check(response.error_code, f"Heartbeat failed for group {self._group_id}")

    def _stop_heartbeat(self) -> None:
        if self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
            self._heartbeat_task = None


def assign_ranges(
    subscriptions: Mapping[str, tuple[str, ...]], counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Kafka's range assignor.

    Each topic's partitions are split into contiguous ranges of nearly equal size, assigned to the
    subscribed members in the order of their ids.
    """
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic in sorted(
        {topic for topics in subscriptions.values() for topic in topics} & counts.keys()
    ):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        size, extra = divmod(counts[topic], len(members))
        begin = 0
        for number, member in enumerate(members):
            end = begin + size + (number < extra)
            assigned[member] += [TopicPartition(topic, index) for index in range(begin, end)]
            begin = end
    return assigned


def _encode_assignment(partitions: Sequence[TopicPartition]) -> bytes:
    part = ConsumerProtocolAssignment.AssignedPartition
    topics = tuple(
        part(topic=topic, partitions=tuple(indexes))
        for topic, indexes in by_topic(partitions).items()
    )
    return encode_consumer_protocol(
        ConsumerProtocolAssignment(assigned_partitions=topics), version=0
    )
