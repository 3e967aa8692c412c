"""The server side of the quorum's RPCs: decodes Kafka's requests into those of the state machine,
and encodes its responses. PURE translation.

Decoding includes the checks that need no state: the cluster id, the topic and the voter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.config.quorum import Address
from penstock.errors import ErrorCode
from penstock.ids import METADATA_TOPIC, METADATA_TOPIC_ID, NO_UUID
from penstock.limits import MAX_VOTER_LISTENERS
from penstock.protocol.messages.add_raft_voter import AddRaftVoterRequest
from penstock.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from penstock.protocol.messages.end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
)
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from penstock.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from penstock.protocol.messages.vote import VoteRequest, VoteResponse
from penstock.raft import messages as raft
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.voters import Endpoint, ReplicaKey, Voter

_FetchPartition = FetchResponse.Response.Partition


class DecodedRequest(NamedTuple):
    sender: int
    request: raft.Request


class Refused(NamedTuple):
    """An invalid request to change the voters."""

    error: ErrorCode
    message: str | None


@dataclass(frozen=True, slots=True)
class RequestDecoder:
    """Decodes requests to this node. Each method returns an error code for an invalid request.
    `listener` is the name of the controllers' listener."""

    node_id: int
    cluster_id: str
    listener: str

    def vote(self, request: VoteRequest) -> DecodedRequest | ErrorCode:
        partition = self._partition(request)
        if isinstance(partition, ErrorCode):
            return partition
        epoch = partition.replica_epoch
        end = OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch)
        if min(epoch, *end) < 0 or (not partition.pre_vote and end.epoch >= epoch):
            return ErrorCode.INVALID_REQUEST
        if request.voter_id not in (-1, self.node_id):
            return ErrorCode.INVALID_VOTER_KEY
        return DecodedRequest(
            partition.replica_id,
            raft.VoteRequest(
                epoch,
                end,
                partition.pre_vote,
                partition.replica_directory_id,
                partition.voter_directory_id,
            ),
        )

    def begin_quorum_epoch(self, request: BeginQuorumEpochRequest) -> DecodedRequest | ErrorCode:
        partition = self._partition(request)
        if isinstance(partition, ErrorCode):
            return partition
        if request.voter_id not in (-1, self.node_id):
            return ErrorCode.INVALID_VOTER_KEY
        return DecodedRequest(
            partition.leader_id,
            raft.BeginQuorumEpochRequest(partition.leader_epoch, partition.voter_directory_id),
        )

    def end_quorum_epoch(self, request: EndQuorumEpochRequest) -> DecodedRequest | ErrorCode:
        partition = self._partition(request)
        if isinstance(partition, ErrorCode):
            return partition
        candidates = tuple(candidate.candidate_id for candidate in partition.preferred_candidates)
        successors = candidates or partition.preferred_successors
        return DecodedRequest(
            partition.leader_id, raft.EndQuorumEpochRequest(partition.leader_epoch, successors)
        )

    def fetch(self, request: FetchRequest) -> DecodedRequest | ErrorCode:
        if request.cluster_id not in (None, self.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        topics = request.topics
        if len(topics) != 1 or (
            topics[0].topic != METADATA_TOPIC and topics[0].topic_id != METADATA_TOPIC_ID
        ):
            return ErrorCode.UNKNOWN_TOPIC_ID
        partitions = topics[0].partitions
        if len(partitions) != 1 or partitions[0].partition != 0:
            return ErrorCode.INVALID_REQUEST
        partition = partitions[0]
        if (
            min(
                partition.current_leader_epoch,
                partition.fetch_offset,
                partition.last_fetched_epoch,
                request.max_wait_ms,
            )
            < 0
        ):
            return ErrorCode.INVALID_REQUEST
        fetch = raft.FetchRequest(
            partition.current_leader_epoch,
            partition.fetch_offset,
            partition.last_fetched_epoch,
            partition.high_watermark,
            request.max_wait_ms / 1000,
            partition.replica_directory_id,
        )
        return DecodedRequest(max(request.replica_id, request.replica_state.replica_id), fetch)

    # Changes of the voters

    def add_voter(self, request: AddRaftVoterRequest) -> DecodedRequest | Refused:
        refused = self._refuse_cluster(request.cluster_id)
        if refused is not None:
            return refused
        if request.voter_id < 0 or request.voter_directory_id == NO_UUID:
            message = "Add voter request didn't include a valid voter"
            return Refused(ErrorCode.INVALID_REQUEST, message)
        endpoints = self._endpoints(request.listeners)
        if endpoints is None:
            message = (
                "Add voter request didn't include the endpoint for the default listener "
                f"{self.listener}"
            )
            return Refused(ErrorCode.INVALID_REQUEST, message)
        voter = Voter(request.voter_id, request.voter_directory_id, endpoints)
        return DecodedRequest(-1, raft.AddVoterRequest(voter, request.ack_when_committed))

    def remove_voter(self, request: RemoveRaftVoterRequest) -> DecodedRequest | Refused:
        refused = self._refuse_cluster(request.cluster_id)
        if refused is not None:
            return refused
        if request.voter_id < 0 or request.voter_directory_id == NO_UUID:
            message = "Remove voter request didn't include a valid voter"
            return Refused(ErrorCode.INVALID_REQUEST, message)
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        return DecodedRequest(-1, raft.RemoveVoterRequest(key))

    def update_voter(self, request: UpdateRaftVoterRequest) -> DecodedRequest | Refused:
        refused = self._refuse_cluster(request.cluster_id)
        if refused is not None:
            return refused
        endpoints, levels = self._endpoints(request.listeners), request.k_raft_version_feature
        if (
            request.voter_id < 0
            or request.voter_directory_id == NO_UUID
            or request.current_leader_epoch < 0
            or endpoints is None
        ):
            return Refused(ErrorCode.INVALID_REQUEST, "the request has no valid voter")
        voter = Voter(
            request.voter_id,
            request.voter_directory_id,
            endpoints,
            levels.min_supported_version,
            levels.max_supported_version,
        )
        return DecodedRequest(
            request.voter_id, raft.UpdateVoterRequest(request.current_leader_epoch, voter)
        )

    def _refuse_cluster(self, cluster_id: str | None) -> Refused | None:
        if cluster_id in (None, self.cluster_id):
            return None
        message = f'The given id "{cluster_id}" doesn\'t match the cluster id "{self.cluster_id}"'
        return Refused(ErrorCode.INCONSISTENT_CLUSTER_ID, message)

    def _endpoints(self, listeners: Any) -> tuple[Endpoint, ...] | None:
        """Return the endpoints of a voter; None if that of the controllers' listener is missing, or
        one is none that a node can connect to."""
        endpoints = tuple(
            Endpoint(listener.name, listener.host, listener.port) for listener in listeners
        )
        is_valid = len(endpoints) <= MAX_VOTER_LISTENERS and all(
            endpoint.host and endpoint.port for endpoint in endpoints
        )
        names = [endpoint.name for endpoint in endpoints]
        return endpoints if is_valid and self.listener in names else None

    def _partition(self, request: Any) -> Any | ErrorCode:
        """Return the only partition of the request, which must be that of the metadata log."""
        if request.cluster_id not in (None, self.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if not is_metadata_partition(request.topics):
            return ErrorCode.INVALID_REQUEST
        return request.topics[0].partitions[0]


def is_metadata_partition(topics: Any) -> bool:
    """Return True if the topics of a request are `__cluster_metadata-0` alone."""
    partitions = [
        (topic.topic_name, [partition.partition_index for partition in topic.partitions])
        for topic in topics
    ]
    return partitions == [(METADATA_TOPIC, [0])]


@dataclass(frozen=True, slots=True)
class ResponseEncoder:
    """Encodes responses of this node, with the address of the leader if it is known."""

    addresses: Mapping[int, Address]

    def vote(self, response: raft.Response) -> VoteResponse:
        partition = VoteResponse.Topic.Partition(
            error_code=response.error,
            leader_id=response.leader_id,
            leader_epoch=response.epoch,
            vote_granted=isinstance(response, raft.VoteResponse) and response.granted,
        )
        topic = VoteResponse.Topic(topic_name=METADATA_TOPIC, partitions=(partition,))
        return VoteResponse(
            topics=(topic,), node_endpoints=self._endpoints(VoteResponse, response.leader_id)
        )

    def begin_quorum_epoch(self, response: raft.Response) -> BeginQuorumEpochResponse:
        partition = BeginQuorumEpochResponse.Topic.Partition(
            error_code=response.error, leader_id=response.leader_id, leader_epoch=response.epoch
        )
        topic = BeginQuorumEpochResponse.Topic(topic_name=METADATA_TOPIC, partitions=(partition,))
        return BeginQuorumEpochResponse(
            topics=(topic,),
            node_endpoints=self._endpoints(BeginQuorumEpochResponse, response.leader_id),
        )

    def end_quorum_epoch(self, response: raft.Response) -> EndQuorumEpochResponse:
        partition = EndQuorumEpochResponse.Topic.Partition(
            error_code=response.error, leader_id=response.leader_id, leader_epoch=response.epoch
        )
        topic = EndQuorumEpochResponse.Topic(topic_name=METADATA_TOPIC, partitions=(partition,))
        return EndQuorumEpochResponse(
            topics=(topic,),
            node_endpoints=self._endpoints(EndQuorumEpochResponse, response.leader_id),
        )

    def fetch(self, response: raft.Response, log_start_offset: int) -> FetchResponse:
        fetch = (
            response
            if isinstance(response, raft.FetchResponse)
            else raft.FetchResponse(response.error, response.leader_id, response.epoch)
        )
        diverging, snapshot = _FetchPartition.DivergingEpoch(), _FetchPartition.SnapshotId()
        if fetch.diverging is not None:
            diverging = _FetchPartition.DivergingEpoch(
                epoch=fetch.diverging.epoch, end_offset=fetch.diverging.offset
            )
        if fetch.snapshot is not None:
            snapshot = _FetchPartition.SnapshotId(
                epoch=fetch.snapshot.epoch, end_offset=fetch.snapshot.offset
            )
        partition = _FetchPartition(
            error_code=fetch.error,
            high_watermark=fetch.high_watermark,
            last_stable_offset=fetch.high_watermark,
            log_start_offset=log_start_offset,
            current_leader=_FetchPartition.CurrentLeader(
                leader_id=fetch.leader_id, leader_epoch=fetch.epoch
            ),
            diverging_epoch=diverging,
            snapshot_id=snapshot,
            records=fetch.records,
        )
        topic = FetchResponse.Response(
            topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=(partition,)
        )
        return FetchResponse(
            responses=(topic,), node_endpoints=self._endpoints(FetchResponse, fetch.leader_id)
        )

    def _endpoints(self, message: Any, leader_id: int) -> tuple[Any, ...]:
        address = self.addresses.get(leader_id) if leader_id != raft.NO_LEADER else None
        if address is None:
            return ()
        return (message.NodeEndpoint(node_id=leader_id, host=address.host, port=address.port),)
