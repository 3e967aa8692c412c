"""What a client knows of a cluster: brokers, topics, and who leads each partition. Values alone;
`cluster` fetches them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from uuid import UUID

from penstock.client.faults import check
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
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
    """A leader of -1 is none at present."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    # Eligible leader replicas (KIP-966); None is not known.
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
    """The last that brokers said. What turned out to be stale is forgotten, and asked for again
    when next needed."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, TopicInfo] = {}
        self._names: dict[UUID, str] = {}
        # Of each partition, what was said in the highest leader epoch.
        self._newest: dict[tuple[UUID, int], PartitionInfo] = {}

    def take(self, answer: MetadataResponse) -> None:
        """Brokers are all of them; topics are those that were asked for, without those that have an
        error."""
        self.cluster_id, self.controller_id = answer.cluster_id, answer.controller_id
        if answer.brokers:
            self.brokers = {
                one.node_id: Broker(one.node_id, one.host, one.port, one.rack)
                for one in answer.brokers
            }
        for topic in answer.topics:
            if topic.error_code == 0 and topic.name is not None:
                self.topics[topic.name] = info = self._without_older(topic_info(topic))
                self._names[info.id] = info.name

    def _without_older(self, topic: TopicInfo) -> TopicInfo:
        """A broker that lags behind may name the leader of an earlier epoch, whose log may be
        shorter than what was read (KIP-320)."""
        for one in topic.partitions:
            known = self._newest.get((topic.id, one.index))
            if known is None or one.leader_epoch < 0 or one.leader_epoch >= known.leader_epoch:
                self._newest[topic.id, one.index] = one
        return replace(
            topic, partitions=tuple(self._newest[topic.id, one.index] for one in topic.partitions)
        )

    def forget(self, topic: str) -> None:
        self.topics.pop(topic, None)

    def name_of(self, topic_id: UUID, name: str = "") -> str:
        """Newer versions name topics by id alone."""
        return name or self._names.get(topic_id, "")


def topic_info(topic: MetadataResponse.Topic) -> TopicInfo:
    partitions = sorted(topic.partitions, key=lambda one: one.partition_index)
    return TopicInfo(
        topic.name or "",
        topic.topic_id,
        topic.is_internal,
        tuple(_partition(one) for one in partitions),
    )


def check_topics(topics: Iterable[MetadataResponse.Topic]) -> None:
    """Raises the first error that a topic has."""
    for topic in topics:
        check(topic.error_code, f"topic {topic.name} {absence(topic.error_code)}")


def absence(code: int) -> str:
    if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        return "is no name that a topic can have"
    return "does not exist" if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else "cannot be had now"


def no_leader(partition: TopicPartition) -> KafkaError:
    return KafkaError(
        ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader at present"
    )


def _partition(one: MetadataResponse.Topic.Partition) -> PartitionInfo:
    return PartitionInfo(
        one.partition_index,
        one.leader_id,
        one.leader_epoch,
        one.replica_nodes,
        one.isr_nodes,
        one.offline_replicas,
    )
