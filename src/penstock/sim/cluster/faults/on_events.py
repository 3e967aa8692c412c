"""Kills nodes at events of the protocols: right after the event, or a few disk operations later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.sim.cluster.faults.env import FaultEnv
from penstock.sim.cluster.history import (
    BecameLeader,
    BecameQuorumLeader,
    Event,
    FollowerFetchAccepted,
    HighWatermarkAdvanced,
    LeaderAppended,
    LeaderElected,
    LogTruncated,
    SnapshotInstalling,
    SnapshotPieceFetched,
    VoteGranted,
)
from penstock.sim.cluster.nodes import ClusterNode

_WITHIN_S = 3.0
# The disk stops after fewer changes than this.
_CHANGES = 6


class EventFaults:
    def __init__(self, env: FaultEnv) -> None:
        self._env = env
        self._rng = env.rng

    async def crash_on_event(self) -> None:
        """Wait for an event, kill the node at which it happened or another one that is concerned,
        and restart it."""
        description, matches, largest_count = self._rng.choice(
            (
                ("an append", lambda event: isinstance(event, LeaderAppended), 20),
                ("a committed record", lambda event: isinstance(event, HighWatermarkAdvanced), 20),
                ("a fetch after an election", _fetch_after_election(), 3),
                ("an election", lambda event: isinstance(event, LeaderElected), 1),
                ("a truncation", lambda event: isinstance(event, LogTruncated), 1),
                ("a vote", lambda event: isinstance(event, VoteGranted), 2),
                ("a quorum election", lambda event: isinstance(event, BecameQuorumLeader), 1),
                (
                    "a piece of a snapshot",
                    lambda event: isinstance(event, SnapshotPieceFetched | SnapshotInstalling),
                    4,
                ),
            )
        )
        count = self._rng.randrange(largest_count) + 1
        event = await self._env.wait_event(matches, count, _WITHIN_S)
        if event is None:
            return
        node = self._victim(event)
        targets = self._env.targets
        if node is None or not node.is_up or not targets.may_die(node):
            return
        self._env.note(f"{node.name} dies at {description}: {event}")
        self._env.history.count("crashes at an event")
        if self._rng.random() < 0.5:
            targets.mark_dying(node)
            node.machine.drive.stop_after(self._rng.randrange(_CHANGES))
            await asyncio.sleep(self._rng.random() * 0.05)
            targets.unmark_dying(node)
        targets.kill(node)
        await asyncio.sleep(self._rng.random() * self._rng.choice((0.1, 1.5)))
        targets.restart(node)

    def _victim(self, event: Event) -> ClusterNode | None:
        """Return the node of an event, or the other side of a fetch or of a vote."""
        nodes = [
            getattr(event, field)
            for field in ("node", "replica", "candidate", "leader")
            if getattr(event, field, -1) >= 0
        ]
        if isinstance(event, SnapshotPieceFetched) and self._rng.random() < 0.3:
            return self._env.quorum_leader
        return self._env.node_of(self._rng.choice(nodes)) if nodes else None


def _fetch_after_election() -> Callable[[Event], bool]:
    """Match the fetches of followers from leaders that were elected since now."""
    elected: set[tuple[object, int]] = set()

    def matches(event: Event) -> bool:
        if isinstance(event, BecameLeader):
            elected.add((event.partition, event.node))
        return isinstance(event, FollowerFetchAccepted) and (event.partition, event.node) in elected

    return matches
