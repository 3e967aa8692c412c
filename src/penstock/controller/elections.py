"""Who leads a partition when a broker comes back. PURE.

So far for a quorum of one, where the broker is the only one there is. *(To come: broker failures, preferred and unclean elections.)*
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from penstock.metadata.image import NO_LEADER, MetadataImage, PartitionState
from penstock.protocol.internal.metadata_topics import PartitionChangeRecord


def elected_with(image: MetadataImage, broker_id: int) -> Iterator[PartitionChangeRecord]:
    """Changes that make the unfenced broker a leader where it can be one.

    A partition that still has it as its leader was led by an earlier life of it: it leads again, in a new leader epoch, since what that
    life had not synced may be gone, and readers find out by the epoch.
    """
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            if broker_id in state.replicas and state.leader in (NO_LEADER, broker_id):
                change = _elected(topic.id, index, state, broker_id)
                if change is not None:
                    yield change


def _elected(topic_id: UUID, index: int, state: PartitionState, broker_id: int) -> PartitionChangeRecord | None:
    """From the in-sync replicas; from those eligible besides (KIP-966); and the last leader, where neither is left."""
    if broker_id in state.isr:
        return PartitionChangeRecord(topic_id=topic_id, partition_id=index, leader=broker_id)
    eligible = broker_id in state.eligible_leader_replicas
    last_known = not state.isr and not state.eligible_leader_replicas and broker_id in state.last_known_elr
    if not eligible and not last_known:
        return None
    return PartitionChangeRecord(
        topic_id=topic_id,
        partition_id=index,
        leader=broker_id,
        isr=(broker_id,),
        eligible_leader_replicas=tuple(replica for replica in state.eligible_leader_replicas if replica != broker_id),
        last_known_elr=(),
    )
