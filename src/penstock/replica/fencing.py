"""Fencing: by leader epoch (KIP-320), and of replicas by broker epoch. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_LEADER_EPOCH, TopicPartition
from penstock.metadata.image import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, BrokerImage


def check_leader_epoch(partition: TopicPartition, requested: int, current: int) -> None:
    """Refuse a request of another leader epoch. A client that sends -1 does not know the epoch."""
    if requested in (current, NO_LEADER_EPOCH):
        return
    if requested < current:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"leader epoch {requested} of {partition} is over: the current one is {current}",
        )
    raise KafkaError(
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        f"leader epoch {requested} of {partition} is not known to this broker yet: it knows "
        f"{current}",
    )


def not_leader(partition: TopicPartition, leader: int) -> KafkaError:
    current = f"the leader is broker {leader}" if leader >= 0 else "it has no leader"
    return KafkaError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {partition}: {current}"
    )


def check_replica(
    brokers: Mapping[int, BrokerImage], node_id: int, replica_id: int, broker_epoch: int
) -> None:
    """Refuse a fetch that does not come from a registered broker in its current epoch.

    Such a fetch counts as an acknowledgement and reads uncommitted records. Kafka accepts a broker
    that it does not know yet. This broker refuses it, and the follower retries: otherwise a client
    that poses as a broker could read uncommitted records.
    """
    broker = brokers.get(replica_id)
    if replica_id == node_id or broker is None or broker_epoch < broker.epoch:
        known = "not registered" if broker is None else f"registered in epoch {broker.epoch}"
        message = (
            f"refused the fetch of broker {replica_id} in epoch {broker_epoch}: the broker is "
            f"{known}"
        )
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
    if broker_epoch > broker.epoch:
        message = (
            f"epoch {broker_epoch} of broker {replica_id} is not known to this broker yet: it "
            f"knows {broker.epoch}"
        )
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, message)


def is_current(brokers: Mapping[int, BrokerImage], replica_id: int, broker_epoch: int) -> bool:
    """Return True if this is the broker's current epoch."""
    broker = brokers.get(replica_id)
    return broker is not None and broker.epoch == broker_epoch


def is_eligible(
    brokers: Mapping[int, BrokerImage],
    replica_id: int,
    broker_epoch: int,
    directory: UUID = UNASSIGNED_DIRECTORY,
) -> bool:
    """Return True if a follower that fetched in this broker epoch may join the ISR: not if its log
    directory has gone offline since."""
    broker = brokers.get(replica_id)
    return (
        broker is not None
        and not broker.fenced
        and not broker.in_controlled_shutdown
        and broker.epoch == broker_epoch
        and (
            not broker.directories
            or directory in broker.directories
            or directory in (MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY)
        )
    )
