"""The metadata quorum as the rest of a node sees it: the committed image, and appends to the log.

Every node has one `Quorum`, as a voter or as an observer. The active controller decides on
`pending`; everything else reads `image`.

    Quorum            lifecycle, leadership, appends
      RaftDriver      carries out the effects of `raft.machine.Raft`
      MetadataLog     the log on disk, with its SnapshotStore
      QuorumStateStore  the quorum-state file: epoch and vote
      MetadataLoader  replays the log into images and publishes them
      MetadataSnapshots  generates, serves and installs snapshots
      SnapshotDownloads  fetches snapshots from the leader
      Peers           connections to the other nodes
      QuorumService   answers the requests of the other nodes
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from penstock.client.errors import ConnectionFailed
from penstock.config import cluster_settings as settings
from penstock.config.node import NodeConfig
from penstock.config.quorum import Address
from penstock.limits import MAX_QUORUM_ADDRESSES
from penstock.log.directory import LogDirectory
from penstock.metadata.image import MetadataImage
from penstock.node.quorum.client_rpc import RequestEncoder
from penstock.node.quorum.driver import Callbacks, RaftDriver, Spawn
from penstock.node.quorum.log import MetadataLog, MetadataLogConfig, metadata_log_path
from penstock.node.quorum.metadata_loader import MetadataLoader, Publisher, not_controller
from penstock.node.quorum.peers import Peers
from penstock.node.quorum.quorum_state_store import QuorumStateStore, is_own_quorum
from penstock.node.quorum.service import QuorumService
from penstock.node.quorum.snapshot_download import SnapshotDownloads
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
from penstock.raft.machine import Raft
from penstock.raft.messages import FetchSnapshot
from penstock.raft.states import LeaderState, Timing
from penstock.raft.voters import LATEST_KRAFT_VERSION, Endpoint, ReplicaKey, Voter, VoterSet
from penstock.world import World

# How often the node checks whether a snapshot is due, whether old ones are to be deleted (as in
# Kafka), and how often it saves the committed offset.
SNAPSHOT_CHECK_S = 1.0
RETENTION_CHECK_S = 60.0
SAVE_COMMITTED_S = 5.0
# The pause between two parts of a long image; 0 only yields to the event loop. Simulated runs set
# it, because there a turn of the event loop takes no time.
PUBLISH_PAUSE_S = 0.0


class Quorum:
    """Call `open`, start the listeners, then `start`; finally `stop`.

    `on_applied` is called with every committed image, in order, and returns the steps by which the
    node applies it. `on_leadership` is called with the epoch when this node becomes the active
    controller, and with None when it no longer is. `host_name` is where other nodes find a
    listener with a wildcard host.
    """

    # Called with the records that the active controller appends.
    on_append: Callable[[tuple[object, ...]], None] = staticmethod(lambda _records: None)

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        cluster_id: str,
        directory: LogDirectory,
        *,
        on_applied: Publisher,
        on_leadership: Callable[[int | None], None],
        spawn: Spawn,
        host_name: str = "localhost",
    ) -> None:
        self.node_id = config.node_id
        self.cluster_id = cluster_id
        # Listener name -> bound port. The node sets it once it listens: port 0 in the settings
        # binds a free one.
        self.ports: dict[str, int] = {}
        self._world = world
        self._config = config
        self._directory = directory
        self._host_name = host_name
        self._on_leadership = on_leadership
        self._spawn = spawn
        self._addresses: dict[int, Address] = {
            voter.node_id: voter.address for voter in config.voters
        }
        # Bootstrap servers have negative ids, as in Kafka.
        self._addresses |= {
            -2 - index: address for index, address in enumerate(config.bootstrap_servers)
        }
        names = config.controller_listener_names
        self._listener_name = names[0] if names else ""
        static = tuple(voter.node_id for voter in config.voters)
        path = metadata_log_path(directory.path)
        if not static and config.is_controller and is_own_quorum(world.disk, path, self.node_id):
            static = (self.node_id,)
        self._log = MetadataLog(world, directory, MetadataLogConfig.of(config), static)
        # The voters whose addresses are in `_addresses`.
        self._known_voters: VoterSet | None = None
        self._loader = MetadataLoader(self._log, on_applied)
        timeout_s = config[settings.QUORUM_REQUEST_TIMEOUT_MS] / 1000
        self._peers = Peers(world, f"quorum-{self.node_id}", timeout_s, self._addresses.get)
        self._snapshots = MetadataSnapshots(world, self._log, self._loader, cluster_id)
        self._local = Voter(self.node_id, directory.id, max_version=LATEST_KRAFT_VERSION)
        self._downloads = SnapshotDownloads(self._log, self._peers, self._local.key, cluster_id)
        # Made by `open`, which reads the state on disk first.
        self._raft: Raft
        self._driver: RaftDriver
        self._service: QuorumService
        self._active_epoch: int | None = None
        self._is_publishing = False
        self._committed_offset = 0
        self._is_stopping = False
        # Held while maintenance writes: one writer per file at a time.
        self._maintaining = asyncio.Lock()
        self._changed = asyncio.Event()

    # State

    @property
    def image(self) -> MetadataImage:
        """The committed image."""
        return self._loader.image

    @property
    def applied_offset(self) -> int:
        """The offset up to which the node has applied the image."""
        return self._loader.applied_offset

    @property
    def pending(self) -> MetadataImage:
        """The image with uncommitted records, on which the active controller decides."""
        return self._loader.pending

    @property
    def leader_id(self) -> int | None:
        return self._raft.leader_id

    @property
    def epoch(self) -> int:
        return self._raft.epoch

    @property
    def is_leader(self) -> bool:
        """True if this node is the active controller: the leader, with everything before its epoch
        committed and applied."""
        return (
            self._active_epoch is not None
            and isinstance(self._raft.state, LeaderState)
            and self._raft.epoch == self._active_epoch
        )

    @property
    def kraft_version(self) -> int:
        """1 if the voters are in the log (KIP-853), 0 if they are those of the configuration."""
        return self._raft.kraft_version

    @property
    def voter_set(self) -> VoterSet:
        return self._raft.voter_set

    @property
    def high_watermark(self) -> int:
        return self._raft.high_watermark

    @property
    def committed_offset(self) -> int:
        """The offset up to which the log is committed on this disk and may be applied.

        It is that of the last `Commit` effect. The high watermark of the state machine may be
        ahead of the log: the effects of its last step may not be carried out yet.
        """
        return self._committed_offset

    @property
    def log_end_offset(self) -> int:
        """The end of the log on this disk; 0 until the log is open."""
        return self._log.end.offset if self._log.is_open else 0

    @property
    def voter_progress(self) -> list[tuple[int, int, float]]:
        """The id, log end offset and last fetch (monotonic seconds) of each other voter as the
        leader knows them; empty on other nodes."""
        state = self._raft.state
        if not isinstance(state, LeaderState):
            return []
        return [
            (voter, replica.end_offset, replica.last_fetch_at)
            for voter, replica in state.voters.items()
        ]

    @property
    def lost_nodes(self) -> dict[int, float]:
        """Nodes of the quorum that are disconnected, and since when (monotonic seconds)."""
        return self._peers.disconnected

    def voter_address(self, node_id: int) -> Address:
        """Raises ConnectionFailed if the address is not known yet."""
        if node_id in self._addresses:
            return self._addresses[node_id]
        endpoints = self.own_endpoints() if node_id == self.node_id else ()
        if not endpoints:
            raise ConnectionFailed(f"the address of controller {node_id} is unknown")
        return Address(endpoints[0].host, endpoints[0].port)

    def voters(self) -> list[tuple[int, Address]]:
        """Return the id and the address of each voter whose address is known."""
        return [
            (voter, self.voter_address(voter))
            for voter in self._raft.voters
            if voter in self._addresses or voter == self.node_id
        ]

    def own_endpoints(self) -> tuple[Endpoint, ...]:
        """Return where other nodes find the listeners of this controller; none if it is a broker
        alone. A static voter has the address of controller.quorum.voters."""
        advertised = {each.name: each for each in self._config.advertised_listeners}
        static = {voter.node_id: voter.address for voter in self._config.voters}.get(self.node_id)
        endpoints = []
        for listener in self._config.controller_listeners:
            found = advertised.get(listener.name, listener)
            host, port = found.host, found.port or self.ports.get(listener.name, 0)
            if listener.name == self._listener_name and static is not None:
                host, port = static.host, static.port
            is_wildcard = host in (None, "", "0.0.0.0", "::")
            endpoints.append(
                Endpoint(listener.name, self._host_name if is_wildcard else str(host), port)
            )
        # The first one is that of `controller.listener.names`.
        return tuple(sorted(endpoints, key=lambda each: each.name != self._listener_name))

    # Lifecycle

    async def open(self) -> None:
        """Recover the files and publish what is known to be committed.

        That is the latest snapshot and the log up to the saved committed offset. The rest of the
        log follows when a leader announces its high watermark.
        """
        await self._log.open()
        config = self._config
        state_store = QuorumStateStore(
            self._world, self._directory, self._log.path, self.cluster_id, self._log.voter_sets
        )
        self._raft = Raft(
            self._local,
            self._log,
            state_store.read(self._log.end.epoch),
            self._timing(),
            self._world.rng.random,
            tuple(node_id for node_id in self._addresses if node_id < 0),
            self._log.committed,
            auto_join=config.is_controller and config[settings.QUORUM_AUTO_JOIN_ENABLE],
        )
        self._learn_voters()
        image = await self._snapshots.load_latest()
        if image is not None:
            await self._loader.load(image)
        self._committed_offset = self._raft.high_watermark
        while not self._loader.publish(self.committed_offset):
            await asyncio.sleep(0)
        encoder = RequestEncoder(
            self.cluster_id, self._raft, config[settings.QUORUM_REQUEST_TIMEOUT_MS]
        )
        callbacks = Callbacks(
            on_step=self._on_step,
            on_commit=self._on_commit,
            install_snapshot=self._snapshots.install,
            download_snapshot=self._download_snapshot,
            on_endpoints=self._update_addresses,
        )
        self._driver = RaftDriver(
            self._world,
            self._raft,
            self._log,
            state_store,
            self._peers,
            encoder,
            self._listener_name,
            self._spawn,
            callbacks,
        )
        self._service = QuorumService(
            self._world.clock,
            self._driver,
            self._snapshots,
            self.cluster_id,
            self._listener_name,
            self._addresses,
            self._learn_leader,
        )

    def _timing(self) -> Timing:
        config = self._config
        fetch_timeout = config[settings.QUORUM_FETCH_TIMEOUT_MS] / 1000
        return Timing(
            election_timeout=config[settings.QUORUM_ELECTION_TIMEOUT_MS] / 1000,
            fetch_timeout=fetch_timeout,
            election_backoff_max=config[settings.QUORUM_ELECTION_BACKOFF_MAX_MS] / 1000,
            retry_backoff=config[settings.QUORUM_RETRY_BACKOFF_MS] / 1000,
            disconnect_grace=config[settings.QUORUM_DISCONNECT_GRACE_MS] / 1000,
            fetch_max_wait=min(0.5, fetch_timeout / 4),
            request_timeout=config[settings.QUORUM_REQUEST_TIMEOUT_MS] / 1000,
        )

    async def start(self) -> None:
        """Start elections and fetching. A single voter leads when this returns."""
        self._raft.set_endpoints(self.own_endpoints())
        self._driver.start()
        self._spawn(self._maintain())
        if self._raft.voter_set.keys in ((self._local.key,), (ReplicaKey(self.node_id),)):
            while not self.is_leader:
                await self._wait_changed()

    async def stop(self) -> None:
        """Resign, so that a successor is elected immediately, and close the log."""
        self._is_stopping = True
        await self._driver.resign()
        self._on_step()
        self._peers.close()
        async with self._maintaining:
            pass  # it writes nothing any more
        await self._log.sync()
        await self._log.save_committed(self.committed_offset)
        await self._log.close()

    def abandon(self) -> None:
        """Stop without resigning or writing, for a node that failed."""
        self._driver.stop()
        self._peers.close()

    # Appending and waiting

    async def append(self, records: tuple[object, ...], *, is_atomic: bool = True) -> int:
        """Append records as the active controller. Return the offset of the last one when all are
        committed and applied. Records that are not atomic may be divided into several batches.

        Raises KafkaError NOT_CONTROLLER if this node is not the active controller, or ceases to be
        before that; the records may be committed nevertheless.
        """
        offset = self._append(records, is_atomic=is_atomic)
        applied = self._loader.append_applied(offset)
        self._driver.on_append()
        await applied
        return offset

    def append_only(self, records: tuple[object, ...]) -> None:
        """Append records that are not atomic without waiting for their commit: an `append` follows,
        whose commit is that of all records before it. Raises KafkaError NOT_CONTROLLER."""
        self._append(records, is_atomic=False)
        self._driver.on_append()

    def _append(self, records: tuple[object, ...], *, is_atomic: bool) -> int:
        if not self.is_leader:
            raise not_controller(f"node {self.node_id} is not the active controller")
        self.on_append(records)
        return self._loader.append(records, self._raft.epoch, is_atomic=is_atomic)

    async def wait_applied(self, offset: int) -> None:
        await self._loader.wait_applied(offset)

    async def wait_leader(self) -> int:
        while self.leader_id is None:
            await self._wait_changed()
        return self.leader_id

    async def _wait_changed(self) -> None:
        await self._changed.wait()

    # Requests of other nodes

    def vote(self, request: VoteRequest) -> VoteResponse | Awaitable[VoteResponse]:
        return self._service.vote(request)

    def begin_quorum_epoch(
        self, request: BeginQuorumEpochRequest
    ) -> BeginQuorumEpochResponse | Awaitable[BeginQuorumEpochResponse]:
        return self._service.begin_quorum_epoch(request)

    def end_quorum_epoch(
        self, request: EndQuorumEpochRequest
    ) -> EndQuorumEpochResponse | Awaitable[EndQuorumEpochResponse]:
        return self._service.end_quorum_epoch(request)

    def fetch(
        self, request: FetchRequest, _context: object = None
    ) -> FetchResponse | Awaitable[FetchResponse]:
        return self._service.fetch(request)

    async def fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        return await self._service.fetch_snapshot(request)

    def describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        return self._service.describe_quorum(request)

    # Changes of the voters

    async def add_raft_voter(self, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
        return await self._service.add_raft_voter(request)

    async def remove_raft_voter(self, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
        return await self._service.remove_raft_voter(request)

    async def update_raft_voter(self, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
        return await self._service.update_raft_voter(request)

    async def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> None:
        """Raise kraft.version as the leader. Raises KafkaError, mostly INVALID_UPDATE_VERSION."""
        await self._service.upgrade_kraft_version(level, validate_only=validate_only)

    # Callbacks of the driver

    def _on_step(self) -> None:
        """Report a change of leadership, and wake the waiters.

        A new leader becomes the active controller once the LeaderChangeMessage of its epoch, and so
        everything before it, is committed and loaded.
        """
        self._learn_voters()
        state = self._raft.state
        is_active = (
            isinstance(state, LeaderState) and self._loader.end_offset > state.epoch_start_offset
        )
        active_epoch = self._raft.epoch if is_active else None
        if active_epoch != self._active_epoch:
            before, self._active_epoch = self._active_epoch, active_epoch
            if before is not None:
                self._loader.stop_leading()
                self._on_leadership(None)
            if active_epoch is not None:
                self._loader.begin_leading()
                self._on_leadership(active_epoch)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _on_commit(self, high_watermark: int) -> None:
        self._committed_offset = high_watermark
        if not self._loader.publish(self.committed_offset) and not self._is_publishing:
            self._is_publishing = True
            self._spawn(self._publish_rest())
        self._on_step()

    async def _publish_rest(self) -> None:
        """Publish in bounded parts: the event loop runs in between."""
        while not self._loader.publish(self.committed_offset):
            await asyncio.sleep(PUBLISH_PAUSE_S)
        self._is_publishing = False
        self._on_step()

    # Addresses: what is learned last counts. Those of controller.quorum.voters do not change.

    def _update_addresses(self, endpoints: Sequence[Any]) -> None:
        """Learn addresses from responses."""
        for endpoint in endpoints:
            self._learn_address(endpoint.node_id, endpoint.host, endpoint.port)

    def _learn_leader(self, leader_id: int, endpoints: Sequence[Any]) -> None:
        """Learn the address of a leader that announces itself."""
        for endpoint in endpoints:
            if endpoint.name == self._listener_name:
                self._learn_address(leader_id, endpoint.host, endpoint.port)

    def _learn_voters(self) -> None:
        """Learn the addresses of new voters in the log."""
        voters = self._raft.voter_set
        if voters is not self._known_voters:
            self._known_voters = voters
            for voter in voters.voters:
                named = [each for each in voter.endpoints if each.name == self._listener_name]
                for endpoint in (named or voter.endpoints)[:1]:
                    self._learn_address(voter.id, endpoint.host, endpoint.port)

    def _learn_address(self, node_id: int, host: str, port: int) -> None:
        voters = self._raft.voters
        is_configured = self._raft.is_static and node_id in voters
        is_full = len(self._addresses) >= MAX_QUORUM_ADDRESSES
        if is_configured or node_id < 0 or not host or not port:
            return
        if not is_full or node_id in self._addresses or node_id in voters:
            self._addresses[node_id] = Address(host, port)

    async def _download_snapshot(self, effect: FetchSnapshot) -> None:
        await self._downloads.download(effect, self._driver.deliver)

    # Maintenance

    async def _maintain(self) -> None:
        """Save the committed offset, generate snapshots, delete old ones, each when it is due."""
        max_bytes = self._config[settings.METADATA_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS]
        max_interval_s = self._config[settings.METADATA_MAX_SNAPSHOT_INTERVAL_MS] / 1000
        snapshot_at = saved_at = checked_at = self._world.clock.monotonic()
        while True:
            await asyncio.sleep(SNAPSHOT_CHECK_S)
            async with self._maintaining:
                if self._is_stopping:
                    return
                now = self._world.clock.monotonic()
                if now - saved_at >= SAVE_COMMITTED_S:
                    saved_at = now
                    await self._log.save_committed(self.committed_offset)
                is_due = self._snapshots.is_due or 0 < max_interval_s <= now - snapshot_at
                if is_due or self._log.bytes_since_snapshot >= max_bytes:
                    snapshot_at = now
                    await self._snapshots.generate()
                elif now - checked_at >= RETENTION_CHECK_S:
                    checked_at = now
                    await self._snapshots.delete_old()
