"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups. PURE.

A member that joins with the instance id of an earlier member (KIP-345) takes its place, without a
rebalance as long as nothing else changes.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.coordinator.classic.group import (
    ClassicGroup,
    ClassicMember,
    Parked,
    Protocol,
    State,
    voted_protocol,
)
from penstock.coordinator.classic.rebalance import (
    assign,
    extend_session,
    has_synced,
    is_writable,
    names,
    rebalance_or_complete,
    remove_member,
    session_key,
)
from penstock.coordinator.classic.records import empty_value, stable_value
from penstock.coordinator.classic.responses import (
    join_error,
    join_response,
    park_join,
    park_sync,
    refuse_parked,
    static_rejoin_response,
    sync_error,
    sync_response,
)
from penstock.coordinator.groups.step import GroupStep
from penstock.coordinator.groups.table import Caller
from penstock.coordinator.runtime.step import Ticket
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_CLIENT_REASON_LENGTH, MAX_PENDING_MEMBERS
from penstock.protocol.internal.classic_group_records import GroupMetadataKey
from penstock.protocol.messages.heartbeat import HeartbeatRequest
from penstock.protocol.messages.join_group import JoinGroupRequest
from penstock.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest

# KIP-394: from this version on a new member first gets its id, so that a client that never reads
# the response leaves no member behind.
_MEMBER_ID_REQUIRED_VERSION = 4
# How long a member may wait for its first generation without a heartbeat (Kafka's constant).
NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1_000


def join(step: GroupStep, request: JoinGroupRequest, caller: Caller, ticket: Ticket) -> None:
    """Handle JoinGroup. The group is not a consumer group with members."""
    group = step.groups.by_id.get(request.group_id)
    if not isinstance(group, ClassicGroup):
        if request.member_id:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            step.reply(ticket, join_error(code, request.member_id, caller.version))
            return
        group = _created(step, request.group_id)
    step.edit(group)
    try:
        _Join(step, group, request, caller, ticket).run()
    except KafkaError as error:
        step.reply(ticket, join_error(error.code, request.member_id, caller.version))


def _created(step: GroupStep, group_id: str) -> ClassicGroup:
    """Write an empty group. It replaces a consumer group without members."""
    former = step.groups.by_id.get(group_id)
    if former is not None:
        step.delete(*former.tombstone_keys())
    step.write(GroupMetadataKey(group=group_id), empty_value(None, 0, step.wall_ms))
    group = step.groups.by_id[group_id]
    assert isinstance(group, ClassicGroup)
    return group


class _Join:
    """One JoinGroup request. KafkaError refuses it and has changed nothing."""

    def __init__(
        self,
        step: GroupStep,
        group: ClassicGroup,
        request: JoinGroupRequest,
        caller: Caller,
        ticket: Ticket,
    ) -> None:
        self.step = step
        self.group = group
        self.request = request
        self.caller = caller
        self.ticket = ticket
        self.protocols = tuple(
            Protocol(protocol.name, protocol.metadata) for protocol in request.protocols
        )
        self.parked = Parked(ticket, caller.version)

    def run(self) -> None:
        group, member_id = self.group, self.request.member_id
        if not self._has_room():
            remove_member(self.step, group, member_id)
            code = ErrorCode.GROUP_MAX_SIZE_REACHED
            self.step.reply(self.ticket, join_error(code, "", self.caller.version))
        elif not self._fits():
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"with this member a generation of group {group.id} exceeds max.message.bytes of "
                "the offsets topic",
            )
        elif not group.supports(self.request.protocol_type, (name for name, _ in self.protocols)):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the members of group {group.id} share no protocol with the new one",
            )
        elif not member_id:
            self._join_without_id()
        elif member_id in group.pending_ids and self.request.group_instance_id is None:
            self._add(member_id)
        else:
            group.check_member(member_id, self.request.group_instance_id)
            self._rejoin(group.members[member_id])

    def _has_room(self) -> bool:
        group, member = self.group, self.group.members.get(self.request.member_id)
        limit = self.step.groups.settings.max_size
        if group.is_empty:
            return True
        if group.state is State.PREPARING:
            return (
                member is not None and member.joining is not None
            ) or group.joining_count < limit
        return member is not None or len(group.members) < limit

    def _fits(self) -> bool:
        """Return False if no record can hold a generation with this member. It would never be
        complete, for none of the members."""
        group, request = self.group, self.request
        former_id = request.member_id or group.static_ids.get(request.group_instance_id or "", "")
        former = group.members.get(former_id)
        others = group.least_record_bytes - (0 if former is None else former.least_record_bytes)
        own = min((len(metadata) for _, metadata in self.protocols), default=0)
        return others + own <= self.step.groups.settings.max_batch_bytes

    def _join_without_id(self) -> None:
        instance_id = self.request.group_instance_id
        prefix = self.caller.client_id if instance_id is None else instance_id
        member_id = f"{prefix}-{self.step.groups.new_uuid()}"
        former_id = None if instance_id is None else self.group.static_ids.get(instance_id)
        if former_id is not None:
            self._replace(former_id, member_id)
        elif instance_id is None and self.caller.version >= _MEMBER_ID_REQUIRED_VERSION:
            self._require_member_id(member_id)
        else:
            self._add(member_id)

    def _require_member_id(self, member_id: str) -> None:
        group, step = self.group, self.step
        if len(group.pending_ids) >= MAX_PENDING_MEMBERS:
            remove_member(step, group, next(iter(group.pending_ids)))
        group.pending_ids[member_id] = None
        step.set_deadline(
            session_key(group, member_id), step.now_ms + self.request.session_timeout_ms
        )
        code = ErrorCode.MEMBER_ID_REQUIRED
        step.reply(self.ticket, join_error(code, member_id, self.caller.version))

    def _add(self, member_id: str) -> None:
        member = ClassicMember(
            id=member_id,
            instance_id=self.request.group_instance_id,
            client_id=self.caller.client_id,
            client_host=self.caller.client_host,
            session_timeout_ms=self.request.session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            protocols=self.protocols,
            is_new=True,
            joining=self.parked,
        )
        if self.group.is_initial:
            self.group.joined_while_waiting = True
        self.group.add(member, self.request.protocol_type)
        self.step.set_deadline(
            session_key(self.group, member_id), self.step.now_ms + NEW_MEMBER_TIMEOUT_MS
        )
        self._rebalance(f"{member_id} joined")

    @property
    def _rebalance_timeout_ms(self) -> int:
        return (
            self.request.session_timeout_ms
            if self.caller.version == 0
            else self.request.rebalance_timeout_ms
        )

    def _updated(self, member: ClassicMember) -> ClassicMember:
        return replace(
            member,
            protocols=self.protocols,
            session_timeout_ms=self.request.session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
        )

    def _rejoin(self, member: ClassicMember) -> None:
        """A member that lost the response gets it again. Otherwise it changed its protocols, or is
        the leader, which may rejoin to force a rebalance."""
        group = self.group
        changed = member.protocols != self.protocols
        if group.is_empty:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id} is empty")
        if group.state is State.PREPARING:
            reason = f"{member.id} rejoined"
        elif changed:
            reason = f"{member.id} changed its protocols"
        elif group.state is State.STABLE and group.leader_id == member.id:
            reason = f"the leader {member.id} rejoined"
        else:
            self.step.reply(self.ticket, join_response(group, member.id))
            return
        group.put(self._updated(member))
        park_join(self.step, group, member.id, self.parked)
        self._rebalance(reason)

    def _replace(self, former_id: str, member_id: str) -> None:
        """A static member returns under a new id. Requests parked under its former id are of a
        stale process."""
        group, step = self.group, self.step
        former, leader_before = group.members[former_id], group.leader_id
        refuse_parked(step, former, ErrorCode.FENCED_INSTANCE_ID)
        step.cancel_deadline(session_key(group, former_id))
        member = replace(self._updated(former), id=member_id, joining=None, syncing=None)
        extend_session(step, group, member)
        members = group.with_replaced(former_id, member).values()
        leader_id = member_id if leader_before == former_id else None
        value = stable_value(group, members, group.state_since_ms, leader_id)
        if (
            group.state is not State.STABLE
            or voted_protocol(members) != group.protocol
            or not is_writable(step, group, value)
        ):
            group.replace_static(former_id, replace(member, joining=self.parked))
            group.rename_unsynced(former_id, member_id)
            self._rebalance(f"{member_id} replaced {former_id}")
            return
        step.write(GroupMetadataKey(group=group.id), value)
        # The log has only the chosen protocol.
        group.put(replace(group.members[member_id], protocols=self.protocols))
        group.rename_unsynced(former_id, member_id)
        response = static_rejoin_response(group, member_id, leader_before, self.caller.version)
        step.reply(self.ticket, response)

    def _rebalance(self, reason: str) -> None:
        rebalance_or_complete(self.step, self.group, reason + _quoted(self.request.reason))


def _quoted(client_reason: str | None) -> str:
    return f" ({client_reason[:MAX_CLIENT_REASON_LENGTH]!r})" if client_reason else ""


def sync(
    step: GroupStep,
    group: ClassicGroup | None,
    request: SyncGroupRequest,
    caller: Caller,
    ticket: Ticket,
) -> None:
    """Handle SyncGroup: the leader assigns, the other members wait for their assignments."""
    try:
        group = _check_sync(group, request)
    except KafkaError as error:
        step.reply(ticket, sync_error(error.code))
        return
    step.edit(group)
    member = group.members[request.member_id]
    has_synced(step, group, member.id)
    if group.state is State.STABLE:
        step.reply(ticket, sync_response(group, member))
        return
    park_sync(step, group, member.id, Parked(ticket, caller.version))
    if group.leader_id == member.id:
        assign(step, group, {a.member_id: a.assignment for a in request.assignments})


def _check_sync(group: ClassicGroup | None, request: SyncGroupRequest) -> ClassicGroup:
    if group is None or group.is_empty:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {request.group_id} has no members")
    group.check_member(request.member_id, request.group_instance_id)
    group.check_generation(request.generation_id)
    _check_protocol(request.protocol_type, group.protocol_type)
    _check_protocol(request.protocol_name, group.protocol)
    if group.state is State.PREPARING:
        raise KafkaError(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"generation {group.generation} of group {group.id} has ended",
        )
    return group


def _check_protocol(requested: str | None, chosen: str | None) -> None:
    """Old clients do not send it."""
    if requested is not None and chosen is not None and requested != chosen:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the group uses {chosen}, not {requested}"
        )


def heartbeat(step: GroupStep, group: ClassicGroup | None, request: HeartbeatRequest) -> ErrorCode:
    """Extend the member's session, and tell it whether to rejoin."""
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    try:
        group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
    except KafkaError as error:
        return error.code
    extend_session(step, group, group.members[request.member_id])
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING else ErrorCode.NONE


def leave(
    step: GroupStep, group: ClassicGroup, members: tuple[LeaveGroupRequest.Member, ...]
) -> tuple[LeaveGroupResponse.Member, ...]:
    """Remove members, each named by its id or its instance id, with one rebalance for all."""
    step.edit(group)
    results = []
    removed: list[str] = []
    for leaving in members:
        code = ErrorCode.NONE
        try:
            removed.append(_leave(step, group, leaving))
        except KafkaError as error:
            code = error.code
        results.append(
            LeaveGroupResponse.Member(
                member_id=leaving.member_id,
                group_instance_id=leaving.group_instance_id,
                error_code=code,
            )
        )
    if removed and not group.is_empty:
        rebalance_or_complete(step, group, f"{names(removed)} left")
    return tuple(results)


def _leave(step: GroupStep, group: ClassicGroup, leaving: LeaveGroupRequest.Member) -> str:
    """Remove one member; return its id and its reason for the log."""
    member_id = leaving.member_id
    if not member_id and leaving.group_instance_id is not None:
        # An administrator names the instance alone.
        member_id = group.static_ids.get(leaving.group_instance_id, "")
    if member_id not in group.pending_ids:
        group.check_member(member_id, leaving.group_instance_id)
    remove_member(step, group, member_id)
    return member_id + _quoted(leaving.reason)
