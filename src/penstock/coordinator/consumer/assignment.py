"""The subscriptions of a consumer group as the cluster is now, and its target assignment. PURE.

The group epoch goes up when members, subscriptions or subscribed topics change. Topics are compared
with those seen last at a member's next heartbeat: idle groups cost nothing when topics change. A
new target assignment follows the group epoch, at most once in the assignment interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

from penstock.coordinator.assignors.range import assign_range
from penstock.coordinator.assignors.spec import (
    EMPTY_ASSIGNMENT,
    AssignableTopic,
    Assignor,
    Subscriber,
)
from penstock.coordinator.assignors.uniform import assign_uniform
from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.records import (
    delete_regex,
    regex_bytes,
    target_bytes,
    write_epoch,
    write_regex,
    write_target,
    write_target_epoch,
)
from penstock.coordinator.consumer.regex import matching
from penstock.coordinator.consumer.timeouts import assignment_interval_ms
from penstock.coordinator.groups.step import GroupStep
from penstock.errors import KafkaError
from penstock.metadata.image import MetadataImage, TopicImage

Topics = Mapping[str, TopicImage]
ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


class Rights(NamedTuple):
    """What a member that subscribes by a regular expression may describe, with an authorizer."""

    member_id: str
    regex: str
    may_describe: Callable[[str], bool]


# The log line about a rebalance shows no more reasons than this.
_MAX_REASONS = 5
_MORE_REASONS = "and more"


def refresh_subscription(
    step: GroupStep, group: ConsumerGroup, reason: str | None, rights: Rights | None = None
) -> bool:
    """Bump the group epoch if the subscribed topics changed, or if there is a reason: members or
    their subscriptions changed. Return True if it went up."""
    topics = step.groups.image.topics
    if reason is None and topics is group.seen_topics and _is_checked(group, rights, topics):
        return False
    step.edit(group)
    metadata_hash = group.metadata_hash
    have_matches_changed, all_matched = resolve_regexes(step, group, rights)
    if have_matches_changed or reason is not None or _have_topics_changed(step, group):
        metadata_hash = hash_of_metadata(step.groups.image, group.subscribed_topics())
    if all_matched:
        group.seen_topics = topics
        if rights is not None:
            group.checked[rights.member_id] = rights.regex, topics
    if reason is None and metadata_hash == group.metadata_hash:
        return False
    bump_epoch(step, group, reason or "topics changed", metadata_hash)
    return True


def bump_epoch(step: GroupStep, group: ConsumerGroup, reason: str, metadata_hash: int) -> None:
    step.edit(group)
    step.groups.consumer_rebalances += 1
    write_epoch(step, group.id, group.epoch + 1, metadata_hash)
    if group.rebalance_began_ms is None:
        group.rebalance_began_ms = step.now_ms
    if len(group.rebalance_reasons) < _MAX_REASONS:
        group.rebalance_reasons += (reason,)
    elif group.rebalance_reasons[-1] != _MORE_REASONS:
        group.rebalance_reasons += (_MORE_REASONS,)


def log_if_settled(step: GroupStep, group: ConsumerGroup) -> None:
    """Log one line for each rebalance. It ends when all members are reconciled, or none is left."""
    if group.rebalance_began_ms is None or not (group.is_settled or group.is_empty):
        return
    took_ms = step.now_ms - group.rebalance_began_ms
    outcome = "is empty" if group.is_empty else f"is stable with {len(group.members)} members"
    step.log(
        f"group {group.id}: epoch {group.epoch} {outcome} after {took_ms} ms: "
        f"{'; '.join(group.rebalance_reasons)}"
    )
    step.edit(group)
    group.rebalance_began_ms = None
    group.rebalance_reasons = ()


def resolve_regexes(
    step: GroupStep, group: ConsumerGroup, rights: Rights | None = None
) -> tuple[bool, bool]:
    """Match the members' expressions with the topics that are new to them, and delete expressions
    that no member uses. Return whether one matches other topics than before, and whether all were
    matched: what does not fit into this step is left to the next request of a member.

    With an authorizer an expression gets only topics that the member may describe: others would
    reveal that they exist. Without `rights` it gets no new topics.
    """
    step.edit(group)
    used: Iterable[str] = group.regex_members.keys()
    for regex in sorted(group.regexes.keys() - group.regex_members.keys()):
        delete_regex(step, group.id, regex)
        group.matched_topics.pop(regex, None)
        group.matches.pop(regex, None)
    changed, all_matched = False, True
    if rights is not None and group.seen_topics is step.groups.image.topics:
        # The others were matched with these topics.
        used = [rights.regex]
    for regex in sorted(used):
        before, matches = group.regexes.get(regex), _resolve(step, group, regex)
        topics = matches
        if step.groups.settings.has_authorizer:
            topics = matches & (before or frozenset())
            if rights is not None and rights.regex == regex:
                topics |= _describable(group, rights, step.groups.image.topics, matches, topics)
        size = regex_bytes(group.id, regex, topics)
        if size > step.groups.settings.max_batch_bytes // 2:
            step.log(
                f"group {group.id}: expression {regex} matches {len(topics)} topics, too many for "
                f"one record; its members stay subscribed to {len(before or ())} of them"
            )
        elif topics != before and not step.has_room(size):
            all_matched = False
        else:
            group.matched_topics[regex] = step.groups.image.topics
            group.matches[regex] = matches
            if topics != before:
                write_regex(step, group.id, regex, topics)
                changed = True
    return changed, all_matched


def _resolve(step: GroupStep, group: ConsumerGroup, regex: str) -> frozenset[str]:
    """Return the topics that an expression matches."""
    topics, tried = step.groups.image.topics, group.matched_topics.get(regex)
    matched = group.matches.get(regex, group.regexes.get(regex, frozenset()))
    if topics is tried:
        return matched
    untried = topics.keys() if tried is None else topics.keys() - tried.keys()
    try:
        return (matched & topics.keys()) | matching(regex, untried)
    except KafkaError:
        # Another broker accepted an expression that exceeds this broker's limits: keep its matches
        # and add none.
        return matched


def _describable(
    group: ConsumerGroup,
    rights: Rights,
    topics: Topics,
    matches: frozenset[str],
    known: frozenset[str],
) -> frozenset[str]:
    """Return further matches that the member may describe: at first of all, and later of the topics
    that are new. A right that it gets later counts when it joins or changes its subscription."""
    regex, checked = group.checked.get(rights.member_id, ("", {}))
    names = matches - known
    if regex == rights.regex:
        names = _new_topics(group, checked, topics) & names
    return frozenset(filter(rights.may_describe, names))


def _new_topics(group: ConsumerGroup, before: Topics, after: Topics) -> frozenset[str]:
    """The members of a group ask for the same ones, one after the other."""
    if group.new_topics[0] is not before or group.new_topics[1] is not after:
        group.new_topics = before, after, frozenset(after.keys() - before.keys())
    return group.new_topics[2]


def _is_checked(group: ConsumerGroup, rights: Rights | None, topics: Topics) -> bool:
    if rights is None:
        return True
    regex, checked = group.checked.get(rights.member_id, ("", None))
    return regex == rights.regex and checked is topics


def _have_topics_changed(step: GroupStep, group: ConsumerGroup) -> bool:
    seen, topics = group.seen_topics, step.groups.image.topics
    if seen is topics:
        return False
    return seen is None or any(
        seen.get(name) is not topics.get(name) for name in group.subscribed_topics()
    )


def hash_of_metadata(image: MetadataImage, names: Iterable[str]) -> int:
    """Hash everything that assignors see; 0 while none of the topics exists. It is not Kafka's
    function: a group that moves between the two is rebalanced once."""
    topics = sorted(
        (image.topics[name] for name in names if name in image.topics), key=lambda topic: topic.name
    )
    if not topics:
        return 0
    racks = _broker_racks(image)
    digest = blake2b(digest_size=8)
    for topic in topics:
        digest.update(f"{topic.name} {topic.id} {len(topic.partitions)}\n".encode())
        if racks:
            digest.update(
                "\n".join(",".join(sorted(nearby)) for nearby in _racks_of(topic, racks)).encode()
            )
    return int.from_bytes(digest.digest(), signed=True)


def _broker_racks(image: MetadataImage) -> dict[int, str]:
    return {broker.id: broker.rack for broker in image.brokers.values() if broker.rack is not None}


def _racks_of(topic: TopicImage, racks: dict[int, str]) -> tuple[frozenset[str], ...]:
    """Return the racks of each partition's replicas, in the order of the partitions."""
    return tuple(
        frozenset(
            racks[replica] for replica in topic.partitions[partition].replicas if replica in racks
        )
        for partition in range(len(topic.partitions))
    )


def update_target(step: GroupStep, group: ConsumerGroup) -> None:
    """Compute a target assignment for a newer group epoch, unless the last one is too recent:
    several changes within the interval share one assignment. One that does not fit into this step
    is left to the next request of a member."""
    if group.assignable_epoch <= group.target_epoch or not _is_due(step, group):
        return
    assignor = ASSIGNORS[group.preferred_assignor or step.groups.settings.consumer_assignors[0]]
    image = step.groups.image
    targets = assignor(_subscribers(group, image), _assignable_topics(group, image))
    changed = {
        member_id: target
        for member_id, target in targets.items()
        if target != group.targets.get(member_id)
    }
    size = sum(target_bytes(group.id, member_id, target) for member_id, target in changed.items())
    if not step.has_room(size):
        _keep_target(step, group, size)
        return
    for member_id, target in changed.items():
        write_target(step, group.id, member_id, target)
    write_target_epoch(step, group.id, group.epoch, step.wall_ms)


def _keep_target(step: GroupStep, group: ConsumerGroup, size: int) -> None:
    """Stop trying if no batch can hold the target assignment: refusing the heartbeats of all
    members would remove them. They keep what they own."""
    limit = step.groups.settings.max_batch_bytes
    if size > limit:
        step.edit(group)
        group.unwritable_epoch = group.epoch
        step.log(
            f"group {group.id}: epoch {group.epoch} keeps the assignment of epoch "
            f"{group.target_epoch}: the new one takes {size} bytes, and max.message.bytes of the "
            f"offsets topic is {limit}"
        )


def _is_due(step: GroupStep, group: ConsumerGroup) -> bool:
    """Compare by wall clock, as the log records it. A clock that was set back delays nothing."""
    since_ms = step.wall_ms - group.target_at_ms
    return since_ms < 0 or since_ms >= assignment_interval_ms(step.groups, group.id)


def _subscribers(group: ConsumerGroup, image: MetadataImage) -> dict[str, Subscriber]:
    ids: dict[frozenset[str], frozenset[UUID]] = {}
    subscribers = {}
    for member in group.members.values():
        names = group.topics_of(member)
        if names not in ids:
            ids[names] = topic_ids(image, names)
        former = group.targets.get(member.id, EMPTY_ASSIGNMENT)
        subscribers[member.id] = Subscriber(ids[names], member.rack, member.instance_id, former)
    return subscribers


def topic_ids(image: MetadataImage, names: frozenset[str]) -> frozenset[UUID]:
    return frozenset(image.topics[name].id for name in names if name in image.topics)


def _assignable_topics(group: ConsumerGroup, image: MetadataImage) -> dict[UUID, AssignableTopic]:
    topics = [image.topics[name] for name in group.subscribed_topics() if name in image.topics]
    racks: dict[int, str] = {}
    if any(member.rack is not None for member in group.members.values()):
        racks = _broker_racks(image)
    return {
        topic.id: AssignableTopic(len(topic.partitions), _racks_of(topic, racks) if racks else ())
        for topic in topics
    }
