"""The sink's sender against a scripted broker in the simulated world: requests take along many
partitions, partitions keep their order, and errors have the advice that fits their cause."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

import pytest

from penstock.client.client import Client
from penstock.client.producer.accumulator import NO_PRODUCER, ProducerIdAndEpoch
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import TopicPartition
from penstock.protocol.messages.produce import ProduceRequest
from penstock.records.build import build_batch
from penstock.spark.options import SinkOptions, sink_options
from penstock.spark.sink.sender import MAX_IN_FLIGHT, BatchSender
from tests.client.scripted_broker import (
    LOSE_REQUEST,
    LOSE_RESPONSE,
    TOPIC,
    Fault,
    Refuse,
    ScriptedBroker,
    play,
)
from tests.client.scripted_transactions import PRODUCER_ID, TransactionalBroker

Batch = tuple[TopicPartition, bytes]


def options(**kafka: str) -> SinkOptions:
    settings = {f"kafka.{name.replace('_', '.')}": value for name, value in kafka.items()}
    return sink_options({"kafka.bootstrap.servers": "b", "topic": TOPIC} | settings)


class Encoder:
    """Batches of one number each, with the sequences of a producer."""

    def __init__(self, producer: ProducerIdAndEpoch, *, transactional: bool = False) -> None:
        self._producer = producer
        self._transactional = transactional
        self._sequences: Counter[int] = Counter()

    def batch(self, partition: int, number: int, records: int = 1) -> Batch:
        sequence = self._sequences[partition] if self._producer != NO_PRODUCER else -1
        self._sequences[partition] += records
        data = build_batch(
            [(None, b"%d" % number, (), 1000)] * records,
            producer_id=self._producer.id,
            producer_epoch=self._producer.epoch,
            base_sequence=sequence,
            transactional=self._transactional,
        )
        return TopicPartition(TOPIC, partition), data

    def batches(self, partitions: Iterable[int], numbers: Iterable[int]) -> list[Batch]:
        order = list(partitions)
        return [self.batch(partition, number) for number in numbers for partition in order]


def produce_requests(broker: ScriptedBroker) -> list[ProduceRequest]:
    return [request for _, _, request in broker.requests if isinstance(request, ProduceRequest)]


def values(broker: ScriptedBroker, partition: int) -> list[bytes | None]:
    return [record.value for record in broker.partitions[partition].records()]


def test_requests_take_along_the_batches_of_many_partitions() -> None:
    broker = ScriptedBroker(partitions=100)

    async def scenario(client: Client) -> None:
        sender = await BatchSender.open(client, options())
        batches = Encoder(sender.producer).batches(range(100), range(10))
        await sender.send_all(batches)
        await sender.flush()
        await sender.close()

    play(broker, scenario)
    for partition in range(100):
        assert values(broker, partition) == [b"%d" % number for number in range(10)]
    requests = produce_requests(broker)
    assert len(requests) < 10 + 2 * MAX_IN_FLIGHT
    assert broker.most_in_flight <= MAX_IN_FLIGHT + 1


def test_a_request_has_at_most_max_request_size_bytes_or_one_batch() -> None:
    broker = ScriptedBroker(partitions=20)
    sizes = []

    async def scenario(client: Client) -> None:
        sender = await BatchSender.open(client, options(max_request_size="250"))
        batches = Encoder(sender.producer).batches(range(20), range(2))
        sizes.append(len(batches[0][1]))
        await sender.send_all(batches)
        await sender.flush()

    play(broker, scenario)
    counts = [len(request.topic_data[0].partition_data) for request in produce_requests(broker)]
    assert max(counts) == 250 // sizes[0] == 3
    assert sum(counts) == 40


@pytest.mark.parametrize(
    "faults",
    [
        [LOSE_REQUEST],
        [LOSE_RESPONSE],
        [None, LOSE_RESPONSE, LOSE_REQUEST, None, LOSE_RESPONSE],
        [Refuse(ErrorCode.NOT_ENOUGH_REPLICAS, partition=3)] * 4,
        [Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 3,
    ],
    ids=str,
)
def test_partitions_keep_their_order_through_retries(faults: list[Fault]) -> None:
    broker = ScriptedBroker(partitions=5)
    broker.faults.extend(faults)

    async def scenario(client: Client) -> None:
        sender = await BatchSender.open(client, options())
        await sender.send_all(Encoder(sender.producer).batches(range(5), range(20)))
        await sender.flush()

    play(broker, scenario)
    for partition in range(5):
        assert values(broker, partition) == [b"%d" % number for number in range(20)]


def test_a_refused_partition_does_not_hold_up_the_others() -> None:
    broker = ScriptedBroker(partitions=3)
    broker.faults.extend([Refuse(ErrorCode.NOT_ENOUGH_REPLICAS, partition=1)] * 30)

    async def scenario(client: Client) -> None:
        sender = await BatchSender.open(client, options())
        await sender.send_all(Encoder(sender.producer).batches(range(3), range(5)))
        async with asyncio.timeout(0.15):
            while len(values(broker, 0)) < 5 or len(values(broker, 2)) < 5:
                await asyncio.sleep(0.001)
        assert values(broker, 1) == []
        await sender.flush()

    play(broker, scenario)
    assert len(values(broker, 1)) == 5


def test_batches_go_to_the_leaders_of_their_partitions() -> None:
    broker = ScriptedBroker(partitions=6)
    other = broker.add_broker("c")
    broker.leaders[:] = [1, 2, 1, 2, 1, 2]

    async def scenario(client: Client) -> None:
        sender = await BatchSender.open(client, options())
        encoder = Encoder(sender.producer)
        await sender.send_all(encoder.batches(range(6), range(3)))
        await sender.flush()
        broker.leaders[:] = [2, 1, 2, 1, 2, 1]
        await sender.send_all(encoder.batches(range(6), range(3, 6)))
        await sender.flush()

    play(broker, scenario)
    for partition in range(6):
        assert values(broker, partition) == [b"%d" % number for number in range(6)]
    assert produce_requests(other)


def test_the_delivery_timeout_is_an_error_with_the_option() -> None:
    broker = ScriptedBroker()
    broker.faults.extend([Refuse(ErrorCode.NOT_ENOUGH_REPLICAS)] * 1000)

    async def scenario(client: Client) -> None:
        sender = await BatchSender.open(client, options(delivery_timeout_ms="5000"))
        encoder = Encoder(sender.producer)
        await sender.send(*encoder.batch(0, 0))
        with pytest.raises(KafkaError, match=r"not written within 5 s .*delivery\.timeout\.ms"):
            await sender.flush()
        with pytest.raises(KafkaError, match=r"not written within 5 s"):
            await sender.send(*encoder.batch(0, 1))

    play(broker, scenario)


def test_a_closed_sender_sends_nothing_more() -> None:
    broker = ScriptedBroker(partitions=2)
    broker.silent = False

    async def scenario(client: Client) -> None:
        sender = await BatchSender.open(client, options())
        encoder = Encoder(sender.producer)
        broker.faults.extend([Refuse(ErrorCode.NOT_ENOUGH_REPLICAS)] * 1000)
        await sender.send_all(encoder.batches(range(2), range(3)))
        await asyncio.sleep(1)
        sent = len(produce_requests(broker))
        assert sent
        await sender.close()
        await asyncio.sleep(30)
        assert len(produce_requests(broker)) == sent
        with pytest.raises(KafkaError, match="closed before"):
            await sender.flush()

    play(broker, scenario)


def test_the_buffer_bounds_what_is_sent() -> None:
    broker = ScriptedBroker(partitions=4)

    async def scenario(client: Client) -> None:
        sender = await BatchSender.open(client, options(buffer_memory="150"))
        await sender.send_all(Encoder(sender.producer).batches(range(4), range(5)))
        await sender.flush()

    play(broker, scenario)
    assert [len(values(broker, partition)) for partition in range(4)] == [5] * 4
    assert broker.most_in_flight <= 2


@pytest.mark.parametrize(
    ("records", "code", "advice", "wrong"),
    [
        (
            1,
            ErrorCode.MESSAGE_TOO_LARGE,
            r"it has one record: raise max\.message\.bytes of the topic to at least \d+, or write "
            "a smaller record",
            "batch.size",
        ),
        (
            5,
            ErrorCode.MESSAGE_TOO_LARGE,
            r"it has 5 records: raise max\.message\.bytes of the topic to at least \d+, or lower "
            r"the option kafka\.batch\.size \(524288\)",
            "smaller record",
        ),
        (1, ErrorCode.RECORD_LIST_TOO_LARGE, r"raise segment\.bytes of the topic", "batch.size"),
        (1, ErrorCode.INVALID_RECORD, "events-0: the broker refused the records$", "raise"),
    ],
)
def test_the_advice_fits_the_cause(records: int, code: ErrorCode, advice: str, wrong: str) -> None:
    broker = ScriptedBroker()
    broker.faults.append(Refuse(code))

    async def scenario(client: Client) -> None:
        sender = await BatchSender.open(client, options())
        await sender.send(*Encoder(sender.producer).batch(0, 7, records))
        with pytest.raises(KafkaError, match=advice) as raised:
            await sender.flush()
        assert raised.value.code is code
        assert wrong not in raised.value.message

    play(broker, scenario)


@pytest.mark.parametrize("version", [1, 2])
def test_batches_are_part_of_the_transaction(version: int) -> None:
    """Below transaction.version 2 the sender adds the partitions, in few requests."""
    broker = TransactionalBroker(transaction_version=version, partitions=8)

    async def scenario(client: Client) -> None:
        async with client.producer(transactional_id="t") as transactional:
            await transactional.init_transactions()
        producer = ProducerIdAndEpoch(PRODUCER_ID, broker.epoch)
        broker.transcript.clear()
        sender = BatchSender(client, options(), producer, transactional_id="t")
        await sender.send_all(Encoder(producer, transactional=True).batches(range(8), range(3)))
        await sender.flush()
        await sender.close()

    play(broker, scenario)
    assert [len(values(broker, partition)) for partition in range(8)] == [3] * 8
    assert {request.transactional_id for request in produce_requests(broker)} == {"t"}
    versions = {version for key, version, _request in broker.requests if key == 0}
    assert max(versions) == (11 if version == 1 else 13)
    added = [line for line in broker.transcript if line.startswith("AddPartitionsToTxn")]
    assert 1 <= len(added) <= 2 if version == 1 else not added
