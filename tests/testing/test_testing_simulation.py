"""Other people's code in a simulated world."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.cluster import ClusterMetadata
from aiokafka.structs import BrokerMetadata

from penstock.testing.sim_aiokafka import SortedSet
from penstock.testing.simulation import SimulatedCluster, SimulationError, simulate
from penstock.world import World

FAULTS = ("kill", "pause", "cut", "reset", "slow")


async def copy_numbers(_world: World, cluster: SimulatedCluster) -> tuple[list[int], float]:
    """Write numbers and read them, with aiokafka."""
    began = time.monotonic()
    await cluster.create_topic("numbers")
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True
    )
    await producer.start()
    for number in range(10):
        await producer.send_and_wait("numbers", b"%d" % number)
        await asyncio.sleep(1.0)
    await producer.stop()
    await cluster.calm()
    consumer = AIOKafkaConsumer(
        "numbers",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="readers",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    numbers = [int((await consumer.getone()).value) for _number in range(10)]
    await consumer.stop()
    return numbers, time.monotonic() - began


def test_aiokafka_runs_in_virtual_time() -> None:
    began = time.monotonic()
    numbers, virtual_s = simulate(copy_numbers, 1)
    assert numbers == list(range(10))
    assert virtual_s >= 10
    assert time.monotonic() - began < virtual_s


@pytest.mark.parametrize("seed", range(3))
def test_an_idempotent_producer_writes_each_record_once_under_faults(seed: int) -> None:
    numbers, _virtual_s = simulate(copy_numbers, seed, brokers=3, faults=FAULTS)
    assert numbers == list(range(10))


async def fails_late(world: World, cluster: SimulatedCluster) -> None:
    await asyncio.sleep(20)
    numbers = f"{random.random()} {uuid.uuid4()} {os.urandom(4).hex()} {world.rng.random()}"
    cluster.note(f"{time.time()} {time.monotonic()} {numbers}")
    raise AssertionError("the test does not like this")


def test_a_failure_has_the_seed_and_happens_again() -> None:
    failures = []
    for _run in range(2):
        with pytest.raises(SimulationError, match=r"seed 5: .*does not like this") as failed:
            simulate(fails_late, 5, brokers=2, faults=FAULTS)
        failures.append(failed.value)
    first, second = failures
    assert first.seed == 5
    assert len(first.events) > 5
    assert first.events == second.events


async def many_brokers(_world: World, _cluster: SimulatedCluster) -> list[list[int]]:
    """Return the order in which aiokafka sees brokers without a rack."""
    orders = []
    for first in (1, 100):
        metadata = ClusterMetadata(bootstrap_servers=["h:1"])
        for node_id in range(first, first + 20):
            metadata._brokers[node_id] = BrokerMetadata(node_id, f"broker{node_id}", 9092, None)
        assert set(metadata.brokers()) == set(metadata._brokers.values())
        orders.append([broker.nodeId for broker in metadata.brokers()])
    return orders


def test_the_order_of_brokers_does_not_depend_on_addresses() -> None:
    """aiokafka chooses a random one of a set of tuples with None, whose hash is an address before
    Python 3.12."""
    orders = simulate(many_brokers, 1)
    assert orders == [sorted(order, key=str) for order in orders]
    assert not isinstance(ClusterMetadata().brokers(), SortedSet), "outside of a run"


async def waits_for_moments(_world: World, cluster: SimulatedCluster) -> None:
    async def wait() -> None:
        for clock in (time.monotonic, asyncio.get_running_loop().time):
            until = clock() + 0.001
            while clock() <= until:
                await asyncio.sleep(0)

    await wait()
    await cluster.machine("service").run(wait())


def test_time_passes_while_a_program_computes() -> None:
    """aiokafka's automatic commits wait like this."""
    simulate(waits_for_moments, 1)


async def timestamp_of_a_record(_world: World, cluster: SimulatedCluster) -> float:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    await producer.start()
    sent = await producer.send_and_wait("numbers", b"1")
    await producer.stop()
    return float(time.time() - sent.timestamp / 1000)


def test_timestamps_of_records_are_virtual() -> None:
    assert 0 <= simulate(timestamp_of_a_record, 1) < 60


@pytest.mark.more
def test_a_seed_runs_in_the_same_way_in_every_process() -> None:
    """Addresses differ between processes, and the strings' hashes are fixed."""
    command = [sys.executable, "-m", "tests.testing.simulated_group", "3"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    root = Path(__file__).parent.parent.parent
    runs = [
        subprocess.run(command, env=environment, cwd=root, check=True, capture_output=True).stdout
        for _run in range(3)
    ]
    assert runs[0].count(b"\n") > 100
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize(("hash_seed", "is_told"), [(None, True), ("random", True), ("0", False)])
def test_a_failure_says_how_to_repeat_it_in_another_process(
    monkeypatch: pytest.MonkeyPatch, hash_seed: str | None, is_told: bool
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    if hash_seed is not None:
        monkeypatch.setenv("PYTHONHASHSEED", hash_seed)
    with pytest.raises(SimulationError) as failed:
        simulate(fails_late, 1)
    assert ("set PYTHONHASHSEED=0" in str(failed.value)) == is_told


def test_another_seed_has_other_faults() -> None:
    events = set()
    for seed in (1, 2):
        with pytest.raises(SimulationError) as failed:
            simulate(fails_late, seed, faults=FAULTS)
        events.add(failed.value.events)
    assert len(events) == 2


def test_time_and_random_are_real_again_after_a_run() -> None:
    before, state = time.time, random.getstate()
    with pytest.raises(SimulationError):
        simulate(fails_late, 1)
    assert time.time is before
    assert random.getstate() == state


async def service_that_fails(_world: World, cluster: SimulatedCluster) -> None:
    async def service() -> None:
        await asyncio.sleep(1)
        raise OSError("no disk")

    cluster.machine("service").start(service())
    await asyncio.sleep(60)


async def waits_forever(_world: World, _cluster: SimulatedCluster) -> None:
    await asyncio.Event().wait()


def test_a_service_that_fails_and_a_test_that_does_not_end_fail_the_run() -> None:
    with pytest.raises(SimulationError, match="no disk"):
        simulate(service_that_fails, 1)
    with pytest.raises(SimulationError, match="TimeoutError"):
        simulate(waits_forever, 1, within_s=30)


def test_a_fault_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown faults \\['fire'\\]"):
        simulate(waits_forever, 1, faults=("fire",))
