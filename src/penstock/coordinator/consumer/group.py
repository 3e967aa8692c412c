"""A consumer group (KIP-848): its members, its epochs, who is to have which partition and who has
it. PURE.

Everything in here but the last few fields comes from records alone (`consumer_replay`); what
decides reads it and writes records. A partition has one owner at most: `owners` has it from when it
is assigned until its member has said that it gave it up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from uuid import UUID

from penstock.coordinator.assignors.spec import Assignment
from penstock.coordinator.consumer.member import ConsumerMember, MemberState
from penstock.coordinator.consumer.records import group_tombstones
from penstock.coordinator.runtime.step import Record
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import TopicImage

# From this version on OffsetCommit and OffsetFetch know members and their epochs.
_EPOCHS_SINCE_VERSION = 9


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
        # By expression, the topics that it matches.
        self.regexes: dict[str, frozenset[str]] = {}
        # Follow from the members.
        self.static_ids: dict[str, str] = {}
        self.owners: dict[UUID, dict[int, str]] = {}
        # Not in records: the topics as they were when subscriptions were last looked at, and what
        # the line about a rebalance says.
        self.seen_topics: Mapping[str, TopicImage] | None = None
        self.rebalance_began_ms: int | None = None
        self.rebalance_reasons: list[str] = []

    def put(self, member: ConsumerMember) -> None:
        before = self.members.get(member.id)
        if before is not None and (
            before.assigned is not member.assigned or before.revoking is not member.revoking
        ):
            self._disown(before)
        self.members[member.id] = member
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.id
        for partitions_by_topic in (member.assigned, member.revoking):
            for topic, partitions in partitions_by_topic.items():
                self.owners.setdefault(topic, {}).update(dict.fromkeys(partitions, member.id))

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._disown(member)
        if member.instance_id is not None and self.static_ids.get(member.instance_id) == member_id:
            del self.static_ids[member.instance_id]

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
        """Those it named, and those that its expression matches."""
        return (
            member.topics | self.regexes[member.regex]
            if member.regex in self.regexes
            else member.topics
        )

    def subscribed_topics(self) -> set[str]:
        return {topic for member in self.members.values() for topic in self.topics_of(member)}

    def uses_regex(self, regex: str) -> bool:
        return any(member.regex == regex for member in self.members.values())

    @property
    def preferred_assignor(self) -> str | None:
        """The one that most members ask for."""
        asked = Counter(
            member.assignor for member in self.members.values() if member.assignor is not None
        )
        return asked.most_common(1)[0][0] if asked else None

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_settled(self) -> bool:
        return self.epoch <= self.target_epoch and all(
            member.is_reconciled_to(self.target_epoch) for member in self.members.values()
        )

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        return "Stable" if self.is_settled else "Reconciling"

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether another still has something that this one is to have."""
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
        self, member_id: str, _instance_id: str | None, epoch: int, version: int, /
    ) -> None:
        """Without an epoch it comes from an administrator or somebody who manages partitions alone:
        fine while there are no members."""
        if epoch < 0 and not self.members:
            return
        member = self.member(member_id)
        if member.classic is None and version < _EPOCHS_SINCE_VERSION:
            why = (
                "OffsetCommit version 9 or above must be used by members using the consumer "
                "group protocol"
            )
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, why)
        _check_epoch(member, epoch)

    def check_fetch(self, member_id: str | None, epoch: int, /) -> None:
        if member_id is None and epoch < 0:
            return
        _check_epoch(self.member(member_id or ""), epoch)

    def check_delete_offsets(self) -> None:
        """Those of topics that nobody is subscribed to may always go."""

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {self.id} has members")

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(member) for member in self.members.values())

    def retained_since_ms(self, commit_timestamp_ms: int) -> int | None:
        return commit_timestamp_ms

    def tombstones(self) -> tuple[Record, ...]:
        return group_tombstones(self.id, tuple(self.members), tuple(self.regexes))


def _check_epoch(member: ConsumerMember, epoch: int) -> None:
    if epoch != member.epoch:
        code = (
            ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        )
        raise KafkaError(
            code,
            (
                f"The received epoch {epoch} does not match the expected epoch {member.epoch} of "
                f"member {member.id}."
            ),
        )
