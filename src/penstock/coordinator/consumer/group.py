"""A consumer group (KIP-848): its members, its epochs, the target assignment and the current owners
of partitions. PURE.

All fields but the soft ones come from records alone (`consumer/replay.py`). A partition has at
most one owner: `owners` names the member from when the partition is assigned to it until the member
reports that it has revoked it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import TypeVar
from uuid import UUID

from penstock.coordinator.assignors.spec import Assignment
from penstock.coordinator.classic.group import Protocol
from penstock.coordinator.consumer.records import group_keys
from penstock.coordinator.runtime.step import Undo
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import TopicImage

# Member epochs with a special meaning in requests; the last one also occurs in records.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2

# No group has this epoch.
NO_EPOCH = -1

# OffsetCommit and OffsetFetch carry member epochs from this version on.
_MEMBER_EPOCH_VERSION = 9

_SOFT_STATE = ("seen_topics", "rebalance_began_ms", "rebalance_reasons", "unwritable_epoch")

K = TypeVar("K")

# By topic and partition: the member epoch in which the partition was assigned.
Owned = Mapping[UUID, Mapping[int, int]]


class MemberState(IntEnum):
    """The numbers are those of records."""

    STABLE = 0
    # The member must revoke partitions and has not reported that it did.
    UNREVOKED_PARTITIONS = 1
    # The member waits for partitions that other members still own.
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What a member that uses the classic protocol sent in JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[Protocol, ...]

    @property
    def protocol(self) -> Protocol:
        """The protocol of its assignments. All its protocols have the same subscription."""
        return self.protocols[0]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    id: str
    instance_id: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    # Empty: the member does not subscribe by a regular expression.
    regex: str = ""
    assignor: str | None = None
    rebalance_timeout_ms: int = -1
    classic: ClassicSide | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def has_only(self, owned: Mapping[UUID, frozenset[int]] | None) -> bool:
        """Return True if the member reports what it owns, and owns only what it is assigned."""
        return owned is not None and all(
            partitions <= self.assigned.get(topic, {}).keys() for topic, partitions in owned.items()
        )


class ConsumerGroup:
    kind = "consumer"
    protocol_type = "consumer"

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.target_at_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        # Regular expression -> topics that it matches. With an authorizer those that a member who
        # has it may describe.
        self.regexes: dict[str, frozenset[str]] = {}
        # Derived from the members, so that a request need not look at all of them: those with an
        # instance id, who owns a partition, how many name a topic or an expression, how many are
        # stable in an epoch, and how many use the classic protocol.
        self.static_ids: dict[str, str] = {}
        self.owners: dict[UUID, dict[int, str]] = {}
        self.topic_members: Counter[str] = Counter()
        self.regex_members: Counter[str] = Counter()
        self.stable_members: Counter[int] = Counter()
        self.classic_count = 0
        # Soft: the topics as of the last look at the subscriptions; by expression those that it was
        # matched with, and the names that it matches; by member the expression and the topics that
        # its rights were checked for; the log line about a rebalance; and the group epoch whose
        # target assignment no batch can hold.
        self.seen_topics: Mapping[str, TopicImage] | None = None
        self.matched_topics: dict[str, Mapping[str, TopicImage]] = {}
        self.matches: dict[str, frozenset[str]] = {}
        self.checked: dict[str, tuple[str, Mapping[str, TopicImage]]] = {}
        # What was compared last: topics before and after, and the names of the new ones.
        self.new_topics: tuple[
            Mapping[str, TopicImage], Mapping[str, TopicImage], frozenset[str]
        ] = {}, {}, frozenset()
        self.rebalance_began_ms: int | None = None
        self.rebalance_reasons: tuple[str, ...] = ()
        self.unwritable_epoch = NO_EPOCH

    def save(self, undo: Undo) -> None:
        """Note the soft state; every record notes what it changes itself."""
        for name in _SOFT_STATE:
            undo.save(vars(self), name)
        for name in ("matched_topics", "matches", "checked"):
            undo.add(partial(vars(self).__setitem__, name, dict(vars(self)[name])))

    def put(self, member: ConsumerMember) -> None:
        before = self.members.get(member.id)
        if before is not None and (
            before.assigned is not member.assigned or before.revoking is not member.revoking
        ):
            self._disown(before)
        self._count(before, member)
        self.members[member.id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.id
        for partitions_by_topic in (member.assigned, member.revoking):
            for topic, partitions in partitions_by_topic.items():
                self.owners.setdefault(topic, {}).update(dict.fromkeys(partitions, member.id))

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self.checked.pop(member_id, None)
        self._disown(member)
        self._count(member, None)

    def reorder(self, member_ids: Iterable[str]) -> None:
        """Restore the order of the members."""
        self.members = {member_id: self.members[member_id] for member_id in member_ids}

    def _count(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """Replace a member in what is counted."""
        if before is not None and self.static_ids.get(before.instance_id or "") == before.id:
            self.static_ids.pop(before.instance_id or "")
        if before is None or after is None or before.topics is not after.topics:
            _add(self.topic_members, () if before is None else before.topics, -1)
            _add(self.topic_members, () if after is None else after.topics, 1)
        for member, times in ((before, -1), (after, 1)):
            if member is not None:
                self.classic_count += times * (member.classic is not None)
                if member.regex:
                    _add(self.regex_members, (member.regex,), times)
                if member.state is MemberState.STABLE:
                    _add(self.stable_members, (member.epoch,), times)

    def _disown(self, member: ConsumerMember) -> None:
        for partitions_by_topic in (member.assigned, member.revoking):
            for topic, partitions in partitions_by_topic.items():
                owners = self.owners.get(topic, {})
                for partition in partitions:
                    if owners.get(partition) == member.id:
                        del owners[partition]
                if not owners:
                    self.owners.pop(topic, None)

    def owner(self, topic: UUID, partition: int) -> str | None:
        return self.owners.get(topic, {}).get(partition)

    def member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.id}.",
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_ids.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that the member names and those that its expression matches."""
        return (
            member.topics | self.regexes[member.regex]
            if member.regex in self.regexes
            else member.topics
        )

    def subscribed_topics(self) -> Set[str]:
        names = self.topic_members.keys()
        return names | set().union(*self.regexes.values()) if self.regexes else names

    @property
    def assignable_epoch(self) -> int:
        """The group epoch, or the epoch of the last target assignment if the group's present one
        cannot be written."""
        return self.target_epoch if self.epoch == self.unwritable_epoch else self.epoch

    @property
    def preferred_assignor(self) -> str | None:
        """The assignor that most members name."""
        named = Counter(
            member.assignor for member in self.members.values() if member.assignor is not None
        )
        return named.most_common(1)[0][0] if named else None

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_settled(self) -> bool:
        """True if all members own exactly what the target assignment gives them."""
        return self.epoch <= self.target_epoch and self.stable_members[self.target_epoch] == len(
            self.members
        )

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        return "Stable" if self.is_settled else "Reconciling"

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Return True if another member still owns a partition of this member's target."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        target = self.targets.get(member.id, {})
        return any(
            partition not in member.assigned.get(topic, {})
            and self.owner(topic, partition) is not None
            for topic, partitions in target.items()
            for partition in partitions
        )

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        version: int,
        /,
        *,
        transactional: bool = False,
    ) -> None:
        """A commit without an epoch comes from an administrator or from a consumer that assigns
        partitions itself, which is allowed while the group is empty."""
        if epoch < 0 and not self.members:
            return
        if transactional and epoch == NO_EPOCH and not member_id and instance_id is None:
            return
        member = self.member(member_id)
        if not transactional and member.classic is None and version < _MEMBER_EPOCH_VERSION:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer "
                "group protocol",
            )
        _check_epoch(member, epoch)

    def check_fetch(self, member_id: str | None, epoch: int, /) -> None:
        if member_id is None and epoch < 0:
            return
        _check_epoch(self.member(member_id or ""), epoch)

    def check_delete_offsets(self) -> None:
        """Offsets of topics that no member is subscribed to may always be deleted."""

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {self.id} has members")

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topic_members or any(
            topic in topics for topics in self.regexes.values()
        )

    def retained_since_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstone_keys(self) -> tuple[object, ...]:
        return group_keys(self.id, tuple(self.members), tuple(self.regexes))


def _add(counts: Counter[K], keys: Iterable[K], times: int) -> None:
    for key in keys:
        counts[key] += times
        if not counts[key]:
            del counts[key]


def _check_epoch(member: ConsumerMember, epoch: int) -> None:
    if epoch != member.epoch:
        code = (
            ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        )
        raise KafkaError(
            code,
            f"The received epoch {epoch} does not match the expected epoch {member.epoch} of "
            f"member {member.id}.",
        )
