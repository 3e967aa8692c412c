"""Delegation tokens on the active controller: decides on requests, and removes expired tokens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.config.delegation_token_settings import (
    DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS,
    secret_key,
)
from penstock.config.node import NodeConfig
from penstock.controller.decision import ControllerContext, ControllerResult
from penstock.metadata.image import MetadataImage
from penstock.node.quorum.quorum import Quorum
from penstock.security.delegation_tokens import TokensByHmac
from penstock.security.principals import KafkaPrincipal
from penstock.world import Clock

if TYPE_CHECKING:
    from penstock.controller.delegation_tokens import TokenContext

Q = TypeVar("Q")
R = TypeVar("R")

logger = logging.getLogger(__name__)

# Appends the records of a decision, and returns the response when they are committed.
Commit = Callable[[Callable[[MetadataImage], ControllerResult[Any]]], Awaitable[Any]]


class TokenController:
    """`commit` raises KafkaError NOT_CONTROLLER if the node is not the active controller."""

    def __init__(
        self,
        clock: Clock,
        config: NodeConfig,
        quorum: Quorum,
        context: ControllerContext,
        commit: Commit,
    ) -> None:
        self._clock = clock
        self._quorum = quorum
        self._context = context
        self._commit = commit
        key = secret_key(config)
        self._by_hmac = None if key is None else TokensByHmac(key)
        self._interval_s = config[DELEGATION_TOKEN_EXPIRY_CHECK_INTERVAL_MS] / 1000
        self._remove_at = 0.0

    async def decide(
        self,
        decide: Callable[[MetadataImage, Q, ControllerContext, TokenContext], ControllerResult[R]],
        request: Q,
        requester: KafkaPrincipal,
    ) -> R:
        """Decide on a request of a principal. Return the response when its records are
        committed."""
        # Imported on first use so that a node starts quickly.
        from penstock.controller.delegation_tokens import TokenContext

        if self._by_hmac is not None:
            for _step in self._by_hmac.index(self._quorum.pending.delegation_tokens):
                await asyncio.sleep(0)

        def decided(image: MetadataImage) -> ControllerResult[R]:
            tokens = TokenContext(requester, self._clock.now_ms(), self._by_hmac)
            return decide(image, request, self._context, tokens)

        response: R = await self._commit(decided)
        return response

    async def remove_expired(self) -> None:
        """Remove expired tokens if it is time, some in each commit. Call it from time to time."""
        now_s = self._clock.monotonic()
        if self._by_hmac is None or now_s < self._remove_at:
            return
        # Imported on first use so that a node starts quickly.
        from penstock.controller.delegation_tokens import remove_expired_tokens

        self._remove_at = now_s + self._interval_s
        now_ms, count = self._clock.now_ms(), 0
        while removed := await self._commit(lambda image: remove_expired_tokens(image, now_ms)):
            count += len(removed)
        if count:
            logger.info("Removed %d expired delegation tokens", count)
