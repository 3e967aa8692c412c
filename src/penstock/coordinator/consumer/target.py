"""Who is to have what: the target assignment of a consumer group, computed when its epoch has gone
up. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from penstock.coordinator.assignors.range import assign_range
from penstock.coordinator.assignors.spec import NOTHING, AssignableTopic, Assignor, Subscriber
from penstock.coordinator.assignors.uniform import assign_uniform
from penstock.coordinator.consumer.group import ConsumerGroup
from penstock.coordinator.consumer.settings import assignment_interval_ms
from penstock.coordinator.consumer.subscription import racks_of
from penstock.coordinator.consumer.write import write_target, write_target_epoch
from penstock.coordinator.runtime.turn import Turn
from penstock.metadata.image import MetadataImage

ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


def update_target(turn: Turn, group: ConsumerGroup) -> None:
    """If it is due: several members that come or go within a while are worth one assignment."""
    if group.epoch <= group.target_epoch or not _is_due(turn, group):
        return
    assignor = ASSIGNORS[group.preferred_assignor or turn.groups.settings.consumer_assignors[0]]
    image = turn.groups.image
    targets = assignor(_subscribers(group, image), _assignable_topics(group, image))
    for member_id, target in targets.items():
        if target != group.targets.get(member_id):
            write_target(turn, group.id, member_id, target)
    write_target_epoch(turn, group.id, group.epoch, turn.wall_ms)


def _is_due(turn: Turn, group: ConsumerGroup) -> bool:
    """By the time of day, as it is in the log. A clock that was put back does not hold up
    anybody."""
    since_ms = turn.wall_ms - group.target_at_ms
    return since_ms < 0 or since_ms >= assignment_interval_ms(turn.groups, group.id)


def _subscribers(group: ConsumerGroup, image: MetadataImage) -> dict[str, Subscriber]:
    ids: dict[frozenset[str], frozenset[UUID]] = {}
    subscribers = {}
    for member in group.members.values():
        names = group.topics_of(member)
        if names not in ids:
            ids[names] = topic_ids(image, names)
        former = group.targets.get(member.id, NOTHING)
        subscribers[member.id] = Subscriber(ids[names], member.rack, member.instance_id, former)
    return subscribers


def topic_ids(image: MetadataImage, names: frozenset[str]) -> frozenset[UUID]:
    return frozenset(image.topics[name].id for name in names if name in image.topics)


def _assignable_topics(group: ConsumerGroup, image: MetadataImage) -> dict[UUID, AssignableTopic]:
    topics = [image.topics[name] for name in group.subscribed_topics() if name in image.topics]
    racks: dict[int, str] = {}
    if any(member.rack is not None for member in group.members.values()):
        racks = {
            broker.id: broker.rack for broker in image.brokers.values() if broker.rack is not None
        }
    return {
        topic.id: AssignableTopic(len(topic.partitions), racks_of(topic, racks) if racks else ())
        for topic in topics
    }
