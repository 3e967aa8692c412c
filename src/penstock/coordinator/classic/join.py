"""JoinGroup to a classic group: who may come in, under which id, and what that means for the
others. PURE.

Whoever joins under the id of an instance (KIP-345) takes the place of its former member, without a
rebalance while nothing else changes.
"""

from __future__ import annotations

from penstock.coordinator.classic.group import ClassicGroup, State
from penstock.coordinator.classic.member import ClassicMember, Parked, Protocol
from penstock.coordinator.classic.rebalance import (
    is_writable,
    keep_session,
    rebalance_or_complete,
    remove_member,
)
from penstock.coordinator.classic.responses import (
    came_back,
    join_refused,
    joined,
    park_join,
    refuse,
)
from penstock.coordinator.groups.table import SESSION
from penstock.coordinator.runtime.step import Caller, Ticket
from penstock.coordinator.runtime.turn import Turn
from penstock.errors import ErrorCode, KafkaError
from penstock.limits import MAX_CLIENT_REASON_LENGTH, MAX_PENDING_MEMBERS
from penstock.protocol.messages.join_group import JoinGroupRequest

# KIP-394: a new member first gets its id, so that one who never reads the answer leaves no member
# behind.
_MEMBER_ID_REQUIRED_VERSION = 4
# How long a member that is not in a generation yet may wait without a heartbeat (Kafka's own
# constant).
NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1_000


def join(turn: Turn, request: JoinGroupRequest, caller: Caller, ticket: Ticket) -> None:
    """The group is not a consumer group with members; the request is sound in itself."""
    group = turn.groups.by_id.get(request.group_id)
    if not isinstance(group, ClassicGroup):
        if request.member_id:
            turn.answer(
                ticket, join_refused(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id, caller.version)
            )
            return
        # A consumer group without members makes room.
        turn.write(*(() if group is None else group.tombstones()))
        group = turn.groups.by_id[request.group_id] = ClassicGroup(request.group_id, turn.wall_ms)
        turn.write(group.record())
    try:
        _Joining(turn, group, request, caller, ticket).decide()
    except KafkaError as error:
        turn.answer(ticket, join_refused(error.code, request.member_id, caller.version))


class _Joining:
    """One request, with all that its steps need."""

    def __init__(
        self,
        turn: Turn,
        group: ClassicGroup,
        request: JoinGroupRequest,
        caller: Caller,
        ticket: Ticket,
    ) -> None:
        self.turn = turn
        self.group = group
        self.request = request
        self.caller = caller
        self.ticket = ticket
        self.protocols = tuple(Protocol(p.name, p.metadata) for p in request.protocols)
        self.parked = Parked(ticket, caller.version)

    def decide(self) -> None:
        group, member_id = self.group, self.request.member_id
        if not self._has_room():
            remove_member(self.turn, group, member_id)
            self.turn.answer(
                self.ticket, join_refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "", self.caller.version)
            )
        elif not group.supports(self.request.protocol_type, (name for name, _ in self.protocols)):
            raise KafkaError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the members of group {group.id} share no protocol with the new one",
            )
        elif not member_id:
            self._join_anew()
        elif member_id in group.pending_ids and self.request.group_instance_id is None:
            self._add(member_id)
        else:
            group.check_member(member_id, self.request.group_instance_id)
            self._join_again(group.members[member_id])

    def _has_room(self) -> bool:
        group, member = self.group, self.group.members.get(self.request.member_id)
        limit = self.turn.groups.settings.max_size
        if group.is_empty:
            return True
        if group.state is State.PREPARING:
            return (
                member is not None and member.joining is not None
            ) or group.joining_count < limit
        return member is not None or len(group.members) < limit

    def _join_anew(self) -> None:
        instance_id = self.request.group_instance_id
        member_id = f"{self.caller.client_id if instance_id is None else instance_id}-{self.turn.groups.new_uuid()}"
        former_id = None if instance_id is None else self.group.static_ids.get(instance_id)
        if former_id is not None:
            self._replace(former_id, member_id)
        elif instance_id is None and self.caller.version >= _MEMBER_ID_REQUIRED_VERSION:
            if len(self.group.pending_ids) >= MAX_PENDING_MEMBERS:
                remove_member(self.turn, self.group, next(iter(self.group.pending_ids)))
            self.group.pending_ids[member_id] = None
            due_ms = self.turn.now_ms + self.request.session_timeout_ms
            self.turn.groups.deadlines.set((SESSION, self.group.id, member_id), due_ms)
            self.turn.answer(
                self.ticket,
                join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id, self.caller.version),
            )
        else:
            self._add(member_id)

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
            self.group.came_while_waiting = True
        self.group.add(member, self.request.protocol_type)
        self.turn.groups.deadlines.set(
            (SESSION, self.group.id, member_id), self.turn.now_ms + NEW_MEMBER_TIMEOUT_MS
        )
        self._rebalance(f"{member_id} came")

    @property
    def _rebalance_timeout_ms(self) -> int:
        return (
            self.request.session_timeout_ms
            if self.caller.version == 0
            else self.request.rebalance_timeout_ms
        )

    def _update(self, member: ClassicMember) -> None:
        member.protocols = self.protocols
        member.session_timeout_ms = self.request.session_timeout_ms
        member.rebalance_timeout_ms = self._rebalance_timeout_ms
        park_join(self.turn, member, self.parked)

    def _join_again(self, member: ClassicMember) -> None:
        """A member that lost the answer gets it again; otherwise it wants something else than
        before, or leads and may ask for more."""
        group = self.group
        changed = member.protocols != self.protocols
        if group.is_empty:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.id} is empty")
        if group.state is State.PREPARING:
            self._update(member)
            self._rebalance(f"{member.id} joined again")
        elif changed or (group.state is State.STABLE and group.leader_id == member.id):
            self._update(member)
            self._rebalance(
                f"{member.id} {'changed what it wants' if changed else 'leads and joined again'}"
            )
        else:
            self.turn.answer(self.ticket, joined(group, member.id))

    def _replace(self, former_id: str, member_id: str) -> None:
        """An instance is back under a new id; the request under its former one, wherever it hangs,
        is of a stale process."""
        group, turn = self.group, self.turn
        leader_before = group.leader_id
        refuse(turn, group.members[former_id], ErrorCode.FENCED_INSTANCE_ID)
        turn.groups.deadlines.cancel((SESSION, group.id, former_id))
        member = group.replace_static(former_id, member_id)
        self._update(member)
        keep_session(turn, group, member)
        if (
            group.state is not State.STABLE
            or group.voted_protocol() != group.protocol
            or not is_writable(turn, group)
        ):
            self._rebalance(f"{member_id} came in the place of {former_id}")
            return
        member.joining = None
        group.subscribed_topics = group.subscriptions()
        turn.write(group.record())
        turn.answer(self.ticket, came_back(group, member_id, leader_before, self.caller.version))

    def _rebalance(self, reason: str) -> None:
        said = self.request.reason
        because = f" ({said[:MAX_CLIENT_REASON_LENGTH]!r})" if said else ""
        rebalance_or_complete(self.turn, self.group, reason + because)
