"""Faults of transaction coordinators, of leaders of transactions' partitions, and of the paths
between them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.node.shards.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from penstock.sim.cluster.faults.env import FaultEnv
from penstock.sim.cluster.nodes import ClusterNode
from penstock.sim.cluster.transaction_events import (
    MarkerAppended,
    TransactionalSendAcknowledged,
    TransactionPrepared,
)

_WITHIN_S = 3.0
# The longest delay of a packet while the network is slow. Requests of different connections
# overtake each other.
_DELAYS_S = (0.02, 0.1, 0.3)
# Single requests and responses are held back for so long, one after the other: Produce,
# AddPartitionsToTxn, EndTxn, WriteTxnMarkers, TxnOffsetCommit.
_HELD_APIS = (0, 24, 24, 24, 26, 27, 28)
_HELD_S = (0.03, 0.1, 0.4)
_HELD_FRAMES = 15
_HELD_WITHIN_S = 2.0


class TransactionFaults:
    def __init__(self, env: FaultEnv) -> None:
        self._env = env
        self._rng = env.rng
        self._delay_s = env.network.delay_s

    def _leaders(self, topics: Sequence[str]) -> list[ClusterNode]:
        """Return the nodes that lead a partition of one of these topics."""
        env = self._env
        return [
            node
            for node in env.nodes.values()
            if node.is_up
            and not node.is_paused
            and (process := env.process_of(node)) is not None
            and any(
                partition.is_leader and name.topic in topics
                for name, partition in process.replicas.partitions.items()
            )
        ]

    async def _wait(self) -> None:
        await asyncio.sleep(self._rng.random() * self._rng.choice((0.1, 0.6, 2.5)))

    async def lose_coordinator(self) -> None:
        """Kill, pause or isolate a coordinator, until another one has taken over or not."""
        env = self._env
        topic = self._rng.choice((TRANSACTION_TOPIC, TRANSACTION_TOPIC, OFFSETS_TOPIC))
        leaders = self._leaders((topic,))
        if not leaders:
            return
        node = self._rng.choice(leaders)
        match self._rng.randrange(4):
            case 0:
                env.targets.kill(node)
                await self._wait()
                env.targets.restart(node)
            case 1:
                node.pause()
                await asyncio.sleep(self._rng.choice((0.3, 1.5, 2.5)))
                node.resume()
            case 2:
                await self._deafen(node)
            case _:
                env.note(f"coordinator {node.name} is isolated from the other nodes")
                others = [name for name in env.nodes if name != node.name]
                env.network.partition([node.name], others)
                await asyncio.sleep(self._rng.choice((0.3, 1.5, 2.5)))
                env.note("the network is healed")
                env.network.heal()
        env.history.count("coordinators lost")

    async def _deafen(self, node: ClusterNode) -> None:
        """Hold back what the other nodes send to a coordinator, and kill it. What it appends
        meanwhile is lost, but its own requests arrive."""
        env = self._env
        env.note(f"packets from the other nodes to coordinator {node.name} are held back")
        for name in env.nodes:
            if name != node.name:
                env.network.block(name, node.name)
        await asyncio.sleep(self._rng.random() * self._rng.choice((0.1, 0.7)))
        env.targets.kill(node, may_lose_power=False)
        env.note("the network is healed")
        env.network.heal()
        await self._wait()
        env.targets.restart(node)

    async def crash_in_transaction(self) -> None:
        """Kill a node when a coordinator decides an outcome, when a leader appends a marker, or
        when a record of a transaction is acknowledged."""
        env = self._env
        kind = self._rng.choice(
            (TransactionPrepared, MarkerAppended, TransactionalSendAcknowledged)
        )
        event = await env.wait_event(
            lambda event: isinstance(event, kind), self._rng.randrange(1, 8), _WITHIN_S
        )
        node_id = getattr(event, "node", None)
        node = (
            env.node_of(node_id)
            if node_id is not None and self._rng.random() < 0.8
            else env.targets.pick()
        )
        if event is None or not node.is_up or not env.targets.may_die(node):
            return
        env.note(f"{node.name} dies at {event}")
        env.history.count("crashes in a transaction")
        if self._rng.random() < 0.3:
            await asyncio.sleep(self._rng.random() * 0.01)
        env.targets.kill(node)
        await self._wait()
        env.targets.restart(node)

    async def hold_frames(self) -> None:
        """Hold back single requests and responses of transactions, while what is sent after them
        over other connections arrives."""
        env, rng = self._env, self._rng
        env.note("single requests and responses of transactions are held back")
        deadline = env.now() + _HELD_WITHIN_S
        fired = asyncio.Event()
        for _ in range(_HELD_FRAMES):
            fired.clear()
            trigger = env.network.on_frame(
                lambda _frame: fired.set(),
                response=rng.random() < 0.6,
                api_key=rng.choice(_HELD_APIS),
                after_bytes=1,
                hold_s=rng.choice(_HELD_S),
            )
            try:
                async with asyncio.timeout(max(deadline - env.now(), 0.0)):
                    await fired.wait()
                env.history.count("requests and responses held back")
            except TimeoutError:
                env.network.forget(trigger)
                return

    async def reorder_requests(self) -> None:
        """Delay every packet by a time of its own."""
        network = self._env.network
        delay_s = self._rng.choice(_DELAYS_S)
        self._env.note(f"packets take up to {delay_s:g} s")
        network.delay_s = (0.001, delay_s)
        await asyncio.sleep(0.5 + 2 * self._rng.random())
        network.delay_s = self._delay_s
