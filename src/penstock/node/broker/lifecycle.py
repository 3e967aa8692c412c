"""The life of a broker as the controller sees it: it registers, tells that it lives, and says
goodbye.

Owns the broker's epoch. Heartbeats have a connection of their own: when it closes, the controller
takes the broker for dead unless a new heartbeat follows at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from penstock.config import cluster_settings
from penstock.config.node import NodeConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.node.broker.channel import ControllerChannel
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

# A registration that is refused is tried again this often: an earlier life of this broker may still
# be in its session.
_REGISTER_AGAIN_S = 0.2
# A controller whose machine lost its power never answers, nor is its connection seen to end: after
# so long it is asked anew.
_ANSWERED_WITHIN_S = 5.0
# A broker that waits to be let in, or to be let go, asks this often: Kafka's controllers expect 10
# ms to 2 s.
_EAGER_S = 0.05

# A stopping broker that has heard nothing for so long does not wait for a controller any more.
_UNHEARD_S = 1.0

# Refusals that time does not mend.
_FINAL = frozenset(
    {
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    }
)


class Lifecycle:
    """`register`, then `run` beside the rest, and `shut_down` at the end."""

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        channel: ControllerChannel,
        *,
        metadata_offset: Callable[[], int],
        offline_directories: Callable[[], tuple[UUID, ...]],
    ) -> None:
        self.broker_epoch = -1
        self._world = world
        self._config = config
        self._channel = channel
        self._metadata_offset = metadata_offset
        self._offline_directories = offline_directories
        self._registration: BrokerRegistrationRequest | None = None
        self._ready = False
        self._leaving = False
        self._answers = 0
        self._wake = asyncio.Event()
        self._unfenced = asyncio.Event()
        self._let_go = asyncio.Event()
        channel.on_lost = self._wake.set

    async def register(self, request: BrokerRegistrationRequest) -> int:
        """Gives the broker's epoch. KafkaError where the controller will never take it, or none
        answers in time."""
        self._registration = request
        timeout_s = self._config[cluster_settings.INITIAL_BROKER_REGISTRATION_TIMEOUT_MS] / 1000
        deadline = self._world.clock.monotonic() + timeout_s
        while True:
            left_s = max(deadline - self._world.clock.monotonic(), 0)
            try:
                answer = await self._channel.call(
                    request, BrokerRegistrationResponse, timeout_s=min(left_s, _ANSWERED_WITHIN_S)
                )
            except KafkaError:
                if self._world.clock.monotonic() >= deadline:
                    raise
                continue
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                self.broker_epoch = answer.broker_epoch
                return answer.broker_epoch
            if code in _FINAL:
                raise KafkaError(
                    code,
                    (
                        f"the controller refuses to register broker {request.broker_id}: "
                        f"{code.name}. "
                        "Its log says why"
                    ),
                )
            logger.info("broker %d is not registered yet: %s", request.broker_id, code.name)
            await asyncio.sleep(_REGISTER_AGAIN_S)

    def be_ready(self) -> None:
        """The logs are open: from here on the broker asks to be let in."""
        self._ready = True
        self._wake.set()

    async def wait_unfenced(self) -> None:
        await self._unfenced.wait()

    def tell_soon(self) -> None:
        """Something changed that the controller should know now, and not at the next interval."""
        self._wake.set()

    async def run(self) -> None:
        """Heartbeats, until the controller lets the broker go."""
        while not self._let_go.is_set():
            self._wake.clear()
            answer = await self._beat()
            if answer is not None:
                self._take(answer)
            await self._pause()

    async def _beat(self) -> BrokerHeartbeatResponse | None:
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=not self._ready,
            want_shut_down=self._leaving,
            offline_log_dirs=self._offline_directories(),
        )
        try:
            timeout_s = self._config[cluster_settings.BROKER_SESSION_TIMEOUT_MS] / 1000 / 2
            return await self._channel.call(request, BrokerHeartbeatResponse, timeout_s=timeout_s)
        except KafkaError as error:
            logger.warning("a heartbeat failed: %s", error.message)
            return None

    def _take(self, answer: BrokerHeartbeatResponse) -> None:
        self._answers += 1
        if answer.error_code:
            logger.warning(
                "the controller refuses the heartbeat of broker epoch %d: %s",
                self.broker_epoch,
                ErrorCode(answer.error_code).name,
            )
            return
        if answer.is_fenced:
            self._unfenced.clear()
        else:
            self._unfenced.set()
        if answer.should_shut_down and self._leaving:
            self._let_go.set()

    async def _pause(self) -> None:
        eager = self._leaving or (self._ready and not self._unfenced.is_set())
        pause_s = (
            _EAGER_S
            if eager
            else self._config[cluster_settings.BROKER_HEARTBEAT_INTERVAL_MS] / 1000
        )
        try:
            async with asyncio.timeout(pause_s):
                await self._wake.wait()
        except TimeoutError:
            return

    async def shut_down(self) -> None:
        """Leaders move away before this returns, so that no request of a client fails. Where no
        controller answers any more, as when a whole cluster stops at once, it goes all the same."""
        self._leaving = True
        self._wake.set()
        while not self._let_go.is_set():
            heard = self._answers
            try:
                async with asyncio.timeout(_UNHEARD_S):
                    await self._let_go.wait()
            except TimeoutError:
                if heard == self._answers:
                    logger.warning(
                        "no controller answers: the partitions of this broker are left to an "
                        "election"
                    )
                    return

    def close(self) -> None:
        self._channel.close()
