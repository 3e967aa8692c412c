"""What this node asks other nodes of the quorum, in Kafka's messages: a machine's request becomes
one, and its response an answer.

Voters have no directory ids here: with static voters (kraft.version 0) nobody knows them. PURE
translation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.config.quorum import Address
from penstock.errors import ErrorCode, ProtocolError
from penstock.ids import METADATA_TOPIC, METADATA_TOPIC_ID, NO_UUID
from penstock.limits import MAX_METADATA_BATCH_BYTES, METADATA_FETCH_BYTES
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
from penstock.records.batch import batches, crc_matches


@dataclass(frozen=True, slots=True)
class Speaker:
    """This node as it introduces itself."""

    node_id: int
    cluster_id: str
    listener: str
    address: Address | None

    def request(self, to: int, request: Request) -> tuple[object, type[Any]]:
        """The message, and the class of its response."""
        match request:
            case AskVote():
                return self._vote(to, request), VoteResponse
            case TellBegin():
                return self._begin(to, request), BeginQuorumEpochResponse
            case TellEnd():
                return self._end(request), EndQuorumEpochResponse
            case AskFetch():
                return self._fetch(request), FetchResponse

    def _vote(self, to: int, ask: AskVote) -> VoteRequest:
        partition = VoteRequest.Topic.Partition(
            replica_epoch=ask.epoch,
            replica_id=self.node_id,
            last_offset_epoch=ask.end.epoch,
            last_offset=ask.end.offset,
            pre_vote=ask.pre_vote,
        )
        topic = VoteRequest.Topic(topic_name=METADATA_TOPIC, partitions=(partition,))
        return VoteRequest(cluster_id=self.cluster_id, voter_id=to, topics=(topic,))

    def _begin(self, to: int, tell: TellBegin) -> BeginQuorumEpochRequest:
        partition = BeginQuorumEpochRequest.Topic.Partition(
            leader_id=self.node_id, leader_epoch=tell.epoch
        )
        topic = BeginQuorumEpochRequest.Topic(topic_name=METADATA_TOPIC, partitions=(partition,))
        here = self.address
        endpoints = (
            ()
            if here is None
            else (
                BeginQuorumEpochRequest.LeaderEndpoint(
                    name=self.listener, host=here.host, port=here.port
                ),
            )
        )
        return BeginQuorumEpochRequest(
            cluster_id=self.cluster_id, voter_id=to, topics=(topic,), leader_endpoints=endpoints
        )

    def _end(self, tell: TellEnd) -> EndQuorumEpochRequest:
        candidate = EndQuorumEpochRequest.Topic.Partition.PreferredCandidate
        partition = EndQuorumEpochRequest.Topic.Partition(
            leader_id=self.node_id,
            leader_epoch=tell.epoch,
            preferred_successors=tell.successors,
            preferred_candidates=tuple(
                candidate(candidate_id=voter, candidate_directory_id=NO_UUID)
                for voter in tell.successors
            ),
        )
        topic = EndQuorumEpochRequest.Topic(topic_name=METADATA_TOPIC, partitions=(partition,))
        here = self.address
        endpoints = (
            ()
            if here is None
            else (
                EndQuorumEpochRequest.LeaderEndpoint(
                    name=self.listener, host=here.host, port=here.port
                ),
            )
        )
        return EndQuorumEpochRequest(
            cluster_id=self.cluster_id, topics=(topic,), leader_endpoints=endpoints
        )

    def _fetch(self, ask: AskFetch) -> FetchRequest:
        partition = FetchRequest.Topic.Partition(
            current_leader_epoch=ask.epoch,
            fetch_offset=ask.offset,
            last_fetched_epoch=ask.last_epoch,
            partition_max_bytes=MAX_METADATA_BATCH_BYTES,
            high_watermark=ask.high_watermark,
        )
        return FetchRequest(
            cluster_id=self.cluster_id,
            replica_state=FetchRequest.ReplicaState(replica_id=self.node_id),
            max_wait_ms=int(ask.max_wait_s * 1000),
            max_bytes=METADATA_FETCH_BYTES,
            topics=(
                FetchRequest.Topic(
                    topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=(partition,)
                ),
            ),
        )


def answer_of(request: Request, response: Any) -> Answer:
    """ProtocolError where the response is none to the request."""
    if response.error_code:
        return Answer(_code(response.error_code), NO_LEADER, -1)
    if isinstance(request, AskFetch):
        return _fetch_answer(request, response)
    partition = _only(_only(response.topics).partitions)
    code, leader_id, epoch = (
        _code(partition.error_code),
        partition.leader_id,
        partition.leader_epoch,
    )
    if isinstance(request, AskVote):
        return VoteAnswer(code, leader_id, epoch, partition.vote_granted)
    return Answer(code, leader_id, epoch)


def _fetch_answer(ask: AskFetch, response: FetchResponse) -> FetchAnswer:
    partition = _only(_only(response.responses).partitions)
    leader, diverging, snapshot = (
        partition.current_leader,
        partition.diverging_epoch,
        partition.snapshot_id,
    )
    return FetchAnswer(
        _code(partition.error_code),
        leader.leader_id,
        leader.leader_epoch,
        partition.high_watermark,
        OffsetAndEpoch(diverging.end_offset, diverging.epoch)
        if diverging.epoch >= 0 and diverging.end_offset >= 0
        else None,
        OffsetAndEpoch(snapshot.end_offset, snapshot.epoch)
        if snapshot.end_offset >= 0 and snapshot.epoch >= 0
        else None,
        _whole_batches(ask, partition.records),
    )


def _whole_batches(ask: AskFetch, records: Any) -> bytes:
    """Every offset from the one asked for on, epochs never falling nor above the leader's; a batch
    cut short at the end is left out."""
    data = bytes(records or b"")
    end, offset, epoch = 0, ask.offset, ask.last_epoch
    for position, header in batches(data):
        is_next = header.base_offset == offset and epoch <= header.leader_epoch <= ask.epoch
        if not is_next or not crc_matches(data, position, header):
            raise ProtocolError(
                f"the leader sent a batch at {header.base_offset} of epoch {header.leader_epoch} "
                f"where a sound one at {offset} is due"
            )
        end, offset, epoch = position + header.size, header.next_offset, header.leader_epoch
    return data[:end]


def _only(items: tuple[Any, ...]) -> Any:
    if len(items) != 1:
        raise ProtocolError(
            f"a response of the quorum must tell of one partition, but it tells of {len(items)}"
        )
    return items[0]


def _code(number: int) -> ErrorCode:
    return (
        ErrorCode(number)
        if number in ErrorCode.__members__.values()
        else ErrorCode.UNKNOWN_SERVER_ERROR
    )
