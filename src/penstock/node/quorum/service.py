"""What other nodes ask of this one's quorum: votes, epochs, fetches, snapshots, and how it is. The
handlers of the controller's listener call it; each method gives the response, or an awaitable of
it."""

from __future__ import annotations

from collections.abc import Awaitable

from penstock.config.quorum import Address
from penstock.node.quorum.driver import Driver
from penstock.node.quorum.log import QuorumLog
from penstock.node.quorum.responses import Listener, Refused, Said
from penstock.node.quorum.snapshots import QuorumSnapshots
from penstock.node.quorum.view import describe
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
from penstock.protocol.messages.vote import VoteRequest, VoteResponse
from penstock.raft.leading import fetch_error
from penstock.raft.machine import Raft
from penstock.world import World


class QuorumService:
    """The part of `Quorum` that answers."""

    node_id: int
    cluster_id: str
    _world: World
    _listener_name: str
    _raft: Raft
    _driver: Driver
    _log: QuorumLog
    _snapshots: QuorumSnapshots
    _addresses: dict[int, Address]

    @property
    def _listener(self) -> Listener:
        return Listener(self.node_id, self.cluster_id, self._addresses)

    def vote(self, request: VoteRequest) -> VoteResponse | Awaitable[VoteResponse]:
        said = self._listener.vote_asked(request)
        return (
            VoteResponse(error_code=said.error) if isinstance(said, Refused) else self._vote(said)
        )

    async def _vote(self, said: Said) -> VoteResponse:
        return self._listener.vote_response((await self._driver.ask(*said)).answer)

    def begin_quorum_epoch(
        self, request: BeginQuorumEpochRequest
    ) -> BeginQuorumEpochResponse | Awaitable[BeginQuorumEpochResponse]:
        said = self._listener.begin_told(request)
        return (
            BeginQuorumEpochResponse(error_code=said.error)
            if isinstance(said, Refused)
            else self._begin(said)
        )

    async def _begin(self, said: Said) -> BeginQuorumEpochResponse:
        return self._listener.begin_response((await self._driver.ask(*said)).answer)

    def end_quorum_epoch(
        self, request: EndQuorumEpochRequest
    ) -> EndQuorumEpochResponse | Awaitable[EndQuorumEpochResponse]:
        said = self._listener.end_told(request)
        return (
            EndQuorumEpochResponse(error_code=said.error)
            if isinstance(said, Refused)
            else self._end(said)
        )

    async def _end(self, said: Said) -> EndQuorumEpochResponse:
        return self._listener.end_response((await self._driver.ask(*said)).answer)

    def fetch(
        self, request: FetchRequest, _context: object = None
    ) -> FetchResponse | Awaitable[FetchResponse]:
        said = self._listener.fetch_asked(request)
        return (
            FetchResponse(error_code=said.error) if isinstance(said, Refused) else self._fetch(said)
        )

    async def _fetch(self, said: Said) -> FetchResponse:
        answer, records = await self._driver.ask(*said)
        return self._listener.fetch_response(answer, records, self._log.start_offset)

    def fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        raft = self._raft
        return self._snapshots.give(
            request, raft.known_leader, raft.epoch, lambda epoch: fetch_error(raft, epoch)
        )

    def describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        clock = self._world.clock
        return describe(
            request,
            self._raft,
            clock.monotonic(),
            clock.now_ms(),
            self._listener_name,
            self._addresses,
        )
