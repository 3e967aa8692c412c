"""How a broker speaks to the active controller, wherever that is: one connection, kept, and made
anew when the controller moves.

Must never know what is said on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from penstock.client.connection import Connection, open_connection
from penstock.client.faults import ConnectionFailed
from penstock.errors import ErrorCode, KafkaError
from penstock.world import World

T = TypeVar("T")

# Between two tries. An election takes some ten milliseconds, and nothing else can be done
# meanwhile.
RETRY_S = 0.02
CONNECT_TIMEOUT_S = 2.0

# Errors of a whole response that mean: ask again, perhaps elsewhere.
_ASK_AGAIN = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT})


class ControllerChannel:
    """`active` tells where the active controller listens, None while there is none. `on_lost` is
    called when the connection ends that the channel had."""

    def __init__(
        self, world: World, client_id: str, active: Callable[[], tuple[str, int] | None]
    ) -> None:
        self.on_lost: Callable[[], None] = lambda: None
        self._world = world
        self._client_id = client_id
        self._active = active
        self._connection: Connection | None = None
        self._address: tuple[str, int] | None = None
        self._opening = asyncio.Lock()

    async def call(self, request: object, response: type[T], *, timeout_s: float) -> T:
        """The active controller's answer. REQUEST_TIMED_OUT where none answered in time; what was
        asked may have happened all the same."""
        deadline = self._world.clock.monotonic() + timeout_s
        problem = "no controller is known to lead the quorum"
        while (left_s := deadline - self._world.clock.monotonic()) > 0:
            try:
                connection = await self._connect()
                if connection is not None:
                    answer = await connection.call(request, response, timeout_s=left_s)
                    code = getattr(answer, "error_code", 0)
                    if code not in _ASK_AGAIN:
                        return answer
                    problem = f"{connection.address} answered {ErrorCode(code).name}"
            except ConnectionFailed as error:
                problem = error.message
            await asyncio.sleep(RETRY_S)
        name = type(request).__name__.removesuffix("Request")
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"no controller answered {name} within {timeout_s:g} s: {problem}",
        )

    async def _connect(self) -> Connection | None:
        async with self._opening:
            address = self._active()
            if self._connection is not None and (
                self._connection.closed or address != self._address
            ):
                self._connection.close()
                self._connection = None
            if self._connection is None and address is not None:
                self._connection = await open_connection(
                    self._world,
                    *address,
                    client_id=self._client_id,
                    connect_timeout_s=CONNECT_TIMEOUT_S,
                    request_timeout_s=CONNECT_TIMEOUT_S,
                )
                self._address = address
                self._connection.on_closed = self.on_lost
            return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.on_closed = lambda: None
            self._connection.close()
