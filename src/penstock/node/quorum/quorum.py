"""The quorum of controllers as the rest of a node sees it: the cluster's metadata, committed, and a
way to add to it.

One per node, voter or observer. What decides over the log keeps two images: it decides on `pending`
and shows `image`, the committed one. The machine is `raft.machine`, carried out by `quorum_driver`;
the files are `quorum_log`'s. What other nodes ask is in `quorum_service`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from penstock.config import cluster_settings as settings
from penstock.config import log_settings
from penstock.config.node import NodeConfig
from penstock.config.quorum import Address
from penstock.errors import invariant
from penstock.log.directory import LogDirectory
from penstock.metadata.image import MetadataImage
from penstock.node.quorum.driver import FETCH, Driver, Shell, Spawn
from penstock.node.quorum.images import Applied, Images, not_controller
from penstock.node.quorum.log import QuorumLog
from penstock.node.quorum.peers import Peers
from penstock.node.quorum.requests import Speaker
from penstock.node.quorum.service import QuorumService
from penstock.node.quorum.snapshots import QuorumSnapshots
from penstock.raft.machine import Raft
from penstock.raft.messages import FetchSnapshot
from penstock.raft.roles import Leader, Timing
from penstock.world import World

# How often this node looks whether a snapshot is due, and how often it writes down how much of the
# log is committed.
SNAPSHOT_CHECK_S = 1.0
SAVE_COMMITTED_S = 5.0


class Quorum(QuorumService):
    """`open` it, listen, `start` it, and `stop` it.

    `on_applied` is called with every committed change, in order, and gives the steps in which it is
    followed; `on_leadership` with the epoch when this node became the active controller, and with
    None when it is no longer.
    """

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        cluster_id: str,
        directory: LogDirectory,
        *,
        on_applied: Applied,
        on_leadership: Callable[[int | None], None],
        spawn: Spawn,
    ) -> None:
        self.node_id = config.node_id
        self.cluster_id = cluster_id
        # Listener name -> port, told by the node once it listens: port 0 in the settings takes a
        # free one.
        self.ports: dict[str, int] = {}
        self._world = world
        self._config = config
        self._on_leadership = on_leadership
        self._spawn = spawn
        self._addresses = {voter.node_id: voter.address for voter in config.voters}
        # Nodes to ask for the leader where voters are not known: numbered below 0, as in Kafka.
        self._addresses |= {
            -2 - number: address for number, address in enumerate(config.bootstrap_servers)
        }
        self._log = QuorumLog(world, directory, config[log_settings.LOG_SEGMENT_BYTES])
        self._images = Images(self._log, on_applied)
        timeout_s = config[settings.QUORUM_REQUEST_TIMEOUT_MS] / 1000
        self._peers = Peers(world, f"quorum-{self.node_id}", timeout_s, self._addresses.get)
        self._snapshots = QuorumSnapshots(
            world, self._log, self._images, self._peers, self.node_id, cluster_id
        )
        listeners = config.controller_listeners
        self._listener_name = listeners[0].name if listeners else ""
        self._speaker = Speaker(
            self.node_id, cluster_id, self._listener_name, self._addresses.get(self.node_id)
        )
        self._active_epoch: int | None = None
        self._is_applying = False
        self._changed = asyncio.Event()

    # What it is

    @property
    def image(self) -> MetadataImage:
        return self._images.image

    @property
    def applied_offset(self) -> int:
        """Up to here the node has followed what the image says."""
        return self._images.applied_offset

    @property
    def pending(self) -> MetadataImage:
        return self._images.pending

    @property
    def leader_id(self) -> int | None:
        return self._raft.leader_id

    @property
    def epoch(self) -> int:
        return self._raft.epoch

    @property
    def is_leader(self) -> bool:
        """The active controller: elected, with everything before its epoch committed and
        applied."""
        return (
            self._active_epoch is not None
            and isinstance(self._raft.role, Leader)
            and self._raft.epoch == self._active_epoch
        )

    @property
    def high_watermark(self) -> int:
        return self._raft.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self._log.end.offset

    @property
    def lost_nodes(self) -> dict[int, float]:
        """Nodes of the quorum whose connection closed or could not be made, and since when; reached
        again, they are gone from here."""
        return self._peers.lost

    def voter_address(self, node_id: int) -> Address:
        if node_id in self._addresses:
            return self._addresses[node_id]
        invariant(
            node_id == self.node_id and self._config.is_controller, f"node {node_id} is no voter"
        )
        listener = self._config.controller_listeners[0]
        return Address(listener.host or "localhost", self.ports.get(listener.name, listener.port))

    def voters(self) -> list[tuple[int, Address]]:
        """The controllers, and where each listens."""
        return [(voter, self.voter_address(voter)) for voter in self._raft.voters]

    # Life

    async def open(self) -> None:
        """Reads what is on disk. Only the snapshot and a part of the log are known to be committed:
        the rest shows when the quorum is there."""
        await self._log.open()
        voters = tuple(voter.node_id for voter in self._config.voters) or (
            (self.node_id,) if self._config.is_own_quorum else ()
        )
        state = self._log.read_state(self.cluster_id)
        seeds = tuple(number for number in self._addresses if number < 0)
        self._raft = Raft(
            self.node_id,
            voters,
            self._log,
            state,
            self._timing(),
            self._world.rng.random,
            seeds,
            self._log.committed,
        )
        image = await self._snapshots.newest()
        if image is not None:
            self._images.load(image)
        while not self._images.apply(self._raft.high_watermark):
            await asyncio.sleep(0)
        shell = Shell(
            self._stepped,
            self._apply,
            self._snapshots.install,
            self._download,
            self._learn_endpoints,
        )
        self._driver = Driver(
            self._world, self._raft, self._log, self._peers, self._speaker, self._spawn, shell
        )

    def _timing(self) -> Timing:
        config = self._config
        fetch_timeout = config[settings.QUORUM_FETCH_TIMEOUT_MS] / 1000
        return Timing(
            election_timeout=config[settings.QUORUM_ELECTION_TIMEOUT_MS] / 1000,
            fetch_timeout=fetch_timeout,
            backoff_max=config[settings.QUORUM_ELECTION_BACKOFF_MAX_MS] / 1000,
            retry=config[settings.QUORUM_RETRY_BACKOFF_MS] / 1000,
            grace=config[settings.QUORUM_DISCONNECT_GRACE_MS] / 1000,
            fetch_wait=min(0.5, fetch_timeout / 4),
        )

    async def start(self) -> None:
        """Elections and fetching begin. A quorum of one leads when this returns."""
        self._driver.begin()
        self._spawn(self._keep())
        if self._raft.voters == (self.node_id,):
            while not self.is_leader:
                await self._wait_changed()

    async def stop(self) -> None:
        """A leader says that it ends, so that the next one is elected at once."""
        await self._driver.resign()
        self._stepped()
        self._peers.close()
        await self._log.sync()
        await self._log.save_committed(self._raft.high_watermark)
        await self._log.close()

    def abandon(self) -> None:
        """Ends without a word, for a node that cannot go on."""
        self._driver.end()
        self._peers.close()

    # Deciding

    async def append(self, records: tuple[object, ...]) -> int:
        """Returns the offset of the last record when all are committed and applied. KafkaError
        NOT_CONTROLLER where this node does not lead, or no longer does before that: they may be
        committed nevertheless."""
        if not self.is_leader:
            raise not_controller(f"node {self.node_id} is not the active controller")
        offset, applied = self._images.append(records, self._raft.epoch)
        self._driver.appended()
        await applied
        return offset

    async def wait_applied(self, offset: int) -> None:
        await self._images.wait_applied(offset)

    async def wait_leader(self) -> int:
        while self.leader_id is None:
            await self._wait_changed()
        return self.leader_id

    async def _wait_changed(self) -> None:
        await self._changed.wait()

    # What the driver calls

    def _stepped(self) -> None:
        role = self._raft.role
        leads = isinstance(role, Leader) and self._images.end_offset > role.epoch_start
        active = self._raft.epoch if leads else None
        if active != self._active_epoch:
            before, self._active_epoch = self._active_epoch, active
            if before is not None:
                self._images.stop_leading()
                self._on_leadership(None)
            if active is not None:
                self._images.lead()
                self._on_leadership(active)
        self._tell()

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _apply(self) -> None:
        if not self._images.apply(self._raft.high_watermark) and not self._is_applying:
            self._is_applying = True
            self._spawn(self._apply_rest())
        self._stepped()

    async def _apply_rest(self) -> None:
        """In bounded parts, so that the loop goes on in between."""
        while not self._images.apply(self._raft.high_watermark):
            await asyncio.sleep(0)
        self._is_applying = False
        self._stepped()

    def _learn_endpoints(self, endpoints: Sequence[Any]) -> None:
        """Where voters are given by the settings, these are right."""
        if not self._raft.voters:
            for one in endpoints:
                self._addresses[one.node_id] = Address(one.host, one.port)

    async def _download(self, wanted: FetchSnapshot) -> None:
        await self._snapshots.fetch(wanted, FETCH, self._driver.deliver)

    async def _keep(self) -> None:
        """Writes down what is committed: now and then how much, more seldom all of it."""
        most_bytes = self._config[settings.METADATA_MAX_RECORD_BYTES_BETWEEN_SNAPSHOTS]
        interval_s = self._config[settings.METADATA_MAX_SNAPSHOT_INTERVAL_MS] / 1000
        made_at = saved_at = self._world.clock.monotonic()
        while True:
            await asyncio.sleep(SNAPSHOT_CHECK_S)
            now = self._world.clock.monotonic()
            if now - saved_at >= SAVE_COMMITTED_S:
                saved_at = now
                await self._log.save_committed(self._raft.high_watermark)
            due = 0 < interval_s <= now - made_at
            if due or self._log.bytes_since_snapshot >= most_bytes:
                made_at = now
                await self._snapshots.make()
