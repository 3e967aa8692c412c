"""What goes wrong in a simulated cluster, drawn from the seed: one kind of fault a method, each of which ends what it began.

Never more is taken than the cluster promises to stand: unless every record is synced before it is acknowledged, at most one node loses
unsynced data before the cluster is whole again, and then nobody else dies uncleanly. (A broker that comes back without a clean shutdown
leaves ISR and ELR, as in Kafka: with its last peer's log lost at the same time, the controller could not know whose log is whole.)
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable

from penstock.sim.cluster_health import trouble
from penstock.sim.cluster_history import ClocksAlone, Elected, History, Ruled, Struck, Voted
from penstock.sim.cluster_nodes import ClusterNode
from penstock.sim.cluster_observer import Observer
from penstock.sim.cluster_shape import Shape
from penstock.world.sim import Simulation

HOUR_MS = 3_600_000
CLIENTS = ("c1", "c2")
_LOOK_S = 0.1


class Faults:
    def __init__(self, simulation: Simulation, shape: Shape, nodes: dict[str, ClusterNode], history: History, observer: Observer) -> None:
        self._network = simulation.network
        self._chance: random.Random = simulation.stream("faults")
        self._shape = shape
        self._nodes = nodes
        self._history = history
        self._observer = observer
        self._now = simulation.loop.time
        # Nodes that died uncleanly, and those that lost data, since the cluster was last whole. Dicts for their order.
        self._unclean: dict[str, None] = {}
        self._lossy: dict[str, None] = {}

    async def run(self) -> None:
        """Some faults, one after the other and now and then two at once; among them always one that leads to a truncation."""
        kinds: dict[Callable[[], Awaitable[None]], int] = {
            self._crash: 6,
            self._lose_two: 2,
            self._lose_all: 1,
            self._unrest: 3,
            self._pause: 3,
            self._isolate: 5,
            self._block_one_way: 2,
            self._cut: 2,
            self._slow_links: 1,
            self._break_disk: 1,
            self._slow_disk: 1,
            self._restart_cleanly: 2,
            self._jump_clock: 1,
        }
        watching = asyncio.create_task(self._notice_recovery())
        try:
            if self._chance.random() < 0.2:
                await self._jump_clocks_alone()
            drawn = [self._chance.choices(list(kinds), list(kinds.values()), k=self._chance.choice((1, 1, 2))) for _ in range(4)]
            drawn.insert(self._chance.randrange(len(drawn)), [self._orphan])
            for together in drawn:
                await asyncio.gather(*(kind() for kind in together))
                await asyncio.sleep(self._chance.random() * self._chance.choice((0.1, 0.6)))
        finally:
            watching.cancel()

    def end(self) -> None:
        """The world is well again: whoever is down is started, and whoever has a broken disk starts anew."""
        self._say("all faults end")
        self._network.heal()
        for node in self._nodes.values():
            node.resume()
            life = self._observer.lives.get(node.config.node_id)
            broken = life is not None and any(directory.failure is not None for directory in life.store.directories)
            if not node.is_up or broken:
                node.restart()

    def _say(self, what: str) -> None:
        self._history.events.append(Struck(self._now(), what))

    # Whom, and how long

    def _victim(self) -> ClusterNode:
        """Rather one that matters: a leader, or the active controller."""
        lives = [self._observer.lives[node.config.node_id] for node in self._nodes.values() if node.config.node_id in self._observer.lives]
        dice = self._chance.random()
        chosen = lives
        if dice < 0.5:
            chosen = [life for life in lives if any(partition.is_leader for partition in life.partitions.values())]
        elif dice < 0.75:
            chosen = [life for life in lives if life.quorum.is_leader]
        if not chosen:
            return self._chance.choice(list(self._nodes.values()))
        return self._nodes[self._shape.name_of(self._chance.choice(chosen).node_id)]

    async def _a_while(self) -> None:
        await asyncio.sleep(self._chance.random() * self._chance.choice((0.1, 0.6, 2.5)))

    async def _notice_recovery(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._unclean and trouble(self._nodes.values(), self._observer) is None:
                self._unclean.clear()
                self._lossy.clear()

    # Processes and machines

    def _may_die(self, node: ClusterNode) -> bool:
        return self._shape.synced or all(name == node.name for name in self._lossy)

    def _may_lose_data(self, node: ClusterNode) -> bool:
        return self._shape.synced or all(name == node.name for name in self._unclean)

    def _kill(self, node: ClusterNode, *, may_lose_power: bool = True) -> None:
        if not node.machine.alive or not self._may_die(node):
            return
        loses_power = (self._shape.synced or may_lose_power) and self._may_lose_data(node) and self._chance.random() < 0.5
        self._unclean[node.name] = None
        if loses_power:
            self._loses_data(node)
        node.crash(power_loss=loses_power)

    def _loses_data(self, node: ClusterNode) -> None:
        self._unclean[node.name] = self._lossy[node.name] = None
        self._observer.lost_data(node.config.node_id)
        if not self._shape.synced:
            self._history.promised.update({topic.name: topic.min_insync > 1 for topic in self._shape.topics})

    async def _crash(self) -> None:
        node = self._victim()
        if self._chance.random() < 0.3 and self._may_die(node):
            # In the midst of writing.
            self._unclean[node.name] = None
            node.machine.drive.stop_after(self._chance.randrange(60))
            await asyncio.sleep(self._chance.random() * 0.3)
        self._kill(node)
        await self._a_while()
        self._start(node)

    def _start(self, node: ClusterNode) -> None:
        if not node.is_up:
            node.restart()

    async def _lose_two(self) -> None:
        """A controller and a broker together, as often as not."""
        pair = [self._victim(), self._victim()]
        for node in pair:
            self._kill(node)
        for node in self._chance.sample(pair, 2):
            await self._a_while()
            self._start(node)

    async def _lose_all(self) -> None:
        for node in self._nodes.values():
            self._kill(node)
        for node in self._chance.sample(list(self._nodes.values()), len(self._nodes)):
            await asyncio.sleep(self._chance.random() * 0.3)
            self._start(node)

    async def _unrest(self) -> None:
        """The quorum loses its leader, and who votes for the next one dies with the word on its lips, and comes back at once."""
        voters: dict[int, ClusterNode] = {node.config.node_id: node for node in self._nodes.values() if node.config.is_controller}
        for _ in range(self._chance.randrange(1, 4)):
            ruling = [
                node for number, node in voters.items() if number in self._observer.lives and self._observer.lives[number].quorum.is_leader
            ]
            self._kill(self._chance.choice(ruling or list(voters.values())), may_lose_power=False)
            for event in await self._next_votes():
                node = voters[event.node]
                if self._chance.random() < 0.6:
                    self._kill(node, may_lose_power=False)
                    await asyncio.sleep(self._chance.random() * 0.02)
                    self._start(node)
            await asyncio.sleep(self._chance.random() * 0.2)
            for node in voters.values():
                self._start(node)

    async def _next_votes(self) -> list[Voted]:
        looked = len(self._history.events)
        for _ in range(200):
            await asyncio.sleep(0.002)
            votes = [event for event in self._history.events[looked:] if isinstance(event, Voted)]
            if votes:
                return votes
        return []

    async def _restart_cleanly(self) -> None:
        node = self._victim()
        if node.is_up and not node.is_paused:
            await node.stop(within_s=20)
            await self._a_while()
            self._start(node)

    async def _pause(self) -> None:
        node = self._victim()
        if node.is_up and not node.is_paused:
            node.pause()
            await self._a_while()
            node.resume()

    # Network

    async def _isolate(self) -> None:
        """From the other nodes; its clients may still reach it."""
        node = self._victim().name
        clients = self._chance.sample(CLIENTS, self._chance.randrange(len(CLIENTS) + 1))
        self._say(f"{node} is cut off from the other nodes and {clients}")
        self._network.partition([node], [*(name for name in self._nodes if name != node), *clients])
        await self._a_while()
        self._heal()

    async def _orphan(self) -> None:
        """A leader that only its clients reach, for so long that another one is elected: what it took meanwhile must go."""
        leaders = [node for node in self._nodes.values() if node.is_up and not node.is_paused and self._leads(node)]
        if leaders:
            node = self._chance.choice(leaders).name
            self._say(f"{node} is cut off from the other nodes")
            self._network.partition([node], [name for name in self._nodes if name != node])
            await asyncio.sleep(1.5 + self._chance.random())
            self._heal()

    def _leads(self, node: ClusterNode) -> bool:
        life = self._observer.lives.get(node.config.node_id)
        written = [name for topic in self._shape.topics for name in topic.all_partitions]
        return life is not None and any(name in life.partitions and life.partitions[name].is_leader for name in written)

    async def _block_one_way(self) -> None:
        node = self._victim().name
        for other in [*self._nodes, *CLIENTS]:
            if other != node and self._chance.random() < 0.5:
                source, target = self._chance.sample((node, other), 2)
                self._say(f"nothing gets from {source} to {target}")
                self._network.block(source, target)
        await self._a_while()
        self._heal()

    def _heal(self) -> None:
        self._say("the network is whole")
        self._network.heal()

    async def _cut(self) -> None:
        for _ in range(self._chance.randrange(1, 6)):
            one, other = self._chance.sample([*self._nodes, *CLIENTS], 2)
            self._say(f"connections between {one} and {other} are cut")
            self._network.cut(one, other)
            await asyncio.sleep(self._chance.random() * 0.2)

    async def _slow_links(self) -> None:
        before = self._network.delay_s
        self._say("the network is slow")
        self._network.delay_s = (0.001, self._chance.choice((0.02, 0.3)))
        await self._a_while()
        self._network.delay_s = before

    # Disks and clocks

    async def _break_disk(self) -> None:
        """Errors of one directory; when the disk is well again, the node is started anew."""
        node = self._victim()
        if not node.is_up or not self._may_lose_data(node):
            return
        directory = self._chance.choice(node.config.directories)
        operation, number = self._chance.choice((("sync", errno.EIO), ("pwrite", errno.EIO), ("pwrite", errno.ENOSPC)))
        self._say(f"{directory} of {node.name} fails: {operation}")
        self._loses_data(node)
        node.machine.drive.fail(directory, {operation}, number, times=self._chance.choice((1, None)))
        await self._a_while()
        node.machine.drive.heal()
        if node.machine.alive and self._may_die(node):
            self._unclean[node.name] = None
            node.crash(power_loss=False)
        self._start(node)

    async def _slow_disk(self) -> None:
        node = self._victim()
        self._say(f"the disk of {node.name} is slow")
        node.machine.slow_disk(self._chance.choice((0.05, 0.5)))
        await self._a_while()
        node.machine.slow_disk(None)

    async def _jump_clock(self) -> None:
        node = self._victim()
        self._say(f"the clock of {node.name} jumps")
        node.machine.clock.jump(self._chance.randrange(-HOUR_MS, HOUR_MS))

    async def _jump_clocks_alone(self) -> None:
        """In a cluster without any other trouble: nobody may lose a leader over it."""
        before = self._elections()
        for node in self._nodes.values():
            node.machine.clock.jump(self._chance.randrange(-HOUR_MS, HOUR_MS))
        self._say("all clocks jump")
        await asyncio.sleep(1.5)
        self._history.events.append(ClocksAlone(self._now(), self._elections() - before))

    def _elections(self) -> int:
        """But for those by which leadership goes to where it belongs."""
        moved = [event for event in self._history.of(Elected) if event.leader != event.preferred]
        return len(moved) + len(self._history.of(Ruled))
