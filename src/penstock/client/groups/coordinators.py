"""Asking the broker that coordinates a group, wherever it has moved to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.client.cluster import Cluster
from penstock.client.connection import Connection
from penstock.client.faults import ConnectionFailed, check
from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

T = TypeVar("T")
Ask = Callable[[Connection], Awaitable[T]]

_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
# Up to here one group is asked for at a time.
_LAST_SINGLE = 3


class Coordinators:
    """Which broker coordinates a group, remembered until it says that it does not, or goes away."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._known: dict[str, int] = {}

    def known(self, group_id: str) -> int | None:
        """Who was asked last, where it did not refuse."""
        return self._known.get(group_id)

    async def retry(self, group_id: str, ask: Ask[T]) -> T:
        return await self.cluster.retry(lambda: self.ask(group_id, ask))

    async def ask(self, group_id: str, ask: Ask[T]) -> T:
        """Tries once. A broker that is not the coordinator any more is forgotten, so that the next
        try finds the new one."""
        try:
            if group_id not in self._known:
                self._known[group_id] = await self._find(group_id)
            return await ask(await self.cluster.broker(self._known[group_id]))
        except KafkaError as error:
            if error.code in _MOVED or isinstance(error, ConnectionFailed):
                self._known.pop(group_id, None)
            raise

    async def _find(self, group_id: str) -> int:
        connection = await self.cluster.any_broker()
        answer = await connection.call(
            FindCoordinatorRequest(key=group_id), FindCoordinatorResponse, ceiling=_LAST_SINGLE
        )
        check(
            answer.error_code, answer.error_message or f"no broker coordinates group {group_id} now"
        )
        if answer.node_id not in self.cluster.metadata.brokers:
            await self.cluster.topics([])
        return answer.node_id
