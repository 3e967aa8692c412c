"""Updates the leader and ISR of all partitions of a broker that becomes active or inactive (Kafka's
`generateLeaderAndIsrUpdates`). PURE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from penstock.controller.decision import ControllerContext
from penstock.controller.partitions.change_builder import (
    UNCHANGED,
    AcceptableLeaders,
    Election,
    PartitionChanges,
    PartitionTarget,
    build_partition_change,
)
from penstock.controller.partitions.election_config import ElectionConfigs
from penstock.metadata.image import NO_LEADER, MetadataImage, PartitionState, TopicImage

# The topic id and the index of partitions to change; None for all partitions.
Among = Iterable[tuple[UUID, int]] | None
# Topic ids and the indexes of partitions.
ByTopic = list[tuple[UUID, list[int]]]


def has_leaderships(image: MetadataImage, broker_id: int) -> bool:
    return any(
        state.leader == broker_id
        for topic in image.topics.values()
        for state in topic.partitions.values()
    )


def elr_memberships(image: MetadataImage, broker_id: int) -> ByTopic:
    """Return the partitions that have the broker in their ISR or ELR, by topic id."""
    found = (
        (
            topic.id,
            [
                index
                for index, state in topic.partitions.items()
                if broker_id in state.isr or broker_id in state.eligible_leader_replicas
            ],
        )
        for topic in image.topics.values()
    )
    return [(topic_id, indexes) for topic_id, indexes in found if indexes]


def isr_memberships(image: MetadataImage, broker_id: int) -> ByTopic:
    """Return the partitions that have the broker in their ISR, by topic id."""
    found = (
        (
            topic.id,
            [index for index, state in topic.partitions.items() if broker_id in state.isr],
        )
        for topic in image.topics.values()
    )
    return [(topic_id, indexes) for topic_id, indexes in found if indexes]


def leaderless_partitions(image: MetadataImage) -> ByTopic:
    """Return the partitions without a leader, by topic id."""
    found = (
        (
            topic.id,
            [index for index, state in topic.partitions.items() if state.leader == NO_LEADER],
        )
        for topic in image.topics.values()
    )
    return [(topic_id, indexes) for topic_id, indexes in found if indexes]


def each_partition(by_topic: ByTopic) -> Iterator[tuple[UUID, int]]:
    return ((topic_id, index) for topic_id, indexes in by_topic for index in indexes)


def remove_broker_from_isrs(
    image: MetadataImage,
    context: ControllerContext,
    broker_id: int,
    *,
    is_unclean_shutdown: bool = False,
    where: Callable[[PartitionState], bool] | None = None,
    among: Among = None,
) -> PartitionChanges:
    """Remove a broker from ISRs and leaderships, and after an unclean shutdown from ELRs.

    `where` and `among` select partitions.
    """

    def is_selected(state: PartitionState) -> bool:
        is_member = broker_id in state.isr or (
            is_unclean_shutdown and broker_id in state.eligible_leader_replicas
        )
        return is_member and (where is None or where(state))

    def target(state: PartitionState) -> PartitionTarget:
        isr = tuple([replica for replica in state.isr if replica != broker_id])
        return PartitionTarget(
            isr=isr, unclean_shutdown_replica=broker_id if is_unclean_shutdown else None
        )

    if among is None:
        memberships = elr_memberships if is_unclean_shutdown else isr_memberships
        among = each_partition(memberships(image, broker_id))
    leaders = AcceptableLeaders(image, removed=broker_id)
    return _update(image, context, leaders, _selected(image, among, is_selected), target)


def elect_where_leaderless(
    image: MetadataImage,
    context: ControllerContext,
    broker_id: int | None = None,
    *,
    among: Among = None,
) -> PartitionChanges:
    """Elect leaders for partitions without one. `broker_id` counts as active already."""
    leaders = AcceptableLeaders(image, added=broker_id)
    selected = _selected(image, among, lambda state: state.leader == NO_LEADER)
    return _update(image, context, leaders, selected, lambda _state: UNCHANGED)


def _selected(
    image: MetadataImage, among: Among, is_selected: Callable[[PartitionState], bool]
) -> Iterator[tuple[TopicImage, int, PartitionState]]:
    if among is None:
        for topic in image.topics.values():
            for index, state in topic.partitions.items():
                if is_selected(state):
                    yield topic, index, state
        return
    for topic_id, index in among:
        named = image.topic_by_id(topic_id)
        found = None if named is None else named.partitions.get(index)
        if named is not None and found is not None and is_selected(found):
            yield named, index, found


def _update(
    image: MetadataImage,
    context: ControllerContext,
    leaders: AcceptableLeaders,
    selected: Iterable[tuple[TopicImage, int, PartitionState]],
    target_of: Callable[[PartitionState], PartitionTarget],
) -> PartitionChanges:
    """Change the selected partitions."""
    configs = ElectionConfigs(image, context)
    changes = PartitionChanges()
    for topic, index, state in selected:
        config = configs.of(topic)
        election = Election.UNCLEAN if config.unclean_enabled else Election.ONLINE
        changes.add(
            build_partition_change(topic, index, state, config, leaders, election, target_of(state))
        )
    return changes
