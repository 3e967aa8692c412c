"""Who may ask what of a partition: leader epochs (KIP-320) and the brokers that are its replicas.
PURE."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_LEADER_EPOCH, TopicPartition
from penstock.metadata.image import BrokerImage


def check_leader_epoch(partition: TopicPartition, asked: int, current: int) -> None:
    """-1 is a client that does not say what it knows."""
    if asked in (current, NO_LEADER_EPOCH):
        return
    if asked < current:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"leader epoch {asked} of {partition} is over: it is {current} now",
        )
    raise KafkaError(
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        f"leader epoch {asked} of {partition} is not known here yet: it is {current}",
    )


def not_leader(partition: TopicPartition, leader: int) -> KafkaError:
    who = f"broker {leader} does" if leader >= 0 else "nobody does at the moment"
    return KafkaError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {partition}: {who}"
    )


def check_replica(
    brokers: Mapping[int, BrokerImage], node_id: int, replica_id: int, broker_epoch: int
) -> None:
    """A fetch of a broker counts, and sees what is not committed, only in that broker's present
    life. One that we do not know of yet is to ask again: Kafka would take its word, but then so
    would a client get more than it may see by posing as a broker."""
    broker = brokers.get(replica_id)
    if replica_id == node_id or broker is None or broker_epoch < broker.epoch:
        known = "unknown" if broker is None else f"epoch {broker.epoch}"
        message = (
            f"a fetch of broker {replica_id} in epoch {broker_epoch} is refused: that "
            f"broker is {known} here"
        )
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)
    if broker_epoch > broker.epoch:
        message = (
            f"epoch {broker_epoch} of broker {replica_id} is not known here yet: it is "
            f"{broker.epoch}"
        )
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, message)


def is_current(brokers: Mapping[int, BrokerImage], replica_id: int, broker_epoch: int) -> bool:
    """Whether the broker still lives the life in which it fetched."""
    broker = brokers.get(replica_id)
    return broker is not None and broker.epoch == broker_epoch


def is_eligible(brokers: Mapping[int, BrokerImage], replica_id: int, broker_epoch: int) -> bool:
    """Whether a follower that fetched in this epoch may join the in-sync replicas."""
    broker = brokers.get(replica_id)
    return (
        broker is not None
        and not broker.fenced
        and not broker.in_controlled_shutdown
        and broker.epoch == broker_epoch
    )
