"""Cordoned log directories get no new replicas (KIP-1066): the broker's side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.client.admin.configs import ConfigResourceType
from penstock.client.admin.log_dirs import alter_replica_log_dirs, describe_log_dirs
from penstock.client.client import Client
from penstock.config.node import ConfigError, read_node_config
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.node.broker.formatting import format_directories
from penstock.node.node import Node
from penstock.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from penstock.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.start import serving
from penstock.world.sim import Simulation

PROPERTIES = b"""\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://n1:9092,CONTROLLER://n1:9093
controller.listener.names=CONTROLLER
log.dirs=/d0,/d1
"""
CORDONED = "cordoned.log.dirs"
Work = Callable[[Node, Client], Coroutine[Any, Any, None]]


def run_broker(*lives: Work, properties: bytes = PROPERTIES) -> None:
    """Run the broker once for each function, on the same disk."""
    simulation = Simulation(1)
    machine = simulation.node("n1")
    config = read_node_config(properties, "test")

    async def live(work: Work) -> None:
        async with (
            serving(machine.world, config) as (node, bootstrap),
            Client(machine.world, bootstrap) as client,
        ):
            await work(node, client)

    async def main() -> None:
        format_directories(
            machine.world.disk,
            machine.world.rng,
            config,
            "simulated-cluster-id00",
            ignore_formatted=False,
            say=lambda _line: None,
        )
        for work in lives:
            await machine.run(live(work))

    simulation.run(main())


async def cordon(node: Node, client: Client, value: str) -> None:
    """Set the config and wait until the controller has recorded the cordon."""
    await client.admin.alter_configs(ConfigResourceType.BROKER, "1", put={CORDONED: value})
    await recorded(node, value)


async def recorded(node: Node, value: str) -> None:
    paths = {"*": ["/d0", "/d1"]}.get(value, [path for path in value.split(",") if path])
    ids = {directory.id for directory in node.replicas.store.directories if directory.path in paths}
    async with asyncio.timeout(10):
        while set(node.metadata.image.brokers[1].cordoned_directories) != ids:
            await asyncio.sleep(0.05)


async def cordoned_paths(client: Client) -> list[str]:
    found = await describe_log_dirs(client.cluster, 1)
    return [directory.path for directory in found if directory.is_cordoned]


async def directories_of(node: Node, topic: str, partitions: int) -> set[str]:
    names = [TopicPartition(topic, index) for index in range(partitions)]
    async with asyncio.timeout(10):
        while any(name not in node.replicas.partitions for name in names):
            await asyncio.sleep(0.01)
    return {node.replicas.partitions[name].directory.path for name in names}


def test_new_replicas_go_to_the_directories_that_are_not_cordoned() -> None:
    async def work(node: Node, client: Client) -> None:
        await cordon(node, client, "/d0")
        assert await cordoned_paths(client) == ["/d0"]
        await client.admin.create_topic("orders", partitions=4)
        assert await directories_of(node, "orders", 4) == {"/d1"}
        with_error = await alter_replica_log_dirs(
            client.cluster, 1, {TopicPartition("orders", 0): "/d0"}
        )
        error = with_error[TopicPartition("orders", 0)]
        assert error is not None
        assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        await cordon(node, client, "")
        assert await cordoned_paths(client) == []
        await client.admin.create_topic("payments", partitions=8)
        assert await directories_of(node, "payments", 8) == {"/d0", "/d1"}

    run_broker(work)


def test_a_broker_with_only_cordoned_directories_gets_no_topic_and_serves_its_own() -> None:
    async def work(node: Node, client: Client) -> None:
        await client.admin.create_topic("orders")
        await cordon(node, client, "*")
        assert await cordoned_paths(client) == ["/d0", "/d1"]
        with pytest.raises(KafkaError) as refused:
            await client.admin.create_topic("payments")
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        with pytest.raises(KafkaError) as refused:
            await client.admin.create_partitions("orders", 2)
        assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        async with client.producer() as producer:
            await (await producer.send("orders", b"still served"))

    run_broker(work)


def test_a_cordon_outlives_a_restart() -> None:
    async def cordon_all(node: Node, client: Client) -> None:
        await cordon(node, client, "*")

    async def refuse(node: Node, client: Client) -> None:
        assert len(node.metadata.image.brokers[1].cordoned_directories) == 2
        assert await cordoned_paths(client) == ["/d0", "/d1"]
        with pytest.raises(KafkaError):
            await client.admin.create_topic("payments")
        await client.admin.alter_configs(ConfigResourceType.BROKER, "1", delete=[CORDONED])
        await recorded(node, "")
        await client.admin.create_topic("payments")

    run_broker(cordon_all, refuse)


SET, _DELETE, APPEND, SUBTRACT = range(4)


async def altered(client: Client, name: str, *changes: tuple[int, str]) -> list[ErrorCode]:
    """Change the cordons of a broker, one request each. Return the error codes."""
    resource, codes = IncrementalAlterConfigsRequest.Resource, []
    for operation, value in changes:
        config = resource.Config(name=CORDONED, config_operation=operation, value=value)
        request = IncrementalAlterConfigsRequest(
            resources=(
                resource(resource_type=4, resource_name=name, configs=(config,)),
                resource(resource_type=2, resource_name="missing", configs=()),
            )
        )
        response = await client.cluster.call(request, IncrementalAlterConfigsResponse)
        by_name = {each.resource_name: ErrorCode(each.error_code) for each in response.responses}
        assert by_name.pop("missing") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        codes.append(by_name.pop(name))
        assert not by_name
    return codes


def test_paths_that_are_not_in_log_dirs_are_refused() -> None:
    """They were accepted and ignored: the operator believed that the disk was cordoned."""
    none, refused = ErrorCode.NONE, ErrorCode.INVALID_REQUEST

    async def work(node: Node, client: Client) -> None:
        for value in ("/d7", "/d1/", "*,/d0", "/d0,/d7"):
            with pytest.raises(KafkaError) as error:
                await client.admin.alter_configs(
                    ConfigResourceType.BROKER, "1", put={CORDONED: value}
                )
            assert error.value.code is refused
        legacy = AlterConfigsRequest.Resource(
            resource_type=4,
            resource_name="1",
            configs=(AlterConfigsRequest.Resource.Config(name=CORDONED, value="/d7"),),
        )
        response = await client.cluster.call(
            AlterConfigsRequest(resources=(legacy,)), AlterConfigsResponse
        )
        assert [each.error_code for each in response.responses] == [refused]
        changes = (SET, "/d0"), (APPEND, "/d7"), (APPEND, "*"), (APPEND, "/d1"), (SUBTRACT, "/d0")
        assert await altered(client, "1", *changes) == [none, refused, refused, none, none]
        await recorded(node, "/d1")

    run_broker(work)


def test_only_a_broker_itself_accepts_paths_to_cordon() -> None:
    async def work(_node: Node, client: Client) -> None:
        refused, unknown = ErrorCode.INVALID_REQUEST, ErrorCode.BROKER_ID_NOT_REGISTERED
        assert await altered(client, "2", (SET, "/d0"), (SET, "*")) == [refused, unknown]

    run_broker(work)


def test_the_properties_file_may_cordon_directories() -> None:
    async def work(node: Node, client: Client) -> None:
        await recorded(node, "/d1")
        assert await cordoned_paths(client) == ["/d1"]

    run_broker(work, properties=PROPERTIES + b"cordoned.log.dirs=/d1\n")


def test_the_properties_file_may_not_cordon_other_directories() -> None:
    with pytest.raises(ConfigError, match=r"/d9 is not in log\.dirs"):
        read_node_config(PROPERTIES + b"cordoned.log.dirs=/d9\n", "test")
    with pytest.raises(ConfigError, match=r"\* stands for all log directories"):
        read_node_config(PROPERTIES + b"cordoned.log.dirs=*,/d0\n", "test")
