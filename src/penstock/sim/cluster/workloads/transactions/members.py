"""How a copier gets its partitions: by the classic protocol, by the consumer protocol (KIP-848), or
assigned to it without a group.

`metadata` is what its offsets are committed with: the coordinator refuses those of a member that
was replaced (KIP-447).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from penstock.client.admin.groups import NO_MEMBER, ConsumerGroupMetadata
from penstock.client.client import Client
from penstock.client.connection import Connection
from penstock.client.consumer.completed_fetch import ConsumerRecord
from penstock.client.consumer.consumer import Consumer
from penstock.client.errors import check
from penstock.client.offsets import IsolationLevel
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_MAX_WAIT_S = 0.1
_PARTITION_BYTES = 600
# Of the classic protocol; the consumer protocol has the settings of the nodes.
_SESSION_S, _HEARTBEAT_S, _REBALANCE_S = 1.5, 0.2, 0.8
_REBALANCE_MS = 800
_LEAVE_EPOCH = -1


class CopyMember(Protocol):
    """`positions` are those after the last `poll`."""

    @property
    def positions(self) -> dict[TopicPartition, int]: ...

    @property
    def metadata(self) -> ConsumerGroupMetadata: ...

    async def start(self) -> None:
        """Called after the producer has fenced its predecessors."""

    async def poll(self) -> list[ConsumerRecord]: ...

    async def close(self) -> None:
        """Leave the group."""

    def abandon(self) -> None:
        """End without leaving the group, as a process that is killed."""


class ClassicMember:
    def __init__(self, client: Client, group: str, topic: str) -> None:
        self._consumer = client.group_consumer(
            group,
            [topic],
            auto_commit_s=None,
            session_timeout_s=_SESSION_S,
            rebalance_timeout_s=_REBALANCE_S,
            heartbeat_interval_s=_HEARTBEAT_S,
            isolation=IsolationLevel.READ_COMMITTED,
            max_wait_s=_MAX_WAIT_S,
            partition_max_bytes=_PARTITION_BYTES,
        )

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self._consumer.positions

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        return self._consumer.group_metadata

    async def start(self) -> None:
        """The first `poll` joins the group."""

    async def poll(self) -> list[ConsumerRecord]:
        records = await self._consumer.poll()
        if self._consumer.generation < 0:
            # Offsets without a generation would be accepted from anyone.
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has removed this member")
        return records

    async def close(self) -> None:
        await self._consumer.close()

    def abandon(self) -> None:
        self._consumer._coordinator._stop_heartbeat()  # no product code would do this
        self._consumer._consumer.close()


class AssignedMember:
    """Has all partitions. Only its transactional id fences its predecessors."""

    def __init__(self, client: Client, group: str, partitions: list[TopicPartition]) -> None:
        self._client = client
        self._group = group
        self._partitions = partitions
        self._consumer = _committed_consumer(client)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self._consumer.positions

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        return NO_MEMBER

    async def start(self) -> None:
        committed = await self._client.groups.fetch_offsets(
            self._group, self._partitions, stable=True
        )
        await self._consumer.assign(
            {name: committed[name].offset if name in committed else 0 for name in self._partitions}
        )

    async def poll(self) -> list[ConsumerRecord]:
        return await self._consumer.poll()

    async def close(self) -> None:
        self._consumer.close()

    def abandon(self) -> None:
        self._consumer.close()


class ConsumerMember:
    """Sends a heartbeat with every `poll` that comes late enough after the last."""

    def __init__(
        self, client: Client, group: str, topic: str, member_id: str, now: Callable[[], float]
    ) -> None:
        self._client = client
        self._group = group
        self._topic = topic
        self._id = member_id
        self._now = now
        self._epoch = 0
        self._owned: tuple[int, ...] | None = None
        self._topic_id = UUID(int=0)
        self._due = 0.0
        self._consumer = _committed_consumer(client)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self._consumer.positions

    @property
    def metadata(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(self._id, self._epoch)

    async def start(self) -> None:
        """The first `poll` joins the group."""

    async def poll(self) -> list[ConsumerRecord]:
        if self._now() >= self._due:
            await self._heartbeat()
        if not self._consumer.positions:
            await asyncio.sleep(_MAX_WAIT_S)
            return []
        return await self._consumer.poll()

    async def _heartbeat(self) -> None:
        response = await self._send(self._epoch)
        self._epoch = response.member_epoch
        self._due = self._now() + response.heartbeat_interval_ms / 1000
        if response.assignment is None:
            return
        assigned = response.assignment.topic_partitions
        owned = tuple(assigned[0].partitions) if assigned else ()
        if assigned:
            self._topic_id = assigned[0].topic_id
        names = [TopicPartition(self._topic, index) for index in owned]
        kept = {name: at for name, at in self._consumer.positions.items() if name in names}
        # Partitions that are revoked are not read from now on.
        await self._consumer.assign(kept)
        added = [name for name in names if name not in kept]
        committed = (
            await self._client.groups.fetch_offsets(self._group, added, stable=True)
            if added
            else {}
        )
        await self._consumer.assign(
            kept | {name: committed[name].offset if name in committed else 0 for name in added}
        )
        if owned != self._owned:
            self._owned, self._due = owned, 0.0

    async def _send(self, epoch: int) -> ConsumerGroupHeartbeatResponse:
        owned = ConsumerGroupHeartbeatRequest.TopicPartition
        is_joining = epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._id,
            member_epoch=epoch,
            rebalance_timeout_ms=_REBALANCE_MS if is_joining else -1,
            subscribed_topic_names=(self._topic,) if is_joining else None,
            topic_partitions=(
                ()
                if is_joining or not self._owned
                else (owned(topic_id=self._topic_id, partitions=self._owned),)
            ),
        )

        async def send(connection: Connection) -> ConsumerGroupHeartbeatResponse:
            response = await connection.call(request, ConsumerGroupHeartbeatResponse)
            check(response.error_code, response.error_message or "the heartbeat was refused")
            return response

        return await self._client.groups.coordinators.send(self._group, send)

    async def close(self) -> None:
        self._consumer.close()
        if self._epoch > 0:
            await self._send(_LEAVE_EPOCH)

    def abandon(self) -> None:
        self._consumer.close()


def _committed_consumer(client: Client) -> Consumer:
    return client.consumer(
        isolation=IsolationLevel.READ_COMMITTED,
        max_wait_s=_MAX_WAIT_S,
        partition_max_bytes=_PARTITION_BYTES,
    )
