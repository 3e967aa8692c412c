"""The state of the controller quorum (DescribeQuorum)."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from penstock.client.cluster import Cluster
from penstock.client.errors import check
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import METADATA_TOPIC
from penstock.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

ReplicaState = DescribeQuorumResponse.Topic.Partition.Replica


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """Timestamps are in milliseconds since the epoch; -1 is unknown."""

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
            f"the quorum's leader {self.leader_id} is not one of its voters",
        )


async def describe_quorum(cluster: Cluster) -> QuorumInfo:
    partition = DescribeQuorumRequest.Topic.Partition(partition_index=0)
    request = DescribeQuorumRequest(
        topics=(DescribeQuorumRequest.Topic(topic_name=METADATA_TOPIC, partitions=(partition,)),)
    )

    async def attempt() -> QuorumInfo:
        response = await cluster.call(request, DescribeQuorumResponse)
        check(response.error_code, response.error_message or "DescribeQuorum failed")
        partitions = [partition for topic in response.topics for partition in topic.partitions]
        if len(partitions) != 1:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"DescribeQuorum returned {len(partitions)} partitions; expected 1",
            )
        (state,) = partitions
        check(state.error_code, state.error_message or "DescribeQuorum failed")
        return QuorumInfo(
            state.leader_id,
            state.leader_epoch,
            state.high_watermark,
            tuple(_replica(replica, response) for replica in state.current_voters),
            tuple(_replica(replica, response) for replica in state.observers),
        )

    return await cluster.retry(attempt)


def _replica(replica: ReplicaState, response: DescribeQuorumResponse) -> QuorumReplica:
    endpoints = tuple(
        f"{listener.name}://{listener.host}:{listener.port}"
        for node in response.nodes
        if node.node_id == replica.replica_id
        for listener in node.listeners
    )
    return QuorumReplica(
        replica.replica_id,
        replica.replica_directory_id,
        replica.log_end_offset,
        replica.last_fetch_timestamp,
        replica.last_caught_up_timestamp,
        endpoints,
    )
