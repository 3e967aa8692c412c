"""The sessions of brokers with the active controller: how it notices that a broker is dead, and
fences it.

A dead broker is noticed in two ways. Its session expires, as in Kafka. Or its heartbeat connection
closes, no heartbeat follows within a grace period, and its listener refuses a connection. A paused
broker or a dropped connection passes that test, so no leader moves needlessly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from penstock.config import cluster_settings
from penstock.config.node import NodeConfig
from penstock.controller.brokers.fencing import fence_broker
from penstock.controller.brokers.heartbeat import HeartbeatTracker
from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.errors import ErrorCode, KafkaError
from penstock.log.directory import TooManyFiles
from penstock.metadata.image import BrokerImage, MetadataImage
from penstock.node.controller.departure_log import DepartureLog
from penstock.node.controller.partition_slices import PartitionSlices
from penstock.node.quorum.quorum import Quorum
from penstock.node.supervisor import Spawn
from penstock.world import World

logger = logging.getLogger(__name__)

# If a listener neither accepts nor refuses a connection within this time, the session timeout
# decides.
_PROBE_TIMEOUT_S = 2.0

Commit = Callable[[Callable[[MetadataImage], ControllerResult[None]]], Awaitable[None]]


class BrokerSessions:
    """`commit` decides on the pending image and returns when the records are committed."""

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        quorum: Quorum,
        context: ControllerContext,
        slices: PartitionSlices,
        departures: DepartureLog,
        commit: Commit,
        spawn: Spawn,
    ) -> None:
        self.heartbeats = HeartbeatTracker()
        # Brokers whose heartbeat connection has closed since their last heartbeat.
        self._disconnected: set[int] = set()
        self._world = world
        self._config = config
        self._quorum = quorum
        self._context = context
        self._slices = slices
        self._departures = departures
        self._commit = commit
        self._spawn = spawn

    def begin_term(self) -> None:
        """Leadership has changed: give every unfenced broker a whole session."""
        self._disconnected.clear()
        self.heartbeats = HeartbeatTracker()
        for broker in self._quorum.image.brokers.values():
            if not broker.fenced:
                self.heartbeats.touch(broker.id, broker.epoch, self._world.clock.monotonic())

    def heard(self, broker_id: int, broker_epoch: int) -> None:
        """Record a heartbeat or a registration."""
        self._disconnected.discard(broker_id)
        self.heartbeats.touch(broker_id, broker_epoch, self._world.clock.monotonic())

    def may_be_alive(self, broker_id: int) -> bool:
        """Return True if a process with an earlier epoch of this broker may still run."""
        timeout_s = self._config[cluster_settings.BROKER_SESSION_TIMEOUT_MS] / 1000
        return broker_id not in self._disconnected and self.heartbeats.has_session(
            broker_id, self._world.clock.monotonic(), timeout_s
        )

    def connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """The connection of a broker's heartbeats has closed."""
        self._disconnected.add(broker_id)
        self._suspect(broker_id, broker_epoch)

    def suspect_all(self) -> None:
        """Probe the unfenced brokers. One that died together with the previous active controller
        has no heartbeat connection to this one that could close. Only the quorum's connection to it
        did."""
        for broker in list(self._quorum.image.brokers.values()):
            if not broker.fenced:
                grace_over = broker.id in self._quorum.lost_nodes
                self._suspect(broker.id, broker.epoch, grace_over=grace_over)

    def _suspect(self, broker_id: int, broker_epoch: int, *, grace_over: bool = False) -> None:
        """Probe a broker after the grace period, or now if the election took longer than that."""
        grace_ms = self._config[cluster_settings.BROKER_DISCONNECT_GRACE_MS]
        if self._quorum.is_leader and grace_ms >= 0:
            now = self._world.clock.monotonic()
            grace_s = 0 if grace_over else grace_ms / 1000
            self._spawn(self._probe(broker_id, broker_epoch, now, grace_s))

    async def _probe(self, broker_id: int, broker_epoch: int, since: float, grace_s: float) -> None:
        """Fence a broker if it sends no heartbeat within the grace period and does not listen."""
        await asyncio.sleep(grace_s)
        broker = self._quorum.image.brokers.get(broker_id)
        if (
            broker is None
            or broker.epoch != broker_epoch
            or self.heartbeats.heard_since(broker_id, since)
        ):
            return
        if await self._refuses_connections(broker) and not self.heartbeats.heard_since(
            broker_id, since
        ):
            try:
                broker = self._quorum.pending.brokers.get(broker_id)
                if self._quorum.is_leader and broker is not None and broker.epoch == broker_epoch:
                    await self._fence(
                        broker_id, "its connection closed and its listener refuses connections"
                    )
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise

    async def _refuses_connections(self, broker: BrokerImage) -> bool:
        """Return True only for a refused connection: it proves that the machine runs and that no
        process listens there."""
        if not broker.endpoints:
            return False
        name = self._config.inter_broker_listener_name
        endpoint = next(
            (endpoint for endpoint in broker.endpoints if endpoint.name == name),
            broker.endpoints[0],
        )
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                transport, _protocol = await self._world.network.connect(
                    asyncio.Protocol, endpoint.host, endpoint.port
                )
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
        transport.abort()
        return False

    async def fence_expired(self) -> None:
        timeout_s = self._config[cluster_settings.BROKER_SESSION_TIMEOUT_MS] / 1000
        for broker_id in self.heartbeats.expired(self._world.clock.monotonic(), timeout_s):
            await self._fence(
                broker_id, f"no heartbeat for {timeout_s:g} s (broker.session.timeout.ms)"
            )

    async def _fence(self, broker_id: int, reason: str) -> None:
        self.heartbeats.forget(broker_id)
        broker = self._quorum.pending.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            logger.warning("fencing broker %d: %s", broker_id, reason)
            try:
                left = await self._slices.leave_isrs(broker)
                await self._commit(lambda image: self._decide_fencing(image, broker))
                image = self._quorum.pending
                self._spawn(self._departures.fenced(image, broker_id, reason, left))
            except TooManyFiles:
                # Its session begins again, so that the broker is fenced later.
                now = self._world.clock.monotonic()
                self.heartbeats.touch(broker_id, broker.epoch, now)

    def _decide_fencing(self, image: MetadataImage, broker: BrokerImage) -> ControllerResult[None]:
        """Fence the broker, unless it was unregistered or has registered again while it left its
        ISRs."""
        current = image.brokers.get(broker.id)
        if current is None or current.epoch != broker.epoch:
            return ControllerResult((), None)
        return fence_broker(image, broker.id, self._context)
