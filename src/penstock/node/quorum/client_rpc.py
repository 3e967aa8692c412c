"""The client side of the quorum's RPCs: encodes requests of the state machine as Kafka's messages,
and decodes their responses. PURE translation.

The directory ids of static voters (kraft.version 0) are unknown, and not set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from penstock.errors import ErrorCode, ProtocolError
from penstock.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from penstock.limits import MAX_METADATA_BATCH_BYTES, METADATA_FETCH_BYTES
from penstock.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from penstock.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from penstock.protocol.messages.end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
)
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from penstock.protocol.messages.update_raft_voter import (
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from penstock.protocol.messages.vote import VoteRequest, VoteResponse
from penstock.raft import messages as raft
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.voters import Voter, VoterSet
from penstock.records.batch import batches, crc_matches


class Replica(Protocol):
    """The part of `Raft` that says who this node and the voters are."""

    @property
    def local(self) -> Voter: ...

    @property
    def voter_set(self) -> VoterSet: ...


@dataclass(frozen=True, slots=True)
class RequestEncoder:
    """Encodes requests that this node sends."""

    cluster_id: str
    replica: Replica
    timeout_ms: int = 2_000

    @property
    def node_id(self) -> int:
        return self.replica.local.id

    def encode(self, destination: int, request: raft.Request) -> tuple[object, type[Any]]:
        """Return the message and the class of its response."""
        match request:
            case raft.VoteRequest():
                return self._vote(destination, request), VoteResponse
            case raft.BeginQuorumEpochRequest():
                return self._begin_quorum_epoch(destination, request), BeginQuorumEpochResponse
            case raft.EndQuorumEpochRequest():
                return self._end_quorum_epoch(request), EndQuorumEpochResponse
            case raft.FetchRequest():
                return self._fetch(request), FetchResponse
            case raft.AddVoterRequest():
                return self._add_voter(request), AddRaftVoterResponse
            case raft.RemoveVoterRequest():
                return self._remove_voter(request), RemoveRaftVoterResponse
            case raft.UpdateVoterRequest():
                return self._update_voter(request), UpdateRaftVoterResponse
            case raft.UpgradeKRaftVersionRequest():
                raise AssertionError("the leader gets it from its own controller")

    def _vote(self, destination: int, request: raft.VoteRequest) -> VoteRequest:
        partition = VoteRequest.Topic.Partition(
            replica_epoch=request.epoch,
            replica_id=self.node_id,
            last_offset_epoch=request.end.epoch,
            last_offset=request.end.offset,
            pre_vote=request.pre_vote,
            replica_directory_id=request.directory_id,
            voter_directory_id=request.voter_directory_id,
        )
        topic = VoteRequest.Topic(topic_name=METADATA_TOPIC, partitions=(partition,))
        return VoteRequest(cluster_id=self.cluster_id, voter_id=destination, topics=(topic,))

    def _begin_quorum_epoch(
        self, destination: int, request: raft.BeginQuorumEpochRequest
    ) -> BeginQuorumEpochRequest:
        partition = BeginQuorumEpochRequest.Topic.Partition(
            leader_id=self.node_id,
            leader_epoch=request.epoch,
            voter_directory_id=request.voter_directory_id,
        )
        topic = BeginQuorumEpochRequest.Topic(topic_name=METADATA_TOPIC, partitions=(partition,))
        return BeginQuorumEpochRequest(
            cluster_id=self.cluster_id,
            voter_id=destination,
            topics=(topic,),
            leader_endpoints=self._leader_endpoints(BeginQuorumEpochRequest),
        )

    def _end_quorum_epoch(self, request: raft.EndQuorumEpochRequest) -> EndQuorumEpochRequest:
        candidate = EndQuorumEpochRequest.Topic.Partition.PreferredCandidate
        partition = EndQuorumEpochRequest.Topic.Partition(
            leader_id=self.node_id,
            leader_epoch=request.epoch,
            preferred_successors=request.successors,
            preferred_candidates=tuple(
                candidate(
                    candidate_id=voter,
                    candidate_directory_id=self.replica.voter_set.directory_id(voter),
                )
                for voter in request.successors
            ),
        )
        topic = EndQuorumEpochRequest.Topic(topic_name=METADATA_TOPIC, partitions=(partition,))
        return EndQuorumEpochRequest(
            cluster_id=self.cluster_id,
            topics=(topic,),
            leader_endpoints=self._leader_endpoints(EndQuorumEpochRequest),
        )

    def _leader_endpoints(self, message: Any) -> tuple[Any, ...]:
        return tuple(
            message.LeaderEndpoint(name=endpoint.name, host=endpoint.host, port=endpoint.port)
            for endpoint in self.replica.local.endpoints
        )

    def _fetch(self, request: raft.FetchRequest) -> FetchRequest:
        partition = FetchRequest.Topic.Partition(
            current_leader_epoch=request.epoch,
            fetch_offset=request.offset,
            last_fetched_epoch=request.last_fetched_epoch,
            partition_max_bytes=MAX_METADATA_BATCH_BYTES,
            replica_directory_id=request.directory_id,
            high_watermark=request.high_watermark,
        )
        return FetchRequest(
            cluster_id=self.cluster_id,
            replica_state=FetchRequest.ReplicaState(replica_id=self.node_id),
            max_wait_ms=int(request.max_wait_s * 1000),
            max_bytes=METADATA_FETCH_BYTES,
            topics=(
                FetchRequest.Topic(
                    topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=(partition,)
                ),
            ),
        )

    def _add_voter(self, request: raft.AddVoterRequest) -> AddRaftVoterRequest:
        voter = request.voter
        return AddRaftVoterRequest(
            cluster_id=self.cluster_id,
            timeout_ms=self.timeout_ms,
            voter_id=voter.id,
            voter_directory_id=voter.directory_id,
            listeners=tuple(
                AddRaftVoterRequest.Listener(name=each.name, host=each.host, port=each.port)
                for each in voter.endpoints
            ),
            ack_when_committed=request.ack_when_committed,
        )

    def _remove_voter(self, request: raft.RemoveVoterRequest) -> RemoveRaftVoterRequest:
        return RemoveRaftVoterRequest(
            cluster_id=self.cluster_id,
            voter_id=request.key.id,
            voter_directory_id=request.key.directory_id,
        )

    def _update_voter(self, request: raft.UpdateVoterRequest) -> UpdateRaftVoterRequest:
        voter = request.voter
        return UpdateRaftVoterRequest(
            cluster_id=self.cluster_id,
            current_leader_epoch=request.epoch,
            voter_id=voter.id,
            voter_directory_id=voter.directory_id,
            listeners=tuple(
                UpdateRaftVoterRequest.Listener(name=each.name, host=each.host, port=each.port)
                for each in voter.endpoints
            ),
            k_raft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
                min_supported_version=voter.min_version, max_supported_version=voter.max_version
            ),
        )


def decode_response(request: raft.Request, response: Any) -> raft.Response:
    """Raises ProtocolError if the response does not match the request."""
    if response.error_code:
        return raft.Response(_error_code(response.error_code), raft.NO_LEADER, -1)
    if isinstance(
        request, raft.AddVoterRequest | raft.RemoveVoterRequest | raft.UpdateVoterRequest
    ):
        return raft.Response(ErrorCode.NONE, raft.NO_LEADER, -1)
    if isinstance(request, raft.FetchRequest):
        return _decode_fetch(request, response)
    partition = _single(_single(response.topics).partitions)
    error = _error_code(partition.error_code)
    leader_id, epoch = partition.leader_id, partition.leader_epoch
    if isinstance(request, raft.VoteRequest):
        return raft.VoteResponse(error, leader_id, epoch, partition.vote_granted)
    return raft.Response(error, leader_id, epoch)


def _decode_fetch(request: raft.FetchRequest, response: FetchResponse) -> raft.FetchResponse:
    partition = _single(_single(response.responses).partitions)
    leader = partition.current_leader
    diverging, snapshot = partition.diverging_epoch, partition.snapshot_id
    return raft.FetchResponse(
        _error_code(partition.error_code),
        leader.leader_id,
        leader.leader_epoch,
        partition.high_watermark,
        _offset_and_epoch(diverging.end_offset, diverging.epoch),
        _offset_and_epoch(snapshot.end_offset, snapshot.epoch),
        _validated_batches(request, partition.records),
    )


def _offset_and_epoch(offset: int, epoch: int) -> OffsetAndEpoch | None:
    return OffsetAndEpoch(offset, epoch) if offset >= 0 and epoch >= 0 else None


def _validated_batches(request: raft.FetchRequest, records: Any) -> bytes:
    """Return the complete batches, without a truncated one at the end.

    Raises ProtocolError unless offsets continue at the fetch offset without a gap, and epochs never
    decrease nor exceed the leader's.
    """
    data = bytes(records or b"")
    end, offset, epoch = 0, request.offset, request.last_fetched_epoch
    for position, header in batches(data):
        is_next = header.base_offset == offset and epoch <= header.leader_epoch <= request.epoch
        if not is_next or not crc_matches(data, position, header):
            raise ProtocolError(
                f"the leader sent a batch at offset {header.base_offset} of epoch "
                f"{header.leader_epoch} where a valid one at offset {offset} is expected"
            )
        end, offset, epoch = position + header.size, header.next_offset, header.leader_epoch
    return data[:end]


def _single(items: tuple[Any, ...]) -> Any:
    if len(items) != 1:
        raise ProtocolError(
            f"a response of the quorum must have one partition, but it has {len(items)}"
        )
    return items[0]


def _error_code(number: int) -> ErrorCode:
    return (
        ErrorCode(number)
        if number in ErrorCode.__members__.values()
        else ErrorCode.UNKNOWN_SERVER_ERROR
    )
