"""Cluster metadata as a client caches it: brokers, topics and partition leaders.

Values only; `cluster` fetches them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from uuid import UUID

from penstock.client.errors import check
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.describe_cluster import DescribeClusterResponse
from penstock.protocol.messages.metadata import MetadataResponse


@dataclass(frozen=True, slots=True)
class Broker:
    id: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A leader of -1 means that the partition has no leader."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    # Eligible leader replicas (KIP-966); None if the broker does not report them.
    elr: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    id: UUID
    internal: bool
    partitions: tuple[PartitionInfo, ...]

    def partition(self, index: int) -> PartitionInfo:
        if not 0 <= index < len(self.partitions):
            reason = f"topic {self.name} has no partition {index}: it has {len(self.partitions)}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason)
        return self.partitions[index]


class Metadata:
    """The newest metadata received. Stale topics are forgotten and fetched again on next use."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, TopicInfo] = {}
        self._names: dict[UUID, str] = {}
        # Per partition, the state received with the highest leader epoch.
        self._newest: dict[tuple[UUID, int], PartitionInfo] = {}

    def update(self, response: MetadataResponse) -> None:
        """Replace the brokers, and the topics that the response describes without an error."""
        self.cluster_id, self.controller_id = response.cluster_id, response.controller_id
        if response.brokers:
            self.brokers = {
                broker.node_id: Broker(broker.node_id, broker.host, broker.port, broker.rack)
                for broker in response.brokers
            }
        for topic in response.topics:
            if topic.error_code == 0 and topic.name is not None:
                self.topics[topic.name] = info = self._without_older_epochs(topic_info(topic))
                self._names[info.id] = info.name

    def update_controllers(self, response: DescribeClusterResponse) -> None:
        """Replace the brokers by the controllers of the cluster, which have no topics."""
        self.cluster_id, self.controller_id = response.cluster_id, response.controller_id
        self.brokers = {
            controller.broker_id: Broker(controller.broker_id, controller.host, controller.port)
            for controller in response.brokers
        }

    def _without_older_epochs(self, topic: TopicInfo) -> TopicInfo:
        """Ignore partition states with an older leader epoch.

        A broker with stale metadata may name a former leader, whose log may end before the
        consumer's position (KIP-320).
        """
        for info in topic.partitions:
            known = self._newest.get((topic.id, info.index))
            if known is None or info.leader_epoch < 0 or info.leader_epoch >= known.leader_epoch:
                self._newest[topic.id, info.index] = info
        return replace(
            topic, partitions=tuple(self._newest[topic.id, info.index] for info in topic.partitions)
        )

    def forget(self, topic: str) -> None:
        self.topics.pop(topic, None)

    def name_of(self, topic_id: UUID, name: str = "") -> str:
        """Return a topic's name; newer API versions identify topics by id only."""
        return name or self._names.get(topic_id, "")


def topic_info(topic: MetadataResponse.Topic) -> TopicInfo:
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return TopicInfo(
        topic.name or "",
        topic.topic_id,
        topic.is_internal,
        tuple(_partition_info(partition) for partition in partitions),
    )


def check_topics(topics: Iterable[MetadataResponse.Topic]) -> None:
    """Raise the first topic's error."""
    for topic in topics:
        check(topic.error_code, topic_error(topic.name, topic.error_code))


def topic_error(name: str | None, code: int) -> str:
    if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        return f"{name!r} is not a valid topic name"
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"topic {name} does not exist"
    return f"topic {name} is not available at present"


def no_leader(partition: TopicPartition) -> KafkaError:
    return KafkaError(
        ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader at present"
    )


def _partition_info(partition: MetadataResponse.Topic.Partition) -> PartitionInfo:
    return PartitionInfo(
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        partition.replica_nodes,
        partition.isr_nodes,
        partition.offline_replicas,
    )
