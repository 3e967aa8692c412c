"""A classic group: members, generation, state, and the checks of its requests. PURE.

What GroupMetadataValue holds, the last complete generation, changes only when `classic/records.py`
replays a record. Between generations, in PreparingRebalance and CompletingRebalance, the members
and the next generation are soft state: a coordinator that fails loses them, and its successor
continues from the last complete generation, as in Kafka. Pending member ids, members that have not
synced, and the protocols that were not chosen are always soft.

`classic/rebalance.py` and `classic/membership.py` decide when the group changes; here are no
deadlines and no replies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import NamedTuple

from penstock.coordinator.runtime.step import Ticket, Undo
from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.ids import NO_TIMESTAMP
from penstock.limits import MAX_REBALANCE_REASONS
from penstock.protocol.internal.classic_group_records import GroupMetadataKey
from penstock.protocol.internal.consumer_protocol import (
    ConsumerProtocolSubscription,
    decode_consumer_protocol,
)

CONSUMER_PROTOCOL_TYPE = "consumer"


class State(Enum):
    """Named as Kafka's tools show it. There is no Dead state: a deleted group is not in the
    table."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class Protocol(NamedTuple):
    """An assignor that a member supports, with the member's metadata for it, for example a
    subscription."""

    name: str
    metadata: bytes


class Parked(NamedTuple):
    """A JoinGroup or SyncGroup request that waits for the rest of the group."""

    ticket: Ticket
    version: int


@dataclass(frozen=True, slots=True)
class ClassicMember:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    # Has not been in a generation yet. Its client may have disconnected, so a parked JoinGroup does
    # not keep it alive.
    is_new: bool = False
    joining: Parked | None = None
    syncing: Parked | None = None

    @property
    def least_record_bytes(self) -> int:
        """What the member takes at least in the record of a generation, whatever protocol is
        chosen."""
        return len(self.id) + min((len(metadata) for _, metadata in self.protocols), default=0)

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """Return the member's first protocol among those that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def is_kept_alive(self) -> bool:
        """True while a request of the member is parked here: its client sends no heartbeats."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)


class ClassicGroup:
    """Members keep the order in which they joined. It decides the leader, so it must not depend on
    hashes."""

    kind = "classic"

    def __init__(self, group_id: str, state_since_ms: int = NO_TIMESTAMP) -> None:
        self.id = group_id
        self.state = State.EMPTY
        # Wall clock time: offsets expire by it, also after a restart.
        self.state_since_ms = state_since_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        # Derived from the members, so that a request need not look at all of them: how many have
        # joined again, how many support each protocol, and their `least_record_bytes`.
        self.joining_count = 0
        self.least_record_bytes = 0
        self._supporters: dict[str, int] = {}
        self.static_ids: dict[str, str] = {}
        # Ids sent with MEMBER_ID_REQUIRED whose clients have not joined with them yet.
        self.pending_ids: dict[str, None] = {}
        self.unsynced_ids: dict[str, None] = {}
        # None: the members do not use the consumer protocol type, or a subscription is malformed.
        self.subscribed_topics: frozenset[str] | None = None
        # The first rebalance of an empty group waits for more members while new ones keep joining.
        self.is_initial = False
        self.initial_left_ms = 0
        self.initial_delay_ms = 0
        self.joined_while_waiting = False
        # For the log line about a rebalance.
        self.rebalance_began_ms = 0
        self.rebalance_reasons: tuple[str, ...] = ()

    def save(self, undo: Undo) -> None:
        """Note all fields. Members are values, so that copying the dictionaries is enough."""
        fields = {
            name: dict(value) if isinstance(value, dict) else value
            for name, value in vars(self).items()
        }
        undo.add(partial(vars(self).update, fields))

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def member_count(self) -> int:
        return len(self.members)

    def tombstone_keys(self) -> tuple[object, ...]:
        return (GroupMetadataKey(group=self.id),)

    # A rebalance in progress

    def enter(self, state: State, wall_ms: int) -> None:
        self.state = state
        self.state_since_ms = wall_ms

    def add_reason(self, reason: str) -> None:
        """Add a reason for the rebalance in progress, up to what one log line shows."""
        if len(self.rebalance_reasons) < MAX_REBALANCE_REASONS:
            self.rebalance_reasons += (reason,)

    def put(self, member: ClassicMember) -> None:
        """Add a member, or replace the member with the same id."""
        self._exchange(self.members.get(member.id), member)
        self.members[member.id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.id

    def _exchange(self, before: ClassicMember | None, after: ClassicMember | None) -> None:
        """Update what is derived from the members."""
        for member, times in ((before, -1), (after, 1)):
            if member is not None:
                self.joining_count += times * (member.joining is not None)
                self.least_record_bytes += times * member.least_record_bytes
        if before is None or after is None or before.protocols is not after.protocols:
            self._count_protocols(before, -1)
            self._count_protocols(after, 1)

    def _count_protocols(self, member: ClassicMember | None, times: int) -> None:
        for name in {name for name, _ in member.protocols} if member is not None else ():
            count = self._supporters.get(name, 0) + times
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]

    def remove_all(self) -> dict[str, ClassicMember]:
        """Remove the members; return them."""
        removed, self.members, self.static_ids = self.members, {}, {}
        self.joining_count = self.least_record_bytes = 0
        self._supporters.clear()
        return removed

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.id
        self.put(member)
        self.pending_ids.pop(member.id, None)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member or a pending id; return the member. If it led, the first of the others
        becomes the leader."""
        member = self.members.pop(member_id, None)
        self._exchange(member, None)
        if member is not None and member.instance_id is not None:
            self.static_ids.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_ids.pop(member_id, None)
        self.unsynced_ids.pop(member_id, None)
        return member

    def with_replaced(self, former_id: str, member: ClassicMember) -> dict[str, ClassicMember]:
        """Return the members with this one in the place of the former."""
        return {
            (member.id if known.id == former_id else known.id): (
                member if known.id == former_id else known
            )
            for known in self.members.values()
        }

    def replace_static(self, former_id: str, member: ClassicMember) -> None:
        """Put a static member that returns under a new id in the place of the former."""
        self._exchange(self.members[former_id], member)
        self.members = self.with_replaced(former_id, member)
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.id
        if self.leader_id == former_id:
            self.leader_id = member.id

    def rename_unsynced(self, former_id: str, member_id: str) -> None:
        if former_id in self.unsynced_ids:
            self.unsynced_ids = {
                member_id if known == former_id else known: None for known in self.unsynced_ids
            }

    def begin_generation(self, wall_ms: int) -> None:
        """Start the next generation; it waits for the leader's assignment."""
        self.generation += 1
        self.protocol = voted_protocol(self.members.values())
        self.subscribed_topics = self.subscriptions()
        self.enter(State.COMPLETING, wall_ms)
        self.unsynced_ids = dict.fromkeys(self.members)

    @property
    def have_all_joined(self) -> bool:
        return not self.pending_ids and self.joining_count == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Return True if a member with these protocols shares one with all present members."""
        if self.is_empty:
            return protocol_type != "" and any(True for _ in names)
        return protocol_type == self.protocol_type and any(
            self._supporters.get(name, 0) == len(self.members) for name in names
        )

    def subscriptions(self) -> frozenset[str] | None:
        """Return the topics in the members' embedded subscriptions."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        try:
            return frozenset(
                topic
                for member in self.members.values()
                for topic in decode_consumer_protocol(
                    ConsumerProtocolSubscription, member.metadata(self.protocol)
                ).topics
            )
        except ProtocolError:
            return None

    # Checks

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            known = self.static_ids.get(instance_id)
            if known is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"group {self.id} has no member with instance id {instance_id}",
                )
            if known != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"instance {instance_id} of group {self.id} is member {known}, not {member_id}",
                )
        if member_id not in self.members:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.id} has no member {member_id}"
            )

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION,
                f"group {self.id} is in generation {self.generation}, not {generation}",
            )

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        _version: int,
        /,
        *,
        transactional: bool = False,
    ) -> None:
        """A commit without a generation comes from a consumer that assigns partitions itself, which
        is allowed while the group is empty. Transactions are not bound to a rebalance: the new
        owner of a partition waits for their end."""
        if epoch < 0 and self.is_empty:
            return
        if epoch < 0 and not member_id and instance_id is None:
            if transactional:
                return
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"group {self.id} has members, and only they may commit offsets",
            )
        self.check_member(member_id, instance_id)
        self.check_generation(epoch)
        if self.state is State.COMPLETING and not transactional:
            raise KafkaError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"generation {epoch} of group {self.id} has no assignment yet",
            )

    def check_fetch(self, _member_id: str | None, _epoch: int) -> None:
        """OffsetFetch does not fence members of classic groups."""

    def check_delete_offsets(self) -> None:
        if not self.is_empty and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP,
                f"group {self.id} has members whose subscriptions are unknown",
            )

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {self.id} has members")

    def is_subscribed_to(self, topic: str) -> bool:
        """A consumer group with a malformed subscription counts as subscribed to everything."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def retained_since_ms(self, commit_timestamp_ms: int) -> int | None:
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.is_empty:
            return (
                commit_timestamp_ms if self.state_since_ms == NO_TIMESTAMP else self.state_since_ms
            )
        if self.state is State.STABLE and self.subscribed_topics is not None:
            return commit_timestamp_ms
        return None


def _common_protocols(members: Iterable[ClassicMember]) -> set[str]:
    known = [{name for name, _ in member.protocols} for member in members]
    return set.intersection(*known) if known else set()


def voted_protocol(members: Iterable[ClassicMember]) -> str:
    """Return the protocol that most members prefer among those that all support. In a tie the one
    that got the first vote wins."""
    voters = list(members)
    common = _common_protocols(voters)
    return Counter(member.vote(common) for member in voters).most_common(1)[0][0]
