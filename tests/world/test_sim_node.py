"""Simulated nodes: crashes, restarts, pauses, skewed clocks, and interrupted calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.world import Disk, World
from penstock.world.sim import Node, NodeCrashed, Simulation, SimulationFailed


def play(scenario: Callable[[Simulation, Node], Coroutine[Any, Any, Any]], seed: int = 1) -> Any:
    simulation = Simulation(seed)
    return simulation.run(scenario(simulation, simulation.node("n1")))


def test_a_crash_stops_the_nodes_tasks_timers_and_child_tasks_only() -> None:
    async def scenario(_: Simulation, node: Node) -> None:
        ticks = {"parent": 0, "child": 0, "timer": 0, "stranger": 0}

        async def tick(name: str) -> None:
            while True:
                ticks[name] += 1
                await asyncio.sleep(1)

        def tick_by_timer() -> None:
            ticks["timer"] += 1
            asyncio.get_running_loop().call_later(1, tick_by_timer)

        async def parent() -> None:
            tick_by_timer()
            async with asyncio.TaskGroup() as group:
                group.create_task(tick("child"))
                await tick("parent")

        stranger = asyncio.create_task(tick("stranger"))
        node.start(parent())
        await asyncio.sleep(4.5)
        node.crash()
        await asyncio.sleep(5)
        stranger.cancel()
        assert ticks == {"parent": 5, "child": 5, "timer": 5, "stranger": 10}

    play(scenario)


def test_an_unwinding_process_changes_no_disk_and_fails_no_run() -> None:
    async def scenario(_: Simulation, node: Node) -> None:
        async def stubborn(world: World) -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                try:
                    world.disk.replace("/goodbye", b"a shutdown hook, which a kill never runs")
                finally:
                    await asyncio.sleep(1)
                    world.disk.make_dirs("/later")

        node.start(stubborn(node.world))
        await asyncio.sleep(1)
        node.crash()
        world = node.restart()
        await asyncio.sleep(10)
        assert world.disk.list("/") == []

    play(scenario)


def test_a_restart_gives_a_new_world_on_the_surviving_disk() -> None:
    async def scenario(_: Simulation, node: Node) -> None:
        old = node.world
        old.disk.replace("/a", b"kept")
        old_draw = old.rng.uuid()
        node.crash(power_loss=True)
        with pytest.raises(NodeCrashed, match="is down"):
            node.start(asyncio.sleep(1))
        with pytest.raises(ValueError, match="down already"):
            node.crash()
        new = node.restart()
        assert new is node.world
        assert new.disk.read("/a") == b"kept"
        assert new.rng.uuid() != old_draw
        with pytest.raises(NodeCrashed):
            old.disk.read("/a")
        with pytest.raises(NodeCrashed):
            await old.network.listen(asyncio.Protocol, "", 0)
        node.restart()
        with pytest.raises(NodeCrashed):
            new.disk.read("/a")

    play(scenario)


def test_a_failing_task_of_a_node_fails_the_run_immediately() -> None:
    async def scenario(_: Simulation, node: Node) -> None:
        async def fail() -> None:
            await asyncio.sleep(1)
            raise LookupError("a bug")

        task = node.start(fail())
        await asyncio.sleep(10**6)
        task.cancel()

    with pytest.raises(SimulationFailed, match=r"seed 1, at 86401.0.* on n1: .*a bug"):
        play(scenario)


def test_run_returns_results_and_raises_errors_and_crashes() -> None:
    async def scenario(_: Simulation, node: Node) -> None:
        async def fail() -> None:
            raise LookupError("expected")

        assert await node.run(asyncio.sleep(1, "result")) == "result"
        with pytest.raises(LookupError):
            await node.run(fail())
        asyncio.get_running_loop().call_later(1, node.crash)
        with pytest.raises(NodeCrashed):
            await node.run(asyncio.sleep(5))

    play(scenario)


def test_a_paused_node_runs_nothing_while_time_advances() -> None:
    async def scenario(simulation: Simulation, node: Node) -> None:
        seen: list[float] = []

        async def tick() -> None:
            while True:
                seen.append(simulation.loop.time() - started)
                await asyncio.sleep(1)

        started = simulation.loop.time()
        node.start(tick())
        await asyncio.sleep(2.5)
        node.pause()
        await asyncio.sleep(10)
        node.resume()
        await asyncio.sleep(1.25)
        assert seen == [0, 1, 2, 12.5, 13.5]
        node.pause()
        node.crash()
        node.restart()
        await asyncio.sleep(5)
        assert len(seen) == 5

    play(scenario)


def test_wall_clocks_skew_and_jump_and_monotonic_time_does_not() -> None:
    async def scenario(simulation: Simulation, node: Node) -> None:
        other = simulation.node("n2")
        node.clock.skew_ms = 500
        assert node.world.clock.now_ms() - other.world.clock.now_ms() == 500
        before = node.world.clock.monotonic()
        node.clock.jump(-3_600_000)
        assert node.world.clock.now_ms() - other.world.clock.now_ms() == 500 - 3_600_000
        await asyncio.sleep(2)
        assert node.world.clock.monotonic() - before == 2
        assert node.restart().clock.now_ms() - other.world.clock.now_ms() == 500 - 3_600_000
        node.world.disk.open("/a", create=True)
        assert node.world.disk.modified_ms("/a") == node.world.clock.now_ms()

    play(scenario)


def test_streams_of_different_names_are_independent() -> None:
    first, again = Simulation(seed=5), Simulation(seed=5)
    again.node("another").world.rng.random()
    assert first.node("n1").world.rng.uuid() == again.node("n1").world.rng.uuid()
    assert first.stream("x").random() == again.stream("x").random() != first.stream("y").random()
    assert first.stream("x").random() != Simulation(seed=6).stream("x").random()


def write_ten(disk: Disk) -> None:
    file = disk.open("/ten", create=True)
    for number in range(10):
        file.pwrite(b"%d" % number, number)


@pytest.mark.parametrize("interruption", ["crash", "cancel"])
def test_an_interrupted_call_in_the_child_has_no_partial_or_full_effect(interruption: str) -> None:
    async def scenario(_: Simulation, node: Node) -> int:
        world = node.world
        done: list[str] = []

        async def work() -> None:
            await world.offload.process(write_ten)
            done.append("done")

        task = node.start(work())
        await asyncio.sleep(0.2)
        if interruption == "cancel":
            task.cancel()
        else:
            node.crash()
            world = node.restart()
        await asyncio.sleep(5)
        size = world.disk.size("/ten") if world.disk.exists("/ten") else -1
        assert size == 10 or not done
        return size

    sizes = {play(scenario, seed) for seed in range(60)}
    assert {-1, 10} < sizes, "no effect, and full effect"
    assert len(sizes) > 3, "and partial effects"


def test_a_sync_interrupted_by_a_power_loss_may_or_may_not_have_happened() -> None:
    async def scenario(_: Simulation, node: Node) -> tuple[bool, bool]:
        done: list[str] = []
        node.world.disk.replace("/a", b"")
        file = node.world.disk.open("/a")
        file.pwrite(b"content", 0)

        async def sync(world: World) -> None:
            await world.offload.thread(file.sync)
            done.append("synced")

        node.start(sync(node.world))
        await asyncio.sleep(0.003)
        node.crash(power_loss=True)
        content = node.restart().disk.read("/a")
        return bool(done), content == b"content"

    outcomes = {play(scenario, seed) for seed in range(60)}
    assert outcomes == {(False, False), (False, True), (True, True)}


def test_a_write_after_the_start_of_a_sync_may_not_be_synced() -> None:
    """A caller must note the log end when the sync starts, not when it returns."""

    async def scenario(_: Simulation, node: Node) -> int:
        world = node.world
        world.disk.replace("/a", b"")
        file = world.disk.open("/a")

        async def write_on() -> None:
            for position in range(1000):
                file.pwrite(b"x", position)
                await asyncio.sleep(0.0001)

        node.start(write_on())
        await node.run(world.offload.thread(file.sync))
        end = file.size()
        node.crash(power_loss=True)
        return end - len(node.restart().disk.read("/a").rstrip(b"\0"))

    assert any(play(scenario, seed) > 0 for seed in range(20))


def test_a_trace_takes_plain_values_only_and_keeps_its_last_lines() -> None:
    simulation = Simulation(1, trace_lines=2)

    async def scenario() -> None:
        for number in range(5):
            simulation.trace.note("step", number)
        with pytest.raises(TypeError, match="plain values only, not set"):
            simulation.trace.record("-", "odd", {1})  # type: ignore[arg-type]  # the point of the test

    simulation.run(scenario())
    assert simulation.trace.lines() == [
        "86400.000000000 - note 'step' 3",
        "86400.000000000 - note 'step' 4",
    ]
    assert simulation.trace.events == 5


def test_alive_is_false_between_crash_and_restart() -> None:
    async def scenario(_: Simulation, node: Node) -> list[bool]:
        seen = [node.alive]
        node.crash()
        seen.append(node.alive)
        node.restart()
        return [*seen, node.alive]

    assert play(scenario) == [True, False, True]
