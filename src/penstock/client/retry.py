"""Trying again: waits that grow, until a deadline. Knows nothing of what is tried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.errors import ErrorCode, KafkaError
from penstock.world import Rng, World

T = TypeVar("T")

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 1.0
_JITTER = 0.2

# A topic that was just created, by us or by asking for it, is unknown for a moment; one that stays
# unknown does not exist.
UNKNOWN_TOPIC_PATIENCE_S = 3.0


class Backoff:
    """The next wait: twice the last one, up to a second, give or take a fifth so that clients do
    not come back all at once."""

    __slots__ = ("_next_s", "_rng")

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._next_s = FIRST_WAIT_S

    def next_s(self) -> float:
        wait_s = self._next_s
        self._next_s = min(wait_s * 2, LONGEST_WAIT_S)
        return wait_s * (1 + _JITTER * (2 * self._rng.random() - 1))

    def reset(self) -> None:
        self._next_s = FIRST_WAIT_S


async def retrying(world: World, attempt: Callable[[], Awaitable[T]], timeout_s: float) -> T:
    """What the attempt gives. Errors that Kafka calls retriable are tried again until the time is
    over; then the last one is raised."""
    started = world.clock.monotonic()
    backoff = Backoff(world.rng)
    while True:
        try:
            return await attempt()
        except KafkaError as error:
            wait_s = backoff.next_s()
            patience_s = (
                min(timeout_s, UNKNOWN_TOPIC_PATIENCE_S)
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else timeout_s
            )
            if not error.code.retriable or world.clock.monotonic() + wait_s > started + patience_s:
                raise
        await asyncio.sleep(wait_s)
