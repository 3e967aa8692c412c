"""Observes the metadata quorum: votes as they are sent, leaders, and what is committed on which
disks."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from penstock.ids import NO_UUID
from penstock.node.quorum.driver import RaftDriver
from penstock.node.quorum.log import MetadataLog
from penstock.node.quorum.metadata_loader import MetadataLoader
from penstock.node.quorum.peers import Peers
from penstock.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from penstock.raft.messages import (
    AppendLeaderChange,
    AppendVoters,
    Commit,
    Effect,
    Event,
    InstallSnapshot,
    RequestReceived,
    SendRequest,
    SendResponse,
    VoteRequest,
    VoteResponse,
)
from penstock.raft.states import LeaderState
from penstock.raft.voters import ReplicaKey, Voter, VoterSet
from penstock.records.batch import batches
from penstock.sim.cluster.events import (
    BecameQuorumLeader,
    MetadataBatchCommitted,
    QuorumHighWatermarkAdvanced,
    SnapshotInstalling,
    SnapshotPieceFetched,
    VoteGranted,
    VotersAppended,
)
from penstock.sim.cluster.history import History
from penstock.sim.harness import replaced


class QuorumObserver:
    def __init__(self, history: History, now: Callable[[], float]) -> None:
        self._history = history
        self._now = now
        # The log of each node's current process, or of its last.
        self._logs: dict[int, MetadataLog] = {}
        # The same by directory id too: what a voter acknowledged before its directory was emptied
        # counts.
        self._logs_of_keys: dict[ReplicaKey, MetadataLog] = {}
        self._vote_requests: dict[Any, tuple[int, VoteRequest]] = {}
        self._committed_up_to: dict[RaftDriver, int] = {}

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """Observe until the block ends."""
        with (
            replaced(RaftDriver, "start", self._on_start),
            replaced(RaftDriver, "deliver", self._on_event),
            replaced(RaftDriver, "_carry_out", self._on_effect),
            replaced(MetadataLoader, "_next_records", self._on_apply),
            replaced(Peers, "fetch", self._on_fetch),
        ):
            yield

    def _on_start(self, start: Callable[..., None]) -> Callable[..., None]:
        def observed(driver: RaftDriver) -> None:
            self._logs[driver.raft.node_id] = driver.log
            self._logs_of_keys[driver.raft.local.key] = driver.log
            start(driver)

        return observed

    def _on_event(self, deliver: Callable[..., None]) -> Callable[..., None]:
        def observed(driver: RaftDriver, event: Event) -> None:
            if (
                isinstance(event, RequestReceived)
                and isinstance(event.request, VoteRequest)
                and not event.request.pre_vote
            ):
                self._vote_requests[event.reply_to] = (event.sender, event.request)
            deliver(driver, event)

        return observed

    def _on_effect(self, carry_out: Callable[..., Any]) -> Callable[..., Any]:
        def observed(driver: RaftDriver, effect: Effect) -> Any:
            self._on_message(driver, effect)
            result = carry_out(driver, effect)
            if isinstance(effect, Commit):
                self._committed(driver, effect.high_watermark)
            return result

        return observed

    def _on_message(self, driver: RaftDriver, effect: Effect) -> None:
        node_id, now = driver.raft.node_id, self._now()
        match effect:
            case SendResponse(reply_to, VoteResponse(granted=True)) if (
                reply_to in self._vote_requests
            ):
                candidate, request = self._vote_requests.pop(reply_to)
                own = driver.raft.local.directory_id
                is_addressed = request.voter_directory_id in (NO_UUID, own)
                self._history.events.append(
                    VoteGranted(now, node_id, request.epoch, candidate, str(own), is_addressed)
                )
            case SendRequest(_to, VoteRequest(epoch=epoch, pre_vote=False)):
                own = driver.raft.local.directory_id
                self._history.events.append(VoteGranted(now, node_id, epoch, node_id, str(own)))
            case AppendLeaderChange(epoch, granting):
                newest = driver.log.voter_sets.latest.voters.ids
                granted = len([voter for voter in newest if voter in granting])
                self._history.events.append(
                    BecameQuorumLeader(now, node_id, epoch, granted, len(newest))
                )
            case AppendVoters():
                self._voters_appended(driver, effect)
            case InstallSnapshot(snapshot):
                self._history.events.append(SnapshotInstalling(now, node_id, snapshot.offset))
                self._history.count("snapshots installed")
            case _:
                pass

    def _voters_appended(self, driver: RaftDriver, effect: AppendVoters) -> None:
        raft, latest = driver.raft, driver.log.voter_sets.latest
        state = raft.state
        # A leader that resigns in the same step still writes them.
        start = state.epoch_start_offset if isinstance(state, LeaderState) else -1
        self._history.events.append(
            VotersAppended(
                self._now(),
                raft.node_id,
                raft.epoch,
                _keys(effect.voters),
                _keys(latest.voters) if effect.kraft_version is None else _keys(effect.voters),
                raft.high_watermark > start,
                latest.offset < raft.high_watermark,
            )
        )
        self._history.count("changes of voters")

    def _committed(self, driver: RaftDriver, offset: int) -> None:
        raft, log, now = driver.raft, driver.log, self._now()
        if isinstance(raft.state, LeaderState):
            entry_epoch = log.epoch_at(offset - 1)
            # Records below new voters may be committed by the voters before them, or by the new.
            counts = [
                (self._replicas(voters, offset, entry_epoch), len(voters.ids))
                for voters in (log.voter_sets.before(offset).voters, log.voter_sets.latest.voters)
            ]
            replicas, voter_count = max(counts, key=lambda count: count[0] / max(count[1], 1))
            self._history.events.append(
                QuorumHighWatermarkAdvanced(
                    now,
                    raft.node_id,
                    raft.epoch,
                    offset,
                    entry_epoch,
                    replicas,
                    voter_count,
                )
            )
        position = max(self._committed_up_to.get(driver, 0), log.start_offset)
        while position < offset:
            data = log.read(position, below=offset)
            if not data:
                break
            for at, header in batches(data):
                checksum = zlib.crc32(data[at : at + header.size])
                self._history.events.append(
                    MetadataBatchCommitted(now, raft.node_id, header.base_offset, checksum)
                )
                position = header.next_offset
        self._committed_up_to[driver] = position

    def _on_apply(self, next_records: Callable[..., Any]) -> Callable[..., Any]:
        """What a node applies to its image must be committed too."""

        def observed(loader: MetadataLoader, high_watermark: int) -> Any:
            first, log = loader.end_offset, loader._log
            result = next_records(loader, high_watermark)
            node_id = next((node for node, known in self._logs.items() if known is log), -1)
            position = first
            while position <= result[1]:
                data = log.read(position, below=result[1] + 1)
                if not data:
                    break
                for at, header in batches(data):
                    checksum = zlib.crc32(data[at : at + header.size])
                    self._history.events.append(
                        MetadataBatchCommitted(self._now(), node_id, header.base_offset, checksum)
                    )
                    position = header.next_offset
            return result

        return observed

    def _on_fetch(self, fetch: Callable[..., Any]) -> Callable[..., Any]:
        async def observed(
            peers: Peers, destination: int, request: Any, *args: Any, **kwargs: Any
        ) -> Any:
            response = await fetch(peers, destination, request, *args, **kwargs)
            if isinstance(request, FetchSnapshotRequest):
                position = request.topics[0].partitions[0].position
                self._history.events.append(
                    SnapshotPieceFetched(self._now(), request.replica_id, position)
                )
                self._history.count("pieces of snapshots")
            return response

        return observed

    def _replicas(self, voters: VoterSet, offset: int, epoch: int) -> int:
        return sum(self._has_on_disk(voter, offset, epoch) for voter in voters.voters)

    def _has_on_disk(self, voter: Voter, offset: int, epoch: int) -> bool:
        is_static = voter.directory_id == NO_UUID
        log = self._logs.get(voter.id) if is_static else self._logs_of_keys.get(voter.key)
        return (
            log is not None
            and log._log.flushing.recovery_point >= offset
            and log.epoch_at(offset - 1) == epoch
        )


def _keys(voters: VoterSet) -> frozenset[tuple[int, str]]:
    return frozenset((voter.id, str(voter.directory_id)) for voter in voters.voters)
