"""The controller quorum: its state (DescribeQuorum), and changes of its voters (KIP-853)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from penstock.client.cluster import Cluster
from penstock.client.errors import check
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import METADATA_TOPIC
from penstock.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from penstock.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from penstock.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

# How long the leader may take to add a voter.
_ADD_TIMEOUT_MS = 30_000

ReplicaState = DescribeQuorumResponse.Topic.Partition.Replica


class VoterEndpoint(NamedTuple):
    """Where a voter listens. `listener` is a name of controller.listener.names."""

    listener: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


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


async def add_raft_voter(
    cluster: Cluster, voter_id: int, directory_id: UUID, endpoints: Sequence[VoterEndpoint]
) -> None:
    """Make a controller that has replicated the metadata log a voter. Return when that is
    committed. Raises KafkaError, such as DUPLICATE_VOTER; after REQUEST_TIMED_OUT the change may
    still be committed."""
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=_ADD_TIMEOUT_MS,
        voter_id=voter_id,
        voter_directory_id=directory_id,
        listeners=tuple(
            AddRaftVoterRequest.Listener(name=each.listener, host=each.host, port=each.port)
            for each in endpoints
        ),
    )
    response = await cluster.call(request, AddRaftVoterResponse)
    check(response.error_code, response.error_message or "AddRaftVoter failed")


async def remove_raft_voter(cluster: Cluster, voter_id: int, directory_id: UUID) -> None:
    """Make a voter an observer. Return when that is committed. Raises KafkaError, such as
    VOTER_NOT_FOUND; after REQUEST_TIMED_OUT the change may still be committed."""
    request = RemoveRaftVoterRequest(
        cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id
    )
    response = await cluster.call(request, RemoveRaftVoterResponse)
    check(response.error_code, response.error_message or "RemoveRaftVoter failed")


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
