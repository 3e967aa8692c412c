"""Groups on simulated clusters of real nodes: an outage of replicas removes no member, and one
client's oversized request disturbs no other group."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.client.connection import Connection, open_connection
from penstock.config.node import read_node_config
from penstock.errors import ErrorCode, KafkaError
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from penstock.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from penstock.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.sim.cluster.nodes import ClusterNode, build_nodes
from penstock.sim.planted import PlantedBug
from penstock.sim.planted.groups import (
    oversized_step_unloads_its_shard,
    sessions_time_out_below_min_insync,
    write_below_min_insync_unloads_its_shard,
)
from penstock.world.sim import Simulation

CONTROLLER = 101


def config(node_id: int, brokers: int) -> str:
    is_controller = node_id == CONTROLLER
    listener = f"CONTROLLER://n{node_id}:9093" if is_controller else f"PLAINTEXT://n{node_id}:9092"
    return f"""process.roles={"controller" if is_controller else "broker"}
node.id={node_id}
listeners={listener}
controller.listener.names=CONTROLLER
controller.quorum.voters={CONTROLLER}@n{CONTROLLER}:9093
log.dirs=/d0
offsets.topic.num.partitions=1
offsets.topic.replication.factor={brokers}
min.insync.replicas={min(brokers, 2)}
group.initial.rebalance.delay.ms=0
"""


def fail_on_end(node_id: int, error: str) -> None:
    pytest.fail(f"node {node_id} ended: {error}")


class Cluster:
    """A controller, brokers, and the machine of the clients."""

    def __init__(self, simulation: Simulation, brokers: int) -> None:
        self.client = simulation.node("client").world
        self.coordinator = 1
        configs = {
            f"n{node_id}": read_node_config(config(node_id, brokers).encode(), "test")
            for node_id in (CONTROLLER, *range(1, brokers + 1))
        }
        self.nodes = build_nodes(simulation, configs, lambda _line: None, fail_on_end)
        for node in self.nodes.values():
            node.start()

    async def connect(self) -> Connection:
        return await open_connection(
            self.client,
            f"n{self.coordinator}",
            9092,
            client_id="test",
            connect_timeout_s=5,
            request_timeout_s=60,
        )

    async def find_coordinator(self) -> None:
        request = FindCoordinatorRequest(coordinator_keys=("readers",))
        while True:
            try:
                connection = await self.connect()
                found = await connection.call(request, FindCoordinatorResponse)
                connection.close()
                if found.coordinators and not found.coordinators[0].error_code:
                    self.coordinator = found.coordinators[0].node_id
                    return
            except KafkaError:
                pass
            await asyncio.sleep(0.5)

    def others(self) -> list[ClusterNode]:
        """Return the brokers that do not coordinate."""
        coordinator = f"n{self.coordinator}"
        return [
            node for name, node in self.nodes.items() if name not in (coordinator, f"n{CONTROLLER}")
        ]


Scenario = Callable[[Cluster], Awaitable[None]]


def run(scenario: Scenario, brokers: int) -> None:
    simulation = Simulation(3)
    client = simulation.node("runner")

    async def main() -> None:
        cluster = Cluster(simulation, brokers)
        await cluster.find_coordinator()
        await scenario(cluster)

    simulation.run(client.run(main()))


async def create_topic(connection: Connection, name: str, partitions: int) -> None:
    topic = CreateTopicsRequest.Topic(name=name, num_partitions=partitions, replication_factor=1)
    request = CreateTopicsRequest(topics=(topic,), timeout_ms=5_000)
    created = await connection.call(request, CreateTopicsResponse)
    assert created.topics[0].error_code == ErrorCode.NONE


async def beat(connection: Connection, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
    request = ConsumerGroupHeartbeatRequest(
        **{"group_id": "readers", "member_id": "A" * 21 + "Q", "member_epoch": epoch, **fields}
    )
    return await connection.call(request, ConsumerGroupHeartbeatResponse)


async def join(connection: Connection, group_id: str, member_id: str = "") -> JoinGroupResponse:
    protocol = JoinGroupRequest.Protocol(name="range", metadata=bytes(10))
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=(protocol,),
    )
    return await connection.call(request, JoinGroupResponse)


async def classic_member(connection: Connection, group_id: str) -> JoinGroupResponse:
    """Make a stable classic group with one member."""
    required = await join(connection, group_id)
    joined = await join(connection, group_id, required.member_id)
    assert joined.error_code == ErrorCode.NONE
    request = SyncGroupRequest(
        group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id
    )
    synced = await connection.call(request, SyncGroupResponse)
    assert synced.error_code == ErrorCode.NONE
    return joined


async def classic_beat(connection: Connection, group_id: str, joined: JoinGroupResponse) -> int:
    request = HeartbeatRequest(
        group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id
    )
    return int((await connection.call(request, HeartbeatResponse)).error_code)


async def survive_an_outage(cluster: Cluster) -> None:
    """Two of three replicas of __consumer_offsets are down for longer than every session."""
    connection = await cluster.connect()
    await create_topic(connection, "orders", 2)
    await asyncio.sleep(2)
    joined = await beat(
        connection,
        0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )
    assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 1)
    classic = await classic_member(connection, "classic")
    others = cluster.others()
    for node in others:
        node.crash(power_loss=False)
    await asyncio.sleep(1)
    idle: Counter[int] = Counter()
    changing: Counter[int] = Counter()
    for _ in range(70):
        await asyncio.sleep(1)
        idle[(await beat(connection, 1)).error_code] += 1
        idle[await classic_beat(connection, "classic", classic)] += 1
    # The member's later heartbeats are refused, for longer than its session. A refused one does not
    # make the coordinator load the group again, which the next one would notice.
    for _ in range(70):
        await asyncio.sleep(1)
        beats = [beat(connection, 1, subscribed_topic_names=("orders", "more")) for _ in range(2)]
        for subscribed in await asyncio.gather(*beats):
            changing[subscribed.error_code] += 1
    assert idle == {ErrorCode.NONE: 140}
    assert changing == {ErrorCode.COORDINATOR_NOT_AVAILABLE: 140}
    for node in others:
        node.restart()
    deadline = cluster.client.clock.monotonic() + 60
    while subscribed.error_code:
        assert subscribed.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert cluster.client.clock.monotonic() < deadline
        await asyncio.sleep(0.5)
        subscribed = await beat(connection, 1, subscribed_topic_names=("orders", "more"))
    assert subscribed.member_epoch == 2


async def refuse_an_oversized_heartbeat(cluster: Cluster) -> None:
    victim, bully = await cluster.connect(), await cluster.connect()
    first = await classic_member(victim, "victim")
    # A second member makes the first one rejoin, and its JoinGroup waits for that.
    required = await join(bully, "victim")
    waiting = asyncio.ensure_future(join(bully, "victim", required.member_id))
    attacker = await cluster.connect()
    names = tuple(f"topic-{number:034d}" for number in range(30_000))
    refused = await beat(
        attacker,
        0,
        group_id="bully",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=names,
        topic_partitions=(),
    )
    assert refused.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert not waiting.done()
    assert await classic_beat(victim, "victim", first) == ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = await join(victim, "victim", first.member_id)
    assert (rejoined.error_code, (await waiting).error_code) == (ErrorCode.NONE, ErrorCode.NONE)


def test_no_member_is_removed_while_the_coordinator_cannot_write() -> None:
    run(survive_an_outage, brokers=3)


def test_an_oversized_heartbeat_is_refused_and_disturbs_no_other_group() -> None:
    run(refuse_an_oversized_heartbeat, brokers=1)


@pytest.mark.parametrize(
    ("plant", "scenario", "brokers"),
    [
        (oversized_step_unloads_its_shard, refuse_an_oversized_heartbeat, 1),
        (sessions_time_out_below_min_insync, survive_an_outage, 3),
        (write_below_min_insync_unloads_its_shard, survive_an_outage, 3),
    ],
)
def test_planted_defects_are_found(plant: PlantedBug, scenario: Scenario, brokers: int) -> None:
    with plant(), pytest.raises(AssertionError):
        run(scenario, brokers)
