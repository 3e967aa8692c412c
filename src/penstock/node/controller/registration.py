"""Registers this controller with the active one, once per process (KIP-919, Kafka's
ControllerRegistrationManager)."""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

from penstock.config.listeners import security_protocols
from penstock.config.node import NodeConfig
from penstock.controller.features import SUPPORTED_FEATURES
from penstock.errors import ErrorCode, KafkaError
from penstock.metadata.image import MetadataImage
from penstock.node.broker.controllers import ControllerChannel
from penstock.node.quorum.quorum import Quorum
from penstock.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from penstock.world import World

logger = logging.getLogger(__name__)

# An active controller that lost power neither answers nor closes the connection.
_ATTEMPT_S = 5.0
# Between two attempts: the first pause and the longest. An active controller of an earlier release
# does not know the request.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 10.0


class ControllerRegistration:
    def __init__(
        self, world: World, config: NodeConfig, channel: ControllerChannel, quorum: Quorum
    ) -> None:
        self._world = world
        self._config = config
        self._channel = channel
        self._quorum = quorum
        self._incarnation_id: UUID | None = None

    def is_in(self, image: MetadataImage) -> bool:
        """Return True if an image has the registration of this start of the node."""
        registered = image.controllers.get(self._config.node_id)
        return registered is not None and registered.incarnation_id == self._incarnation_id

    async def run(self) -> None:
        """Return when the registration is committed. Call it when the node listens."""
        request = self._request()
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                response = await self._channel.call(
                    request, ControllerRegistrationResponse, timeout_s=_ATTEMPT_S
                )
                code, reason = ErrorCode(response.error_code), response.error_message
            except KafkaError as error:
                code, reason = error.code, error.message
            if code is ErrorCode.NONE:
                return
            log = logger.info if code is ErrorCode.REQUEST_TIMED_OUT else logger.warning
            log(
                "controller %d is not registered: %s. It tries again in %g s",
                request.controller_id,
                reason or code.name,
                pause_s,
            )
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _request(self) -> ControllerRegistrationRequest:
        self._incarnation_id = self._world.rng.uuid()
        protocols = security_protocols(self._config)
        return ControllerRegistrationRequest(
            controller_id=self._config.node_id,
            incarnation_id=self._incarnation_id,
            listeners=tuple(
                ControllerRegistrationRequest.Listener(
                    name=endpoint.name,
                    host=endpoint.host,
                    port=endpoint.port,
                    security_protocol=protocols[endpoint.name].number,
                )
                for endpoint in self._quorum.own_endpoints()
            ),
            features=tuple(
                ControllerRegistrationRequest.Feature(
                    name=feature.name,
                    min_supported_version=feature.first,
                    max_supported_version=feature.last,
                )
                for feature in SUPPORTED_FEATURES
            ),
        )
