"""The active controller of a cluster, while this node is it: decides over the pending image, and
watches the brokers.

What is decided is in `controller/`; here is what awaits and what keeps time. A broker that dies is
noticed in two ways: its session times out, as in Kafka; or its connection closes, no heartbeat
follows within a grace, and nobody answers when the controller knocks at its listener. A paused
broker or a dropped connection passes that test, so that no leader moves without need.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from penstock.config import cluster_settings
from penstock.config.node import NodeConfig
from penstock.controller.brokers.fencing import fence_broker
from penstock.controller.brokers.heartbeat import broker_heartbeat
from penstock.controller.brokers.liveness import Heartbeats
from penstock.controller.brokers.registration import register_broker
from penstock.controller.context import ControllerContext
from penstock.controller.decision import Decision
from penstock.controller.features.bootstrap import bootstrap_records
from penstock.controller.partitions.elections import elect_unclean_leaders, rebalance_leaders
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import BrokerImage, MetadataImage
from penstock.node.quorum.quorum import Quorum
from penstock.protocol.internal.metadata_settings import NoOpRecord
from penstock.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from penstock.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from penstock.world import World

R = TypeVar("R")

logger = logging.getLogger(__name__)

# How often sessions are looked at: a small part of broker.session.timeout.ms.
_WATCH_S = 0.5
# A listener that neither takes nor refuses a connection says nothing: the session timeout decides
# then.
_KNOCK_TIMEOUT_S = 2.0


class NodeController:
    """Every node with the controller role has one; it does something while the node is the active
    controller."""

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        cluster_id: str,
        quorum: Quorum,
        context: ControllerContext,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self.context = context
        self._world = world
        self._config = config
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._spawn = spawn
        self._heartbeats = Heartbeats()
        # Brokers whose connection was lost since their last heartbeat.
        self._lost: set[int] = set()
        self._term = 0

    @property
    def is_active(self) -> bool:
        return self._quorum.is_leader

    @property
    def quorum(self) -> Quorum:
        return self._quorum

    async def decide(self, decide: Callable[[MetadataImage], Decision[R]]) -> R:
        """Decides on the pending image, so that two quick requests cannot both win; answers when
        the records are committed."""
        await self._begin()
        if not self.is_active:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, f"the active controller is {self._quorum.leader_id}"
            )
        decision = decide(self._quorum.pending)
        for note in decision.notes:
            logger.warning("%s", note)
        if decision.records or self._quorum.pending.offset > self._quorum.image.offset:
            # Also a refusal may rest on what is not committed: it must not be told before that is,
            # or where it never will be.
            await self._quorum.append(decision.records or (NoOpRecord(),))
        return decision.response

    async def alter_settings(self, decide: Callable[[MetadataImage], Decision[R]]) -> R:
        """As `decide`; and where the settings now allow an unclean leader, a partition without one
        gets it."""
        response = await self.decide(decide)
        await self._elect_unclean()
        return response

    # Becoming active

    def took_over(self, leads: bool) -> None:
        """This node became the active controller, or is it no more."""
        self._term += 1
        self._lost.clear()
        if leads:
            self._heartbeats = Heartbeats()
            for broker in self._quorum.image.brokers.values():
                if not broker.fenced:
                    self._heartbeats.touch(broker.id, broker.epoch, self._world.clock.monotonic())
            self._spawn(self._rule(self._term))

    async def _begin(self) -> None:
        """A cluster's metadata begins with its levels, as Kafka's does: whoever comes first, even
        before this node's own task."""
        if not self._quorum.pending.features:
            await self._quorum.append(bootstrap_records(self.context))

    async def _rule(self, term: int) -> None:
        try:
            await self._begin()
            for broker in list(self._quorum.image.brokers.values()):
                # Whoever died together with the last active controller has no connection here that
                # could close, but to the quorum.
                if not broker.fenced:
                    self._suspect(
                        broker.id, broker.epoch, waited=broker.id in self._quorum.lost_nodes
                    )
            interval_s = self._config[cluster_settings.LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS]
            elect_at = self._world.clock.monotonic() + interval_s
            while self._term == term:
                await asyncio.sleep(_WATCH_S)
                if self._term == term:
                    await self._fence_expired()
                if self._term == term and self._world.clock.monotonic() >= elect_at:
                    elect_at += interval_s
                    await self._elect()
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise

    async def _fence_expired(self) -> None:
        timeout_s = self._config[cluster_settings.BROKER_SESSION_TIMEOUT_MS] / 1000
        for broker_id in self._heartbeats.expired(self._world.clock.monotonic(), timeout_s):
            await self._fence(
                broker_id,
                f"nothing was heard of it for {timeout_s:g} s (broker.session.timeout.ms)",
            )

    async def _elect(self) -> None:
        """What no event asks for."""
        await self._elect_unclean()
        if self._config[cluster_settings.AUTO_LEADER_REBALANCE_ENABLE]:
            while await self.decide(lambda image: rebalance_leaders(image, self.context)):
                continue

    async def _elect_unclean(self) -> None:
        while await self.decide(lambda image: elect_unclean_leaders(image, self.context)):
            continue

    async def _fence(self, broker_id: int, reason: str) -> None:
        self._heartbeats.forget(broker_id)
        broker = self._quorum.pending.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            logger.warning("broker %d is fenced: %s", broker_id, reason)
            await self.decide(lambda image: fence_broker(image, broker_id, self.context))

    # Brokers

    async def register(self, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
        response = await self.decide(
            lambda image: register_broker(
                image, request, self.context, cluster_id=self._cluster_id, alive=self._in_session
            )
        )
        self._lost.discard(request.broker_id)
        self._heartbeats.touch(
            request.broker_id, response.broker_epoch, self._world.clock.monotonic()
        )
        return response

    def _in_session(self, broker_id: int) -> bool:
        """Whether another life of the broker may still be there."""
        timeout_s = self._config[cluster_settings.BROKER_SESSION_TIMEOUT_MS] / 1000
        return broker_id not in self._lost and self._heartbeats.has_session(
            broker_id, self._world.clock.monotonic(), timeout_s
        )

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        response = await self.decide(
            lambda image: broker_heartbeat(image, request, self.context, self._heartbeats)
        )
        self._lost.discard(request.broker_id)
        self._heartbeats.touch(
            request.broker_id, request.broker_epoch, self._world.clock.monotonic()
        )
        return response

    def connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        """The connection by which a broker sent its heartbeats is no more."""
        self._lost.add(broker_id)
        self._suspect(broker_id, broker_epoch)

    def _suspect(self, broker_id: int, broker_epoch: int, *, waited: bool = False) -> None:
        """`waited`: the election took longer than the grace."""
        grace_ms = self._config[cluster_settings.BROKER_DISCONNECT_GRACE_MS]
        if self.is_active and grace_ms >= 0:
            self._spawn(
                self._knock(
                    broker_id,
                    broker_epoch,
                    self._world.clock.monotonic(),
                    0 if waited else grace_ms / 1000,
                )
            )

    async def _knock(self, broker_id: int, broker_epoch: int, since: float, grace_s: float) -> None:
        await asyncio.sleep(grace_s)
        broker = self._quorum.image.brokers.get(broker_id)
        if (
            broker is None
            or broker.epoch != broker_epoch
            or self._heartbeats.heard_since(broker_id, since)
        ):
            return
        if await self._is_gone(broker) and not self._heartbeats.heard_since(broker_id, since):
            try:
                if self.is_active and self._quorum.pending.brokers[broker_id].epoch == broker_epoch:
                    await self._fence(
                        broker_id,
                        "its connection closed, and nobody listens at its address any more",
                    )
            except KafkaError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise

    async def _is_gone(self, broker: BrokerImage) -> bool:
        """Only a refused connection proves it: then there is a machine, and nobody on it listens
        there."""
        if not broker.endpoints:
            return False
        name = self._config.inter_broker_listener_name
        endpoint = next((one for one in broker.endpoints if one.name == name), broker.endpoints[0])
        try:
            async with asyncio.timeout(_KNOCK_TIMEOUT_S):
                transport, _protocol = await self._world.network.connect(
                    asyncio.Protocol, endpoint.host, endpoint.port
                )
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
        transport.abort()
        return False
