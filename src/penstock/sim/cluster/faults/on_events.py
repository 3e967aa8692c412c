"""Kills nodes at events of the protocols, at requests and responses, and at disk operations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.sim.cluster.events import (
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
from penstock.sim.cluster.faults.env import FaultEnv
from penstock.sim.cluster.nodes import ClusterNode
from penstock.world.sim import KINDS, Frame

# Produce, Fetch, OffsetCommit, CreateTopics, DeleteTopics, InitProducerId, CreatePartitions, Vote,
# AlterPartition, FetchSnapshot, BrokerRegistration, BrokerHeartbeat, ConsumerGroupHeartbeat.
_APIS = (0, 1, 8, 19, 20, 22, 37, 52, 56, 59, 62, 63, 68)
# Produce, Fetch, InitProducerId, AddPartitionsToTxn, EndTxn, WriteTxnMarkers, TxnOffsetCommit.
_TRANSACTION_APIS = (0, 1, 22, 24, 26, 27, 28)
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
        await self._restart(node)

    async def _restart(self, node: ClusterNode) -> None:
        await asyncio.sleep(self._rng.random() * self._rng.choice((0.1, 1.5)))
        self._env.targets.restart(node)

    async def crash_on_frame(self) -> None:
        """Kill a node when it sends or has partly received a request or response of some API."""
        env, rng = self._env, self._rng
        node = env.targets.pick()
        killed = asyncio.Event()
        receives = rng.random() < 0.5

        def kill(frame: Frame) -> None:
            kind = "request" if frame.is_request else "response"
            env.note(f"{node.name} dies at a {kind} of API {frame.api_key}")
            env.history.count("crashes at a frame")
            env.targets.kill(node)
            killed.set()

        trigger = env.network.on_frame(
            kill,
            response=rng.random() < 0.5,
            api_key=rng.choice(_APIS if env.spec.transactions is None else _TRANSACTION_APIS),
            source=None if receives else node.name,
            target=node.name if receives else None,
            nth=rng.choice((1, 2, 5)),
            after_bytes=rng.choice((1, 10, -1)) if receives else None,
        )
        try:
            async with asyncio.timeout(_WITHIN_S):
                await killed.wait()
        except TimeoutError:
            env.network.forget(trigger)
        else:
            await self._restart(node)

    async def crash_on_disk_operation(self) -> None:
        """Kill a node at an operation on a kind of file: right after it, or instead of it."""
        env, rng = self._env, self._rng
        node = env.targets.pick()
        if not node.is_up or not env.targets.may_die(node):
            return
        env.targets.mark_dying(node)
        killed = asyncio.Event()
        operation, kind = rng.choice(("pwrite", "sync", "rename", "remove")), rng.choice(KINDS)

        def kill() -> None:
            env.note(f"{node.name} dies at a {operation} of a {kind}")
            env.history.count("crashes at a disk operation")
            env.targets.kill(node)
            killed.set()

        trigger = node.machine.drive.on_operation(
            kill, {operation}, kind=kind, nth=rng.choice((1, 1, 3)), instead=rng.random() < 0.5
        )
        try:
            async with asyncio.timeout(_WITHIN_S):
                await killed.wait()
        except TimeoutError:
            node.machine.drive.forget(trigger)
            env.targets.unmark_dying(node)
        else:
            env.targets.unmark_dying(node)
            await self._restart(node)

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
