"""What a consumer group reads, as the cluster is now: expressions matched, topics come, gone or
grown. PURE.

The group's epoch goes up when that changes. The topics are compared with those that were seen last,
at a member's next heartbeat: groups that nobody uses cost nothing when topics change.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.regex import matching
from penstock.coordinator.consumer.write import (
    note_rebalance,
    remove_regex,
    write_epoch,
    write_regex,
)
from penstock.coordinator.runtime.turn import Turn
from penstock.errors import KafkaError
from penstock.metadata.image import MetadataImage, TopicImage


def refresh(turn: Turn, group: ConsumerGroup, reason: str | None) -> bool:
    """Whether the epoch went up. A reason is given when members or their subscriptions changed."""
    topics = turn.groups.image.topics
    if reason is None and topics is group.seen_topics:
        return False
    metadata_hash = group.metadata_hash
    if resolve_regexes(turn, group) or reason is not None or _have_topics_changed(turn, group):
        metadata_hash = hash_of_metadata(turn.groups.image, group.subscribed_topics())
    group.seen_topics = topics
    if reason is None and metadata_hash == group.metadata_hash:
        return False
    bump(turn, group, reason or "topics changed", metadata_hash)
    return True


def bump(turn: Turn, group: ConsumerGroup, reason: str, metadata_hash: int) -> None:
    write_epoch(turn, group.id, group.epoch + 1, metadata_hash)
    note_rebalance(turn, group, reason)


def resolve_regexes(turn: Turn, group: ConsumerGroup) -> bool:
    """Whether any of the expressions matches something else than before. Those that nobody uses any
    more go."""
    used = {member.regex for member in group.members.values() if member.regex}
    for regex in sorted(group.regexes.keys() - used):
        remove_regex(turn, group.id, regex)
    changed = False
    for regex in sorted(used):
        topics = _resolve(turn, group, regex)
        if topics != group.regexes.get(regex):
            write_regex(turn, group.id, regex, topics)
            changed = True
    return changed


def _resolve(turn: Turn, group: ConsumerGroup, regex: str) -> frozenset[str]:
    """Of what was matched before, only new topics are tried."""
    topics, seen = turn.groups.image.topics, group.seen_topics
    matched = group.regexes.get(regex, frozenset())
    if regex in group.regexes and topics is seen:
        return matched
    untried = (
        topics.keys() - seen.keys()
        if regex in group.regexes and seen is not None
        else topics.keys()
    )
    try:
        return (matched & topics.keys()) | matching(regex, untried)
    except KafkaError:
        # Another broker took an expression that is too much for this one: what that found stays,
        # and nothing new comes.
        return matched


def _have_topics_changed(turn: Turn, group: ConsumerGroup) -> bool:
    seen, topics = group.seen_topics, turn.groups.image.topics
    return seen is None or any(
        seen.get(name) is not topics.get(name) for name in group.subscribed_topics()
    )


def hash_of_metadata(image: MetadataImage, names: Iterable[str]) -> int:
    """Of all that assignors look at. 0 while none of the topics is there. Not Kafka's function: a
    group that comes from there or goes there is rebalanced once.
    """
    topics = [image.topics[name] for name in sorted(names) if name in image.topics]
    if not topics:
        return 0
    racks = {broker.id: broker.rack for broker in image.brokers.values() if broker.rack is not None}
    digest = blake2b(digest_size=8)
    for topic in topics:
        digest.update(f"{topic.name} {topic.id} {len(topic.partitions)}\n".encode())
        if racks:
            digest.update(
                "\n".join(",".join(sorted(found)) for found in racks_of(topic, racks)).encode()
            )
    return int.from_bytes(digest.digest(), signed=True)


def racks_of(topic: TopicImage, racks: dict[int, str]) -> tuple[frozenset[str], ...]:
    """For each partition, in order, the racks that its replicas are in."""
    return tuple(
        frozenset(
            racks[replica] for replica in topic.partitions[partition].replicas if replica in racks
        )
        for partition in range(len(topic.partitions))
    )
