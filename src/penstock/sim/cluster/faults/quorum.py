"""Faults of the metadata quorum: nodes that are so far behind that they must fetch a snapshot,
damaged snapshots, voters with empty disks, and several nodes that lose power at once."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

from penstock.client.admin.configs import ConfigResourceType
from penstock.client.client import Client
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.node.quorum.peers import Peers
from penstock.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from penstock.sim.cluster.events import MajorityStarted, PowerLostTogether
from penstock.sim.cluster.faults.damage import DamageFaults, wipe
from penstock.sim.cluster.faults.env import FaultEnv
from penstock.sim.cluster.nodes import ClusterNode
from penstock.sim.harness import replaced
from penstock.world.sim.kinds import METADATA_SNAPSHOT

# A majority that is up commits within this time, and this time per piece of a snapshot that one of
# it must fetch first.
RECOVERS_WITHIN_S = 10.0
_PIECE_S = 0.02
_OVERTAKEN_WITHIN_S = 8.0
_HEALTHY_WITHIN_S = 10.0
_REQUEST_TIMEOUT_S = 0.5


@contextlib.contextmanager
def snapshot_pieces(mean_bytes: int | None, rng: random.Random) -> Iterator[None]:
    """Let all nodes request snapshots in pieces of this mean size, from one byte up, until the
    block ends."""

    def make(fetch: Callable[..., Any]) -> Callable[..., Any]:
        async def fetch_less(
            peers: Peers, destination: int, request: Any, *args: Any, **kwargs: Any
        ) -> Any:
            if isinstance(request, FetchSnapshotRequest) and mean_bytes is not None:
                request = FetchSnapshotRequest(
                    cluster_id=request.cluster_id,
                    replica_id=request.replica_id,
                    max_bytes=min(rng.randrange(2 * mean_bytes) + 1, request.max_bytes),
                    topics=request.topics,
                )
            return await fetch(peers, destination, request, *args, **kwargs)

        return fetch_less

    with replaced(Peers, "fetch", make):
        yield


class QuorumFaults:
    def __init__(self, env: FaultEnv, damage: DamageFaults) -> None:
        self._env = env
        self._rng = env.rng
        self._damage = damage

    async def fall_behind(self) -> None:
        """Keep a node down until it needs a snapshot. Often another voter dies before it returns,
        so that the quorum depends on it; or one bit of the leader's snapshot is flipped."""
        env, rng = self._env, self._rng
        leader = env.quorum_leader
        if leader is None:
            return
        node = rng.choice([node for node in env.nodes.values() if node is not leader])
        if not node.is_up or not env.targets.may_die(node):
            return
        env.targets.kill(node, may_lose_power=False)
        if node.machine.alive or not await self._overtake(node):
            env.targets.restart(node)
            return
        env.history.count("nodes behind the log start")
        voters = [other for other in env.nodes.values() if other.config.is_controller]
        spare = [other for other in voters if other not in (node, env.quorum_leader)]
        if node in voters and len(voters) == 3 and spare and rng.random() < 0.6:
            await self._return_as_majority(node, spare[0])
            return
        if rng.random() < 0.4:
            self._flip_snapshot()
        env.targets.restart(node)
        await asyncio.sleep(1 + 2 * rng.random())
        await self._damage.repair()

    async def depose_and_fall_behind(self) -> None:
        """Isolate the quorum leader until it needs a snapshot. A client writes to it meanwhile, so
        that its log has records that are never committed."""
        env = self._env
        leader = env.quorum_leader
        if leader is None or not leader.config.is_broker:
            return
        env.note(f"quorum leader {leader.name} is isolated from the other nodes")
        env.network.partition([leader.name], [name for name in env.nodes if name != leader.name])
        client = Client(
            env.administrator.world, f"{leader.name}:9092", request_timeout_s=_REQUEST_TIMEOUT_S
        )
        writing = env.administrator.start(self._write_uncommitted(client))
        try:
            if await self._overtake(leader):
                env.history.count("deposed quorum leaders behind the log start")
        finally:
            writing.cancel()
            client.cluster.close()
            env.note("the network is healed")
            env.network.heal()
        await asyncio.sleep(1 + 2 * self._rng.random())

    async def _write_uncommitted(self, client: Client) -> None:
        with contextlib.suppress(KafkaError):
            await client.cluster.open()
            while True:
                await self._alter(client)

    async def _overtake(self, node: ClusterNode) -> bool:
        """Write metadata until the leader's log starts after the end of the node's log."""
        env = self._env
        process = env.process_of(node)
        end = 0 if process is None else process.quorum.log_end_offset

        def overtaken() -> bool:
            leader = env.quorum_leader
            process = None if leader is None else env.process_of(leader)
            return process is not None and process.quorum._log.start_offset > end

        writing = env.administrator.start(self._write_metadata())
        try:
            return await env.wait_for(_OVERTAKEN_WITHIN_S, overtaken)
        finally:
            writing.cancel()

    async def _write_metadata(self) -> None:
        async with self._env.connected(self._env.administrator) as client:
            while True:
                with contextlib.suppress(KafkaError):
                    await self._alter(client)
                await asyncio.sleep(0.02)

    async def _alter(self, client: Client) -> None:
        topic, value = self._env.spec.topics[0].name, str(self._rng.randrange(10**8, 10**9))
        await client.admin.alter_configs(
            ConfigResourceType.TOPIC, topic, put={"retention.ms": value}
        )

    async def _return_as_majority(self, node: ClusterNode, spare: ClusterNode) -> None:
        """Restart a voter that is behind while another one is down: with the leader it is a
        majority, which must commit."""
        env = self._env
        if not spare.is_up or spare.is_paused or not env.targets.may_die(spare):
            env.targets.restart(node)
            return
        env.targets.kill(spare, may_lose_power=False)
        env.targets.restart(node)
        started = env.now()

        def committed() -> bool:
            """Whether both have the same committed metadata, and one of them leads."""
            leader = env.quorum_leader
            first, second = (
                None if other is None else env.process_of(other) for other in (leader, node)
            )
            return (
                first is not None
                and second is not None
                and node.is_up
                and second.quorum.committed_offset == first.quorum.committed_offset
                and second.quorum.log_end_offset == first.quorum.log_end_offset
            )

        within_s = self._recovery_s()
        recovered = await env.wait_for(within_s, committed)
        env.history.events.append(
            MajorityStarted(env.now(), within_s, env.now() - started if recovered else None)
        )
        env.history.count("voters behind in a bare majority")
        env.targets.restart(spare)

    def _recovery_s(self) -> float:
        """Return the time in which a voter must have fetched the largest snapshot."""
        piece = self._env.spec.snapshot_piece_bytes
        sizes = [
            size
            for node in self._env.nodes.values()
            for size in node.machine.drive.files(METADATA_SNAPSHOT).values()
        ]
        pieces = 1 if piece is None else max(sizes, default=0) // piece
        return RECOVERS_WITHIN_S + pieces * _PIECE_S

    def _flip_snapshot(self) -> None:
        """Flip a bit of the latest snapshot of the quorum leader, which runs."""
        env = self._env
        leader = env.quorum_leader
        if leader is None or self._damage.damaged:
            return
        snapshots = list(leader.machine.drive.files(METADATA_SNAPSHOT))
        if not snapshots:
            return
        self._damage.flip(leader, snapshots[-1])

    async def wipe_node(self) -> None:
        """Replace all disks of a node while the cluster is healthy, and wait until it is healthy
        again. With static voters this is safe only while all other voters have everything."""
        env = self._env
        if not await env.wait_for(_HEALTHY_WITHIN_S, env.targets.is_healthy):
            return
        node = self._rng.choice(list(env.nodes.values()))
        if not env.targets.may_be_damaged(node):
            return
        env.targets.mark_damaged(node)
        node.crash(power_loss=False)
        env.note(f"the disks of {node.name} are replaced")
        env.history.count("wiped voters" if node.config.is_controller else "wiped brokers")
        wipe(node)
        node.restart()
        await env.wait_for(_HEALTHY_WITHIN_S, env.targets.is_healthy)

    async def lose_power_together(self) -> None:
        """Let several nodes lose power at the same moment (rule 24). What every replica had synced
        must survive."""
        env = self._env
        running = [node for node in env.nodes.values() if node.machine.alive]
        nodes = self._rng.sample(running, self._rng.randrange(len(running) + 1))
        synced = self._synced_everywhere()
        env.history.events.append(
            PowerLostTogether(env.now(), tuple(node.config.node_id for node in nodes), synced)
        )
        env.history.count("nodes that lost power together", len(nodes))
        if not env.spec.flush_every_message:
            env.history.durable_topics.update(dict.fromkeys(env.history.durable_topics, False))
            env.history.durable_groups = False
        for node in nodes:
            env.observer.mark_data_lost(node.config.node_id)
            env.targets.mark_unclean(node)
            node.crash(power_loss=True)
        for node in self._rng.sample(nodes, len(nodes)):
            await asyncio.sleep(self._rng.random() * 0.3)
            env.targets.restart(node)

    def _synced_everywhere(self) -> dict[TopicPartition, int]:
        """Return the offsets up to which all replicas of a partition have synced their logs."""
        synced: dict[TopicPartition, list[int]] = {}
        for process in self._env.observer.processes.values():
            for name, partition in process.replicas.partitions.items():
                synced.setdefault(name, []).append(partition.log.flushing.recovery_point)
        replicas = {topic.name: topic.factor for topic in self._env.spec.topics}
        return {
            name: min(points)
            for name, points in synced.items()
            if len(points) == replicas.get(name.topic)
        }
