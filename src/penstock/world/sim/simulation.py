"""Simulated machines, and the run that drives them.

simulation = Simulation(seed=7)

async def main() -> None:
    node = simulation.node("n1")
    node.start(serve(node.world))
    await asyncio.sleep(1)
    node.crash(power_loss=True)
    node.start(serve(node.restart()))

simulation.run(main())
print(simulation.trace.digest())
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

from penstock.world import World
from penstock.world.sim.clock import SimClock, Speed
from penstock.world.sim.disk import SimDisk
from penstock.world.sim.drive import SimDrive
from penstock.world.sim.errors import NodeCrashed
from penstock.world.sim.fabric import Fabric, Machine
from penstock.world.sim.loop import SimLoop
from penstock.world.sim.network import SimNetwork
from penstock.world.sim.offload import THREAD_DELAY_S, SimOffload
from penstock.world.sim.process import SimProcess, current_name
from penstock.world.sim.rng import SimRng, stream
from penstock.world.sim.trace import Trace

T = TypeVar("T")


class Simulation:
    """One run from one seed. The trace keeps its last `trace_lines` lines; `max_steps` bounds the
    run."""

    def __init__(self, seed: int, *, trace_lines: int = 0, max_steps: int = 100_000_000) -> None:
        self.seed = seed
        self.loop = SimLoop(f"seed {seed}", max_steps)
        self.trace = Trace(self.now, current_name, keep_lines=trace_lines)
        self.network = Fabric(self.loop, seed, self.trace)
        self.nodes: dict[str, Node] = {}

    def node(self, name: str) -> Node:
        """Return the node of a name, which is also its host name. The first call starts it."""
        if name not in self.nodes:
            self.nodes[name] = Node(self, name)
        return self.nodes[name]

    def now(self) -> float:
        """Return virtual time. The loop's time() is that of the machine whose code runs, and may
        drift."""
        return self.loop.now

    def stream(self, name: str) -> random.Random:
        """Return the random stream of a workload or fault injector. Renaming it changes every
        run."""
        return stream(self.seed, name)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end. A simulation runs only once."""
        return self.loop.run(main)


class Node:
    """A machine that runs one process at a time. `world` belongs to the process; drive and clock
    belong to the machine and survive it."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.name = name
        self.clock = SimClock(simulation.loop)
        self.drive = SimDrive(
            simulation.stream(f"{name}/drive"),
            self.clock.now_ms,
            partial(simulation.trace.record, name),
            simulation.loop.call_next,
        )
        self._simulation = simulation
        self._rng = simulation.stream(f"{name}/crash")
        self._speed: Speed | None = None
        self._speed_rng = simulation.stream(f"{name}/speed")
        self._machine = simulation.network.machines.setdefault(name, Machine(name))
        self._starts = 0
        self._boot()

    def _boot(self) -> None:
        self._starts += 1
        stream = f"{self.name}/{self._starts}"
        self._process = SimProcess(self.name)
        self.clock.process = self._process
        self._apply_time()
        disk = SimDisk(self.drive)
        self._network = SimNetwork(self._simulation.network, self._machine, self._process)
        self._offload = SimOffload(self._simulation.stream(f"{stream}/offload"), self.drive, disk)
        self.world = World(
            self.clock,
            SimRng(self._simulation.stream(f"{stream}/rng")),
            disk,
            self._network,
            self._offload,
        )

    @property
    def alive(self) -> bool:
        return not self._process.dead

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a coroutine in this node's process. It runs until its end or a crash. An exception
        fails the run; the task need not be awaited."""
        task = self._spawn(coroutine)
        task.add_done_callback(self._check, context=self._process.context)
        return task

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in this node's process and wait for its result. Raise its exception, or
        NodeCrashed if the node crashes meanwhile."""
        process = self._process
        task = self._spawn(coroutine)
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
        if process.dead:
            raise NodeCrashed(f"{self.name} crashed before this work was done")
        return task.result()

    def _spawn(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        if self._process.dead:
            coroutine.close()
            raise NodeCrashed(f"{self.name} is down: restart() it first")
        return self._simulation.loop.create_task(coroutine, context=self._process.context.copy())

    def _check(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            message = f"a task of {self.name} failed"
            self._simulation.loop.call_exception_handler(
                {"message": message, "exception": error, "task": task}
            )

    def crash(self, *, power_loss: bool = False, keep: float | None = None) -> None:
        """Kill the process (kill -9), or cut the machine's power. Its tasks are unwound; nothing
        else of it runs any more. `keep` is the fraction of unsynced data that survives."""
        if self._process.dead:
            raise ValueError(f"{self.name} is down already")
        self._simulation.trace.record(self.name, "crash", power_loss)
        self._offload.crash()
        self.drive.crash(power_loss=power_loss, keep=keep)
        self._network.crash(self._rng, power_loss=power_loss)
        self._process.dead = True
        if power_loss:
            self._simulation.network.set_power(self.name, False)
        self._simulation.loop.resume(self._process)
        for task in self._simulation.loop.tasks_of(self._process):
            task.cancel()

    def restart(self) -> World:
        """Start a new process on what survived, with the power back on. A running process is killed
        first."""
        if not self._process.dead:
            self.crash()
        self._simulation.trace.record(self.name, "restart")
        self._simulation.network.set_power(self.name, True)
        self._boot()
        return self.world

    def pause(self) -> None:
        """Stop the process as SIGSTOP does: nothing of it runs until `resume`. Time and its clocks
        continue."""
        self._process.paused = True
        self._simulation.trace.record(self.name, "pause")

    def resume(self) -> None:
        self._simulation.trace.record(self.name, "resume")
        self._simulation.loop.resume(self._process)

    def slow_disk(self, delay_s: float | None) -> None:
        """Let each call in a thread take up to twice `delay_s`. None restores the normal delay."""
        self._simulation.trace.record(self.name, "slow-disk", delay_s)
        self._offload.thread_delay_s = THREAD_DELAY_S if delay_s is None else delay_s

    def set_speed(
        self, callback_s: float = 0.0, *, pause_s: float = 0.0, pause_share: float = 0.0
    ) -> None:
        """Let each callback of this node's processes take virtual time: `callback_s` on average,
        and with probability `pause_share` up to `pause_s` more. Other nodes go on meanwhile.
        Without arguments computing takes no time, as it does at first."""
        self._simulation.trace.record(self.name, "speed", callback_s, pause_s, pause_share)
        is_slow = callback_s > 0 or (pause_s > 0 and pause_share > 0)
        self._speed = Speed(self._speed_rng, callback_s, pause_s, pause_share) if is_slow else None
        self._apply_time()

    def set_drift(self, rate: float) -> None:
        """Let the monotonic and the wall clock run `rate` times as fast as virtual time. Timers
        that are set already do not move."""
        self._simulation.trace.record(self.name, "drift", rate)
        self.clock.set_rate(rate)
        self._apply_time()

    def _apply_time(self) -> None:
        process = self._process
        process.speed = self._speed
        is_plain = self._speed is None and not process.ahead_s and self.clock.is_plain
        process.clock = None if is_plain else self.clock
