"""The active controller of a simulated quorum of one voter: how it fences brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from penstock.controller.decision import ControllerContext
from penstock.metadata.image import BrokerImage, Endpoint
from penstock.metadata.snapshot import partition_record, register_broker_record
from penstock.node.controller.controller import NodeController
from penstock.node.quorum import batches as quorum_batches
from penstock.node.quorum import log as quorum_log
from penstock.node.quorum.quorum import Quorum
from penstock.protocol.internal.metadata_nodes import UnregisterBrokerRecord
from penstock.protocol.internal.metadata_topics import TopicRecord
from penstock.records.batch import batches
from penstock.sim.quorum.node import (
    CLUSTER_ID,
    Listener,
    format_quorum_node,
    quorum_config,
    quorum_node,
)
from penstock.world.sim import Simulation
from tests.controller.clusters import partition

TOPIC = UUID(int=4711)
PARTITIONS = 300


def broker(broker_id: int) -> BrokerImage:
    endpoint = Endpoint("PLAINTEXT", f"b{broker_id}", 9092)
    return BrokerImage(
        id=broker_id,
        epoch=broker_id,
        incarnation_id=UUID(int=broker_id),
        endpoints=(endpoint,),
        fenced=False,
    )


def with_controller(
    test: Callable[[Simulation, Quorum, NodeController], Awaitable[None]],
) -> None:
    """Run a test with the controller of a cluster of brokers 7 and 8, which do not run. Broker 7
    leads all partitions."""
    simulation = Simulation(3)
    node = simulation.node("c1")
    for broker_id in (7, 8):
        simulation.node(f"b{broker_id}")

    async def main() -> None:
        config = quorum_config(1, {1: "c1:9093"}, "/d", {})
        format_quorum_node(node.world, config)
        async with (
            quorum_node(node.world, config, Listener()) as quorum,
            asyncio.TaskGroup() as tasks,
        ):
            context = ControllerContext.of(config, node.world.rng.uuid)
            controller = NodeController(
                node.world, config, CLUSTER_ID, quorum, context, tasks.create_task
            )
            await quorum.append(tuple(register_broker_record(broker(each)) for each in (7, 8)))
            records: list[object] = [TopicRecord(name="t", topic_id=TOPIC)]
            records += [
                partition_record(TOPIC, index, partition(7, 8)) for index in range(PARTITIONS)
            ]
            await quorum.append(tuple(records), is_atomic=False)
            await test(simulation, quorum, controller)

    simulation.run(node.run(main()))


def test_broker_is_fenced_although_the_records_do_not_fit_into_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 180,000 replicas they did not fit into the 8 MB of a batch: each controller failed."""
    monkeypatch.setattr(quorum_log, "MAX_METADATA_BATCH_BYTES", 10_000)
    monkeypatch.setattr(quorum_batches, "METADATA_FETCH_BYTES", 4_000)

    async def fences(_simulation: Simulation, quorum: Quorum, controller: NodeController) -> None:
        base_offset = quorum.log_end_offset
        controller.connection_lost(7, 7)
        while not quorum.image.brokers[7].fenced:
            await asyncio.sleep(0.1)
        states = quorum.image.topics["t"].partitions.values()
        assert [(state.leader, state.isr) for state in states] == [(8, (8,))] * PARTITIONS
        quorum._log.fetch_max_bytes = 1_000_000
        headers = [header for _at, header in batches(quorum._log.read(base_offset))]
        assert len(headers) > 3
        assert headers[-1].next_offset == quorum.log_end_offset

    with_controller(fences)


def test_broker_may_be_unregistered_while_the_controller_probes_it() -> None:
    async def unregisters(
        simulation: Simulation, quorum: Quorum, controller: NodeController
    ) -> None:
        simulation.network.delay_s = (0.05, 0.05)
        controller.connection_lost(7, 7)
        # Within the grace period of 50 ms and the 100 ms of a refused connection.
        await asyncio.sleep(0.1)
        await quorum.append((UnregisterBrokerRecord(broker_id=7, broker_epoch=7),))
        await asyncio.sleep(1.0)
        assert 7 not in quorum.image.brokers

    with_controller(unregisters)
