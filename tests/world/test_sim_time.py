"""Computing takes virtual time on slow nodes, clocks drift, and paths have a bandwidth."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.world.sim import Node, Simulation
from tests.world.test_sim_network import Cluster
from tests.world.test_sim_network import play as play_cluster


def play(scenario: Callable[[Simulation, Node], Coroutine[Any, Any, Any]], seed: int = 1) -> Any:
    simulation = Simulation(seed)
    return simulation.run(scenario(simulation, simulation.node("n1")))


async def take_turns(simulation: Simulation, turns: int) -> float:
    """Let other callbacks run `turns` times. Return the virtual time that it took."""
    started = simulation.now()
    for _ in range(turns):
        await asyncio.sleep(0)
    return simulation.now() - started


def test_callbacks_of_a_slow_node_take_time_and_those_of_others_take_none() -> None:
    async def scenario(simulation: Simulation, node: Node) -> None:
        other = simulation.node("n2")
        node.set_speed(0.01)
        slow = node.start(take_turns(simulation, 1000))
        assert await other.run(take_turns(simulation, 1000)) == 0
        assert 8 < await slow < 12
        node.set_speed()
        assert await node.run(take_turns(simulation, 1000)) < 0.1

    play(scenario)


def test_short_callbacks_add_up() -> None:
    async def scenario(simulation: Simulation, node: Node) -> None:
        node.set_speed(0.000_001)
        assert 0.005 < await node.run(take_turns(simulation, 10_000)) < 0.02

    play(scenario)


def test_a_slow_node_runs_its_callbacks_in_order_and_loses_none() -> None:
    async def scenario(_: Simulation, node: Node) -> None:
        seen: list[int] = []

        async def schedule() -> None:
            loop = asyncio.get_running_loop()
            for number in range(200):
                loop.call_soon(seen.append, number)
            await asyncio.sleep(10)

        node.set_speed(0.01)
        task = node.start(schedule())
        await asyncio.sleep(0.5)
        node.pause()
        paused_at = len(seen)
        assert 0 < paused_at < 200
        await asyncio.sleep(5)
        assert len(seen) == paused_at
        node.resume()
        await task
        assert seen == list(range(200))

    play(scenario)


def test_rare_pauses_hold_a_node_for_long() -> None:
    async def scenario(simulation: Simulation, node: Node) -> None:
        gaps: list[float] = []

        async def tick() -> None:
            for _ in range(2000):
                before = simulation.now()
                await asyncio.sleep(0.001)
                gaps.append(simulation.now() - before)

        node.set_speed(pause_s=2.0, pause_share=0.01)
        await node.run(tick())
        long = [gap for gap in gaps if gap > 0.1]
        assert 5 < len(long) < 60
        assert max(gaps) < 3

    play(scenario)


def test_a_deadline_passes_while_a_slow_node_computes() -> None:
    async def scenario(_: Simulation, node: Node) -> None:
        async def compute_until_deadline() -> int:
            clock, loop = node.world.clock, asyncio.get_running_loop()
            deadline = clock.monotonic() + 0.01
            assert loop.time() >= deadline - 0.01
            return next(number for number in itertools.count() if clock.monotonic() > deadline)

        node.set_speed(0.001)
        assert 10 < await node.run(compute_until_deadline()) < 1000

    play(scenario)


def test_time_never_goes_back_on_a_slow_node_whose_clock_drifts() -> None:
    async def scenario(simulation: Simulation, node: Node) -> None:
        rng = simulation.stream("test")

        async def read() -> None:
            loop, last = asyncio.get_running_loop(), 0.0
            for _ in range(2000):
                for now in (loop.time(), node.world.clock.monotonic()):
                    assert now >= last
                    last = now
                await asyncio.sleep(rng.random() * 0.01)

        reading = node.start(read())
        while not reading.done():
            node.set_drift(0.99 + rng.random() * 0.02)
            node.set_speed(rng.choice((0.0, 0.000_01, 0.002)))
            await asyncio.sleep(0.05)

    for seed in range(5):
        play(scenario, seed)


def test_a_crash_frees_a_busy_node() -> None:
    async def scenario(simulation: Simulation, node: Node) -> None:
        unwound: list[str] = []

        async def wait() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                unwound.append("unwound")

        node.set_speed(pause_s=100.0, pause_share=1.0)
        node.start(wait())
        await asyncio.sleep(0)
        node.crash()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert unwound == ["unwound"]
        node.restart()
        node.set_speed()
        assert await node.run(take_turns(simulation, 10)) == 0

    play(scenario)


def test_a_drifting_clock_gains_time_and_survives_restarts() -> None:
    async def scenario(_: Simulation, node: Node) -> None:
        async def measure() -> tuple[float, float, int]:
            """Return how long 100 seconds are for the timers and both clocks of the node."""
            loop, clock = asyncio.get_running_loop(), node.world.clock
            started, wall = clock.monotonic(), clock.now_ms()
            await stop.wait()
            assert loop.time() == clock.monotonic()
            return ticks[0], clock.monotonic() - started, clock.now_ms() - wall

        async def tick() -> None:
            while True:
                await asyncio.sleep(1)
                ticks[0] += 1

        for rate, expected in ((1.01, 101), (0.99, 99)):
            ticks, stop = [0], asyncio.Event()
            node.set_drift(rate)
            node.start(tick())
            measuring = node.start(measure())
            await asyncio.sleep(100.5)
            stop.set()
            counted, monotonic, wall_ms = await measuring
            assert counted == expected
            assert monotonic == pytest.approx(100.5 * rate)
            assert wall_ms == pytest.approx(100_500 * rate, abs=2)
            node.restart()

    play(scenario)


def test_a_timer_of_a_drifting_node_fires_not_before_its_time() -> None:
    async def scenario(simulation: Simulation, node: Node) -> None:
        async def sleep_often() -> None:
            loop, rng = asyncio.get_running_loop(), simulation.stream("test")
            for _ in range(2000):
                due = loop.time() + rng.random()
                fired = asyncio.Event()
                loop.call_at(due, fired.set)
                await fired.wait()
                assert due <= loop.time() < due + 1e-9

        node.set_drift(1.007)
        await node.run(sleep_often())

    play(scenario)


def test_a_narrow_path_takes_time_and_is_shared() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.connect()
        fabric, now = cluster.fabric, cluster.simulation.now
        fabric.set_bandwidth("a", "b", 100_000)

        async def send(count: int) -> float:
            started, before = now(), len(cluster.server.data)
            cluster.client.transport.write(bytes(count))
            while len(cluster.server.data) < before + count:
                await asyncio.sleep(0.001)
            return now() - started

        assert 1.0 < await send(100_000) < 1.3
        assert len(cluster.server.chunks) > 20, "the data arrives piece by piece"
        assert await send(100) < 0.3
        fabric.set_bandwidth("a", "b", None)
        assert await send(100_000) < 0.3
        with pytest.raises(ValueError, match="no node 'x'"):
            fabric.set_bandwidth("x", "b", 1)

    play_cluster(scenario)


def test_a_narrow_path_does_not_slow_the_other_direction() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.connect()
        cluster.fabric.set_bandwidth("a", "b", 1000)
        cluster.server.transport.write(bytes(100_000))
        await asyncio.sleep(0.3)
        assert len(cluster.client.data) == 100_000

    play_cluster(scenario)


def test_a_narrow_path_pauses_its_writer() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.connect()
        cluster.fabric.set_bandwidth("a", "b", 1_000_000)
        transport = cluster.client.transport
        transport.write(bytes(1_000_000))
        assert transport.get_write_buffer_size() > 0
        await asyncio.sleep(2)
        assert transport.get_write_buffer_size() == 0
        assert len(cluster.server.data) == 1_000_000 + len(b"hello")

    play_cluster(scenario)


def test_runs_with_slow_nodes_and_drift_are_repeatable() -> None:
    def run() -> str:
        async def scenario(simulation: Simulation, node: Node) -> str:
            node.set_speed(0.001, pause_s=0.1, pause_share=0.1)
            node.set_drift(1.003)
            for number in range(20):
                simulation.trace.note(number, await node.run(take_turns(simulation, 10)))
            return simulation.trace.digest()

        return str(play(scenario))

    assert run() == run()
