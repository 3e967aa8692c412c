"""The clients of the shard explorer: members of classic groups and of consumer groups (KIP-848).

A client sends its next request when the walk says so, and learns from the reply whenever it
arrives. An error instead of a reply means that the coordinator moved or failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from penstock.coordinator.groups.table import Caller
from penstock.errors import ErrorCode
from penstock.protocol.internal.consumer_protocol import (
    ConsumerProtocolSubscription,
    encode_consumer_protocol,
)
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.leave_group import LeaveGroupRequest
from penstock.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from penstock.sim.explore.shard import ShardWalk

SUBSCRIPTION = encode_consumer_protocol(ConsumerProtocolSubscription(topics=("t",)))
OTHER_SUBSCRIPTION = encode_consumer_protocol(ConsumerProtocolSubscription(topics=("t", "u")))


def caller(version: int) -> Caller:
    return Caller("c", "/127.0.0.1", version)


class ClassicClient:
    def __init__(self, walk: ShardWalk, name: str, group: str, instance: str | None) -> None:
        self._walk = walk
        self.name = name
        self.group = group
        self._instance = instance
        self.restart()

    def restart(self) -> None:
        """Restart the process: it forgets its membership and the requests that it sent."""
        self.life = object()
        self._member_id = ""
        self._generation = -1
        self._followers: tuple[str, ...] = ()
        self._is_synced = self._is_waiting = False

    def act(self) -> None:
        """Send the next request."""
        dice = self._walk.choices.below(20)
        if dice == 0 or (self._is_waiting and dice < 3):
            self.restart()
        elif self._is_waiting:
            return
        elif self._generation < 0 or dice == 1:
            self._join()
        elif not self._is_synced:
            self._sync()
        elif dice < 10:
            self._heartbeat()
        elif dice < 18:
            self._walk.commit_offset(self.group, self._member_id, self._generation, self._instance)
        elif dice < 19:
            self._leave()

    def _join(self) -> None:
        subscription = OTHER_SUBSCRIPTION if self._walk.choices.below(4) == 0 else SUBSCRIPTION
        protocols = tuple(
            JoinGroupRequest.Protocol(name=name, metadata=subscription)
            for name in ("range", "sticky")
        )
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=15_000,
            rebalance_timeout_ms=20_000,
            member_id=self._member_id,
            group_instance_id=self._instance,
            protocol_type="consumer",
            protocols=protocols,
        )
        self._is_waiting = True
        life = self.life
        self._walk.ask(
            f"{self.name} joins {self.group} as {self._member_id!r}",
            lambda machine, ticket, now: machine.join_group(request, caller(9), ticket, now),
            lambda reply: self._joined(reply) if life is self.life else None,
        )

    def _joined(self, reply: object) -> None:
        self._is_waiting = False
        if not isinstance(reply, JoinGroupResponse):
            return
        if reply.error_code == ErrorCode.NONE:
            self._member_id, self._generation = reply.member_id, reply.generation_id
            self._followers = (
                () if reply.skip_assignment else tuple(member.member_id for member in reply.members)
            )
            self._is_synced = False
        elif reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = reply.member_id
        elif reply.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            self.restart()

    def _sync(self) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance,
            assignments=tuple(
                SyncGroupRequest.Assignment(member_id=member, assignment=member.encode())
                for member in self._followers
            ),
        )
        self._is_waiting = True
        life = self.life
        self._walk.ask(
            f"{self.name} syncs generation {self._generation}",
            lambda machine, ticket, now: machine.sync_group(request, caller(5), ticket, now),
            lambda reply: self._synced(reply) if life is self.life else None,
        )

    def _synced(self, reply: object) -> None:
        self._is_waiting = False
        if isinstance(reply, SyncGroupResponse):
            self._is_synced = reply.error_code == ErrorCode.NONE
            self._handle(reply.error_code)

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._instance,
        )
        life = self.life
        self._walk.ask(
            f"{self.name} sends a heartbeat",
            lambda machine, ticket, now: machine.heartbeat(request, ticket, now),
            lambda reply: self._beaten(reply) if life is self.life else None,
            needs_writes=False,
        )

    def _beaten(self, reply: object) -> None:
        if isinstance(reply, HeartbeatResponse):
            self._handle(reply.error_code)

    def _handle(self, code: int) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.restart()
        elif code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            self._generation = -1

    def _leave(self) -> None:
        member = LeaveGroupRequest.Member(
            member_id=self._member_id, group_instance_id=self._instance
        )
        request = LeaveGroupRequest(group_id=self.group, members=(member,))
        self._walk.ask(
            f"{self.name} leaves {self.group}",
            lambda machine, ticket, now: machine.leave_group(request, caller(5), ticket, now),
            lambda _reply: None,
        )
        self.restart()


class ConsumerClient:
    """Sends what it owns with each heartbeat; adopts the assignment of a reply at once."""

    def __init__(self, walk: ShardWalk, name: str, group: str, instance: str | None) -> None:
        self._walk = walk
        self.name = name
        self.group = group
        self._instance = instance
        self._lives = 0
        self.restart()

    def restart(self) -> None:
        self._lives += 1
        self.life = object()
        self.member_id = f"{self.name}-{self._lives}"
        self.epoch = 0
        self.owned: frozenset[tuple[UUID, int]] = frozenset()
        self._is_waiting = False

    def act(self) -> None:
        dice = self._walk.choices.below(20)
        if dice == 0:
            self.restart()
        elif self._is_waiting:
            return
        elif self.epoch > 0 and dice == 1:
            self._leave()
        elif self.epoch > 0 and dice < 6:
            self._walk.commit_offset(self.group, self.member_id, self.epoch, self._instance)
        else:
            self._heartbeat(is_lost=dice == 19)

    def _heartbeat(self, *, is_lost: bool) -> None:
        topics = ("t", "u") if self._walk.choices.below(4) == 0 else ("t",)
        numbers: dict[UUID, list[int]] = {}
        for topic, partition in sorted(self.owned):
            numbers.setdefault(topic, []).append(partition)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self._instance,
            rebalance_timeout_ms=20_000,
            subscribed_topic_names=topics,
            topic_partitions=tuple(
                ConsumerGroupHeartbeatRequest.TopicPartition(
                    topic_id=topic, partitions=tuple(partitions)
                )
                for topic, partitions in numbers.items()
            ),
        )
        self._is_waiting = True
        life = self.life
        self._walk.ask(
            f"{self.name} sends a heartbeat of epoch {self.epoch}",
            lambda machine, ticket, now: machine.consumer_group_heartbeat(
                request, caller(1), ticket, now
            ),
            lambda reply: self._beaten(reply, is_lost) if life is self.life else None,
            needs_writes=False,
        )

    def _beaten(self, reply: object, is_lost: bool) -> None:
        self._is_waiting = False
        if is_lost or not isinstance(reply, ConsumerGroupHeartbeatResponse):
            return
        if reply.error_code != ErrorCode.NONE:
            self.epoch, self.owned = 0, frozenset()
            return
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.owned = frozenset(
                (topic.topic_id, partition)
                for topic in reply.assignment.topic_partitions
                for partition in topic.partitions
            )

    def _leave(self) -> None:
        is_temporary = self._instance is not None and self._walk.choices.below(2) == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=-2 if is_temporary else -1,
            instance_id=self._instance,
        )
        self._walk.ask(
            f"{self.name} leaves {self.group}",
            lambda machine, ticket, now: machine.consumer_group_heartbeat(
                request, caller(1), ticket, now
            ),
            lambda _reply: None,
        )
        self.restart()


Client = ClassicClient | ConsumerClient


def commit_request(
    group: str, member_id: str, epoch: int, instance: str | None, offset: int
) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.Topic.Partition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=instance,
        topics=(OffsetCommitRequest.Topic(name="t", partitions=(partition,)),),
    )


def is_committed(reply: object) -> bool:
    return isinstance(reply, OffsetCommitResponse) and all(
        partition.error_code == ErrorCode.NONE
        for topic in reply.topics
        for partition in topic.partitions
    )
