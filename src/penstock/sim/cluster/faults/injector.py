"""Injects faults into a simulated cluster, drawn from the seed. Each method is one kind of fault,
and ends the fault that it starts."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager

from penstock.client.client import Client
from penstock.sim.cluster.events import (
    BecameQuorumLeader,
    ClocksJumped,
    DiskFails,
    FaultEvent,
    LeaderElected,
    LogTruncated,
    VoteGranted,
)
from penstock.sim.cluster.faults.env import FaultEnv
from penstock.sim.cluster.faults.more import MoreFaults
from penstock.sim.cluster.faults.targets import POLL_S, FaultTargets
from penstock.sim.cluster.history import History
from penstock.sim.cluster.nodes import ClusterNode
from penstock.sim.cluster.observers.partitions import PartitionObserver
from penstock.sim.cluster.spec import ClusterSpec
from penstock.world.sim import Node as Machine
from penstock.world.sim import Simulation
from penstock.world.sim.clock import SimClock

HOUR_MS = 3_600_000
CLIENTS = ("c1", "c2")
# A run without a truncation does not count. If there was none, leaders are isolated this many times
# more, each time after these waits for a truncation and for a healthy cluster.
_MORE_ISOLATED_LEADERS = 2
_TRUNCATED_WITHIN_S = 1.0
_HEALTHY_WITHIN_S = 4.0


class FaultInjector:
    def __init__(
        self,
        simulation: Simulation,
        spec: ClusterSpec,
        nodes: Mapping[str, ClusterNode],
        history: History,
        observer: PartitionObserver,
        connected: Callable[[Machine], AbstractAsyncContextManager[Client]] | None,
    ) -> None:
        """`connected` connects a client. Without it only the basic faults are drawn."""
        self._network = simulation.network
        self._delay_s = simulation.network.delay_s
        self._rng: random.Random = simulation.stream("faults")
        self._nodes = nodes
        self._history = history
        self._observer = observer
        self._now = simulation.now
        self._targets = FaultTargets(spec, nodes, history, observer, self._rng)
        self._more: MoreFaults | None = None
        if connected is not None:
            env = FaultEnv(
                spec,
                nodes,
                history,
                observer,
                simulation.stream("more faults"),
                self._targets,
                self._now,
                simulation.network,
                simulation.node(CLIENTS[0]),
                connected,
            )
            self._more = MoreFaults(env)

    async def run(self) -> None:
        """Inject some faults one after the other, now and then two at the same time. One of them
        always isolates a leader, which leads to a truncation."""
        kinds: dict[Callable[[], Awaitable[None]], int] = {
            self._crash: 6,
            self._crash_two: 2,
            self._crash_all: 1,
            self._crash_voters: 3,
            self._delay_fetches_past_restart: 2,
            self._pause: 3,
            self._isolate: 5,
            self._block_one_way: 2,
            self._reset_connections: 2,
            self._slow_network: 1,
            self._fail_disk: 1,
            self._slow_disk: 1,
            self._restart_cleanly: 2,
            self._jump_clock: 1,
        }
        resetting = asyncio.create_task(self._targets.reset_when_healthy())
        if self._more is not None:
            self._more.begin()
        try:
            if self._rng.random() < 0.2:
                await self._jump_all_clocks()
            drawn = [
                self._rng.choices(list(kinds), list(kinds.values()), k=self._rng.choice((1, 1, 2)))
                for _ in range(4)
            ]
            drawn.insert(self._rng.randrange(len(drawn)), [self._isolate_leader])
            if self._more is not None:
                drawn = self._more.mix_into(drawn)
            for together in drawn:
                await asyncio.gather(*(inject() for inject in together))
                await asyncio.sleep(self._rng.random() * self._rng.choice((0.1, 0.6)))
            for _ in range(_MORE_ISOLATED_LEADERS):
                if not await self._wait_for(_TRUNCATED_WITHIN_S, self._has_truncated):
                    # The isolated leader had no other in-sync replica, or received no records.
                    await self._wait_for(_HEALTHY_WITHIN_S, self._targets.is_healthy)
                    await self._isolate_leader()
        finally:
            resetting.cancel()

    def end(self) -> None:
        """End all faults: heal the network, resume paused nodes, and restart nodes that are down or
        have an offline log directory."""
        self._note("all faults end")
        self._network.heal()
        self._network.delay_s = self._delay_s
        if self._more is not None:
            self._more.end()
        for node in self._nodes.values():
            node.resume()
            process = self._observer.processes.get(node.config.node_id)
            has_failed_disk = process is not None and any(
                directory.failure is not None for directory in process.replicas.store.directories
            )
            if not node.is_up or has_failed_disk:
                node.restart()

    def _note(self, description: str) -> None:
        self._history.events.append(FaultEvent(self._now(), description))

    async def _wait(self) -> None:
        await asyncio.sleep(self._rng.random() * self._rng.choice((0.1, 0.6, 2.5)))

    async def _wait_for(self, seconds: float, condition: Callable[[], bool]) -> bool:
        deadline = self._now() + seconds
        while not condition() and self._now() < deadline:
            await asyncio.sleep(POLL_S)
        return condition()

    def _has_truncated(self) -> bool:
        return bool(self._history.of(LogTruncated))

    # Processes and machines

    async def _crash(self) -> None:
        node = self._targets.pick()
        if self._rng.random() < 0.3 and self._targets.may_die(node):
            # The disk stops first, in the middle of a series of writes.
            self._targets.mark_dying(node)
            node.machine.drive.stop_after(self._rng.randrange(60))
            await asyncio.sleep(self._rng.random() * 0.3)
            self._targets.unmark_dying(node)
        self._targets.kill(node)
        await self._wait()
        self._targets.restart(node)

    async def _crash_two(self) -> None:
        """Often a broker and a controller."""
        pair = [self._targets.pick(), self._targets.pick()]
        for node in pair:
            self._targets.kill(node)
        for node in self._rng.sample(pair, 2):
            await self._wait()
            self._targets.restart(node)

    async def _crash_all(self) -> None:
        for node in self._nodes.values():
            self._targets.kill(node)
        for node in self._rng.sample(list(self._nodes.values()), len(self._nodes)):
            await asyncio.sleep(self._rng.random() * 0.3)
            self._targets.restart(node)

    async def _crash_voters(self) -> None:
        """Kill the quorum leader, then voters right after they granted a vote, and restart them
        immediately."""
        voters: dict[int, ClusterNode] = {
            node.config.node_id: node for node in self._nodes.values() if node.config.is_controller
        }
        processes = self._observer.processes
        for _ in range(self._rng.randrange(1, 4)):
            leaders = [
                node
                for node_id, node in voters.items()
                if node_id in processes and processes[node_id].quorum.is_leader
            ]
            victim = self._rng.choice(leaders or list(voters.values()))
            self._targets.kill(victim, may_lose_power=False)
            for vote in await self._next_votes():
                node = voters[vote.node]
                if self._rng.random() < 0.6:
                    self._targets.kill(node, may_lose_power=False)
                    await asyncio.sleep(self._rng.random() * 0.02)
                    self._targets.restart(node)
            await asyncio.sleep(self._rng.random() * 0.2)
            for node in voters.values():
                self._targets.restart(node)

    async def _next_votes(self) -> list[VoteGranted]:
        seen = len(self._history.events)
        for _ in range(200):
            await asyncio.sleep(0.002)
            votes = [
                event for event in self._history.events[seen:] if isinstance(event, VoteGranted)
            ]
            if votes:
                return votes
        return []

    async def _delay_fetches_past_restart(self) -> None:
        """Let fetches that a broker sent to a leader arrive after that broker's restart."""
        processes = self._observer.processes
        leaders = [
            node
            for node in self._nodes.values()
            if self._targets.leads(node) and not processes[node.config.node_id].quorum.is_leader
        ]
        if not leaders:
            return
        leader = self._rng.choice(leaders)
        node = self._rng.choice(
            [node for node in self._nodes.values() if node is not leader and node.config.is_broker]
        )
        self._note(f"packets from {node.name} to {leader.name} are held back")
        self._network.block(node.name, leader.name)
        await asyncio.sleep(self._rng.random() * 0.3)
        self._targets.kill(node, may_lose_power=False)
        self._targets.restart(node)
        await asyncio.sleep(0.5 + self._rng.random())
        self._heal_network()

    async def _restart_cleanly(self) -> None:
        node = self._targets.pick()
        if node.is_up and not node.is_paused:
            await node.stop(within_s=20)
            await self._wait()
            self._targets.restart(node)

    async def _pause(self) -> None:
        node = self._targets.pick()
        if node.is_up and not node.is_paused:
            node.pause()
            await self._wait()
            node.resume()

    # Network

    async def _isolate(self) -> None:
        """Isolate a node from the other nodes, and from some clients."""
        node = self._targets.pick().name
        clients = self._rng.sample(CLIENTS, self._rng.randrange(len(CLIENTS) + 1))
        self._note(f"{node} is isolated from the other nodes and {clients}")
        self._network.partition([node], [*(name for name in self._nodes if name != node), *clients])
        await self._wait()
        self._heal_network()

    async def _isolate_leader(self) -> None:
        """Isolate a leader from the other nodes but not from clients, until another leader is
        elected. The isolated leader must truncate what it appended meanwhile."""
        leaders = [
            node
            for node in self._nodes.values()
            if node.is_up and not node.is_paused and self._targets.leads(node)
        ]
        if leaders:
            node = self._rng.choice(leaders).name
            self._note(f"leader {node} is isolated from the other nodes")
            self._network.partition([node], [name for name in self._nodes if name != node])
            await asyncio.sleep(1.5 + self._rng.random())
            self._heal_network()

    async def _block_one_way(self) -> None:
        node = self._targets.pick().name
        for other in [*self._nodes, *CLIENTS]:
            if other != node and self._rng.random() < 0.5:
                source, target = self._rng.sample((node, other), 2)
                self._note(f"packets from {source} to {target} are held back")
                self._network.block(source, target)
        await self._wait()
        self._heal_network()

    def _heal_network(self) -> None:
        self._note("the network is healed")
        self._network.heal()

    async def _reset_connections(self) -> None:
        for _ in range(self._rng.randrange(1, 6)):
            first, second = self._rng.sample([*self._nodes, *CLIENTS], 2)
            self._note(f"connections between {first} and {second} are reset")
            self._network.cut(first, second)
            await asyncio.sleep(self._rng.random() * 0.2)

    async def _slow_network(self) -> None:
        self._note("the network is slow")
        self._network.delay_s = (0.001, self._rng.choice((0.02, 0.3)))
        await self._wait()
        self._network.delay_s = self._delay_s

    # Disks and clocks

    async def _fail_disk(self) -> None:
        """Fail operations on one log directory, then repair the disk and restart the node."""
        node = self._targets.pick()
        if not node.is_up or not self._targets.may_lose_data(node):
            return
        directory = self._rng.choice(node.config.directories)
        operation, number = self._rng.choice(
            (("sync", errno.EIO), ("pwrite", errno.EIO), ("pwrite", errno.ENOSPC))
        )
        self._note(f"{operation} fails in {directory} of {node.name}: {errno.errorcode[number]}")
        self._targets.mark_data_lost(node)
        self._history.events.append(DiskFails(self._now(), node.config.node_id))
        node.machine.drive.fail(directory, {operation}, number, times=self._rng.choice((1, None)))
        await self._wait()
        node.machine.drive.heal()
        if node.machine.alive and self._targets.may_die(node):
            self._targets.mark_unclean(node)
            node.crash(power_loss=False)
        self._targets.restart(node)

    async def _slow_disk(self) -> None:
        node = self._targets.pick()
        self._note(f"the disk of {node.name} is slow")
        node.machine.slow_disk(self._rng.choice((0.05, 0.5)))
        await self._wait()
        node.machine.slow_disk(None)

    async def _jump_clock(self) -> None:
        node = self._targets.pick()
        self._note(f"the clock of {node.name} jumps")
        self._jump(node.machine.clock)

    def _jump(self, clock: SimClock) -> None:
        """A clock that is wrong by less than an hour: from an hour on, brokers refuse records for
        their timestamps."""
        skew_ms = clock.skew_ms + self._rng.randrange(-HOUR_MS, HOUR_MS)
        clock.jump(max(1 - HOUR_MS, min(skew_ms, HOUR_MS - 1)) - clock.skew_ms)

    async def _jump_all_clocks(self) -> None:
        """Let all clocks jump while no other fault is active. No leader may move (rule 26)."""
        before = self._elections()
        for node in self._nodes.values():
            self._jump(node.machine.clock)
        self._note("all clocks jump")
        await asyncio.sleep(1.5)
        self._history.events.append(ClocksJumped(self._now(), self._elections() - before))

    def _elections(self) -> int:
        """Count elections, except those that move leadership to the preferred replica."""
        moved = [
            event for event in self._history.of(LeaderElected) if event.leader != event.preferred
        ]
        return len(moved) + len(self._history.of(BecameQuorumLeader))
