"""The producer against a scripted broker in the simulated world: order, retries, no duplicates."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.client import Client
from penstock.client.producer.accumulator import ProducerIdAndEpoch
from penstock.client.producer.producer import MAX_PRODUCER_EPOCH
from penstock.errors import ErrorCode, KafkaError
from penstock.records.batch import batches
from tests.client.scripted_broker import (
    LOSE_REQUEST,
    LOSE_RESPONSE,
    TOPIC,
    Fault,
    Refuse,
    ScriptedBroker,
    play,
)
from tests.client.workload import numbers, produce, written


def test_five_requests_are_in_flight_after_the_first_response() -> None:
    broker = ScriptedBroker()

    async def scenario(client: Client) -> None:
        await produce(client, 200)

    play(broker, scenario)
    assert written(broker) == numbers(200)
    assert broker.most_in_flight == 5
    assert broker.producer_ids == 1


NOT_LEADER = Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.parametrize(
    "faults",
    [
        [NOT_LEADER],
        [LOSE_REQUEST],
        [LOSE_RESPONSE],
        [None, NOT_LEADER],
        [None, None, LOSE_REQUEST],
        [None, None, LOSE_RESPONSE],
        [None, None, LOSE_RESPONSE, NOT_LEADER, LOSE_REQUEST, None, LOSE_RESPONSE],
        [
            None,
            Refuse(ErrorCode.NOT_ENOUGH_REPLICAS),
            None,
            None,
            Refuse(ErrorCode.KAFKA_STORAGE_ERROR),
        ],
    ],
)
def test_retries_keep_order_without_duplicates(faults: list[Fault]) -> None:
    broker = ScriptedBroker()
    broker.faults.extend(faults)

    async def scenario(client: Client) -> None:
        futures = await produce(client, 100)
        assert [future.result().offset for future in futures] == list(range(100))

    play(broker, scenario)
    assert written(broker) == numbers(100)
    assert not broker.faults
    assert broker.producer_ids == 1


FAULTS = st.sampled_from(
    [None, None, LOSE_REQUEST, LOSE_RESPONSE, NOT_LEADER, Refuse(ErrorCode.REQUEST_TIMED_OUT)]
)


@settings(max_examples=30, deadline=None)
@given(st.lists(FAULTS, max_size=12))
def test_any_retriable_faults_keep_order_without_duplicates(faults: list[Fault]) -> None:
    test_retries_keep_order_without_duplicates(faults)


FAULTS_AND_REFUSALS = st.sampled_from(
    [None, None, LOSE_RESPONSE, LOSE_REQUEST, NOT_LEADER, Refuse(ErrorCode.MESSAGE_TOO_LARGE)]
)


@settings(max_examples=40, deadline=None)
@given(st.lists(FAULTS_AND_REFUSALS, max_size=12))
def test_after_failed_batches_the_rest_is_written_once_and_in_order(faults: list[Fault]) -> None:
    broker = ScriptedBroker()
    broker.faults.extend(faults)

    async def scenario(client: Client) -> None:
        futures = await produce(client, 100)
        errors = [future.exception() for future in futures]
        acknowledged = {number for number, error in enumerate(errors) if error is None}
        log = [int(value or b"") for value in written(broker)]
        assert log == sorted(set(log))
        assert acknowledged <= set(log)

    play(broker, scenario)


def test_without_idempotence_one_request_is_in_flight() -> None:
    broker = ScriptedBroker()
    broker.faults.extend([None, NOT_LEADER, LOSE_REQUEST])

    async def scenario(client: Client) -> None:
        await produce(client, 60, idempotent=False)

    play(broker, scenario)
    assert written(broker) == numbers(60)
    assert broker.most_in_flight == 1
    assert broker.producer_ids == 0
    assert {header.producer_id for _at, header in batches(broker.partitions[0].data)} == {-1}


def test_a_refused_batch_fails_alone_and_the_rest_gets_the_next_epoch() -> None:
    broker = ScriptedBroker()
    broker.faults.extend([None, None, Refuse(ErrorCode.MESSAGE_TOO_LARGE)])

    async def scenario(client: Client) -> None:
        futures = await produce(client, 100)
        failed = [number for number, future in enumerate(futures) if future.exception()]
        assert failed
        assert len(failed) < 20
        assert failed == list(range(failed[0], failed[-1] + 1))
        assert written(broker) == [
            value for number, value in enumerate(numbers(100)) if number not in failed
        ]

    play(broker, scenario)
    assert broker.producer_ids == 1
    epochs = [header.producer_epoch for _at, header in batches(broker.partitions[0].data)]
    assert sorted(set(epochs)) == [0, 1]
    assert epochs == sorted(epochs)


@pytest.mark.parametrize(
    "code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID]
)
def test_a_leader_that_lost_the_sequences_gets_the_batches_with_the_next_epoch(
    code: ErrorCode,
) -> None:
    broker = ScriptedBroker()
    broker.faults.extend([None, Refuse(code)])

    async def scenario(client: Client) -> None:
        futures = await produce(client, 100)
        assert not any(future.exception() for future in futures)

    play(broker, scenario)
    assert written(broker) == numbers(100)
    epochs = [header.producer_epoch for _at, header in batches(broker.partitions[0].data)]
    assert (epochs[0], epochs[-1], epochs) == (0, 1, sorted(epochs))


def test_after_the_last_epoch_a_new_producer_id_is_used() -> None:
    broker = ScriptedBroker()
    broker.faults.extend([None, Refuse(ErrorCode.MESSAGE_TOO_LARGE)])

    async def scenario(client: Client) -> None:
        given = ProducerIdAndEpoch(7, MAX_PRODUCER_EPOCH)
        async with client.producer(batch_bytes=300, linger_s=0.0, producer=given) as producer:
            assert producer.producer_id_and_epoch == given
            for number in range(60):
                (await producer.send(TOPIC, b"%d" % number)).add_done_callback(
                    lambda future: future.exception()
                )
            await producer.flush()
            assert producer.producer_id_and_epoch == ProducerIdAndEpoch(1000, 0)

    play(broker, scenario)
    used = [
        (header.producer_id, header.producer_epoch)
        for _at, header in batches(broker.partitions[0].data)
    ]
    assert list(dict.fromkeys(used)) == [(7, MAX_PRODUCER_EPOCH), (1000, 0)]


def test_batches_that_may_be_written_are_not_sent_with_another_epoch() -> None:
    """The response to the second batch is lost, and its retry is refused with a fatal error. The
    batches in flight behind it are written at most once."""
    broker = ScriptedBroker()
    broker.faults.extend([None, LOSE_RESPONSE, Refuse(ErrorCode.MESSAGE_TOO_LARGE)])

    async def scenario(client: Client) -> None:
        futures = await produce(client, 100)
        errors = [future.exception() for future in futures]
        assert any(errors)
        acknowledged = [b"%d" % number for number, error in enumerate(errors) if error is None]
        assert set(acknowledged) <= set(written(broker))

    play(broker, scenario)
    values = written(broker)
    assert len(set(values)) == len(values)
    assert [int(value or b"") for value in values] == sorted(int(value or b"") for value in values)


def test_undeliverable_records_fail_at_the_delivery_timeout() -> None:
    broker = ScriptedBroker()
    broker.faults.extend([NOT_LEADER] * 1000)

    async def scenario(client: Client) -> None:
        now = client.cluster.world.clock.monotonic
        began = now()
        (future,) = await produce(client, 1, delivery_timeout_s=10.0)
        assert isinstance(future.exception(), KafkaError)
        assert 9 < now() - began < 12

    play(broker, scenario)


def test_send_waits_for_buffer_memory() -> None:
    broker = ScriptedBroker()

    async def scenario(client: Client) -> None:
        async with client.producer(buffer_bytes=1000, batch_bytes=500) as producer:
            for number in range(50):
                await producer.send(TOPIC, b"%d" % number)
                assert producer._buffered <= 1000

    play(broker, scenario)
    assert written(broker) == numbers(50)


def test_an_error_in_the_body_is_not_wrapped_and_cancels_pending_records() -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(KeyError):
            async with client.producer(linger_s=60.0) as producer:
                future = await producer.send(TOPIC, b"never sent")
                raise KeyError
        assert future.cancelled()
        with pytest.raises(RuntimeError, match="closed"):
            await producer.send(TOPIC, b"late")

    play(ScriptedBroker(), scenario)


def test_acks_0_waits_for_no_response() -> None:
    broker = ScriptedBroker()

    async def scenario(client: Client) -> None:
        futures = await produce(client, 50, acks=0)
        assert {future.result().offset for future in futures} == {-1}
        await client.admin.list_topics()

    play(broker, scenario)
    assert written(broker) == numbers(50)


def test_conflicting_options_are_refused() -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(ValueError, match="idempotent producer needs acks=-1"):
            client.producer(acks=1, idempotent=True)
        with pytest.raises(ValueError, match="acks must be"):
            client.producer(acks=2)

    play(ScriptedBroker(), scenario)
