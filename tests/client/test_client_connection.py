"""A connection to a scripted broker in the simulated world: versions, timeouts, invalid peers."""

from __future__ import annotations

import pytest

from penstock.client.client import Client
from penstock.client.consumer.consumer import BEGINNING
from penstock.client.errors import ConnectionFailed, NotKafka
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.metadata import MetadataRequest, MetadataResponse
from penstock.world.sim import Simulation
from tests.client.scripted_broker import TOPIC, ScriptedBroker, play
from tests.client.workload import PARTITION, numbers, produce, requested_versions


@pytest.mark.parametrize("newest", [True, False])
def test_the_newest_versions_that_both_sides_support_are_used(newest: bool) -> None:
    broker = ScriptedBroker()
    if not newest:
        broker.served |= {0: (3, 12), 1: (4, 12), 2: (1, 4), 3: (0, 9), 18: (0, 0), 22: (0, 1)}

    async def scenario(client: Client) -> None:
        await produce(client, 3)
        async with client.consumer() as consumer:
            await consumer.assign({PARTITION: BEGINNING})
            assert [record.value for record in await consumer.poll()] == numbers(3)

    play(broker, scenario)
    expected = {0: 13, 1: 18, 2: 11, 3: 13, 22: 5} if newest else {0: 12, 1: 12, 2: 4, 3: 9, 22: 1}
    assert requested_versions(broker) == expected


def test_topics_without_an_id_are_identified_by_name() -> None:
    broker = ScriptedBroker()
    broker.served |= {3: (0, 9)}

    async def scenario(client: Client) -> None:
        await produce(client, 1)

    play(broker, scenario)
    assert requested_versions(broker)[0] == 12


@pytest.mark.parametrize(
    ("greeting", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"\0\0\0\x04\0\0\0\x63", "correlation id 99, which no pending request has"),
        (b"\x15\x03\x03\0\x02", "frame"),
    ],
)
def test_a_peer_that_is_not_kafka_is_refused_with_the_reason(greeting: bytes, reason: str) -> None:
    broker = ScriptedBroker()
    broker.greeting = greeting

    async def scenario(_client: Client) -> None:
        raise AssertionError("the client connected")

    with pytest.raises(ConnectionFailed, match=reason):
        play(broker, scenario)


def test_unreachable_bootstrap_servers_are_all_named() -> None:
    async def main() -> None:
        with pytest.raises(
            ConnectionFailed, match=r"cannot connect to b:1: .*; cannot connect to b:2: "
        ):
            async with Client(node.world, "b:1,b:2"):
                raise AssertionError("the client connected")

    simulation = Simulation(seed=1)
    node = simulation.node("a")
    simulation.node("b")
    simulation.run(node.run(main()))


def test_a_request_timeout_closes_the_connection_and_the_next_call_reconnects() -> None:
    broker = ScriptedBroker()

    async def scenario(client: Client) -> None:
        broker.silent = True
        connection = await client.cluster.any_broker()
        first = connection.send(MetadataRequest(), MetadataResponse, timeout_s=5)
        second = connection.send(MetadataRequest(), MetadataResponse)
        with pytest.raises(ConnectionFailed, match="b:9092 did not respond to Metadata within 5 s"):
            await first
        with pytest.raises(ConnectionFailed, match="did not respond"):
            await second
        assert connection.closed
        broker.silent = False
        assert await client.admin.list_topics() == [TOPIC]

    play(broker, scenario)


def test_a_cancelled_request_does_not_affect_the_others() -> None:
    async def scenario(client: Client) -> None:
        connection = await client.cluster.any_broker()
        first = connection.send(MetadataRequest(), MetadataResponse)
        second = connection.send(MetadataRequest(), MetadataResponse)
        assert connection.in_flight == 2
        first.cancel()
        assert (await second).cluster_id == "scripted"
        assert connection.in_flight == 0

    play(ScriptedBroker(), scenario)


def test_an_unknown_topic_fails_before_the_request_timeout() -> None:
    async def scenario(client: Client) -> None:
        now = client.cluster.world.clock.monotonic
        began = now()
        with pytest.raises(KafkaError, match="topic absent does not exist") as unknown:
            await client.cluster.topic("absent")
        assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert 1 < now() - began < 4
        with pytest.raises(KafkaError, match="events has no partition 7"):
            await client.cluster.leader(TopicPartition(TOPIC, 7))

    play(ScriptedBroker(), scenario)


def test_an_invalid_response_closes_the_connection() -> None:
    broker = ScriptedBroker()

    async def scenario(client: Client) -> None:
        connection = await client.cluster.any_broker()
        broker.greeting = b"\0\0\0\x01\0"
        with pytest.raises(NotKafka, match="a response of 1 bytes has no correlation id"):
            await connection.call(MetadataRequest(), MetadataResponse)
        assert connection.closed

    play(broker, scenario)
