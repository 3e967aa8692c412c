"""A disk that takes its time: an Offload around another."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from penstock.world import Offload

P = ParamSpec("P")
T = TypeVar("T")


class SlowDisk:
    """Every call in a thread, most of which sync, begins later by up to so much."""

    def __init__(self, offload: Offload, rng: random.Random, longest_s: float) -> None:
        self._offload = offload
        self._rng = rng
        self._longest_s = longest_s
        self.process = offload.process

    async def thread(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        await asyncio.sleep(self._rng.random() * self._longest_s)
        return await self._offload.thread(call, *args, **kwargs)
