"""The quorum of controllers as its leader describes it."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from penstock.client.cluster import Cluster
from penstock.client.faults import check
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import METADATA_TOPIC
from penstock.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

Described = DescribeQuorumResponse.Topic.Partition


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """Times are in milliseconds since 1970; -1 is not known."""

    id: int
    directory_id: UUID
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    # As CONTROLLER://host:port.
    endpoints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]

    @property
    def leader(self) -> QuorumReplica:
        for voter in self.voters:
            if voter.id == self.leader_id:
                return voter
        raise KafkaError(
            ErrorCode.LEADER_NOT_AVAILABLE,
            f"the quorum's leader {self.leader_id} is none of its voters",
        )


async def describe_quorum(cluster: Cluster) -> QuorumInfo:
    partition = DescribeQuorumRequest.Topic.Partition(partition_index=0)
    request = DescribeQuorumRequest(
        topics=(DescribeQuorumRequest.Topic(topic_name=METADATA_TOPIC, partitions=(partition,)),)
    )

    async def attempt() -> QuorumInfo:
        answer = await cluster.call(request, DescribeQuorumResponse)
        check(answer.error_code, answer.error_message or "the quorum cannot be described")
        described = [one for topic in answer.topics for one in topic.partitions]
        if len(described) != 1:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the quorum has one partition, but {len(described)} were described",
            )
        (one,) = described
        check(one.error_code, one.error_message or "the quorum cannot be described")
        return QuorumInfo(
            one.leader_id,
            one.leader_epoch,
            one.high_watermark,
            tuple(_replica(replica, answer) for replica in one.current_voters),
            tuple(_replica(replica, answer) for replica in one.observers),
        )

    return await cluster.retry(attempt)


def _replica(one: Described.Replica, answer: DescribeQuorumResponse) -> QuorumReplica:
    listeners = (
        listener
        for node in answer.nodes
        if node.node_id == one.replica_id
        for listener in node.listeners
    )
    endpoints = tuple(
        f"{listener.name}://{listener.host}:{listener.port}" for listener in listeners
    )
    times = one.last_fetch_timestamp, one.last_caught_up_timestamp
    return QuorumReplica(
        one.replica_id, one.replica_directory_id, one.log_end_offset, *times, endpoints
    )
