"""The coordinator of the groups of one partition of `__consumer_offsets`, on the broker that leads
it. PURE.

A thin front: each request goes to the file that decides it. Classic members of a group that speaks
the consumer protocol by now (KIP-848's migration) are answered by `consumer_classic`. Records with
a producer id belong to transactions: until those are built, whoever loads a shard leaves them out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import UUID

from penstock.coordinator.classic.expiry import begin, expire_classic
from penstock.coordinator.classic.group import ClassicGroup
from penstock.coordinator.classic.heartbeat import heartbeat
from penstock.coordinator.classic.join import join
from penstock.coordinator.classic.leave import leave
from penstock.coordinator.classic.replay import replay_group, replay_offset
from penstock.coordinator.classic.responses import join_refused, refuse, sync_refused
from penstock.coordinator.classic.sync import sync
from penstock.coordinator.consumer import classic_members as consumer_classic
from penstock.coordinator.consumer import describe as consumer_describe
from penstock.coordinator.consumer import expiry as consumer_expiry
from penstock.coordinator.consumer import heartbeat as consumer_heartbeat
from penstock.coordinator.consumer import replay as consumer_replay
from penstock.coordinator.groups import views as group_views
from penstock.coordinator.groups.records import decode
from penstock.coordinator.groups.settings import GroupSettings
from penstock.coordinator.groups.table import Groups
from penstock.coordinator.offsets import commit as offset_commit
from penstock.coordinator.offsets import fetch as offset_fetch
from penstock.coordinator.offsets import removal as offset_removal
from penstock.coordinator.offsets.expiry import Sweep
from penstock.coordinator.runtime.step import Answer, Caller, Step, Ticket
from penstock.coordinator.runtime.turn import Turn
from penstock.errors import ErrorCode, ProtocolError
from penstock.ids import Buffer
from penstock.metadata.image import MetadataImage
from penstock.protocol.internal.classic_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from penstock.protocol.internal.coordinator_logs import GROUP_LOG
from penstock.protocol.internal.versioned import UnknownRecord
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.describe_groups import DescribeGroupsResponse
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.protocol.messages.list_groups import ListGroupsResponse
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest

# From here on LeaveGroup names many members, and says of each what became of it.
_BATCHED_LEAVE_VERSION = 3


class Shard:
    """`new_uuid` makes member ids. Until `loaded`, only `replay` and `image_changed` may be
    called."""

    def __init__(
        self, settings: GroupSettings, image: MetadataImage, new_uuid: Callable[[], UUID]
    ) -> None:
        self.groups = Groups(settings, image, new_uuid)
        self._sweep: Sweep | None = None

    # What the log and the cluster say.

    def replay(self, offset: int, key: Buffer, value: Buffer | None, _timestamp: int) -> None:
        """Records of types and versions to come are skipped, as Kafka does. ProtocolError for one
        that is damaged."""
        try:
            typed, content = decode(key, value)
        except UnknownRecord:
            return
        except ProtocolError as error:
            raise ProtocolError(
                f"the record at offset {offset} of {GROUP_LOG.topic} cannot be read: {error}"
            ) from error
        match typed, content:
            case (
                (OffsetCommitKey() | LegacyOffsetCommitKey()),
                (OffsetCommitValue() | LegacyOffsetCommitValue() | None),
            ):
                replay_offset(self.groups, typed, content)
            case GroupMetadataKey(), (GroupMetadataValue() | None):
                replay_group(self.groups, typed, content)
            case _:
                consumer_replay.replay(self.groups, typed, content)

    def loaded(self, now_ms: int) -> Step:
        """All of the log has been replayed: sessions begin anew."""
        turn = Turn(self.groups, now_ms, wall_ms=-1)
        self._sweep = Sweep(now_ms + self.groups.settings.offsets_retention_check_interval_ms)
        begin(turn)
        consumer_expiry.begin(self.groups, now_ms)
        return turn.step()

    def image_changed(self, image: MetadataImage, now_ms: int) -> Step:
        """Consumer groups look at it with their next heartbeat."""
        before, self.groups.image = self.groups.image, image
        turn = Turn(self.groups, now_ms, wall_ms=-1)
        offset_removal.topics_deleted(turn, before)
        return turn.step()

    # What members of classic groups ask.

    def join_group(
        self, request: JoinGroupRequest, caller: Caller, ticket: Ticket, now_ms: int
    ) -> Step:
        turn = Turn(self.groups, now_ms, caller.wall_ms)
        settings = self.groups.settings
        if not request.group_id:
            turn.answer(
                ticket, join_refused(ErrorCode.INVALID_GROUP_ID, request.member_id, caller.version)
            )
        elif (
            not settings.min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.max_session_timeout_ms
        ):
            turn.answer(
                ticket,
                join_refused(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id, caller.version),
            )
        elif self._has_consumers(request.group_id):
            return consumer_classic.join(self.groups, request, caller, ticket, now_ms)
        else:
            join(turn, request, caller, ticket)
        return turn.step()

    def sync_group(
        self, request: SyncGroupRequest, caller: Caller, ticket: Ticket, now_ms: int
    ) -> Step:
        turn = Turn(self.groups, now_ms, caller.wall_ms)
        if not request.group_id:
            turn.answer(ticket, sync_refused(ErrorCode.INVALID_GROUP_ID))
        elif self._has_consumers(request.group_id):
            return consumer_classic.sync(self.groups, request, caller, ticket, now_ms)
        else:
            sync(turn, self._classic(request.group_id), request, caller, ticket)
        return turn.step()

    def heartbeat(
        self, request: HeartbeatRequest, caller: Caller, ticket: Ticket, now_ms: int
    ) -> Step:
        turn = Turn(self.groups, now_ms, caller.wall_ms)
        if self._has_consumers(request.group_id):
            return consumer_classic.heartbeat(self.groups, request, caller, ticket, now_ms)
        code = (
            heartbeat(turn, self._classic(request.group_id), request)
            if request.group_id
            else ErrorCode.INVALID_GROUP_ID
        )
        turn.answer(ticket, HeartbeatResponse(error_code=code))
        return turn.step(at_once=True)

    def leave_group(
        self, request: LeaveGroupRequest, caller: Caller, ticket: Ticket, now_ms: int
    ) -> Step:
        turn = Turn(self.groups, now_ms, caller.wall_ms)
        if self._has_consumers(request.group_id):
            return consumer_classic.leave(self.groups, request, caller, ticket, now_ms)
        group = self._classic(request.group_id)
        if group is None:
            code = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
            turn.answer(ticket, LeaveGroupResponse(error_code=code))
        elif caller.version >= _BATCHED_LEAVE_VERSION:
            turn.answer(ticket, LeaveGroupResponse(members=leave(turn, group, request.members)))
        else:
            (only,) = leave(turn, group, (LeaveGroupRequest.Member(member_id=request.member_id),))
            turn.answer(ticket, LeaveGroupResponse(error_code=only.error_code))
        return turn.step()

    # What members of consumer groups ask.

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, ticket: Ticket, now_ms: int
    ) -> Step:
        return consumer_heartbeat.decide(self.groups, request, caller, ticket, now_ms)

    # Offsets.

    def commit_offsets(
        self, request: OffsetCommitRequest, caller: Caller, ticket: Ticket, now_ms: int
    ) -> Step:
        turn = Turn(self.groups, now_ms, caller.wall_ms)
        turn.answer(ticket, offset_commit.commit(turn, request, caller))
        return turn.step()

    def fetch_offsets(
        self, group: OffsetFetchRequest.Group, require_stable: bool = False, version: int = 10
    ) -> OffsetFetchResponse.Group:
        return offset_fetch.fetch(self.groups, group, require_stable, version)

    def delete_offsets(
        self, request: OffsetDeleteRequest, caller: Caller, ticket: Ticket, now_ms: int
    ) -> Step:
        turn = Turn(self.groups, now_ms, caller.wall_ms)
        turn.answer(ticket, offset_removal.delete_offsets(turn, request))
        return turn.step()

    # What administrators ask.

    def delete_groups(self, group_ids: Collection[str], ticket: Ticket, now_ms: int) -> Step:
        """The answer is a DeleteGroupsResponse with a result for each of them."""
        turn = Turn(self.groups, now_ms, wall_ms=-1)
        turn.answer(ticket, offset_removal.delete_groups(turn, group_ids))
        return turn.step()

    def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[ListGroupsResponse.Group]:
        return group_views.list_groups(self.groups, states, types)

    def describe_group(self, group_id: str, version: int = 6) -> DescribeGroupsResponse.Group:
        return group_views.describe(self.groups, group_id, version)

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescribeResponse.Group:
        return consumer_describe.describe(self.groups, group_id)

    # What time asks.

    def expire(self, now_ms: int, wall_ms: int) -> Step:
        turn = Turn(self.groups, now_ms, wall_ms)
        expire_classic(turn)
        if self._sweep is not None:
            self._sweep.run(turn)
        return _both(turn.step(), consumer_expiry.expire(self.groups, now_ms, wall_ms))

    def next_deadline_ms(self) -> int | None:
        """When `expire` is wanted; maybe too early, never too late."""
        deadlines = (
            self.groups.deadlines.next_ms(),
            None if self._sweep is None else self._sweep.due_ms,
            consumer_expiry.next_deadline_ms(self.groups),
        )
        return min((due_ms for due_ms in deadlines if due_ms is not None), default=None)

    def close(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> tuple[Answer, ...]:
        """Answers for all who wait. The shard is of no use any more."""
        turn = Turn(self.groups, now_ms=0, wall_ms=-1)
        for group in self.groups.by_id.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    refuse(turn, member, error)
        return tuple(turn.answers)

    def _classic(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.by_id.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def _has_consumers(self, group_id: str) -> bool:
        """Whether it is a consumer group with members."""
        group = self.groups.by_id.get(group_id)
        return group is not None and not isinstance(group, ClassicGroup) and not group.is_empty


def _both(first: Step, second: Step) -> Step:
    return Step(
        first.records + second.records,
        first.answers + second.answers,
        first.told + second.told,
        first.at_once and second.at_once,
    )
