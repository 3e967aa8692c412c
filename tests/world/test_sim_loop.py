"""The event loop in virtual time: asyncio's primitives work on it, and failures are reported."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from penstock.errors import InvariantBroken
from penstock.world.sim import Simulation, SimulationFailed, SimulationStuck
from penstock.world.sim import loop as sim_loop

T = TypeVar("T")


def play(main: Coroutine[Any, Any, T]) -> T:
    return Simulation(seed=1).run(main)


def test_virtual_time_takes_no_real_time() -> None:
    async def main() -> float:
        started = asyncio.get_running_loop().time()
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time() - started

    began = time.monotonic()
    assert play(main()) == 3600
    assert time.monotonic() - began < 60


def test_timers_fire_by_time_and_then_by_age() -> None:
    async def main() -> list[int]:
        loop, fired = asyncio.get_running_loop(), list[int]()
        for number, delay in enumerate([3, 1, 2, 1, 3]):
            loop.call_later(delay, fired.append, number)
        loop.call_later(2.5, fired.append, 99).cancel()
        loop.call_soon(fired.append, -1)
        await asyncio.sleep(4)
        return fired

    assert play(main()) == [-1, 1, 3, 2, 0, 4]


def test_a_cancelled_timer_does_not_move_the_clock() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        started = loop.time()
        loop.call_later(1000, print).cancel()
        await asyncio.sleep(1)
        await asyncio.wait_for(asyncio.sleep(1), 500)
        return loop.time() - started

    assert play(main()) == 2


def test_asyncio_primitives_work() -> None:
    async def main() -> list[object]:
        seen: list[object] = []
        event, condition, queue = asyncio.Event(), asyncio.Condition(), asyncio.Queue[int](1)

        async def waiter() -> None:
            await event.wait()
            seen.append("event")
            async with condition:
                await condition.wait()
            seen.append("condition")

        async def producer() -> None:
            for number in range(3):
                await queue.put(number)

        async with asyncio.TaskGroup() as group:
            group.create_task(waiter())
            group.create_task(producer())
            await asyncio.sleep(1)
            event.set()
            await asyncio.sleep(1)
            async with condition:
                condition.notify_all()
            seen.extend([await queue.get() for _ in range(3)])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.Event().wait()
        seen.append(await asyncio.gather(asyncio.sleep(2, "slow"), asyncio.sleep(1, "quick")))
        return seen

    assert play(main()) == ["event", "condition", 0, 1, 2, ["slow", "quick"]]


def test_a_task_group_cancels_its_tasks_in_creation_order() -> None:
    """asyncio keeps them in a set, so their hashes must not be addresses."""

    async def main() -> list[int]:
        cancelled: list[int] = []

        async def wait(number: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(number)

        async def fail() -> None:
            raise ValueError

        async def group_of_forty() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(40):
                    group.create_task(wait(number))
                group.create_task(fail())

        with pytest.raises(ExceptionGroup):
            await group_of_forty()
        return cancelled

    assert play(main()) == list(range(40))


def test_a_deadlock_is_reported_with_the_waiting_tasks() -> None:
    async def wait_forever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(
        SimulationStuck, match=r"seed 1.*deadlock(.|\n)*wait_forever.*test_sim_loop.py"
    ):
        play(wait_forever())


def test_a_livelock_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim_loop, "MAX_STEPS_AT_ONE_TIME", 1000)

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(SimulationStuck, match="livelock"):
        play(spin())


def test_max_steps_bounds_a_run() -> None:
    async def tick() -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(SimulationStuck, match=r"after .* steps"):
        Simulation(seed=1, max_steps=1000).run(tick())


@pytest.mark.parametrize("kept", [False, True])
def test_an_exception_of_a_task_that_is_not_awaited_fails_the_run(kept: bool) -> None:
    """Also if the task is still referenced at the end, for instance by a reference cycle."""
    tasks: list[object] = []

    async def fail() -> None:
        raise ValueError("unseen")

    async def main() -> None:
        tasks.append(asyncio.create_task(fail()))
        await asyncio.sleep(1)
        if not kept:
            tasks.clear()
            gc.collect()
            await asyncio.sleep(10**6)

    with pytest.raises(SimulationFailed, match="unseen") as caught:
        play(main())
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("error", [ValueError, InvariantBroken])
def test_an_exception_in_a_callback_fails_the_run_immediately(error: type[BaseException]) -> None:
    async def main() -> None:
        def fail() -> None:
            raise error("in a callback")

        asyncio.get_running_loop().call_later(1, fail)
        await asyncio.sleep(10**6)

    with pytest.raises(SimulationFailed, match=r"at 86401.0.*in a callback"):
        play(main())


def test_the_exception_of_main_is_raised_and_other_tasks_are_cancelled() -> None:
    ended: list[str] = []

    async def other() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append("other")

    async def main() -> None:
        keep = asyncio.create_task(other())
        await asyncio.sleep(1)
        raise LookupError(f"main, not {keep.get_name()}")

    with pytest.raises(LookupError, match="main"):
        play(main())
    assert ended == ["other"]


def test_threads_and_sockets_are_refused() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(RuntimeError, match=r"world\.offload"):
            await asyncio.to_thread(print)
        with pytest.raises(RuntimeError, match=r"world\.network"):
            await loop.create_connection(asyncio.Protocol, "127.0.0.1", 1)
        with pytest.raises(RuntimeError, match=r"world\.network"):
            await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)

    play(main())
