"""A member of a classic group: it joins, is assigned partitions, says that it lives, and leaves. It
must never know what is read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.client.connection import Connection
from penstock.client.faults import check
from penstock.client.groups.admin import CONSUMER, Membership
from penstock.client.groups.assigning import assign_ranges
from penstock.client.groups.coordinators import Coordinators
from penstock.client.leaders import by_topic
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
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

_RANGE = "range"
# The first in which members leave by a list.
_LAST_LEAVING_ALONE = 2
# The group has another generation, or none of ours: it is joined again.
_OUTDATED = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
)


class GroupMember:
    """`join` may be called again and again; in between `wanted` says that the group waits for
    it."""

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
        self.wanted = True
        self.membership = Membership(instance_id=instance_id)
        self._coordinators = coordinators
        self._cluster = coordinators.cluster
        self._group_id = group_id
        self._topics = tuple(topics)
        self._session_timeout_s = session_timeout_s
        self._rebalance_timeout_s = rebalance_timeout_s
        self._heartbeat_interval_s = heartbeat_interval_s
        self._beating: asyncio.Task[None] | None = None

    async def join(self) -> list[TopicPartition]:
        """What this member is to read, in a generation that all members have joined."""
        self._stop_beating()
        assigned = await self._cluster.retry(self._join_once, timeout_s=self._rebalance_timeout_s)
        self.wanted = False
        self._beating = asyncio.get_running_loop().create_task(self._beat())
        return assigned

    async def leave(self) -> None:
        """A static member stays in the group: it may come back before its session ends, and nothing
        moves."""
        self._stop_beating()
        if self.membership.member_id and self.membership.instance_id is None:
            request = LeaveGroupRequest(
                group_id=self._group_id, member_id=self.membership.member_id
            )

            async def ask(connection: Connection) -> None:
                answer = await connection.call(
                    request, LeaveGroupResponse, ceiling=_LAST_LEAVING_ALONE
                )
                check(answer.error_code, f"group {self._group_id} did not let this member go")

            await self._coordinators.ask(self._group_id, ask)

    def outdated(self, error: KafkaError) -> bool:
        """Whether an error says that the group must be joined again; this is then remembered."""
        if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.membership = Membership(instance_id=self.membership.instance_id)
        self.wanted |= error.code in _OUTDATED
        return error.code in _OUTDATED

    async def _join_once(self) -> list[TopicPartition]:
        while True:
            try:
                return await self._join_generation()
            except KafkaError as error:
                if not self.outdated(error):
                    raise

    async def _join_generation(self) -> list[TopicPartition]:
        joined = await self._coordinators.ask(self._group_id, self._ask_join)
        self.membership = Membership(
            joined.member_id, joined.generation_id, self.membership.instance_id
        )
        assignments = await self._divide(joined)
        return await self._coordinators.ask(
            self._group_id, lambda connection: self._ask_sync(connection, assignments)
        )

    async def _ask_join(self, connection: Connection) -> JoinGroupResponse:
        subscription = encode_consumer_protocol(
            ConsumerProtocolSubscription(topics=self._topics), version=0
        )
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=int(self._session_timeout_s * 1000),
            rebalance_timeout_ms=int(self._rebalance_timeout_s * 1000),
            member_id=self.membership.member_id,
            group_instance_id=self.membership.instance_id,
            protocol_type=CONSUMER,
            protocols=(JoinGroupRequest.Protocol(name=_RANGE, metadata=subscription),),
        )
        timeout_s = self._rebalance_timeout_s + self._cluster.request_timeout_s
        answer = await connection.call(request, JoinGroupResponse, timeout_s=timeout_s)
        if (
            answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        ):  # the id is ours from now on, and the group waits for us to say so
            self.membership = Membership(answer.member_id, instance_id=self.membership.instance_id)
            return await self._ask_join(connection)
        check(answer.error_code, f"group {self._group_id} cannot be joined")
        return answer

    async def _divide(self, joined: JoinGroupResponse) -> tuple[SyncGroupRequest.Assignment, ...]:
        """The leader's work; the others have nothing to say."""
        if joined.leader != joined.member_id or joined.skip_assignment:
            return ()
        subscriptions = {
            one.member_id: decode_consumer_protocol(
                ConsumerProtocolSubscription, one.metadata
            ).topics
            for one in joined.members
        }
        counts = {
            name: len((await self._cluster.topic(name)).partitions)
            for name in sorted({*sum(subscriptions.values(), ())})
        }
        return tuple(
            SyncGroupRequest.Assignment(member_id=member, assignment=_encode(partitions))
            for member, partitions in assign_ranges(subscriptions, counts).items()
        )

    async def _ask_sync(
        self, connection: Connection, assignments: tuple[SyncGroupRequest.Assignment, ...]
    ) -> list[TopicPartition]:
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self.membership.generation,
            member_id=self.membership.member_id,
            group_instance_id=self.membership.instance_id,
            protocol_type=CONSUMER,
            protocol_name=_RANGE,
            assignments=assignments,
        )
        timeout_s = self._rebalance_timeout_s + self._cluster.request_timeout_s
        answer = await connection.call(request, SyncGroupResponse, timeout_s=timeout_s)
        check(answer.error_code, f"group {self._group_id} assigned nothing")
        if not answer.assignment:
            return []
        decoded = decode_consumer_protocol(ConsumerProtocolAssignment, answer.assignment)
        return [
            TopicPartition(topic.topic, index)
            for topic in decoded.assigned_partitions
            for index in topic.partitions
        ]

    async def _beat(self) -> None:
        """Until the group wants to be joined again. Trouble that may pass is passed over: a session
        that ends by it is told later."""
        while not self.wanted:
            await asyncio.sleep(self._heartbeat_interval_s)
            try:
                await self._coordinators.ask(self._group_id, self._ask_heartbeat)
            except KafkaError as error:
                if not self.outdated(error) and not error.code.retriable:
                    self.wanted = True

    async def _ask_heartbeat(self, connection: Connection) -> None:
        request = HeartbeatRequest(
            group_id=self._group_id,
            generation_id=self.membership.generation,
            member_id=self.membership.member_id,
            group_instance_id=self.membership.instance_id,
        )
        answer = await connection.call(request, HeartbeatResponse)
        check(answer.error_code, f"group {self._group_id} does not count on this member")

    def _stop_beating(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None


def _encode(partitions: Sequence[TopicPartition]) -> bytes:
    part = ConsumerProtocolAssignment.AssignedPartition
    topics = tuple(
        part(topic=topic, partitions=tuple(indexes))
        for topic, indexes in by_topic(partitions).items()
    )
    return encode_consumer_protocol(
        ConsumerProtocolAssignment(assigned_partitions=topics), version=0
    )
