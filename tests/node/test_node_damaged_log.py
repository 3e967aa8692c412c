"""One flipped bit in a sealed segment: the broker reports the log, and everything else lives on
(rule 20)."""

from __future__ import annotations

import asyncio
import logging

import pytest

from penstock.client.client import Client
from penstock.config.node import read_node_config
from penstock.ids import TopicPartition
from penstock.log.log import Log
from penstock.node.broker.formatting import format_directories
from penstock.node.node import Node
from penstock.records.batch import batches
from penstock.start import serving
from penstock.world.sim import Simulation
from tests.log.compacting import keyed

PROPERTIES = b"""\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://n1:9092,CONTROLLER://n1:9093
controller.listener.names=CONTROLLER
log.dirs=/d0
log.cleaner.min.cleanable.ratio=0.0
"""
HURT, HEALTHY = TopicPartition("hurt", 0), TopicPartition("healthy", 0)
MAGIC_AT = 16
POLICIES: dict[str, dict[str, str]] = {
    "retention": {"retention.ms": "3600000"},
    "compaction": {"cleanup.policy": "compact", "max.compaction.lag.ms": "3600000"},
}


@pytest.mark.parametrize("upkeep", POLICIES)
def test_a_flipped_bit_in_a_sealed_segment_damages_its_log_and_no_other(
    upkeep: str, caplog: pytest.LogCaptureFixture
) -> None:
    simulation = Simulation(1)
    machine = simulation.node("n1")
    config = read_node_config(PROPERTIES, "test")

    async def write() -> None:
        async with (
            serving(machine.world, config) as (node, bootstrap),
            Client(machine.world, bootstrap) as client,
        ):
            for partition in (HURT, HEALTHY):
                await client.admin.create_topic(
                    partition.topic, configs={**POLICIES[upkeep], "internal.segment.bytes": "1000"}
                )
                log = await the_log(node, partition)
                while len(log.segments) < 4:
                    now_ms = machine.world.clock.now_ms()
                    log.append_as_leader(keyed(("key", "value" * 20), timestamp=now_ms), 0)
                    await asyncio.sleep(0.01)

    async def flip_a_bit() -> None:
        [segment, *_later] = [
            name for name in machine.world.disk.list("/d0/hurt-0") if name.endswith(".log")
        ]
        data = machine.world.disk.read(f"/d0/hurt-0/{segment}")
        [*_earlier, (position, _header)] = batches(data)
        machine.drive.flip_bit(f"/d0/hurt-0/{segment}", position + MAGIC_AT, 0)

    async def outlive_the_damage(seconds: float) -> int:
        """Return how many bytes upkeep removed from the healthy log."""
        async with serving(machine.world, config) as (node, _bootstrap):
            hurt, healthy = await the_log(node, HURT), await the_log(node, HEALTHY)
            before = healthy.size
            await asyncio.sleep(seconds)
            assert not node.supervisor.has_failed
            assert hurt.damage is not None
            assert healthy.damage is None
            end_offset = hurt.end_offset
            hurt.append_as_leader(keyed(("key", "value")), 9)
            assert hurt.end_offset == end_offset + 1
            return before - healthy.size

    async def main() -> None:
        format_directories(
            machine.world.disk,
            machine.world.rng,
            config,
            "simulated-cluster-id00",
            ignore_formatted=False,
            say=lambda _line: None,
        )
        await machine.run(write())
        await machine.run(flip_a_bit())
        removed = await machine.run(outlive_the_damage(400))
        removed += await machine.run(outlive_the_damage(4_000))
        assert removed > 0, "the healthy log was cleaned"

    with caplog.at_level(logging.ERROR):
        simulation.run(main())
    assert f"{HURT} is damaged: " in caplog.text


async def the_log(node: Node, partition: TopicPartition) -> Log:
    async with asyncio.timeout(60):
        while partition not in node.replicas.store.logs:
            await asyncio.sleep(0.01)
    return node.replicas.store.logs[partition]
