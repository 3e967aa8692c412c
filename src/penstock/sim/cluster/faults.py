"""What goes wrong in a simulated cluster, drawn from the seed: one kind of fault a method, each of
which ends what it began."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable

from penstock.sim.cluster.history import ClocksAlone, Cut, Elected, Ruled, Voted
from penstock.sim.cluster.nodes import ClusterNode
from penstock.sim.cluster.victims import Victims

HOUR_MS = 3_600_000
CLIENTS = ("c1", "c2")
# A run without a truncation does not count: it is tried for so many times more, each after these
# waits for the last one and for a cluster that can elect.
_ORPHANS_MORE = 2
_CUT_WITHIN_S = 1.0
_WHOLE_WITHIN_S = 4.0


class Faults(Victims):
    async def run(self) -> None:
        """Some faults, one after the other and now and then two at once; among them always one that
        leads to a truncation."""
        kinds: dict[Callable[[], Awaitable[None]], int] = {
            self._crash: 6,
            self._lose_two: 2,
            self._lose_all: 1,
            self._unrest: 3,
            self._ghost: 2,
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
            if self._rng.random() < 0.2:
                await self._jump_clocks_alone()
            drawn = [
                self._rng.choices(list(kinds), list(kinds.values()), k=self._rng.choice((1, 1, 2)))
                for _ in range(4)
            ]
            drawn.insert(self._rng.randrange(len(drawn)), [self._orphan])
            for together in drawn:
                await asyncio.gather(*(kind() for kind in together))
                await asyncio.sleep(self._rng.random() * self._rng.choice((0.1, 0.6)))
            for _ in range(_ORPHANS_MORE):
                if not await self._within(_CUT_WITHIN_S, lambda: bool(self._history.of(Cut))):
                    # The orphan had no follower in sync that could have followed it, or nothing to
                    # write meanwhile.
                    await self._within(_WHOLE_WITHIN_S, self._is_whole)
                    await self._orphan()
        finally:
            watching.cancel()

    def end(self) -> None:
        """The world is well again: whoever is down is started, and whoever has a broken disk starts
        anew."""
        self._say("all faults end")
        self._network.heal()
        for node in self._nodes.values():
            node.resume()
            life = self._observer.lives.get(node.config.node_id)
            broken = life is not None and any(
                directory.failure is not None for directory in life.replicas.store.directories
            )
            if not node.is_up or broken:
                node.restart()

    # Processes and machines

    async def _crash(self) -> None:
        node = self._victim()
        if self._rng.random() < 0.3 and self._may_die(node):
            # In the midst of writing.
            self._unclean[node.name] = self._dying[node.name] = None
            node.machine.drive.stop_after(self._rng.randrange(60))
            await asyncio.sleep(self._rng.random() * 0.3)
            self._dying.pop(node.name, None)
        self._kill(node)
        await self._a_while()
        self._start(node)

    async def _lose_two(self) -> None:
        """A controller and a broker together, as often as not."""
        pair = [self._victim(), self._victim()]
        for node in pair:
            self._kill(node)
        for node in self._rng.sample(pair, 2):
            await self._a_while()
            self._start(node)

    async def _lose_all(self) -> None:
        for node in self._nodes.values():
            self._kill(node)
        for node in self._rng.sample(list(self._nodes.values()), len(self._nodes)):
            await asyncio.sleep(self._rng.random() * 0.3)
            self._start(node)

    async def _unrest(self) -> None:
        """The quorum loses its leader, and who votes for the next one dies with the word on its
        lips, and comes back at once."""
        voters: dict[int, ClusterNode] = {
            node.config.node_id: node for node in self._nodes.values() if node.config.is_controller
        }
        for _ in range(self._rng.randrange(1, 4)):
            ruling = [
                node
                for number, node in voters.items()
                if number in self._observer.lives and self._observer.lives[number].quorum.is_leader
            ]
            self._kill(self._rng.choice(ruling or list(voters.values())), may_lose_power=False)
            for event in await self._next_votes():
                node = voters[event.node]
                if self._rng.random() < 0.6:
                    self._kill(node, may_lose_power=False)
                    await asyncio.sleep(self._rng.random() * 0.02)
                    self._start(node)
            await asyncio.sleep(self._rng.random() * 0.2)
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

    async def _ghost(self) -> None:
        """What a broker sent to a leader before it died arrives when it lives again."""
        lives = self._observer.lives
        leaders = [
            node
            for node in self._nodes.values()
            if self._leads(node) and not lives[node.config.node_id].quorum.is_leader
        ]
        if not leaders:
            return
        leader = self._rng.choice(leaders)
        node = self._rng.choice(
            [node for node in self._nodes.values() if node is not leader and node.config.is_broker]
        )
        self._say(f"nothing gets from {node.name} to {leader.name}")
        self._network.block(node.name, leader.name)
        await asyncio.sleep(self._rng.random() * 0.3)
        self._kill(node, may_lose_power=False)
        self._start(node)
        await asyncio.sleep(0.5 + self._rng.random())
        self._heal()

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
        clients = self._rng.sample(CLIENTS, self._rng.randrange(len(CLIENTS) + 1))
        self._say(f"{node} is cut off from the other nodes and {clients}")
        self._network.partition([node], [*(name for name in self._nodes if name != node), *clients])
        await self._a_while()
        self._heal()

    async def _orphan(self) -> None:
        """A leader that only its clients reach, for so long that another one is elected: what it
        took meanwhile must go."""
        leaders = [
            node
            for node in self._nodes.values()
            if node.is_up and not node.is_paused and self._leads(node)
        ]
        if leaders:
            node = self._rng.choice(leaders).name
            self._say(f"{node} is cut off from the other nodes")
            self._network.partition([node], [name for name in self._nodes if name != node])
            await asyncio.sleep(1.5 + self._rng.random())
            self._heal()

    async def _block_one_way(self) -> None:
        node = self._victim().name
        for other in [*self._nodes, *CLIENTS]:
            if other != node and self._rng.random() < 0.5:
                source, target = self._rng.sample((node, other), 2)
                self._say(f"nothing gets from {source} to {target}")
                self._network.block(source, target)
        await self._a_while()
        self._heal()

    def _heal(self) -> None:
        self._say("the network is whole")
        self._network.heal()

    async def _cut(self) -> None:
        for _ in range(self._rng.randrange(1, 6)):
            one, other = self._rng.sample([*self._nodes, *CLIENTS], 2)
            self._say(f"connections between {one} and {other} are cut")
            self._network.cut(one, other)
            await asyncio.sleep(self._rng.random() * 0.2)

    async def _slow_links(self) -> None:
        before = self._network.delay_s
        self._say("the network is slow")
        self._network.delay_s = (0.001, self._rng.choice((0.02, 0.3)))
        await self._a_while()
        self._network.delay_s = before

    # Disks and clocks

    async def _break_disk(self) -> None:
        """Errors of one directory; when the disk is well again, the node is started anew."""
        node = self._victim()
        if not node.is_up or not self._may_lose_data(node):
            return
        directory = self._rng.choice(node.config.directories)
        operation, number = self._rng.choice(
            (("sync", errno.EIO), ("pwrite", errno.EIO), ("pwrite", errno.ENOSPC))
        )
        self._say(f"{directory} of {node.name} fails: {operation}")
        self._loses_data(node)
        node.machine.drive.fail(directory, {operation}, number, times=self._rng.choice((1, None)))
        await self._a_while()
        node.machine.drive.heal()
        if node.machine.alive and self._may_die(node):
            self._unclean[node.name] = None
            node.crash(power_loss=False)
        self._start(node)

    async def _slow_disk(self) -> None:
        node = self._victim()
        self._say(f"the disk of {node.name} is slow")
        node.machine.slow_disk(self._rng.choice((0.05, 0.5)))
        await self._a_while()
        node.machine.slow_disk(None)

    async def _jump_clock(self) -> None:
        node = self._victim()
        self._say(f"the clock of {node.name} jumps")
        node.machine.clock.jump(self._rng.randrange(-HOUR_MS, HOUR_MS))

    async def _jump_clocks_alone(self) -> None:
        """In a cluster without any other trouble: nobody may lose a leader over it."""
        before = self._elections()
        for node in self._nodes.values():
            node.machine.clock.jump(self._rng.randrange(-HOUR_MS, HOUR_MS))
        self._say("all clocks jump")
        await asyncio.sleep(1.5)
        self._history.events.append(ClocksAlone(self._now(), self._elections() - before))

    def _elections(self) -> int:
        """But for those by which leadership goes to where it belongs."""
        moved = [event for event in self._history.of(Elected) if event.leader != event.preferred]
        return len(moved) + len(self._history.of(Ruled))
