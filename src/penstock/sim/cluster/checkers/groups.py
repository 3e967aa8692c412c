"""Rules of consumer groups, over what members and a bystander of the group saw."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.ids import TopicPartition
from penstock.node.shards.internal_topics import OFFSETS_TOPIC
from penstock.node.shards.shard_set import positive_hash
from penstock.sim.cluster.history import (
    BecameLeader,
    History,
    MemberAssigned,
    OffsetCommitFinished,
    OffsetCommitStarted,
    OffsetsFetched,
    Violation,
)
from penstock.sim.cluster.spec import OFFSETS_PARTITIONS
from penstock.sim.cluster.workloads.group import GROUP

GROUP_PARTITION = TopicPartition(OFFSETS_TOPIC, positive_hash(GROUP) % OFFSETS_PARTITIONS)
# Errors that say that the coordinator did not commit. After any other error the outcome is unknown.
_DEFINITE_REFUSALS = (
    "ILLEGAL_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "REBALANCE_IN_PROGRESS",
    "FENCED_INSTANCE_ID",
)


def one_owner_per_generation(history: History) -> Iterator[Violation]:
    """Rule 14."""
    owners: dict[tuple[int, TopicPartition], str] = {}
    for event in history.of(MemberAssigned):
        for partition in event.partitions:
            owner = owners.setdefault((event.generation, partition), event.member)
            if owner != event.member:
                yield Violation(
                    event.at,
                    f"{partition} belongs to {owner} and to {event.member} in generation "
                    f"{event.generation}",
                )


def stale_members_commit_nothing(history: History) -> Iterator[Violation]:
    """Rules 12 and 14: a commit that starts after a member of a later generation got its
    assignment is refused."""
    finished = {event.number: event for event in history.of(OffsetCommitFinished)}
    newest, member = -1, ""
    for event in history.events:
        if isinstance(event, MemberAssigned) and event.generation > newest:
            newest, member = event.generation, event.member
        elif isinstance(event, OffsetCommitStarted) and event.generation < newest:
            end = finished.get(event.number)
            if end is not None and end.error is None:
                yield Violation(
                    event.at,
                    f"{event.member} committed in generation {event.generation}, when {member} "
                    f"was in generation {newest}",
                )


def committed_offsets_never_go_back(history: History) -> Iterator[Violation]:
    """Rule 13: nor vanish.

    A commit with an unknown outcome may take effect late, so its offsets are allowed too. A former
    coordinator that is isolated, and has not learnt of the new leader, answers with the offsets it
    had, as in Kafka: such answers are not checked.
    """
    acknowledged, uncertain = _commits(history)
    for fetched in history.of(OffsetsFetched):
        if not _is_current_coordinator(history, fetched):
            continue
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
        if event.partition == GROUP_PARTITION and event.at <= fetched.started
    ]
    return bool(leaders) and max(leaders, key=lambda event: event.epoch).node == fetched.broker


def _commits(
    history: History,
) -> tuple[list[tuple[float, OffsetCommitStarted]], dict[TopicPartition, set[int]]]:
    """Return the acknowledged commits with the times of their acknowledgements, and the offsets of
    commits with an unknown outcome."""
    finished = {event.number: event for event in history.of(OffsetCommitFinished)}
    acknowledged: list[tuple[float, OffsetCommitStarted]] = []
    uncertain: dict[TopicPartition, set[int]] = {}
    for commit in history.of(OffsetCommitStarted):
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
