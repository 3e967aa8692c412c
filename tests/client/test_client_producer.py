"""The producer against a scripted broker, in the simulated world: order, retries, and nothing
twice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.client import Client
from penstock.errors import ErrorCode, KafkaError
from penstock.records.batch import batches
from tests.client.scripted_broker import (
    LOSE_ANSWER,
    LOSE_REQUEST,
    TOPIC,
    Fault,
    Refuse,
    ScriptedBroker,
    play,
)
from tests.client.workload import numbers, produce, written


def test_five_requests_are_in_flight_once_the_first_was_answered() -> None:
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
        [LOSE_ANSWER],
        [None, NOT_LEADER],
        [None, None, LOSE_REQUEST],
        [None, None, LOSE_ANSWER],
        [None, None, LOSE_ANSWER, NOT_LEADER, LOSE_REQUEST, None, LOSE_ANSWER],
        [
            None,
            Refuse(ErrorCode.NOT_ENOUGH_REPLICAS),
            None,
            None,
            Refuse(ErrorCode.KAFKA_STORAGE_ERROR),
        ],
    ],
)
def test_retries_keep_order_and_write_nothing_twice(faults: list[Fault]) -> None:
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
    [None, None, LOSE_REQUEST, LOSE_ANSWER, NOT_LEADER, Refuse(ErrorCode.REQUEST_TIMED_OUT)]
)


@settings(max_examples=30, deadline=None)
@given(st.lists(FAULTS, max_size=12))
def test_whatever_passes_away_everything_is_written_once_and_in_order(faults: list[Fault]) -> None:
    test_retries_keep_order_and_write_nothing_twice(faults)


FINAL = st.sampled_from(
    [None, None, LOSE_ANSWER, LOSE_REQUEST, NOT_LEADER, Refuse(ErrorCode.MESSAGE_TOO_LARGE)]
)


@settings(max_examples=40, deadline=None)
@given(st.lists(FINAL, max_size=12))
def test_whatever_is_given_up_the_rest_is_written_once_and_in_order(faults: list[Fault]) -> None:
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


def test_without_idempotence_order_is_kept_by_one_request_at_a_time() -> None:
    broker = ScriptedBroker()
    broker.faults.extend([None, NOT_LEADER, LOSE_REQUEST])

    async def scenario(client: Client) -> None:
        await produce(client, 60, idempotent=False)

    play(broker, scenario)
    assert written(broker) == numbers(60)
    assert broker.most_in_flight == 1
    assert broker.producer_ids == 0
    assert {header.producer_id for _at, header in batches(broker.partitions[0].data)} == {-1}


def test_a_refused_batch_fails_alone_and_the_rest_goes_on_under_a_new_producer_id() -> None:
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
    assert broker.producer_ids == 2


def test_what_may_be_written_is_not_written_again_under_another_producer_id() -> None:
    """The second batch's answer is lost, and its retry is refused for good: what followed it in
    flight is never written twice."""
    broker = ScriptedBroker()
    broker.faults.extend([None, LOSE_ANSWER, Refuse(ErrorCode.MESSAGE_TOO_LARGE)])

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


def test_records_that_cannot_be_delivered_are_given_up_in_time() -> None:
    broker = ScriptedBroker()
    broker.faults.extend([NOT_LEADER] * 1000)

    async def scenario(client: Client) -> None:
        now = client.cluster.world.clock.monotonic
        began = now()
        (future,) = await produce(client, 1, delivery_timeout_s=10.0)
        assert isinstance(future.exception(), KafkaError)
        assert 9 < now() - began < 12

    play(broker, scenario)


def test_a_full_buffer_makes_the_sender_wait() -> None:
    broker = ScriptedBroker()

    async def scenario(client: Client) -> None:
        async with client.producer(buffer_bytes=1000, batch_bytes=500) as producer:
            for number in range(50):
                await producer.send(TOPIC, b"%d" % number)
                assert producer._buffered <= 1000

    play(broker, scenario)
    assert written(broker) == numbers(50)


def test_an_error_in_the_body_is_not_wrapped_and_ends_what_is_under_way() -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(KeyError):
            async with client.producer(linger_s=60.0) as producer:
                future = await producer.send(TOPIC, b"never sent")
                raise KeyError
        assert future.cancelled()
        with pytest.raises(RuntimeError, match="closed"):
            await producer.send(TOPIC, b"late")

    play(ScriptedBroker(), scenario)


def test_nothing_is_waited_for_with_acks_0() -> None:
    broker = ScriptedBroker()

    async def scenario(client: Client) -> None:
        futures = await produce(client, 50, acks=0)
        assert {future.result().offset for future in futures} == {-1}
        await client.admin.list_topics()

    play(broker, scenario)
    assert written(broker) == numbers(50)


def test_options_that_exclude_each_other() -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(ValueError, match="idempotent producer needs acks=-1"):
            client.producer(acks=1, idempotent=True)
        with pytest.raises(ValueError, match="acks must be"):
            client.producer(acks=2)

    play(ScriptedBroker(), scenario)
