"""The rules of INVARIANTS.md that groups have to keep, over what members and onlookers of a
simulated group saw."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.ids import TopicPartition
from penstock.node.shards.group_topic import OFFSETS_TOPIC
from penstock.node.shards.groups import positive_hash
from penstock.sim.cluster.checks import Violation
from penstock.sim.cluster.groups import GROUP
from penstock.sim.cluster.history import (
    Assigned,
    CommitBegan,
    CommitEnded,
    History,
    Led,
    OffsetsFound,
)
from penstock.sim.cluster.shape import OFFSETS_PARTITIONS

PARTITION = TopicPartition(OFFSETS_TOPIC, positive_hash(GROUP) % OFFSETS_PARTITIONS)
# What a coordinator says to a commit that it does not make. Any other end leaves open whether it
# was made.
_REFUSALS = (
    "ILLEGAL_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "REBALANCE_IN_PROGRESS",
    "FENCED_INSTANCE_ID",
)


def one_owner_a_generation(history: History) -> Iterator[Violation]:
    """Rule 14."""
    owners: dict[tuple[int, TopicPartition], str] = {}
    for event in history.of(Assigned):
        for partition in event.partitions:
            owner = owners.setdefault((event.generation, partition), event.member)
            if owner != event.member:
                yield Violation(
                    event.at,
                    (
                        f"{partition} belongs to {owner} and to {event.member} in generation "
                        f"{event.generation}"
                    ),
                )


def stale_members_commit_nothing(history: History) -> Iterator[Violation]:
    """Rules 12 and 14: a commit that begins when a member of a later generation is at work already
    is refused."""
    ended = {event.number: event for event in history.of(CommitEnded)}
    newest, member = -1, ""
    for event in history.events:
        if isinstance(event, Assigned) and event.generation > newest:
            newest, member = event.generation, event.member
        elif isinstance(event, CommitBegan) and event.generation < newest:
            end = ended.get(event.number)
            if end is not None and end.refusal is None:
                text = (
                    f"{event.member} committed in generation {event.generation}, when {member} "
                    f"was in {newest}"
                )
                yield Violation(event.at, text)


def committed_offsets_never_go_back(history: History) -> Iterator[Violation]:
    """Rule 13: nor vanish. A commit of which nobody knows whether it was made may be made late: its
    offsets may be found as well. A former coordinator that is cut off, and has not heard that
    another leads, says what it had, as in Kafka: it is not listened to."""
    made, open_ended = _commits(history)
    for found in history.of(OffsetsFound):
        if not _leads(history, found):
            continue
        for partition, offset in _highest(made, before=found.began).items():
            now = found.offsets.get(partition)
            if not history.is_promised(partition):
                continue
            if now is None:
                yield Violation(
                    found.at, f"{offset} was committed for {partition}, and there is nothing now"
                )
            elif now < offset and now not in open_ended.get(partition, ()):
                yield Violation(
                    found.at, f"{offset} was committed for {partition}, and it is {now} now"
                )


def _leads(history: History, found: OffsetsFound) -> bool:
    """Whether the broker that was asked is the last that began to lead the group's partition."""
    led = [
        event
        for event in history.of(Led)
        if event.partition == PARTITION and event.at <= found.began
    ]
    return bool(led) and max(led, key=lambda event: event.epoch).node == found.broker


def _commits(
    history: History,
) -> tuple[list[tuple[float, CommitBegan]], dict[TopicPartition, set[int]]]:
    """Those that were acknowledged, with the time of that; and offsets that may have been
    committed."""
    ended = {event.number: event for event in history.of(CommitEnded)}
    made: list[tuple[float, CommitBegan]] = []
    open_ended: dict[TopicPartition, set[int]] = {}
    for began in history.of(CommitBegan):
        end = ended.get(began.number)
        if end is not None and end.refusal is None:
            made.append((end.at, began))
        elif end is None or end.refusal not in _REFUSALS:
            for partition, offset in began.offsets.items():
                open_ended.setdefault(partition, set()).add(offset)
    return sorted(made, key=lambda one: one[0]), open_ended


def _highest(made: list[tuple[float, CommitBegan]], before: float) -> dict[TopicPartition, int]:
    highest: dict[TopicPartition, int] = {}
    for at, commit in made:
        if at >= before:
            break
        for partition, offset in commit.offsets.items():
            highest[partition] = max(offset, highest.get(partition, 0))
    return highest
