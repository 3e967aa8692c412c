"""The group coordinator's state machine: the groups of one partition of __consumer_offsets, on the
broker that leads it. PURE.

Each request goes to the module that decides it. Members of the classic protocol in a group that was
upgraded to the consumer protocol (KIP-848) are served by `consumer/classic_members.py`.

The offsets of a transaction are pending until its marker (`offsets/pending.py`). Producer epochs
are fenced by the log, which knows the producers of the partition: it refuses the step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Never
from uuid import UUID

from penstock.coordinator.classic import membership, rebalance
from penstock.coordinator.classic.group import ClassicGroup
from penstock.coordinator.classic.responses import join_error, sync_error
from penstock.coordinator.consumer import checks, classic_members, heartbeat, leaving, timeouts
from penstock.coordinator.consumer.group import NO_EPOCH, ConsumerGroup
from penstock.coordinator.groups import views
from penstock.coordinator.groups.step import GroupStep, decode, replay
from penstock.coordinator.groups.table import Caller, GroupSettings, GroupTable
from penstock.coordinator.offsets import commit, fetch
from penstock.coordinator.offsets.committed import replay_marker
from penstock.coordinator.offsets.removal import Removals, delete_offsets
from penstock.coordinator.runtime.step import (
    PLAIN,
    Batch,
    Now,
    Record,
    Step,
    Ticket,
    marker_batch,
    transactional_batch,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import LOADED_MEMBERS_PER_STEP, REFUSED_STEP_RETRY_MS
from penstock.metadata.image import MetadataImage
from penstock.protocol.internal.versioned import UnknownRecord
from penstock.protocol.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.describe_groups import DescribeGroupsResponse
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.protocol.messages.list_groups import ListGroupsResponse
from penstock.protocol.messages.offset_commit import OffsetCommitRequest
from penstock.protocol.messages.offset_delete import OffsetDeleteRequest
from penstock.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest
from penstock.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

# From this version on LeaveGroup names many members, with a result for each.
_BATCHED_LEAVE_VERSION = 3


class GroupMachine:
    """A `StateMachine`. Until `loaded`, only `replay` may be called. `read_settings` returns the
    settings as they are now; they may change with the image."""

    def __init__(
        self,
        read_settings: Callable[[], GroupSettings],
        image: MetadataImage,
        new_uuid: Callable[[], UUID],
    ) -> None:
        self._read_settings = read_settings
        self.groups = GroupTable(read_settings(), image, new_uuid)
        self._removals = Removals(self.groups, expiry_due_ms=0)
        # Groups whose deadlines have not been started yet.
        self._loaded_groups: list[str] = []
        self._now_ms = 0

    # The log and the cluster

    def replay(self, record: Record, batch: Batch, /) -> None:
        """Records of unknown types and versions are skipped, as in Kafka. ProtocolError: the record
        is damaged."""
        if batch.marker is not None:
            replay_marker(self.groups, batch.producer_id, commit=batch.marker.commit)
            return
        try:
            key, value = decode(record.key, record.value)
        except UnknownRecord:
            return
        replay(self.groups, key, value, batch)

    def loaded(self, now: Now, /) -> Step[Never]:
        interval_ms = self.groups.settings.offsets_retention_check_interval_ms
        self._removals = Removals(self.groups, now.ms + interval_ms)
        self._loaded_groups = list(self.groups.by_id)
        return self.run_due(now)

    def image_changed(
        self, image: MetadataImage, deleted_topics: Collection[str], now: Now, /
    ) -> Step[Never]:
        """Remove the offsets of deleted topics. Consumer groups look at the image with their next
        heartbeats."""
        self.groups.image = image
        self._refresh_settings()
        self._removals.topics_deleted(deleted_topics)
        step = self._step(now)
        self._removals.run(step)
        return step.build()

    def _refresh_settings(self) -> None:
        before, self.groups.settings = self.groups.settings, self._read_settings()
        if self.groups.settings.max_batch_bytes != before.max_batch_bytes:
            for group in self.groups.by_id.values():
                if isinstance(group, ConsumerGroup):
                    group.unwritable_epoch = NO_EPOCH

    @property
    def is_empty(self) -> bool:
        return not self.groups.by_id

    # The classic protocol

    def join_group(
        self, request: JoinGroupRequest, caller: Caller, ticket: Ticket, now: Now
    ) -> Step[Never]:
        self._check_not_deleting(request.group_id)
        step = self._step(now)
        settings = self.groups.settings
        group = self._consumer_group(request.group_id)
        try:
            if not request.group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
            if (
                not settings.min_session_timeout_ms
                <= request.session_timeout_ms
                <= settings.max_session_timeout_ms
            ):
                raise KafkaError(
                    ErrorCode.INVALID_SESSION_TIMEOUT,
                    f"session timeout {request.session_timeout_ms} ms is out of range",
                )
            if group is None:
                membership.join(step, request, caller, ticket)
            else:
                step.reply(ticket, classic_members.join(step, group, request, caller))
        except KafkaError as error:
            step.revert()
            step.reply(ticket, join_error(error.code, request.member_id, caller.version))
        return step.build()

    def sync_group(
        self, request: SyncGroupRequest, caller: Caller, ticket: Ticket, now: Now
    ) -> Step[Never]:
        step = self._step(now)
        group = self._consumer_group(request.group_id)
        if not request.group_id:
            step.reply(ticket, sync_error(ErrorCode.INVALID_GROUP_ID))
        elif group is None:
            membership.sync(step, self._classic_group(request.group_id), request, caller, ticket)
        else:
            try:
                step.reply(ticket, classic_members.sync(step, group, request))
            except KafkaError as error:
                step.revert()
                step.reply(ticket, sync_error(error.code))
        return step.build()

    def heartbeat(self, request: HeartbeatRequest, ticket: Ticket, now: Now) -> Step[Never]:
        """The reply is immediate: a member that rejoins needlessly loses nothing."""
        step = self._step(now)
        group = self._consumer_group(request.group_id)
        if not request.group_id:
            code = ErrorCode.INVALID_GROUP_ID
        elif group is None:
            code = membership.heartbeat(step, self._classic_group(request.group_id), request)
        else:
            try:
                code = classic_members.heartbeat(step, group, request)
            except KafkaError as error:
                step.revert()
                code = error.code
        step.reply(ticket, HeartbeatResponse(error_code=code))
        return step.build(immediate=True)

    def leave_group(
        self, request: LeaveGroupRequest, caller: Caller, ticket: Ticket, now: Now
    ) -> Step[Never]:
        step = self._step(now)
        batched = caller.version >= _BATCHED_LEAVE_VERSION
        members = (
            request.members if batched else (LeaveGroupRequest.Member(member_id=request.member_id),)
        )
        classic = self._classic_group(request.group_id)
        consumer = self._consumer_group(request.group_id)
        if consumer is not None:
            results = classic_members.leave(step, consumer, members)
        elif classic is not None:
            results = membership.leave(step, classic, members)
        else:
            code = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
            step.reply(ticket, LeaveGroupResponse(error_code=code))
            return step.build()
        response = (
            LeaveGroupResponse(members=results)
            if batched
            else LeaveGroupResponse(error_code=results[0].error_code)
        )
        step.reply(ticket, response)
        return step.build()

    # The consumer protocol

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, ticket: Ticket, now: Now
    ) -> Step[Never]:
        """The reply is immediate if it tells the member nothing new."""
        self._check_not_deleting(request.group_id)
        checks.check_size(request, self.groups.settings)
        step = self._step(now)
        try:
            response = heartbeat.heartbeat(step, request, caller)
        except KafkaError as error:
            step.revert()
            response = ConsumerGroupHeartbeatResponse(
                error_code=error.code, error_message=error.message, assignment=None
            )
        step.reply(ticket, response)
        return step.build(
            immediate=not step.records and heartbeat.says_nothing_new(request, response)
        )

    # Offsets

    def offset_commit(
        self, request: OffsetCommitRequest, caller: Caller, ticket: Ticket, now: Now
    ) -> Step[Never]:
        self._check_not_deleting(request.group_id)
        step = self._step(now)
        step.reply(ticket, commit.commit(step, request, caller))
        return step.build()

    def txn_offset_commit(
        self, request: TxnOffsetCommitRequest, caller: Caller, ticket: Ticket, now: Now
    ) -> Step[Never]:
        self._check_not_deleting(request.group_id)
        if request.producer_id < 0:
            # Its records would count as committed without a transaction.
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                f"{request.producer_id} is not a producer id",
            )
        step = self._step(now, transactional_batch(request.producer_id, request.producer_epoch))
        step.reply(ticket, commit.commit_in_transaction(step, request, caller))
        return step.build()

    def write_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        ticket: Ticket,
        now: Now,
    ) -> Step[Never]:
        """End a producer's transaction: its pending offsets become the groups', or are dropped. The
        marker is written even if there are none, since the log has to know of the end. The reply is
        ErrorCode.NONE."""
        step = self._step(
            now,
            marker_batch(
                producer_id, producer_epoch, commit=commit, coordinator_epoch=coordinator_epoch
            ),
        )
        step.end_transaction()
        step.reply(ticket, ErrorCode.NONE)
        return step.build()

    def offset_fetch(
        self, group: OffsetFetchRequest.Group, require_stable: bool = False, version: int = 10
    ) -> OffsetFetchResponse.Group:
        return fetch.fetch(self.groups, group, require_stable, version)

    def offset_delete(self, request: OffsetDeleteRequest, ticket: Ticket, now: Now) -> Step[Never]:
        step = self._step(now)
        step.reply(ticket, delete_offsets(step, request))
        return step.build()

    # Administration

    def delete_group(self, group_id: str, ticket: Ticket, now: Now) -> Step[Never]:
        """The reply is a DeleteGroupsResponse.Result. A group with very many offsets takes several
        steps."""
        self._check_not_deleting(group_id)
        step = self._step(now)
        self._removals.delete_group(step, group_id, ticket)
        return step.build()

    def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[ListGroupsResponse.Group]:
        return views.list_groups(self.groups, states, types)

    def describe_group(self, group_id: str, version: int = 6) -> DescribeGroupsResponse.Group:
        return views.describe_classic(self.groups, group_id, version)

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescribeResponse.Group:
        return views.describe_consumer(self.groups, group_id)

    # Deadlines

    def run_due(self, now: Now, /) -> Step[Never]:
        """Start the deadlines of some of the loaded groups, act on one deadline of a group or
        member, or do one piece of removal."""
        step = self._step(now)
        if self._loaded_groups:
            self._start_deadlines(step)
            return step.build()
        key = self.groups.deadlines.pop_due(now.ms)
        if key is None:
            self._removals.run(step)
            return step.build()
        # A refused step reverts to this.
        step.undo.add(partial(self.groups.deadlines.set, key, now.ms + REFUSED_STEP_RETRY_MS))
        kind, group_id, member_id = key
        group = self.groups.by_id.get(group_id)
        if isinstance(group, ClassicGroup):
            rebalance.deadline_passed(step, group, kind, member_id)
        elif isinstance(group, ConsumerGroup):
            leaving.deadline_passed(step, group, kind, member_id)
        return step.build()

    def _start_deadlines(self, step: GroupStep) -> None:
        """Start the deadlines of as many groups as a step may. A member that has sent a heartbeat
        meanwhile gets another full session."""
        started = 0
        while self._loaded_groups and started < LOADED_MEMBERS_PER_STEP:
            group = self.groups.by_id.get(self._loaded_groups.pop())
            if isinstance(group, ClassicGroup):
                rebalance.start_sessions(step, group)
                started += len(group.members)
            elif isinstance(group, ConsumerGroup):
                timeouts.start_deadlines(step, group)
                started += len(group.members)
            started += 1

    def next_deadline_ms(self) -> int | None:
        if self._loaded_groups:
            return self._now_ms
        removal_ms = self._removals.next_ms(self._now_ms)
        deadline_ms = self.groups.deadlines.next_ms()
        return removal_ms if deadline_ms is None else min(removal_ms, deadline_ms)

    def _step(self, now: Now, batch: Batch = PLAIN) -> GroupStep:
        self._now_ms = now.ms
        return GroupStep(self.groups, now, batch)

    def _classic_group(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.by_id.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def _consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """Return the group if it is a consumer group with members. One without members gives way to
        a classic group."""
        group = self.groups.by_id.get(group_id)
        return group if isinstance(group, ConsumerGroup) and group.members else None

    def _check_not_deleting(self, group_id: str) -> None:
        """Refuse requests that would revive a group while it is being deleted in several steps. The
        code is retriable in every client."""
        if self._removals.is_deleting(group_id):
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"group {group_id} is being deleted"
            )
