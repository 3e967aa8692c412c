"""The initial state of new partitions, and validation of manual assignments. PURE."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import (
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    MetadataImage,
    PartitionState,
)


def is_active(image: MetadataImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_active


def default_directory(broker: BrokerImage) -> UUID:
    """Return the directory of a new replica. A broker with several directories chooses one and
    reports it with AssignReplicasToDirs (KIP-858)."""
    if not broker.directories:
        return MIGRATING_DIRECTORY
    return broker.directories[0] if len(broker.directories) == 1 else UNASSIGNED_DIRECTORY


def new_partition(image: MetadataImage, replicas: tuple[int, ...]) -> PartitionState | None:
    """Return a partition led by its first active replica; None if no replica is active."""
    isr = tuple(replica for replica in replicas if is_active(image, replica))
    if not isr:
        return None
    return PartitionState(
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        directories=tuple(default_directory(image.brokers[replica]) for replica in replicas),
    )


def placed_partitions(
    image: MetadataImage, placed: Iterable[tuple[int, ...]]
) -> list[PartitionState]:
    """Return partitions for the assignments of the replica placer. Equal assignments share one
    state: a request may create ten thousand partitions."""
    states: dict[tuple[int, ...], PartitionState] = {}
    partitions = []
    for replicas in placed:
        state = states.get(replicas) or new_partition(image, replicas)
        if state is None:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "All brokers are currently fenced or in controlled shutdown.",
            )
        states[replicas] = state
        partitions.append(state)
    return partitions


def assigned_partition(
    image: MetadataImage, index: int, replicas: tuple[int, ...], replication_factor: int | None
) -> PartitionState:
    """Return a partition with a manual assignment. Raises KafkaError INVALID_REPLICA_ASSIGNMENT if
    it is invalid."""
    check_replicas(image, replicas, replication_factor)
    partition = new_partition(image, replicas)
    if partition is None:
        raise _refused(
            f"All brokers specified in the manual partition assignment for partition {index} are "
            "fenced or in controlled shutdown."
        )
    return partition


def check_replicas(
    image: MetadataImage, replicas: tuple[int, ...], replication_factor: int | None = None
) -> None:
    """Raise KafkaError INVALID_REPLICA_ASSIGNMENT if a manual assignment is invalid."""
    if not replicas:
        raise _refused("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise _refused(
                f"The manual partition assignment includes broker {broker_id}, but no such broker "
                "is registered."
            )
        if broker_id == previous:
            raise _refused(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )
        previous = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _refused(
            f"The manual partition assignment includes a partition with {len(replicas)} "
            "replica(s), but this is not consistent with previous partitions, which have "
            f"{replication_factor} replica(s)."
        )


def _refused(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
