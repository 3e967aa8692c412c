"""Rules of consumer groups, over what members and a bystander of the group saw.

They do not hold after a loss of power that may have lost the state of groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from penstock.ids import TopicPartition
from penstock.node.shards.internal_topics import OFFSETS_TOPIC
from penstock.node.shards.shard_set import positive_hash
from penstock.sim.cluster.events import (
    CLASSIC_GROUP,
    CONSUMER_GROUP,
    BecameLeader,
    HeartbeatAnswered,
    MemberAssigned,
    OffsetCommitFinished,
    OffsetCommitStarted,
    OffsetsFetched,
    ReplacedMemberCommitted,
)
from penstock.sim.cluster.history import History, Violation
from penstock.sim.cluster.spec import OFFSETS_PARTITIONS
from penstock.sim.cluster.workloads.consumer_group import SESSION_S

GROUP_PARTITIONS = {
    group: TopicPartition(OFFSETS_TOPIC, positive_hash(group) % OFFSETS_PARTITIONS)
    for group in (CLASSIC_GROUP, CONSUMER_GROUP)
}
# A member whose heartbeats were answered at least this often, and this fast, in the time before is
# not expelled.
_HEARD_EVERY_S = _ANSWERED_WITHIN_S = SESSION_S * 0.6
_HEARD_FOR_S = SESSION_S * 0.9
# Errors that say that the coordinator did not commit. After any other error the outcome is unknown.
_DEFINITE_REFUSALS = (
    "ILLEGAL_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "REBALANCE_IN_PROGRESS",
    "FENCED_INSTANCE_ID",
    "STALE_MEMBER_EPOCH",
    "FENCED_MEMBER_EPOCH",
)
_FENCED = "FENCED_MEMBER_EPOCH"
_EXPULSIONS = ("UNKNOWN_MEMBER_ID", _FENCED)
# The sender is not a member: it was expelled, or the static member before it has not left.
_NOT_A_MEMBER = (*_EXPULSIONS, "UNRELEASED_INSTANCE_ID")


def one_owner_per_generation(history: History) -> Iterator[Violation]:
    """Rule 14. The generation of a member with the consumer protocol is its member epoch."""
    owners: dict[tuple[str, int, TopicPartition], str] = {}
    for event in history.of(MemberAssigned) if history.durable_groups else ():
        for partition in event.partitions:
            owner = owners.setdefault((event.group, event.generation, partition), event.member)
            if owner != event.member:
                yield Violation(
                    event.at,
                    f"{partition} belongs to {owner} and to {event.member} in generation "
                    f"{event.generation}",
                )


def stale_members_commit_nothing(history: History) -> Iterator[Violation]:
    """Rules 12 and 14: in a classic group a commit that starts after a member of a later generation
    got its assignment is refused."""
    finished = {event.number: event for event in history.of(OffsetCommitFinished)}
    newest, member = -1, ""
    for event in history.events if history.durable_groups else ():
        if not isinstance(event, MemberAssigned | OffsetCommitStarted):
            continue
        if event.group != CLASSIC_GROUP:
            continue
        if isinstance(event, MemberAssigned):
            if event.generation > newest:
                newest, member = event.generation, event.member
        elif event.generation < newest:
            end = finished.get(event.number)
            if end is not None and end.error is None:
                yield Violation(
                    event.at,
                    f"{event.member} committed in generation {event.generation}, when {member} "
                    f"was in generation {newest}",
                )


def former_owners_commit_nothing(history: History) -> Iterator[Violation]:
    """Rules 12 and 14: with the consumer protocol, a commit that starts after another member got
    the partition in a later epoch is refused."""
    finished = {event.number: event for event in history.of(OffsetCommitFinished)}
    owners: dict[TopicPartition, MemberAssigned] = {}
    for event in history.events if history.durable_groups else ():
        if isinstance(event, MemberAssigned) and event.group == CONSUMER_GROUP:
            for partition in event.partitions:
                owner = owners.get(partition)
                if owner is None or owner.generation <= event.generation:
                    owners[partition] = event
        elif isinstance(event, OffsetCommitStarted) and event.group == CONSUMER_GROUP:
            end = finished.get(event.number)
            for partition in event.offsets:
                owner = owners.get(partition)
                if (
                    owner is not None
                    and owner.member != event.member
                    and owner.generation > event.generation
                    and end is not None
                    and end.error is None
                ):
                    yield Violation(
                        event.at,
                        f"{event.member} committed {partition} in member epoch "
                        f"{event.generation}, but {owner.member} owns it in epoch "
                        f"{owner.generation}",
                    )


def replaced_members_commit_nothing(history: History) -> Iterator[Violation]:
    """Rule 12, for static members (KIP-345)."""
    for event in history.of(ReplacedMemberCommitted) if history.durable_groups else ():
        if event.error is None:
            yield Violation(
                event.at, f"a member of instance {event.instance} committed after its replacement"
            )


def members_that_are_heard_stay(history: History) -> Iterator[Violation]:
    """Rule 25: the coordinator expels no member whose heartbeats it answers in time, whatever it
    answers."""
    by_member: dict[str, list[HeartbeatAnswered]] = {}
    elections = [
        event.at
        for event in history.of(BecameLeader)
        if event.partition == GROUP_PARTITIONS[CONSUMER_GROUP]
    ]
    for event in history.of(HeartbeatAnswered) if history.durable_groups else ():
        earlier = by_member.setdefault(event.member, [])
        # A member that leaves before it has joined is unknown, but not expelled.
        is_expelled = event.error in _EXPULSIONS and event.has_joined
        if is_expelled and _is_heard(earlier, event, elections):
            yield Violation(
                event.at,
                f"broker {event.broker} answered every heartbeat of {event.member} for "
                f"{_HEARD_FOR_S:g} s, and then {event.error}",
            )
        earlier.append(event)


def _is_heard(
    earlier: list[HeartbeatAnswered], last: HeartbeatAnswered, elections: list[float]
) -> bool:
    """Whether the same coordinator answered without interruption for almost a session timeout. A
    member that got errors may have missed two new member epochs, and is fenced then."""
    begin = last.at - _HEARD_FOR_S
    if any(begin <= at <= last.at for at in elections):
        return False
    recent = [event for event in earlier if event.at >= begin]
    # A member that was silent before is expelled as soon as that can be written.
    before = earlier[: len(earlier) - len(recent)][-1:]
    times = [*(event.sent for event in (*before, *recent)), last.sent]
    return (
        len(recent) > 1
        and all(event.broker == last.broker for event in recent)
        and not any(event.error in _NOT_A_MEMBER for event in recent)
        and (last.error != _FENCED or not any(event.error for event in recent))
        and all(event.at - event.sent < _ANSWERED_WITHIN_S for event in recent)
        and all(after - before < _HEARD_EVERY_S for before, after in pairwise(times))
    )


def committed_offsets_never_go_back(history: History) -> Iterator[Violation]:
    """Rule 13: nor vanish.

    A commit with an unknown outcome may take effect late, so its offsets are allowed too. A former
    coordinator that is isolated, and has not learnt of the new leader, answers with the offsets it
    had, as in Kafka: such answers are not checked.
    """
    by_group = {group: _commits(history, group) for group in GROUP_PARTITIONS}
    for fetched in history.of(OffsetsFetched) if history.durable_groups else ():
        if not _is_current_coordinator(history, fetched):
            continue
        acknowledged, uncertain = by_group[fetched.group]
        for partition, offset in _highest(acknowledged, before=fetched.started).items():
            if not history.is_durable(partition):
                continue
            now = fetched.offsets.get(partition)
            if now is None:
                yield Violation(
                    fetched.at, f"{offset} was committed for {partition}, and no offset is now"
                )
            elif now < offset and now not in uncertain.get(partition, ()):
                yield Violation(
                    fetched.at, f"{offset} was committed for {partition}, and it is {now} now"
                )


def _is_current_coordinator(history: History, fetched: OffsetsFetched) -> bool:
    """Whether the broker that answered was the latest leader of the group's partition."""
    leaders = [
        event
        for event in history.of(BecameLeader)
        if event.partition == GROUP_PARTITIONS[fetched.group] and event.at <= fetched.started
    ]
    return bool(leaders) and max(leaders, key=lambda event: event.epoch).node == fetched.broker


def _commits(
    history: History, group: str
) -> tuple[list[tuple[float, OffsetCommitStarted]], dict[TopicPartition, set[int]]]:
    """Return a group's acknowledged commits with the times of their acknowledgements, and the
    offsets of commits with an unknown outcome."""
    finished = {event.number: event for event in history.of(OffsetCommitFinished)}
    acknowledged: list[tuple[float, OffsetCommitStarted]] = []
    uncertain: dict[TopicPartition, set[int]] = {}
    for commit in history.of(OffsetCommitStarted):
        if commit.group != group:
            continue
        end = finished.get(commit.number)
        if end is not None and end.error is None:
            acknowledged.append((end.at, commit))
        elif end is None or end.error not in _DEFINITE_REFUSALS:
            for partition, offset in commit.offsets.items():
                uncertain.setdefault(partition, set()).add(offset)
    return sorted(acknowledged, key=lambda entry: entry[0]), uncertain


def _highest(
    acknowledged: list[tuple[float, OffsetCommitStarted]], before: float
) -> dict[TopicPartition, int]:
    highest: dict[TopicPartition, int] = {}
    for at, commit in acknowledged:
        if at >= before:
            break
        for partition, offset in commit.offsets.items():
            highest[partition] = max(offset, highest.get(partition, 0))
    return highest
