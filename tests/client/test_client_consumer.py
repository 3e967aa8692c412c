"""The consumer against a scripted broker in the simulated world."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client.client import Client
from penstock.client.consumer.completed_fetch import ConsumerRecord
from penstock.client.consumer.consumer import BEGINNING, END, OffsetSpec
from penstock.client.offsets import IsolationLevel
from penstock.errors import KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.fetch import FetchRequest, FetchResponse
from penstock.records.build import end_transaction_marker
from tests.client.scripted_broker import TOPIC, ScriptedBroker, play
from tests.client.test_client_completed_fetch import batch
from tests.client.workload import PARTITION, numbers, produce, written


def test_positions_may_be_inside_a_batch_and_fetches_use_no_session() -> None:
    broker = ScriptedBroker()

    async def scenario(client: Client) -> None:
        async with client.producer() as producer:
            for value in (b"a", b"b", b"c"):
                await producer.send(TOPIC, value, timestamp=1000 + value[0])
        async with client.consumer() as consumer:
            await consumer.assign({PARTITION: 1})
            records = await consumer.poll()
            assert [(record.offset, record.value) for record in records] == [(1, b"b"), (2, b"c")]
            assert consumer.positions == {PARTITION: 3}
            assert await consumer.poll() == []
            await consumer.assign({PARTITION: OffsetSpec(1000 + ord("c"))})
            assert consumer.positions == {PARTITION: 2}
            await consumer.assign({PARTITION: OffsetSpec(5000)})
            assert consumer.positions == {PARTITION: 3}
            await consumer.assign({PARTITION: END})
            assert consumer.positions == await consumer.end_offsets() == {PARTITION: 3}
            await consumer.assign({PARTITION: 99})
            with pytest.raises(KafkaError, match="events-0 has no offset 99"):
                await consumer.poll()

    play(broker, scenario)
    fetches = [
        request for _key, _version, request in broker.requests if isinstance(request, FetchRequest)
    ]
    assert {(fetch.session_id, fetch.session_epoch) for fetch in fetches} == {(0, -1)}


def test_iteration_waits_for_the_next_record() -> None:
    async def scenario(client: Client) -> None:
        async with client.consumer(max_wait_s=0.2) as consumer:
            await consumer.assign({PARTITION: END})
            first: asyncio.Future[ConsumerRecord] = asyncio.ensure_future(anext(aiter(consumer)))
            await asyncio.sleep(1)
            await produce(client, 1)
            assert (await first).value == b"0"

    play(ScriptedBroker(), scenario)


def test_read_committed_skips_aborted_records_and_advances_the_position() -> None:
    broker = ScriptedBroker()
    log = broker.partitions[0]
    log.data += batch(0, 7, b"aborted") + end_transaction_marker(
        commit=False,
        producer_id=7,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp=0,
        base_offset=1,
    )
    log.end = 2
    broker.aborted = (
        FetchResponse.Response.Partition.AbortedTransaction(producer_id=7, first_offset=0),
    )

    async def scenario(client: Client) -> None:
        for isolation, values in (
            (IsolationLevel.READ_COMMITTED, []),
            (IsolationLevel.READ_UNCOMMITTED, [b"aborted"]),
        ):
            async with client.consumer(isolation=isolation) as consumer:
                await consumer.assign({PARTITION: BEGINNING})
                assert [record.value for record in await consumer.poll()] == values
                assert consumer.positions == {PARTITION: 2}

    play(broker, scenario)


def test_a_corrupt_batch_raises_an_error() -> None:
    broker = ScriptedBroker()

    async def scenario(client: Client) -> None:
        await produce(client, 1)
        broker.partitions[0].data[-1] ^= 1
        async with client.consumer() as consumer:
            await consumer.assign({PARTITION: BEGINNING})
            with pytest.raises(KafkaError, match="CRC"):
                while not await consumer.poll():
                    pass

    play(broker, scenario, timeout_s=5.0)


def test_producer_and_consumer_follow_the_leader() -> None:
    broker = ScriptedBroker(partitions=2)
    broker.add_broker("c")

    async def scenario(client: Client) -> None:
        async with (
            client.producer(batch_bytes=300) as producer,
            client.consumer(max_wait_s=0.1) as consumer,
        ):
            await consumer.assign({TopicPartition(TOPIC, index): BEGINNING for index in (0, 1)})
            records: list[ConsumerRecord] = []
            for turn, leader in enumerate((1, 2, 1, 2)):
                broker.leaders[0] = leader
                for number in range(20):
                    await producer.send(TOPIC, b"%d" % (turn * 20 + number), partition=0)
                while len(records) < (turn + 1) * 20:
                    records += await consumer.poll()
        assert [record.value for record in records] == written(broker) == numbers(80)

    play(broker, scenario)


def test_a_partition_without_a_leader_does_not_block_the_others() -> None:
    broker = ScriptedBroker(partitions=2)
    both = {TopicPartition(TOPIC, index): 0 for index in (1, 0)}

    async def scenario(client: Client) -> None:
        await produce(client, 3)
        broker.leaders[1] = -1
        client.cluster.metadata.forget(TOPIC)
        async with client.consumer(max_wait_s=0.1) as consumer:
            await consumer.assign(both)
            assert [record.value for record in await consumer.poll()] == numbers(3)
            with pytest.raises(KafkaError, match="events-1 has no leader at present"):
                while True:
                    assert await consumer.poll() == []

    play(broker, scenario, timeout_s=5.0)
