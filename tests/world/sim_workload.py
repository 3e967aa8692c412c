"""A mixed workload for the determinism test: files, connections, tasks, sets and dicts, faults and
crashes.

As a program it prints one digest per seed: python sim_workload.py <seeds>.
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import suppress

from penstock.world import Disk, World
from penstock.world.sim import Node, Simulation

NODES = ("alpha", "beta", "gamma")
PORT = 9092


def summarise(disk: Disk, path: str) -> int:
    return sum(disk.read(path)) if disk.exists(path) else -1


class Server:
    """Appends each received line to a log, answers with the log's length, and syncs the log at
    random intervals."""

    def __init__(self, simulation: Simulation, world: World) -> None:
        self._simulation = simulation
        self._world = world
        world.disk.make_dirs("/logs")
        self._log = world.disk.open("/logs/log", create=True)
        self._end = self._log.size()
        self._words: set[str] = set()

    async def serve(self) -> None:
        await self._world.network.listen(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._serve_client),
            "",
            PORT,
        )
        while True:
            await asyncio.sleep(self._world.rng.random())
            with suppress(OSError):
                await self._world.offload.thread(self._log.sync)
                await self._world.offload.thread(
                    self._world.disk.replace, "/logs/checkpoint", str(self._end).encode()
                )
            self._simulation.trace.note(
                "sum", await self._world.offload.process(summarise, "/logs/log")
            )

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while line := await reader.readline():
                self._words.add(line.decode(errors="replace").strip())
                self._end += self._log.pwrite(line, self._end)
                writer.write(
                    b"%d %d %s\n"
                    % (self._end, len(self._words), str(self._world.rng.uuid()).encode())
                )
                await writer.drain()
        writer.close()


async def connect(world: World, host: str) -> tuple[asyncio.StreamReader, asyncio.Transport]:
    reader = asyncio.StreamReader()
    transport, _ = await world.network.connect(
        lambda: asyncio.StreamReaderProtocol(reader), host, PORT
    )
    return reader, transport


async def talk(simulation: Simulation, node: Node, number: int) -> None:
    rng = node.world.rng
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, transport = await connect(node.world, NODES[rng.randrange(3)])
            for turn in range(rng.randrange(5)):
                transport.write(b"%s-%d-%d\n" % (node.name.encode(), number, turn))
                async with asyncio.timeout(2):
                    simulation.trace.note("answer", await reader.readuntil())
            transport.close()
        await asyncio.sleep(rng.random())


async def drive(simulation: Simulation) -> None:
    rng = simulation.stream("faults")
    for name in NODES:
        boot(simulation, simulation.node(name))
    for _ in range(5):
        await asyncio.sleep(rng.random() * 1.5)
        inject_fault(simulation, rng)
    tasks = {asyncio.create_task(asyncio.sleep(rng.random(), number)) for number in range(10)}
    done, pending = await asyncio.wait(tasks, timeout=0.5)
    simulation.trace.note(
        *(task.result() for task in done), -1, *(task.get_name() for task in pending)
    )
    with suppress(TimeoutError):
        await asyncio.wait_for(cancelled_group(simulation), 1)
    for name in NODES:
        simulation.trace.note(name, *simulation.node(name).restart().disk.list("/"))


async def cancelled_group(simulation: Simulation) -> None:
    """Cancel a task group. asyncio keeps its tasks in a set, and cancels them in the set's
    order."""

    async def wait(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            simulation.trace.note("cancelled", number)

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(wait(number))


def boot(simulation: Simulation, node: Node) -> None:
    node.start(Server(simulation, node.world).serve())
    for number in range(2):
        node.start(talk(simulation, node, number))


def inject_fault(simulation: Simulation, rng: random.Random) -> None:
    node = simulation.node(rng.choice(NODES))
    match rng.randrange(5):
        case 0 | 1:
            node.crash(power_loss=rng.random() < 0.5)
            node.restart()
            boot(simulation, node)
        case 2:
            simulation.network.partition([node.name], set(NODES) - {node.name})
        case 3:
            simulation.network.heal()
            node.drive.heal()
        case 4:
            simulation.network.cut(*rng.sample(NODES, 2))
        case 5:
            node.drive.fail("/logs", {"sync", "sync_dir"}, times=3)
        case _:
            node.clock.jump(rng.randrange(-1000, 1000))
            node.pause()
            simulation.loop.call_later(1, node.resume)


def digest(seed: int) -> str:
    simulation = Simulation(seed)
    simulation.run(drive(simulation))
    return f"{seed} {simulation.trace.events} {simulation.trace.digest()}"


if __name__ == "__main__":
    for seed in range(int(sys.argv[1])):
        sys.stdout.write(digest(seed) + "\n")
