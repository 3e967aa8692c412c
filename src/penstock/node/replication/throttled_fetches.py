"""Partitions of one fetcher that wait for the follower's replication throttle (KIP-73).

A partition waits outside of the fetch session: the leader would send its records with any response.
The throttle lets some partitions fetch, as many as have room in it if each gets a full response.
When the records have come, the partition joins the end of the line, unless it has caught up. So no
partition starves, and partitions that are in sync or not throttled never wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.node.partition.env import PartitionEnv
from penstock.node.replication.follower_session import FollowedPartition, Key

# The shortest time: what is left after rounding is too short for a timer.
_MIN_WAIT_S = 0.001
# The longest time until the throttle is looked at again: it may have been removed.
_MAX_WAIT_S = 1.0
# The same if the throttle is not exceeded, but those that fetch may take what is left.
_FULL_WAIT_S = 0.1


class ThrottledFetches:
    """`fetch` puts a partition into the session. The caller passes every response to `must_wait`:
    a rate may be removed while a partition fetches, and set again after its records have come."""

    def __init__(
        self, env: PartitionEnv, max_bytes: int, fetch: Callable[[FollowedPartition], None]
    ) -> None:
        self._env = env
        self._throttle = env.throttles.follower
        self._max_bytes = max(max_bytes, 1)
        self._fetch = fetch
        self._waiting: dict[Key, FollowedPartition] = {}
        # Partitions that may fetch, and whose records have not come yet.
        self._fetching: dict[Key, FollowedPartition] = {}
        self._timer: asyncio.TimerHandle | None = None

    def applies(self, followed: FollowedPartition) -> bool:
        """Return True if a rate is set for the partition, and this broker's replica is not in
        sync."""
        if not self._throttle.is_set:
            return False
        partition = followed.partition
        state = partition.state
        return partition.is_throttled(self._throttle) and not (
            state is not None and self._env.node_id in state.isr
        )

    def must_wait(self, followed: FollowedPartition, size: int, high_watermark: int) -> bool:
        """Count records that were appended. Return True if the partition must wait for its next
        ones. One that has caught up never waits, so that it can join the ISR. The records of those
        in sync do not count: otherwise a busy partition would keep the others from catching up."""
        if not self.applies(followed):
            self.discard(followed.key)
            return False
        now = self._env.world.clock.monotonic()
        self._throttle.record(size, now)
        if followed.partition.log_end_offset >= high_watermark:
            self.discard(followed.key)
            self._release()
            return False
        # A response without records leaves the partition in the session. With records it keeps its
        # place only if no other one waits.
        return size > 0 and (bool(self._waiting) or self._throttle.is_exceeded(now))

    def wait(self, followed: FollowedPartition) -> None:
        """Let a partition that is not in the session fetch when the throttle allows it."""
        self._fetching.pop(followed.key, None)
        self._waiting[followed.key] = followed
        self._release()

    def discard(self, key: Key) -> None:
        self._waiting.pop(key, None)
        self._fetching.pop(key, None)

    def _release(self) -> None:
        now = self._env.world.clock.monotonic()
        throttle = self._throttle
        # A partition that is in sync or listed no more has no place in the rate.
        self._fetching = {
            key: followed for key, followed in self._fetching.items() if self.applies(followed)
        }
        while self._waiting and self._has_room(now):
            key = next(iter(self._waiting))
            followed = self._waiting.pop(key)
            if throttle.is_set:
                self._fetching[key] = followed
            self._fetch(followed)
        if self._waiting and self._timer is None:
            wait_s = min(max(throttle.wait_s(now) or _FULL_WAIT_S, _MIN_WAIT_S), _MAX_WAIT_S)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._expire)

    def _has_room(self, now: float) -> bool:
        """Return True if one more partition may fetch. The first one may while anything is left:
        a response can be larger than what is."""
        if not self._throttle.is_set:
            return True
        available = self._throttle.available(now)
        return available > len(self._fetching) * self._max_bytes

    def _expire(self) -> None:
        self._timer = None
        self._release()
