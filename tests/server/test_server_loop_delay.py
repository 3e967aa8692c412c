"""The event loop's delay: measured, logged if it is long, and not measured in a simulation."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from penstock.server.loop_delay import INTERVAL_S, LoopDelay
from penstock.world import World
from penstock.world.real import run
from penstock.world.sim import Simulation
from tests.server.serving import respond_now, serving


class Hands:
    """A clock that the test moves."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return 0


def delays(*late_s: float) -> LoopDelay:
    """Return the measurement after timers that fired with these delays."""

    async def scenario() -> LoopDelay:
        clock = Hands()
        delay = LoopDelay(clock)
        delay.start()
        for late in late_s:
            clock.now += INTERVAL_S + late
            delay.stop()
            delay._fire()
        delay.stop()
        return delay

    return asyncio.run(scenario())


def test_percentiles_count_moments_and_not_timers() -> None:
    delay = delays(*[0.0005] * 990, 0.1005, *[0.0005] * 9)
    # A stall of 100 ms delays ten moments: they count as the ten timers that should have fired.
    assert delay.percentile(50) == 1.0
    assert delay.percentile(98) == 1.0
    assert 80 <= delay.percentile(99.8) <= 101
    assert delay.worst_ms == pytest.approx(100.5)


def test_percentiles_are_zero_before_the_first_measurement() -> None:
    delay = LoopDelay(Hands())
    assert (delay.percentile(50), delay.percentile(99.9), delay.worst_ms) == (0, 0, 0)


def test_a_suspended_machine_adds_a_bounded_number_of_delays() -> None:
    delay = delays(0.0, 36_000.0)
    assert delay.worst_ms == pytest.approx(36_000_000)
    assert delay.percentile(99.9) == delay.worst_ms


def test_long_delays_are_logged_at_a_bounded_rate(caplog: pytest.LogCaptureFixture) -> None:
    delays(*[0.2] * 10)
    assert caplog.text.count("the event loop was blocked") == 1
    delays(*[0.2] * 100)  # 21 s in all
    assert caplog.text.count("the event loop was blocked") == 1 + 3


def test_a_server_measures_its_event_loop(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> float:
        async with serving(world, respond_now) as served:
            await asyncio.sleep(0.05)
            time.sleep(0.15)
            await asyncio.sleep(0.05)
            return served.server.loop_delay.worst_ms

    with caplog.at_level(logging.INFO, "penstock.server"):
        worst = run(scenario)
    assert worst >= 130
    assert "the event loop was blocked" in caplog.text
    assert "loop delay since the start: p50 " in caplog.text


def test_the_measurement_ends_in_a_simulation() -> None:
    simulation = Simulation(seed=1)
    node = simulation.node("n1")

    async def scenario() -> str:
        async with serving(node.world, respond_now) as served:
            await asyncio.sleep(100)
            return str(served.server.loop_delay)

    assert simulation.run(node.run(scenario())) == "p50 0.0 p99 0.0 p99.9 0.0 worst 0.0 ms"
