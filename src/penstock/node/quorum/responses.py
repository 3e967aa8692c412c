"""What other nodes of the quorum ask this one, in Kafka's messages: a request becomes the
machine's, and its answer a response.

PURE translation, with the checks that need no state: whose cluster, which topic, which voter.
"""

from __future__ import annotations

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
from penstock.raft.log_view import OffsetAndEpoch
from penstock.raft.messages import (
    NO_LEADER,
    Answer,
    AskFetch,
    AskVote,
    FetchAnswer,
    Request,
    TellBegin,
    TellEnd,
    VoteAnswer,
)


class Said(NamedTuple):
    sender: int
    request: Request


class Refused(NamedTuple):
    """An error of the request as a whole."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class Listener:
    """This node as others address it, and where voters are."""

    node_id: int
    cluster_id: str
    addresses: dict[int, Address]

    # Requests

    def vote_asked(self, request: VoteRequest) -> Said | Refused:
        partition = self._partition(request)
        if isinstance(partition, ErrorCode):
            return Refused(partition)
        epoch, end = (
            partition.replica_epoch,
            OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch),
        )
        if min(epoch, *end) < 0 or (not partition.pre_vote and end.epoch >= epoch):
            return Refused(ErrorCode.INVALID_REQUEST)
        if request.voter_id not in (-1, self.node_id):
            return Refused(ErrorCode.INVALID_VOTER_KEY)
        return Said(partition.replica_id, AskVote(epoch, end, partition.pre_vote))

    def begin_told(self, request: BeginQuorumEpochRequest) -> Said | Refused:
        partition = self._partition(request)
        if isinstance(partition, ErrorCode):
            return Refused(partition)
        if request.voter_id not in (-1, self.node_id):
            return Refused(ErrorCode.INVALID_VOTER_KEY)
        return Said(partition.leader_id, TellBegin(partition.leader_epoch))

    def end_told(self, request: EndQuorumEpochRequest) -> Said | Refused:
        partition = self._partition(request)
        if isinstance(partition, ErrorCode):
            return Refused(partition)
        named = tuple(candidate.candidate_id for candidate in partition.preferred_candidates)
        return Said(
            partition.leader_id,
            TellEnd(partition.leader_epoch, named or partition.preferred_successors),
        )

    def fetch_asked(self, request: FetchRequest) -> Said | Refused:
        if request.cluster_id not in (None, self.cluster_id):
            return Refused(ErrorCode.INCONSISTENT_CLUSTER_ID)
        topics = request.topics
        if len(topics) != 1 or (
            topics[0].topic != METADATA_TOPIC and topics[0].topic_id != METADATA_TOPIC_ID
        ):
            return Refused(ErrorCode.UNKNOWN_TOPIC_ID)
        partitions = topics[0].partitions
        if len(partitions) != 1 or partitions[0].partition != 0:
            return Refused(ErrorCode.INVALID_REQUEST)
        one, sender = partitions[0], max(request.replica_id, request.replica_state.replica_id)
        if (
            min(
                one.current_leader_epoch,
                one.fetch_offset,
                one.last_fetched_epoch,
                request.max_wait_ms,
            )
            < 0
        ):
            return Refused(ErrorCode.INVALID_REQUEST)
        ask = AskFetch(
            one.current_leader_epoch,
            one.fetch_offset,
            one.last_fetched_epoch,
            one.high_watermark,
            request.max_wait_ms / 1000,
        )
        return Said(sender, ask)

    def _partition(self, request: Any) -> Any | ErrorCode:
        if request.cluster_id not in (None, self.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        named = [
            (topic.topic_name, [one.partition_index for one in topic.partitions])
            for topic in request.topics
        ]
        return (
            request.topics[0].partitions[0]
            if named == [(METADATA_TOPIC, [0])]
            else ErrorCode.INVALID_REQUEST
        )

    # Responses

    def vote_response(self, answer: Answer) -> VoteResponse:
        granted = isinstance(answer, VoteAnswer) and answer.granted
        partition = VoteResponse.Topic.Partition(
            error_code=answer.error,
            leader_id=answer.leader_id,
            leader_epoch=answer.epoch,
            vote_granted=granted,
        )
        topic = VoteResponse.Topic(topic_name=METADATA_TOPIC, partitions=(partition,))
        return VoteResponse(
            topics=(topic,), node_endpoints=self._endpoints(VoteResponse, answer.leader_id)
        )

    def begin_response(self, answer: Answer) -> BeginQuorumEpochResponse:
        partition = BeginQuorumEpochResponse.Topic.Partition(
            error_code=answer.error, leader_id=answer.leader_id, leader_epoch=answer.epoch
        )
        topic = BeginQuorumEpochResponse.Topic(topic_name=METADATA_TOPIC, partitions=(partition,))
        return BeginQuorumEpochResponse(
            topics=(topic,),
            node_endpoints=self._endpoints(BeginQuorumEpochResponse, answer.leader_id),
        )

    def end_response(self, answer: Answer) -> EndQuorumEpochResponse:
        partition = EndQuorumEpochResponse.Topic.Partition(
            error_code=answer.error, leader_id=answer.leader_id, leader_epoch=answer.epoch
        )
        topic = EndQuorumEpochResponse.Topic(topic_name=METADATA_TOPIC, partitions=(partition,))
        return EndQuorumEpochResponse(
            topics=(topic,),
            node_endpoints=self._endpoints(EndQuorumEpochResponse, answer.leader_id),
        )

    def fetch_response(
        self, answer: Answer, records: bytes, log_start_offset: int
    ) -> FetchResponse:
        kind = FetchResponse.Response.Partition
        told = (
            answer
            if isinstance(answer, FetchAnswer)
            else FetchAnswer(answer.error, answer.leader_id, answer.epoch)
        )
        diverging, snapshot = told.diverging, told.snapshot
        partition = kind(
            error_code=told.error,
            high_watermark=told.high_watermark,
            last_stable_offset=told.high_watermark,
            log_start_offset=log_start_offset,
            current_leader=kind.CurrentLeader(leader_id=told.leader_id, leader_epoch=told.epoch),
            diverging_epoch=kind.DivergingEpoch(epoch=diverging.epoch, end_offset=diverging.offset)
            if diverging
            else kind.DivergingEpoch(),
            snapshot_id=kind.SnapshotId(epoch=snapshot.epoch, end_offset=snapshot.offset)
            if snapshot
            else kind.SnapshotId(),
            records=records,
        )
        topic = FetchResponse.Response(
            topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=(partition,)
        )
        return FetchResponse(
            responses=(topic,), node_endpoints=self._endpoints(FetchResponse, told.leader_id)
        )

    def _endpoints(self, response: Any, leader_id: int) -> tuple[Any, ...]:
        address = self.addresses.get(leader_id) if leader_id != NO_LEADER else None
        return (
            ()
            if address is None
            else (response.NodeEndpoint(node_id=leader_id, host=address.host, port=address.port),)
        )
