"""The broker's lifecycle towards the controller: registration, heartbeats and controlled shutdown.

Heartbeats use a connection of their own. When it closes, the controller fences the broker unless
another heartbeat follows soon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple
from uuid import UUID

from penstock.config import cluster_settings, node_settings
from penstock.config.listeners import Listener
from penstock.config.node import NodeConfig
from penstock.controller.configs.effective import DynamicBrokerConfigs
from penstock.controller.features import SUPPORTED_FEATURES
from penstock.errors import ErrorCode, KafkaError
from penstock.log.store import LogStore
from penstock.metadata.image import MetadataDelta, MetadataImage
from penstock.node.broker.controllers import ControllerChannel
from penstock.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from penstock.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from penstock.world import World

logger = logging.getLogger(__name__)

# Between two registration attempts. The controller may still see the session of this broker's
# previous process.
_REGISTRATION_RETRY_S = 0.2
# A controller that lost power neither answers nor closes the connection, so registration sends the
# request again after this time.
_REGISTRATION_ATTEMPT_S = 5.0
# Between heartbeats while the broker waits to be unfenced or to shut down. Kafka's controllers
# expect 10 ms to 2 s.
_EAGER_HEARTBEAT_S = 0.05
# A stopping broker that hears from no controller for this long stops without its permission.
_SHUTDOWN_SILENCE_S = 1.0

# Registration errors that no retry can clear.
_FATAL = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    }
)


class Identity(NamedTuple):
    """How the broker presents itself. `host_name` replaces wildcard hosts of its listeners."""

    cluster_id: str
    host_name: str


class Lifecycle:
    """Call `register`, then `run` as a task, `be_ready` once the logs are open, and `shut_down` at
    the end."""

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        channel: ControllerChannel,
        store: LogStore,
        identity: Identity,
        metadata_offset: Callable[[], int],
    ) -> None:
        self.broker_epoch = -1
        self._world = world
        self._config = config
        self._channel = channel
        self._store = store
        self._identity = identity
        self._metadata_offset = metadata_offset
        self._broker_configs = DynamicBrokerConfigs(config)
        self._cordoned_paths: tuple[str, ...] = ()
        # The cordoned directories that the controller has recorded.
        self._recorded_cordons: tuple[UUID, ...] = ()
        self._ready = False
        self._leaving = False
        self._responses = 0
        self._wake = asyncio.Event()
        self._unfenced = asyncio.Event()
        self._may_stop = asyncio.Event()
        channel.on_lost = self._wake.set

    # Registration

    async def register(self, ports: Mapping[str, int]) -> int:
        """Register the broker and return its epoch. KafkaError if the controller refuses it for
        good, or if none answers in time."""
        request = self._registration(ports)
        timeout_s = self._config[cluster_settings.INITIAL_BROKER_REGISTRATION_TIMEOUT_MS] / 1000
        deadline = self._world.clock.monotonic() + timeout_s
        while True:
            left_s = max(deadline - self._world.clock.monotonic(), 0)
            try:
                response = await self._channel.call(
                    request,
                    BrokerRegistrationResponse,
                    timeout_s=min(left_s, _REGISTRATION_ATTEMPT_S),
                )
            except KafkaError:
                if self._world.clock.monotonic() >= deadline:
                    raise
                continue
            code = ErrorCode(response.error_code)
            if code is ErrorCode.NONE:
                self.broker_epoch = response.broker_epoch
                return response.broker_epoch
            if code in _FATAL:
                raise KafkaError(
                    code,
                    f"the controller refuses to register broker {request.broker_id}: {code.name}. "
                    "The controller's log has the reason",
                )
            logger.info("broker %d is not registered yet: %s", request.broker_id, code.name)
            await asyncio.sleep(_REGISTRATION_RETRY_S)

    def _registration(self, ports: Mapping[str, int]) -> BrokerRegistrationRequest:
        """The epoch of the last clean shutdown lets the broker stay in the ELR (KIP-966): after an
        unclean one its logs may have lost records."""
        config = self._config
        return BrokerRegistrationRequest(
            broker_id=config.node_id,
            cluster_id=self._identity.cluster_id,
            incarnation_id=self._world.rng.uuid(),
            listeners=tuple(
                self._listener(listener, ports) for listener in config.advertised_broker_listeners
            ),
            features=tuple(
                BrokerRegistrationRequest.Feature(
                    name=feature.name,
                    min_supported_version=feature.first,
                    max_supported_version=feature.last,
                )
                for feature in SUPPORTED_FEATURES
            ),
            rack=config[node_settings.BROKER_RACK],
            log_dirs=tuple(directory.id for directory in self._store.directories),
            previous_broker_epoch=_last_clean_epoch(self._store),
        )

    def _listener(
        self, listener: Listener, ports: Mapping[str, int]
    ) -> BrokerRegistrationRequest.Listener:
        wildcard = listener.host in (None, "", "0.0.0.0", "::")
        return BrokerRegistrationRequest.Listener(
            name=listener.name,
            host=self._identity.host_name if wildcard else str(listener.host),
            port=listener.port or ports.get(listener.name, 0),
            security_protocol=listener.security_protocol.number,
        )

    # Heartbeats

    def be_ready(self) -> None:
        """The logs are open: ask the controller to unfence the broker."""
        self._ready = True
        self._wake.set()

    async def wait_unfenced(self) -> None:
        await self._unfenced.wait()

    def heartbeat_soon(self) -> None:
        """Send the next heartbeat now: the controller needs to know of a change."""
        self._wake.set()

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """A broker in controlled shutdown may stop once all other brokers have replayed that it
        leads nothing, so report this broker's metadata offset now."""
        if any(
            broker_id in image.brokers and image.brokers[broker_id].in_controlled_shutdown
            for broker_id in delta.brokers
        ):
            self.heartbeat_soon()
        broker = image.brokers.get(self._config.node_id)
        self._recorded_cordons = () if broker is None else broker.cordoned_directories
        self._cordon(self._broker_configs.at(image)[node_settings.CORDONED_LOG_DIRS])

    def _cordon(self, paths: tuple[str, ...]) -> None:
        """Cordon these log directories, and no others, and report it to the controller."""
        if paths == self._cordoned_paths:
            return
        self._cordoned_paths = paths
        known = [directory.path for directory in self._store.directories]
        for path in paths:
            if path != node_settings.ALL_LOG_DIRS and path not in known:
                logger.warning(
                    "cordoned.log.dirs has %s, which is not in log.dirs (%s) and is ignored",
                    path,
                    ", ".join(known),
                )
        for directory in self._store.directories:
            directory.cordoned = directory.path in paths or node_settings.ALL_LOG_DIRS in paths
        self.heartbeat_soon()

    def _cordons(self) -> tuple[UUID, ...] | None:
        """Return the cordoned directories if the controller must know them. Before the broker has
        replayed its own settings it does not know them itself."""
        if not self._ready:
            return None
        cordoned = tuple(
            directory.id for directory in self._store.directories if directory.cordoned
        )
        return cordoned if cordoned or self._recorded_cordons else None

    async def run(self) -> None:
        """Send heartbeats until the controller lets the broker shut down."""
        while not self._may_stop.is_set():
            self._wake.clear()
            response = await self._heartbeat()
            if response is not None:
                self._handle(response)
            await self._pause()

    async def _heartbeat(self) -> BrokerHeartbeatResponse | None:
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=not self._ready,
            want_shut_down=self._leaving,
            offline_log_dirs=tuple(
                directory.id
                for directory in self._store.directories
                if directory.failure is not None
            ),
            cordoned_log_dirs=self._cordons(),
        )
        try:
            timeout_s = self._config[cluster_settings.BROKER_SESSION_TIMEOUT_MS] / 1000 / 2
            return await self._channel.call(request, BrokerHeartbeatResponse, timeout_s=timeout_s)
        except KafkaError as error:
            logger.warning("broker heartbeat failed: %s", error.message)
            return None

    def _handle(self, response: BrokerHeartbeatResponse) -> None:
        self._responses += 1
        if response.error_code:
            logger.warning(
                "the controller refuses the heartbeat of broker epoch %d: %s",
                self.broker_epoch,
                ErrorCode(response.error_code).name,
            )
            return
        if response.is_fenced:
            self._unfenced.clear()
        else:
            self._unfenced.set()
        if response.should_shut_down and self._leaving:
            self._may_stop.set()

    async def _pause(self) -> None:
        eager = self._leaving or (self._ready and not self._unfenced.is_set())
        interval_s = self._config[cluster_settings.BROKER_HEARTBEAT_INTERVAL_MS] / 1000
        try:
            async with asyncio.timeout(_EAGER_HEARTBEAT_S if eager else interval_s):
                await self._wake.wait()
        except TimeoutError:
            return

    # Shutdown

    async def shut_down(self) -> None:
        """Return when the controller has moved all leaders to other brokers, so that no client
        request fails. If no controller answers, as when the whole cluster stops, return without
        that."""
        self._leaving = True
        self._wake.set()
        while not self._may_stop.is_set():
            responses = self._responses
            try:
                async with asyncio.timeout(_SHUTDOWN_SILENCE_S):
                    await self._may_stop.wait()
            except TimeoutError:
                if responses == self._responses:
                    logger.warning(
                        "controlled shutdown: no controller answers; stopping without moving "
                        "this broker's leaders"
                    )
                    return

    def close(self) -> None:
        self._channel.close()


def _last_clean_epoch(store: LogStore) -> int:
    """Return the broker epoch of the last clean shutdown, or -1 unless the same process closed all
    log directories cleanly."""
    epochs = set(store.clean_epochs.values())
    epoch = epochs.pop() if len(epochs) == 1 else None
    return -1 if epoch is None else epoch
