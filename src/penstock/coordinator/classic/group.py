"""A classic group: members, generation, state, and the rules about who may do what. PURE.

Owns what a group is. When it changes state is decided in `classic_rebalance` and the files beside
it; here is no time and no answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import Enum

from penstock.coordinator.classic.member import ClassicMember
from penstock.coordinator.groups.records import group_record, group_tombstone
from penstock.coordinator.runtime.step import Record
from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.ids import NO_TIMESTAMP
from penstock.limits import MAX_REBALANCE_REASONS
from penstock.protocol.internal.classic_group_records import GroupMetadataValue
from penstock.protocol.internal.consumer_protocol import (
    ConsumerProtocolSubscription,
    decode_consumer_protocol,
)

CONSUMER_PROTOCOL_TYPE = "consumer"


class State(Enum):
    """As Kafka's tools show it. There is no Dead: a group that is gone is not in the table."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    """Members keep the order in which they came: it decides who leads, and must not depend on
    hashes."""

    kind = "classic"

    def __init__(self, group_id: str, state_since_ms: int = NO_TIMESTAMP) -> None:
        self.id = group_id
        self.state = State.EMPTY
        # Time of day, since offsets expire by it, also after a restart.
        self.state_since_ms = state_since_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static_ids: dict[str, str] = {}
        # Were given an id (MEMBER_ID_REQUIRED) and have not come back with it.
        self.pending_ids: dict[str, None] = {}
        self.unsynced_ids: dict[str, None] = {}
        # None: not known, since the members do not speak the consumer protocol or could not be
        # understood.
        self.subscribed_topics: frozenset[str] | None = None
        # The first rebalance of an empty group waits for more members to come, as long as they do.
        self.is_initial = False
        self.initial_left_ms = 0
        self.initial_delay_ms = 0
        self.came_while_waiting = False
        # For the line that tells of a rebalance.
        self.rebalance_began_ms = 0
        self.rebalance_reasons: list[str] = []

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    def enter(self, state: State, wall_ms: int) -> None:
        self.state = state
        self.state_since_ms = wall_ms

    def note(self, reason: str) -> None:
        """Why the rebalance that is under way is so, as far as one line has room for it."""
        if len(self.rebalance_reasons) < MAX_REBALANCE_REASONS:
            self.rebalance_reasons.append(reason)

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.id
        if self.leader_id is None:
            self.leader_id = member.id
        self.members[member.id] = member
        self.pending_ids.pop(member.id, None)

    def remove(self, member_id: str) -> ClassicMember | None:
        """The member that has gone, or None where only an id was given out. If it led, the first of
        the others does."""
        member = self.members.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            self.static_ids.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_ids.pop(member_id, None)
        self.unsynced_ids.pop(member_id, None)
        return member

    def replace_static(self, old_id: str, new_id: str) -> ClassicMember:
        """The same member under another id, in the same place."""
        member = self.members[old_id]
        member.id = new_id
        self.members = {m.id: m for m in self.members.values()}
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if old_id in self.unsynced_ids:
            self.unsynced_ids = {new_id if i == old_id else i: None for i in self.unsynced_ids}
        return member

    @property
    def joining_count(self) -> int:
        return sum(member.joining is not None for member in self.members.values())

    @property
    def have_all_joined(self) -> bool:
        return not self.pending_ids and all(
            member.joining is not None for member in self.members.values()
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols can work with those that are there."""
        if self.is_empty:
            return protocol_type != "" and any(True for _ in names)
        common = self._common_protocols()
        return protocol_type == self.protocol_type and any(
            not self.members or name in common for name in names
        )

    def _common_protocols(self) -> set[str]:
        known = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*known) if known else set()

    def voted_protocol(self) -> str:
        """The one that most members prefer among those that all know; the earliest voted for where
        there is a tie."""
        common = self._common_protocols()
        return Counter(member.vote(common) for member in self.members.values()).most_common(1)[0][0]

    def begin_generation(self, wall_ms: int) -> None:
        """With members it waits for the leader's assignment; without any it is empty."""
        self.generation += 1
        self.protocol = self.voted_protocol() if self.members else None
        self.subscribed_topics = self.subscriptions()
        self.enter(State.COMPLETING if self.members else State.EMPTY, wall_ms)
        self.unsynced_ids = dict.fromkeys(self.members)

    def subscriptions(self) -> frozenset[str] | None:
        """What consumers told each other that they want to read."""
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
                    f"instance {instance_id} of group {self.id} is {known} now, not {member_id}",
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
        self, member_id: str, instance_id: str | None, epoch: int, _version: int
    ) -> None:
        """Without a generation it comes from somebody who manages partitions alone: fine while the
        group has no members."""
        if epoch < 0 and self.is_empty:
            return
        if epoch < 0 and not member_id and instance_id is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.id} has members, and only they commit"
            )
        self.check_member(member_id, instance_id)
        self.check_generation(epoch)
        if self.state is State.COMPLETING:
            raise KafkaError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"generation {epoch} of group {self.id} has no assignment yet",
            )

    def check_fetch(self, _member_id: str | None, _epoch: int) -> None:
        """Anybody may."""

    def check_delete_offsets(self) -> None:
        if not self.is_empty and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP,
                f"group {self.id} has members, and what they read is not known",
            )

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {self.id} has members")

    def is_subscribed_to(self, topic: str) -> bool:
        """To be careful, yes, where consumers could not be understood."""
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

    def record(self) -> Record:
        """The group as the log keeps it: with the metadata of the protocol that was chosen
        alone."""
        return group_record(
            self.id,
            GroupMetadataValue(
                protocol_type=self.protocol_type or "",
                generation=self.generation,
                protocol=self.protocol,
                leader=self.leader_id,
                current_state_timestamp=self.state_since_ms,
                members=tuple(
                    _member_value(member, self.protocol) for member in self.members.values()
                ),
            ),
        )

    def tombstones(self) -> tuple[Record, ...]:
        return (group_tombstone(self.id),)


def _member_value(member: ClassicMember, protocol: str | None) -> GroupMetadataValue.Member:
    return GroupMetadataValue.Member(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=member.assignment,
    )
