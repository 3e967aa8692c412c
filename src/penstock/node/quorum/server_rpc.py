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
from penstock.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from penstock.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from penstock.protocol.messages.end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
)
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.vote import VoteRequest, VoteResponse
from penstock.raft import messages as raft
from penstock.raft.log import OffsetAndEpoch

_FetchPartition = FetchResponse.Response.Partition


class DecodedRequest(NamedTuple):
    sender: int
    request: raft.Request


@dataclass(frozen=True, slots=True)
class RequestDecoder:
    """Decodes requests to this node. Each method returns an error code for an invalid request."""

    node_id: int
    cluster_id: str

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
            partition.replica_id, raft.VoteRequest(epoch, end, partition.pre_vote)
        )

    def begin_quorum_epoch(self, request: BeginQuorumEpochRequest) -> DecodedRequest | ErrorCode:
        partition = self._partition(request)
        if isinstance(partition, ErrorCode):
            return partition
        if request.voter_id not in (-1, self.node_id):
            return ErrorCode.INVALID_VOTER_KEY
        return DecodedRequest(
            partition.leader_id, raft.BeginQuorumEpochRequest(partition.leader_epoch)
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
        )
        return DecodedRequest(max(request.replica_id, request.replica_state.replica_id), fetch)

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
