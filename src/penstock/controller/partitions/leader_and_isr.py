"""Updates the leader and ISR of all partitions of a broker that becomes active or inactive (Kafka's
`generateLeaderAndIsrUpdates`). PURE."""

from __future__ import annotations

from collections.abc import Callable

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
from penstock.metadata.image import NO_LEADER, MetadataImage, PartitionState


def has_leaderships(image: MetadataImage, broker_id: int) -> bool:
    return any(
        state.leader == broker_id
        for topic in image.topics.values()
        for state in topic.partitions.values()
    )


def remove_broker_from_isrs(
    image: MetadataImage,
    context: ControllerContext,
    broker_id: int,
    *,
    is_unclean_shutdown: bool = False,
    where: Callable[[PartitionState], bool] | None = None,
) -> PartitionChanges:
    """Remove a broker from all ISRs and leaderships, and after an unclean shutdown from all ELRs.

    `where` selects partitions.
    """

    def target(state: PartitionState) -> PartitionTarget | None:
        is_member = broker_id in state.isr or (
            is_unclean_shutdown and broker_id in state.eligible_leader_replicas
        )
        if not is_member or (where is not None and not where(state)):
            return None
        isr = tuple([replica for replica in state.isr if replica != broker_id])
        return PartitionTarget(
            isr=isr, unclean_shutdown_replica=broker_id if is_unclean_shutdown else None
        )

    return _update_all(image, context, AcceptableLeaders(image, removed=broker_id), target)


def elect_where_leaderless(
    image: MetadataImage, context: ControllerContext, broker_id: int
) -> PartitionChanges:
    """Elect leaders for partitions without one, now that the broker is active."""

    def target(state: PartitionState) -> PartitionTarget | None:
        return UNCHANGED if state.leader == NO_LEADER else None

    return _update_all(image, context, AcceptableLeaders(image, added=broker_id), target)


def _update_all(
    image: MetadataImage,
    context: ControllerContext,
    leaders: AcceptableLeaders,
    target_of: Callable[[PartitionState], PartitionTarget | None],
) -> PartitionChanges:
    """Change every partition for which `target_of` returns a target."""
    configs = ElectionConfigs(image, context)
    changes = PartitionChanges()
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            target = target_of(state)
            if target is not None:
                config = configs.of(topic)
                election = Election.UNCLEAN if config.unclean_enabled else Election.ONLINE
                changes.add(
                    build_partition_change(topic, index, state, config, leaders, election, target)
                )
    return changes
