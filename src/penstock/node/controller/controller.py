"""The controller of a node: decides on requests and watches the brokers while it is the active one.

The pure decisions are in `penstock.controller`; this class commits them and keeps time. It detects
a dead broker in two ways. Its session expires, as in Kafka. Or its heartbeat connection closes, no
heartbeat follows within a grace period, and its listener refuses a connection. A paused broker or a
dropped connection passes that test, so no leader moves needlessly.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from penstock.config import cluster_settings
from penstock.config.node import NodeConfig
from penstock.controller.brokers.directories import assign_replicas_to_dirs
from penstock.controller.brokers.fencing import fence_broker
from penstock.controller.brokers.heartbeat import HeartbeatTracker, broker_heartbeat
from penstock.controller.brokers.registration import register_broker
from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.controller.features import bootstrap_records
from penstock.controller.partitions.alter_partition import alter_partition
from penstock.controller.partitions.elections import elect_unclean_leaders, rebalance_leaders
from penstock.errors import ErrorCode, KafkaError
from penstock.log.directory import TooManyFiles
from penstock.metadata.image import BrokerImage, MetadataImage
from penstock.node.quorum.quorum import Quorum
from penstock.node.supervisor import Spawn
from penstock.protocol.internal.metadata_settings import NoOpRecord
from penstock.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from penstock.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from penstock.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from penstock.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from penstock.world import World

if TYPE_CHECKING:
    from penstock.protocol.messages.allocate_producer_ids import (
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
    )

Q = TypeVar("Q")
R = TypeVar("R")

logger = logging.getLogger(__name__)

# Between two checks for expired sessions: a small part of broker.session.timeout.ms.
_SESSION_CHECK_S = 0.5
# If a listener neither accepts nor refuses a connection within this time, the session timeout
# decides.
_PROBE_TIMEOUT_S = 2.0


class NodeController:
    """Every node with the controller role has one. It is idle unless the node leads the quorum.

    Its methods raise KafkaError NOT_CONTROLLER if it is not active, or loses the leadership before
    the records are committed.
    """

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        cluster_id: str,
        quorum: Quorum,
        context: ControllerContext,
        spawn: Spawn,
    ) -> None:
        self._context = context
        self._world = world
        self._config = config
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._spawn = spawn
        self._heartbeats = HeartbeatTracker()
        # Brokers whose heartbeat connection has closed since their last heartbeat.
        self._disconnected: set[int] = set()
        # Counts changes of leadership, so that the task of an earlier term ends.
        self._term = 0

    @property
    def is_active(self) -> bool:
        return self._quorum.is_leader

    # Requests of clients

    async def decide(
        self,
        decide: Callable[[MetadataImage, Q, ControllerContext], ControllerResult[R]],
        request: Q,
    ) -> R:
        """Decide on a request and return the response when its records are committed."""
        return await self._commit(lambda image: decide(image, request, self._context))

    async def alter_configs(
        self,
        decide: Callable[[MetadataImage, Q, ControllerContext], ControllerResult[R]],
        request: Q,
    ) -> R:
        """Decide on a request that alters configs. If they now allow unclean leaders, elect them
        for partitions without a leader."""
        response = await self.decide(decide, request)
        await self._elect_unclean()
        return response

    def describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        return self._quorum.describe_quorum(request)

    async def _commit(self, decide: Callable[[MetadataImage], ControllerResult[R]]) -> R:
        """Decide on the pending image, so that of two conflicting requests one fails. Return the
        response when the records are committed."""
        await self._bootstrap()
        if not self.is_active:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, f"the active controller is {self._quorum.leader_id}"
            )
        decision = decide(self._quorum.pending)
        for warning in decision.warnings:
            logger.warning("%s", warning)
        if decision.records or self._quorum.pending.offset > self._quorum.image.offset:
            # A response without records, such as an error, may depend on uncommitted records. It
            # must wait until they are committed, and fail if they never are.
            await self._quorum.append(
                decision.records or (NoOpRecord(),), is_atomic=decision.is_atomic
            )
        return decision.response

    # Leadership

    def leadership_changed(self, leads: bool) -> None:
        """The node has become the active controller, or has ceased to be it."""
        self._term += 1
        self._disconnected.clear()
        if leads:
            self._heartbeats = HeartbeatTracker()
            for broker in self._quorum.image.brokers.values():
                if not broker.fenced:
                    self._heartbeats.touch(broker.id, broker.epoch, self._world.clock.monotonic())
            self._spawn(self._lead(self._term))

    async def _bootstrap(self) -> None:
        """Write the feature levels that a new cluster's metadata begins with, as in Kafka. A
        request may arrive before `_lead` has written them."""
        if not self._quorum.pending.features:
            await self._quorum.append(bootstrap_records(self._context))

    async def _lead(self, term: int) -> None:
        try:
            # What is refused because of too many open files is tried again.
            with contextlib.suppress(TooManyFiles):
                await self._bootstrap()
            for broker in list(self._quorum.image.brokers.values()):
                # A broker that died together with the previous active controller has no heartbeat
                # connection to this one that could close. Only the quorum's connection to it did.
                if not broker.fenced:
                    self._suspect(
                        broker.id, broker.epoch, grace_over=broker.id in self._quorum.lost_nodes
                    )
            interval_s = self._config[cluster_settings.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS]
            elect_at = self._world.clock.monotonic() + interval_s
            while self._term == term:
                await asyncio.sleep(_SESSION_CHECK_S)
                if self._term == term:
                    await self._fence_expired()
                if self._term == term and self._world.clock.monotonic() >= elect_at:
                    with contextlib.suppress(TooManyFiles):
                        await self._elect()
                        elect_at += interval_s
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise

    async def _elect(self) -> None:
        """Run the elections that no request or event triggers."""
        await self._elect_unclean()
        if self._config[cluster_settings.AUTO_LEADER_REBALANCE_ENABLE]:
            while await self._commit(lambda image: rebalance_leaders(image, self._context)):
                continue

    async def _elect_unclean(self) -> None:
        while await self._commit(lambda image: elect_unclean_leaders(image, self._context)):
            continue

    # Requests of brokers

    async def register(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        response = await self._commit(
            lambda image: register_broker(
                image,
                request,
                self._context,
                cluster_id=self._cluster_id,
                has_session=self._may_be_alive,
            )
        )
        self._disconnected.discard(request.broker_id)
        self._heartbeats.touch(
            request.broker_id, response.broker_epoch, self._world.clock.monotonic()
        )
        return response

    def _may_be_alive(self, broker_id: int) -> bool:
        """Return True if a process with an earlier epoch of this broker may still run."""
        timeout_s = self._config[cluster_settings.BROKER_SESSION_TIMEOUT_MS] / 1000
        return broker_id not in self._disconnected and self._heartbeats.has_session(
            broker_id, self._world.clock.monotonic(), timeout_s
        )

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        response = await self._commit(
            lambda image: broker_heartbeat(image, request, self._context, self._heartbeats)
        )
        self._disconnected.discard(request.broker_id)
        self._heartbeats.touch(
            request.broker_id, request.broker_epoch, self._world.clock.monotonic()
        )
        return response

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        return await self.decide(alter_partition, request)

    async def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> AssignReplicasToDirsResponse:
        return await self.decide(assign_replicas_to_dirs, request)

    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> AllocateProducerIdsResponse:
        # Imported on first use so that a node starts quickly.
        from penstock.controller.producer_ids import allocate_producer_ids

        return await self._commit(lambda image: allocate_producer_ids(image, request))

    # Dead brokers

    def connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """The connection of a broker's heartbeats has closed."""
        self._disconnected.add(broker_id)
        self._suspect(broker_id, broker_epoch)

    def _suspect(self, broker_id: int, broker_epoch: int, *, grace_over: bool = False) -> None:
        """Probe a broker after the grace period, or now if the election took longer than that."""
        grace_ms = self._config[cluster_settings.BROKER_DISCONNECT_GRACE_MS]
        if self.is_active and grace_ms >= 0:
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
            or self._heartbeats.heard_since(broker_id, since)
        ):
            return
        if await self._refuses_connections(broker) and not self._heartbeats.heard_since(
            broker_id, since
        ):
            try:
                broker = self._quorum.pending.brokers.get(broker_id)
                if self.is_active and broker is not None and broker.epoch == broker_epoch:
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

    async def _fence_expired(self) -> None:
        timeout_s = self._config[cluster_settings.BROKER_SESSION_TIMEOUT_MS] / 1000
        for broker_id in self._heartbeats.expired(self._world.clock.monotonic(), timeout_s):
            await self._fence(
                broker_id, f"no heartbeat for {timeout_s:g} s (broker.session.timeout.ms)"
            )

    async def _fence(self, broker_id: int, reason: str) -> None:
        self._heartbeats.forget(broker_id)
        broker = self._quorum.pending.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            logger.warning("fencing broker %d: %s", broker_id, reason)
            try:
                await self._commit(lambda image: fence_broker(image, broker_id, self._context))
            except TooManyFiles:
                # Its session begins again, so that the broker is fenced later.
                now = self._world.clock.monotonic()
                self._heartbeats.touch(broker_id, broker.epoch, now)
