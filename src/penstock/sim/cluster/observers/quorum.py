"""Observes the metadata quorum: votes as they are sent, leaders, and what is committed on which
disks."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from penstock.node.quorum.driver import RaftDriver
from penstock.node.quorum.log import MetadataLog
from penstock.node.quorum.metadata_loader import MetadataLoader
from penstock.node.quorum.peers import Peers
from penstock.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from penstock.raft.messages import (
    AppendLeaderChange,
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
from penstock.records.batch import batches
from penstock.sim.cluster.events import (
    BecameQuorumLeader,
    MetadataBatchCommitted,
    QuorumHighWatermarkAdvanced,
    SnapshotInstalling,
    SnapshotPieceFetched,
    VoteGranted,
)
from penstock.sim.cluster.history import History
from penstock.sim.harness import replaced


class QuorumObserver:
    def __init__(self, history: History, now: Callable[[], float]) -> None:
        self._history = history
        self._now = now
        # The log of each node's current process, or of its last.
        self._logs: dict[int, MetadataLog] = {}
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
                self._history.events.append(VoteGranted(now, node_id, request.epoch, candidate))
            case SendRequest(_to, VoteRequest(epoch=epoch, pre_vote=False)):
                self._history.events.append(VoteGranted(now, node_id, epoch, node_id))
            case AppendLeaderChange(epoch):
                self._history.events.append(BecameQuorumLeader(now, node_id, epoch))
            case InstallSnapshot(snapshot):
                self._history.events.append(SnapshotInstalling(now, node_id, snapshot.offset))
                self._history.count("snapshots installed")
            case _:
                pass

    def _committed(self, driver: RaftDriver, offset: int) -> None:
        raft, log, now = driver.raft, driver.log, self._now()
        if isinstance(raft.state, LeaderState):
            entry_epoch = log.epoch_at(offset - 1)
            replicas = [
                voter for voter in raft.voters if self._has_on_disk(voter, offset, entry_epoch)
            ]
            self._history.events.append(
                QuorumHighWatermarkAdvanced(
                    now,
                    raft.node_id,
                    raft.epoch,
                    offset,
                    entry_epoch,
                    len(replicas),
                    len(raft.voters),
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

    def _has_on_disk(self, voter: int, offset: int, epoch: int) -> bool:
        log = self._logs.get(voter)
        return (
            log is not None
            and log._log.flushing.recovery_point >= offset
            and log.epoch_at(offset - 1) == epoch
        )
