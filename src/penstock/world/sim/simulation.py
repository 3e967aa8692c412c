"""A simulated cluster's machines and the run that drives them.

    simulation = Simulation(seed=7)

    async def main() -> None:
        node = simulation.node("n1")
        node.start(serve(node.world))
        await asyncio.sleep(1)
        node.crash(power_loss=True)
        node.start(serve(node.restart()))

    simulation.run(main())
    print(simulation.trace.digest())

Owns nodes and their lives. It must never know what runs on them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

from penstock.world import World
from penstock.world.sim.clock import SimClock
from penstock.world.sim.disk import SimDisk
from penstock.world.sim.drive import SimDrive
from penstock.world.sim.errors import NodeCrashed
from penstock.world.sim.fabric import Fabric, Machine
from penstock.world.sim.loop import SimLoop
from penstock.world.sim.network import SimNetwork
from penstock.world.sim.offload import THREAD_DELAY_S, SimOffload
from penstock.world.sim.owner import Owner, current_name
from penstock.world.sim.streams import SimRng, stream
from penstock.world.sim.trace import Trace

T = TypeVar("T")


class Simulation:
    """One run from one seed. `trace_lines` of the trace are kept for reading; `max_steps` bounds
    the run."""

    def __init__(self, seed: int, *, trace_lines: int = 0, max_steps: int = 100_000_000) -> None:
        self.seed = seed
        self.loop = SimLoop(f"seed {seed}", max_steps)
        self.trace = Trace(self.loop.time, current_name, keep_lines=trace_lines)
        self.network = Fabric(self.loop, seed, self.trace)
        self.nodes: dict[str, Node] = {}

    def node(self, name: str) -> Node:
        """The node of that name, made and running at the first call. Its name is its host name."""
        if name not in self.nodes:
            self.nodes[name] = Node(self, name)
        return self.nodes[name]

    def stream(self, name: str) -> random.Random:
        """Randomness for a workload or a checker, by a name of its own."""
        return stream(self.seed, name)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs main to its end. A simulation runs once."""
        return self.loop.run(main)


class Node:
    """A machine with one process on it at a time: `world` is that process's. Drive and clock
    outlive it."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.name = name
        self.clock = SimClock(simulation.loop.time)
        self.drive = SimDrive(
            simulation.stream(f"{name}/drive"),
            self.clock.now_ms,
            partial(simulation.trace.record, name),
        )
        self._simulation = simulation
        self._rng = simulation.stream(f"{name}/crash")
        self._machine = simulation.network.machines.setdefault(name, Machine(name))
        self._starts = 0
        self._boot()

    def _boot(self) -> None:
        self._starts += 1
        life = f"{self.name}/{self._starts}"
        self._owner = Owner(self.name)
        disk = SimDisk(self.drive)
        self._network = SimNetwork(self._simulation.network, self._machine, self._owner)
        self._offload = SimOffload(self._simulation.stream(f"{life}/offload"), self.drive, disk)
        self.world = World(
            self.clock,
            SimRng(self._simulation.stream(f"{life}/rng")),
            disk,
            self._network,
            self._offload,
        )

    @property
    def alive(self) -> bool:
        return not self._owner.dead

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs it on behalf of this node, with all tasks and callbacks that come of it, until its
        end or a crash. If it fails, the run fails: nobody needs to await it."""
        task = self._spawn(coroutine)
        task.add_done_callback(self._check, context=self._owner.context)
        return task

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs it on behalf of this node and waits: its errors are raised here, NodeCrashed where
        the node crashes meanwhile."""
        owner = self._owner
        task = self._spawn(coroutine)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
        if owner.dead:
            raise NodeCrashed(f"{self.name} crashed before this work was done")
        return task.result()

    def _spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        if self._owner.dead:
            coroutine.close()
            raise NodeCrashed(f"{self.name} is down: restart() it first")
        return self._simulation.loop.create_task(coroutine, context=self._owner.context.copy())

    def _check(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            message = f"a task of {self.name} failed"
            self._simulation.loop.call_exception_handler(
                {"message": message, "exception": error, "task": task}
            )

    def crash(self, *, power_loss: bool = False) -> None:
        """Kills the process (kill -9), or the whole machine. Nothing of it runs any more, but for
        the unwinding of its tasks."""
        if self._owner.dead:
            raise ValueError(f"{self.name} is down already")
        self._simulation.trace.record(self.name, "crash", power_loss)
        self._offload.crash()
        self.drive.crash(power_loss=power_loss)
        self._network.crash(self._rng, power_loss=power_loss)
        self._owner.dead = True
        if power_loss:
            self._simulation.network.set_power(self.name, False)
        self._simulation.loop.resume(self._owner)
        for task in list(self._owner.tasks):
            task.cancel()

    def restart(self) -> World:
        """A new process on what has survived, with the machine's power back on. A node that still
        runs is killed first."""
        if not self._owner.dead:
            self.crash()
        self._simulation.trace.record(self.name, "restart")
        self._simulation.network.set_power(self.name, True)
        self._boot()
        return self.world

    def pause(self) -> None:
        """As SIGSTOP does: nothing of it runs until `resume`, while time goes on for the others.
        The wall clock goes on too."""
        self._owner.paused = True
        self._simulation.trace.record(self.name, "pause")

    def resume(self) -> None:
        self._simulation.trace.record(self.name, "resume")
        self._simulation.loop.resume(self._owner)

    def slow_disk(self, delay_s: float | None) -> None:
        """Whatever this process hands to a thread takes up to twice so long from here on; None: as
        usual."""
        self._simulation.trace.record(self.name, "slow-disk", delay_s)
        self._offload.thread_delay_s = THREAD_DELAY_S if delay_s is None else delay_s
