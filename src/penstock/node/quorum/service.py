"""Answers the requests of other nodes to this node's quorum, for the handlers of the controller's
listener. Each method returns the response, or an awaitable of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from penstock.config.quorum import Address
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import METADATA_TOPIC
from penstock.node.quorum.driver import RaftDriver
from penstock.node.quorum.server_rpc import (
    DecodedRequest,
    Refused,
    RequestDecoder,
    ResponseEncoder,
    is_metadata_partition,
)
from penstock.node.quorum.snapshots import MetadataSnapshots
from penstock.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from penstock.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from penstock.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from penstock.protocol.messages.end_quorum_epoch import (
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
)
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from penstock.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from penstock.protocol.messages.update_raft_voter import (
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)
from penstock.protocol.messages.vote import VoteRequest, VoteResponse
from penstock.raft.messages import (
    NO_LEADER,
    SnapshotPieceServed,
    UpgradeKRaftVersionRequest,
    VoterChangeResponse,
)
from penstock.raft.states import LeaderState, ReplicaState
from penstock.raft.voters import ReplicaKey
from penstock.world import Clock

_Partition = DescribeQuorumResponse.Topic.Partition


class QuorumService:
    """`addresses` are those of the nodes of the quorum, `listener_name` is the controllers'.
    `on_leader` is called with the endpoints of a leader that announces itself."""

    def __init__(
        self,
        clock: Clock,
        driver: RaftDriver,
        snapshots: MetadataSnapshots,
        cluster_id: str,
        listener_name: str,
        addresses: Mapping[int, Address],
        on_leader: Callable[[int, Sequence[Any]], None],
    ) -> None:
        self._on_leader = on_leader
        self._clock = clock
        self._driver = driver
        self._snapshots = snapshots
        self._listener_name = listener_name
        self._addresses = addresses
        self._decoder = RequestDecoder(driver.raft.node_id, cluster_id, listener_name)
        self._encoder = ResponseEncoder(addresses)

    def vote(self, request: VoteRequest) -> VoteResponse | Awaitable[VoteResponse]:
        decoded = self._decoder.vote(request)
        if isinstance(decoded, ErrorCode):
            return VoteResponse(error_code=decoded)
        return self._vote(decoded)

    async def _vote(self, decoded: DecodedRequest) -> VoteResponse:
        return self._encoder.vote(await self._driver.handle_request(*decoded))

    def begin_quorum_epoch(
        self, request: BeginQuorumEpochRequest
    ) -> BeginQuorumEpochResponse | Awaitable[BeginQuorumEpochResponse]:
        decoded = self._decoder.begin_quorum_epoch(request)
        if isinstance(decoded, ErrorCode):
            return BeginQuorumEpochResponse(error_code=decoded)
        if request.topics[0].partitions[0].leader_epoch >= self._driver.raft.epoch:
            self._on_leader(decoded.sender, request.leader_endpoints)
        return self._begin_quorum_epoch(decoded)

    async def _begin_quorum_epoch(self, decoded: DecodedRequest) -> BeginQuorumEpochResponse:
        return self._encoder.begin_quorum_epoch(await self._driver.handle_request(*decoded))

    def end_quorum_epoch(
        self, request: EndQuorumEpochRequest
    ) -> EndQuorumEpochResponse | Awaitable[EndQuorumEpochResponse]:
        decoded = self._decoder.end_quorum_epoch(request)
        if isinstance(decoded, ErrorCode):
            return EndQuorumEpochResponse(error_code=decoded)
        return self._end_quorum_epoch(decoded)

    async def _end_quorum_epoch(self, decoded: DecodedRequest) -> EndQuorumEpochResponse:
        return self._encoder.end_quorum_epoch(await self._driver.handle_request(*decoded))

    def fetch(self, request: FetchRequest) -> FetchResponse | Awaitable[FetchResponse]:
        decoded = self._decoder.fetch(request)
        if isinstance(decoded, ErrorCode):
            return FetchResponse(error_code=decoded)
        return self._fetch(decoded)

    async def _fetch(self, decoded: DecodedRequest) -> FetchResponse:
        response = await self._driver.handle_request(*decoded)
        return self._encoder.fetch(response, self._driver.log.start_offset)

    async def fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        raft = self._driver.raft
        epoch = raft.epoch
        response = await self._snapshots.serve(
            request, raft.leader_id_or_sentinel, epoch, raft.validate_leader_epoch
        )
        if any(len(piece.unaligned_records) for piece in _pieces(response)):
            directory_id = request.topics[0].partitions[0].replica_directory_id
            self._driver.deliver(SnapshotPieceServed(request.replica_id, epoch, directory_id))
        return response

    # Changes of the voters

    async def add_raft_voter(self, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
        changed = await self._change(self._decoder.add_voter(request))
        return AddRaftVoterResponse(error_code=changed.error, error_message=changed.message)

    async def remove_raft_voter(self, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
        changed = await self._change(self._decoder.remove_voter(request))
        return RemoveRaftVoterResponse(error_code=changed.error, error_message=changed.message)

    async def update_raft_voter(self, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
        changed = await self._change(self._decoder.update_voter(request))
        raft = self._driver.raft
        leader_id = raft.leader_id_or_sentinel
        address = self._addresses.get(leader_id) if leader_id != NO_LEADER else None
        return UpdateRaftVoterResponse(
            error_code=changed.error,
            current_leader=UpdateRaftVoterResponse.CurrentLeader(
                leader_id=leader_id,
                leader_epoch=raft.epoch,
                host="" if address is None else address.host,
                port=0 if address is None else address.port,
            ),
        )

    async def _change(self, decoded: DecodedRequest | Refused) -> Refused:
        """Return the error of a change, NONE if it is committed."""
        if isinstance(decoded, Refused):
            return decoded
        response = await self._driver.handle_request(*decoded)
        message = response.message if isinstance(response, VoterChangeResponse) else None
        return Refused(response.error, message)

    async def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> None:
        """Raise kraft.version as the leader. Raises KafkaError, mostly INVALID_UPDATE_VERSION."""
        request = UpgradeKRaftVersionRequest(level, validate_only)
        changed = await self._change(DecodedRequest(-1, request))
        if changed.error is not ErrorCode.NONE:
            raise KafkaError(changed.error, changed.message or changed.error.name)

    # DescribeQuorum

    def describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        """Only the leader knows the progress of the replicas; other nodes return an error."""
        if not is_metadata_partition(request.topics):
            return _description(_Partition(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        raft = self._driver.raft
        state = raft.state
        if not isinstance(state, LeaderState):
            return _description(
                _Partition(
                    error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    error_message=f"node {raft.node_id} is not the leader of the quorum",
                    leader_id=raft.leader_id_or_sentinel,
                    leader_epoch=raft.epoch,
                )
            )
        return _description(self._partition(state), self._voter_nodes())

    def _partition(self, state: LeaderState) -> _Partition:
        raft = self._driver.raft
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()

        def timestamp(monotonic: float) -> int:
            """Convert a time of the monotonic clock to wall clock milliseconds."""
            return -1 if monotonic < 0 else now_ms - int((now - monotonic) * 1000)

        own = _Partition.Replica(
            replica_id=raft.node_id,
            replica_directory_id=state.voter_set.directory_id(raft.node_id),
            log_end_offset=self._driver.log.end.offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        voters = [
            own if voter.id == raft.node_id else _replica(voter.key, replica, timestamp)
            for voter in state.voter_set.voters
            for replica in [state.voters.get(voter.id, ReplicaState())]
        ]
        if raft.node_id not in state.voter_set.ids:
            voters.append(own)  # it removes itself, and leads until that is committed
        observers = [
            _replica(observer, replica, timestamp)
            for observer, replica in sorted(state.observers.items())
        ]
        return _Partition(
            leader_id=raft.node_id,
            leader_epoch=raft.epoch,
            high_watermark=raft.high_watermark,
            current_voters=tuple(voters),
            observers=tuple(observers),
        )

    def _voter_nodes(self) -> tuple[DescribeQuorumResponse.Node, ...]:
        nodes = []
        for voter in self._driver.raft.voters:
            known = self._driver.raft.voter_set.get(voter)
            if known is not None and known.endpoints:
                listeners = tuple(
                    DescribeQuorumResponse.Node.Listener(
                        name=endpoint.name, host=endpoint.host, port=endpoint.port
                    )
                    for endpoint in known.endpoints
                )
                nodes.append(DescribeQuorumResponse.Node(node_id=voter, listeners=listeners))
            elif voter in self._addresses:
                address = self._addresses[voter]
                listener = DescribeQuorumResponse.Node.Listener(
                    name=self._listener_name, host=address.host, port=address.port
                )
                nodes.append(DescribeQuorumResponse.Node(node_id=voter, listeners=(listener,)))
        return tuple(nodes)


def _pieces(response: FetchSnapshotResponse) -> list[FetchSnapshotResponse.Topic.Partition]:
    return [partition for topic in response.topics for partition in topic.partitions]


def _replica(
    key: ReplicaKey, replica: ReplicaState, timestamp: Callable[[float], int]
) -> _Partition.Replica:
    return _Partition.Replica(
        replica_id=key.id,
        replica_directory_id=key.directory_id,
        log_end_offset=replica.end_offset,
        last_fetch_timestamp=timestamp(replica.last_fetch_at),
        last_caught_up_timestamp=timestamp(replica.last_caught_up_at),
    )


def _description(
    partition: _Partition, nodes: tuple[DescribeQuorumResponse.Node, ...] = ()
) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=(DescribeQuorumResponse.Topic(topic_name=METADATA_TOPIC, partitions=(partition,)),),
        nodes=nodes,
    )
