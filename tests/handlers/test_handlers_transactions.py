"""The APIs of the transaction coordinator: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn,
EndTxn, DescribeTransactions and ListTransactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from penstock.controller.decision import ControllerResult
from penstock.errors import ErrorCode, KafkaError
from penstock.handlers import list_transactions as list_handler
from penstock.ids import TopicPartition
from penstock.metadata.image import MetadataImage
from penstock.node.shards.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from penstock.protocol.internal.metadata_settings import FeatureLevelRecord
from penstock.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, Topic
from penstock.protocol.messages.describe_transactions import DescribeTransactionsRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from tests.handlers.fake_node import FakeNode, FakePartition, answer, call, run
from tests.handlers.transactional_producers import (
    ADD,
    DESCRIBE,
    END,
    FIND,
    INIT,
    LIST,
    SETTINGS,
    TRANSACTIONAL_ID,
    Producer,
    add,
    add_offsets,
    add_request,
    added_codes,
    describe,
    end,
    end_request,
    init,
    init_request,
    markers,
    state_partition,
)

Test = Callable[[FakeNode, FakePartition, list[FakePartition]], Coroutine[Any, Any, None]]


def with_transactions(test: Test, **settings: str) -> None:
    """Run a test with the partition of __transaction_state, and three partitions of `orders`."""

    async def main(node: FakeNode) -> None:
        await test(node, await state_partition(node), node.create("orders", 3))

    run(main, **{**SETTINGS, **settings})


def set_transaction_version(level: int, _image: MetadataImage) -> ControllerResult[None]:
    record = FeatureLevelRecord(name="transaction.version", feature_level=level)
    return ControllerResult((record,), None)


async def settle() -> None:
    """Let the markers of ended transactions be written."""
    for _ in range(10):
        await asyncio.sleep(0)


# Coordinators


@pytest.mark.parametrize("version", range(1, 7))
def test_the_coordinator_of_a_transactional_id_is_found(version: int) -> None:
    async def main(node: FakeNode) -> None:
        request = (
            FindCoordinatorRequest(key="a", key_type=1)
            if version < 4
            else FindCoordinatorRequest(coordinator_keys=("a", "b"), key_type=1)
        )
        response = await answer(node, FIND, version, request)
        found = [response] if version < 4 else response.coordinators
        assert [(one.node_id, one.port, one.error_code) for one in found] == [
            (1, 9092, ErrorCode.NONE)
        ] * len(found)
        config = node.metadata.topic_config(TRANSACTION_TOPIC)
        assert len(node.image.topics[TRANSACTION_TOPIC].partitions) == 7
        assert (config.compacts, config.deletes, config.segment_bytes) == (True, False, 5_000_000)

    run(
        main,
        **{
            **SETTINGS,
            "transaction.state.log.num.partitions": "7",
            "transaction.state.log.segment.bytes": "5000000",
        },
    )


def test_requests_to_a_broker_that_does_not_coordinate_change_nothing() -> None:
    async def main(node: FakeNode) -> None:
        node.create("orders", 1)
        producer, refused = Producer(7, 0), ErrorCode.NOT_COORDINATOR
        assert (await answer(node, INIT, 5, init_request())).error_code == refused
        assert await add(node, producer, 0) == [refused]
        assert (await end(node, producer)).error_code == refused
        assert (await describe(node)).error_code == refused
        assert await add_offsets(node, producer) == refused
        assert TRANSACTION_TOPIC not in node.image.topics

    run(main, **SETTINGS)


def test_a_shard_whose_partition_has_moved_is_not_the_coordinator() -> None:
    async def test(node: FakeNode, state: FakePartition, _orders: list[FakePartition]) -> None:
        producer = await init(node)
        state.is_leader = False
        state.tell()
        assert await add(node, producer, 0) == [ErrorCode.NOT_COORDINATOR]
        assert (await end(node, producer)).error_code == ErrorCode.NOT_COORDINATOR

    with_transactions(test)


# A transaction


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends_with_a_marker_in_each_of_its_partitions(
    version: int, committed: bool
) -> None:
    async def test(node: FakeNode, _state: FakePartition, orders: list[FakePartition]) -> None:
        producer = await init(node)
        assert producer == (1000, 0)
        assert await add(node, producer, 0, 2, version=min(version, 3)) == [0, 0]
        assert (await describe(node)).transaction_state == "Ongoing"
        response = await end(node, producer, version, committed=committed)
        assert response.error_code == ErrorCode.NONE
        if version >= 5:
            assert (response.producer_id, response.producer_epoch) == (1000, 1), "KIP-890"
        await settle()
        assert [markers(partition) for partition in orders] == [1, 0, 1]
        state = await describe(node)
        assert state.transaction_state == ("CompleteCommit" if committed else "CompleteAbort")
        assert state.topics == ()

    with_transactions(test)


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_add_and_verify_partitions_of_many_transactions(version: int) -> None:
    async def test(node: FakeNode, _state: FakePartition, _orders: list[FakePartition]) -> None:
        first, second = await init(node), await init(node, transactional_id="other")
        unknown = Producer(first.id, first.epoch + 7)
        request = AddPartitionsToTxnRequest(
            transactions=tuple(
                AddPartitionsToTxnRequest.Transaction(
                    transactional_id=transactional_id,
                    producer_id=producer.id,
                    producer_epoch=producer.epoch,
                    verify_only=verify_only,
                    topics=(Topic(name="orders", partitions=partitions),),
                )
                for transactional_id, producer, partitions, verify_only in (
                    (TRANSACTIONAL_ID, first, (0, 1), False),
                    ("other", second, (2,), True),
                    (TRANSACTIONAL_ID, first, (1, 2), True),
                    (TRANSACTIONAL_ID, unknown, (1,), True),
                )
            )
        )
        response = await answer(node, ADD, version, request)
        assert response.error_code == ErrorCode.NONE
        assert [
            (
                result.transactional_id,
                [
                    partition.partition_error_code
                    for topic in result.topic_results
                    for partition in topic.results_by_partition
                ],
            )
            for result in response.results_by_transaction
        ] == [
            (TRANSACTIONAL_ID, [0, 0]),
            ("other", [ErrorCode.TRANSACTION_ABORTABLE]),
            (TRANSACTIONAL_ID, [0, ErrorCode.TRANSACTION_ABORTABLE]),
            (TRANSACTIONAL_ID, [ErrorCode.PRODUCER_FENCED]),
        ]

    with_transactions(test)


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_a_group_are_part_of_a_transaction(version: int) -> None:
    async def test(node: FakeNode, _state: FakePartition, _orders: list[FakePartition]) -> None:
        assert OFFSETS_TOPIC not in node.image.topics
        producer = await init(node)
        assert await add_offsets(node, producer, version=version) == ErrorCode.NONE
        assert OFFSETS_TOPIC in node.image.topics, "it is created on first use"
        (topic,) = (await describe(node)).topics
        assert (topic.topic, topic.partitions) == (OFFSETS_TOPIC, (0,))

    with_transactions(test)


def test_a_new_producer_fences_the_old_one_and_aborts_its_transaction() -> None:
    async def test(node: FakeNode, _state: FakePartition, orders: list[FakePartition]) -> None:
        old = await init(node)
        await add(node, old, 1)
        new = await init(node)  # waits for the abort; Kafka answers CONCURRENT_TRANSACTIONS
        assert new.id == old.id
        assert new.epoch > old.epoch
        assert [markers(partition) for partition in orders] == [0, 1, 0]
        before = len(node.partitions[TopicPartition(TRANSACTION_TOPIC, 0)].batches)
        for version in range(4):
            expected = (
                ErrorCode.INVALID_PRODUCER_EPOCH if version < 2 else ErrorCode.PRODUCER_FENCED
            )
            assert await add(node, old, 0, version=version) == [expected]
            assert await add_offsets(node, old, version=version) == expected
            assert (await end(node, old, version)).error_code == expected
        given = {"producer_id": old.id, "producer_epoch": old.epoch}
        for version, code in (
            (3, ErrorCode.INVALID_PRODUCER_EPOCH),
            (4, ErrorCode.PRODUCER_FENCED),
        ):
            assert (await answer(node, INIT, version, init_request(**given))).error_code == code
        assert len(node.partitions[TopicPartition(TRANSACTION_TOPIC, 0)].batches) == before

    with_transactions(test)


def test_a_repeated_end_is_answered_again() -> None:
    async def test(node: FakeNode, _state: FakePartition, orders: list[FakePartition]) -> None:
        producer = await init(node)
        for version in (3, 5):
            await add(node, producer, 0)
            codes = [(await end(node, producer, version)).error_code for _ in range(2)]
            assert codes == [ErrorCode.NONE] * 2
        await settle()
        assert markers(orders[0]) == 2

    with_transactions(test)


def test_an_exhausted_epoch_gets_a_new_producer_id() -> None:
    async def test(node: FakeNode, _state: FakePartition, _orders: list[FakePartition]) -> None:
        producer = await init(node)
        for epoch in range(1, 40_000):
            response = await end(node, producer, 5, committed=False)
            assert response.error_code == ErrorCode.NONE
            producer = Producer(response.producer_id, response.producer_epoch)
            if producer.id != 1000:
                break
            assert producer.epoch == epoch
        assert producer == (1001, 0)

    with_transactions(test)


# Two-phase commit


def test_two_phase_commit_must_be_enabled() -> None:
    async def test(node: FakeNode, state: FakePartition, _orders: list[FakePartition]) -> None:
        response = await answer(node, INIT, 6, init_request(enable2_pc=True))
        assert response.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert not state.batches

    with_transactions(test)


def test_a_prepared_transaction_has_no_timeout_and_is_kept() -> None:
    async def test(node: FakeNode, _state: FakePartition, orders: list[FakePartition]) -> None:
        first = await answer(node, INIT, 6, init_request(enable2_pc=True))
        producer = Producer(first.producer_id, first.producer_epoch)
        await add(node, producer, 0, version=5)
        await asyncio.sleep(1_000_000)
        kept = await answer(node, INIT, 6, init_request(enable2_pc=True, keep_prepared_txn=True))
        assert kept.error_code == ErrorCode.NONE
        assert (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) == producer
        assert (await describe(node)).transaction_state == "Ongoing"
        ended = await end(node, Producer(kept.producer_id, kept.producer_epoch), 5)
        assert ended.error_code == ErrorCode.NONE
        await settle()
        assert markers(orders[0]) == 1

    with_transactions(test, **{"transaction.two.phase.commit.enable": "true"})


def test_the_coordinator_follows_transaction_version() -> None:
    """Prepared transactions are kept with transaction.version 2 alone."""

    async def test(node: FakeNode, _state: FakePartition, _orders: list[FakePartition]) -> None:
        request = init_request(enable2_pc=True, keep_prepared_txn=True)
        for level, code in ((1, ErrorCode.UNSUPPORTED_VERSION), (2, ErrorCode.NONE)):
            node.apply(partial(set_transaction_version, level))
            assert (await answer(node, INIT, 6, request)).error_code == code

    with_transactions(test, **{"transaction.two.phase.commit.enable": "true"})


# The next request while markers are being written


def test_the_next_transaction_waits_for_the_markers_of_the_last_one() -> None:
    async def test(node: FakeNode, _state: FakePartition, orders: list[FakePartition]) -> None:
        producer = await init(node)
        await add(node, producer, 0)
        orders[0].hold = True
        assert (await end(node, producer)).error_code == ErrorCode.NONE
        adding = asyncio.ensure_future(add(node, producer, 1))
        await asyncio.sleep(0.05)
        assert not adding.done()
        assert markers(orders[0]) == 1
        orders[0].commit()
        assert await adding == [ErrorCode.NONE]
        assert node.elapsed() < 0.06
        assert (await describe(node)).topics[0].partitions == (1,)

    with_transactions(test)


def test_a_request_does_not_wait_long_for_markers() -> None:
    async def test(node: FakeNode, _state: FakePartition, orders: list[FakePartition]) -> None:
        producer = await init(node)
        await add(node, producer, 0)
        orders[0].hold = True
        await end(node, producer)
        began = node.elapsed()
        assert await add(node, producer, 1) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert node.elapsed() - began == pytest.approx(0.1, abs=0.01)
        # The completion is stuck: others do not wait for it again.
        assert await add(node, producer, 1) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert (await end(node, producer)).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        code = (await answer(node, INIT, 5, init_request())).error_code
        assert code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert node.elapsed() - began == pytest.approx(0.1, abs=0.01)

    with_transactions(test)


def test_requests_that_wait_are_decided_in_their_order() -> None:
    async def test(node: FakeNode, _state: FakePartition, orders: list[FakePartition]) -> None:
        producer = await init(node)
        await add(node, producer, 0)
        orders[0].hold = True
        await end(node, producer)
        await settle()
        adding = call(node, ADD, 3, add_request(3, producer, 1))
        ending = call(node, END, 3, end_request(producer))
        orders[0].commit()
        assert added_codes(await adding, 3) == [ErrorCode.NONE]
        assert (await ending).error_code == ErrorCode.NONE
        await settle()
        assert [markers(partition) for partition in orders] == [1, 1, 0]

    with_transactions(test)


def test_a_client_that_leaves_does_not_delay_the_next_one() -> None:
    async def test(node: FakeNode, _state: FakePartition, orders: list[FakePartition]) -> None:
        producer = await init(node)
        await add(node, producer, 0)
        orders[0].hold = True
        await end(node, producer)
        left = asyncio.ensure_future(call(node, ADD, 3, add_request(3, producer, 1)))
        next_ = asyncio.ensure_future(call(node, ADD, 3, add_request(3, producer, 2)))
        await settle()
        left.cancel()
        orders[0].commit()
        assert added_codes(await next_, 3) == [ErrorCode.NONE]
        assert (await describe(node)).topics[0].partitions == (2,)

    with_transactions(test)


# Markers


def test_a_coordinator_that_is_loaded_again_writes_the_markers_again() -> None:
    async def test(node: FakeNode, state: FakePartition, orders: list[FakePartition]) -> None:
        producer = await init(node)
        await add(node, producer, 0)
        orders[0].hold = True
        await end(node, producer)
        await settle()
        state.is_leader = False
        state.tell()
        state.is_leader, state.leader_epoch = True, 4
        state.tell()
        await asyncio.sleep(0.01)
        orders[0].hold = False
        orders[0].commit()
        await asyncio.sleep(1)
        assert (await describe(node)).transaction_state == "CompleteCommit"

    with_transactions(test)


def test_markers_of_deleted_topics_are_not_needed() -> None:
    async def test(node: FakeNode, _state: FakePartition, _orders: list[FakePartition]) -> None:
        producer = await init(node)
        await add(node, producer, 0)
        topics = dict(node.image.topics)
        del topics["orders"]
        node.image = replace(node.image, topics=topics)
        assert (await end(node, producer)).error_code == ErrorCode.NONE
        await settle()
        assert (await describe(node)).transaction_state == "CompleteCommit"

    with_transactions(test)


def test_a_marker_that_a_partition_cannot_take_is_written_later() -> None:
    async def test(node: FakeNode, _state: FakePartition, orders: list[FakePartition]) -> None:
        producer = await init(node)
        await add(node, producer, 0, 1)
        orders[0].refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
        await end(node, producer)
        await asyncio.sleep(5)
        assert (await describe(node)).transaction_state == "PrepareCommit"
        assert [markers(partition) for partition in orders] == [0, 1, 0]
        orders[0].refusal = None
        await asyncio.sleep(2)
        assert [markers(partition) for partition in orders] == [1, 1, 0]
        assert (await describe(node)).transaction_state == "CompleteCommit"

    with_transactions(test)


def test_a_transaction_is_completed_when_enough_replicas_are_in_sync_again() -> None:
    async def test(node: FakeNode, state: FakePartition, orders: list[FakePartition]) -> None:
        producer = await init(node)
        await add(node, producer, 0)
        orders[0].hold = True
        await end(node, producer)
        await settle()
        state.leader.enough_in_sync = False
        orders[0].commit()
        await asyncio.sleep(5)
        assert (await describe(node)).transaction_state == "PrepareCommit"
        state.leader.enough_in_sync = True
        await asyncio.sleep(2)
        assert (await describe(node)).transaction_state == "CompleteCommit"
        assert markers(orders[0]) == 1

    with_transactions(test)


def test_a_transaction_that_is_not_ended_in_time_is_aborted() -> None:
    async def test(node: FakeNode, _state: FakePartition, orders: list[FakePartition]) -> None:
        producer = await init(node, transaction_timeout_ms=1_000)
        await add(node, producer, 0)
        await asyncio.sleep(1.1)
        assert (await describe(node)).transaction_state == "CompleteAbort"
        assert markers(orders[0]) == 1
        assert (await end(node, producer, 3)).error_code == ErrorCode.PRODUCER_FENCED

    with_transactions(test)


# Bad input: nothing changes, and the coordinator continues


def test_bad_input_changes_nothing() -> None:
    async def test(node: FakeNode, state: FakePartition, orders: list[FakePartition]) -> None:
        producer = await init(node)
        written = len(state.batches)
        foreign, stale = Producer(producer.id + 1, 0), Producer(producer.id, -1)
        future = Producer(producer.id, producer.epoch + 1)
        mapping, fenced = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED
        for bad, code in ((foreign, mapping), (stale, fenced), (future, fenced)):
            assert await add(node, bad, 0) == [code]
            assert await add(node, bad, 0, version=5) == [code]
            assert await add(node, bad, 0, version=5, verify_only=True) == [code]
            assert await add_offsets(node, bad) == code
            for version in (4, 5):
                assert (await end(node, bad, version)).error_code == code
        # Transactional ids that do not exist, or are empty.
        assert await add(node, producer, 0, transactional_id="no") == [mapping]
        assert await add_offsets(node, producer, transactional_id="no") == mapping
        assert (await end(node, producer, transactional_id="no")).error_code == mapping
        invalid = ErrorCode.INVALID_REQUEST
        assert await add(node, producer, 0, transactional_id="") == [invalid]
        assert await add(node, producer, 0, transactional_id="", version=5) == [invalid]
        assert await add_offsets(node, producer, transactional_id="") == invalid
        assert (await end(node, producer, transactional_id="")).error_code == invalid
        # There is no transaction to end.
        illegal = ErrorCode.INVALID_TXN_STATE
        assert (await end(node, producer, 4)).error_code == illegal
        assert (await end(node, producer, 4, committed=False)).error_code == illegal
        assert (await end(node, producer, 5)).error_code == illegal
        # Timeouts out of range.
        for timeout_ms in (0, -1, 900_001, 2**31 - 1):
            request = init_request(transaction_timeout_ms=timeout_ms)
            code = (await answer(node, INIT, 5, request)).error_code
            assert code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert len(state.batches) == written
        assert not any(partition.batches for partition in orders)
        assert await add(node, producer, 0) == [ErrorCode.NONE], "the coordinator continues"

    with_transactions(test)


def test_an_ended_transaction_cannot_end_the_other_way() -> None:
    async def test(node: FakeNode, state: FakePartition, orders: list[FakePartition]) -> None:
        producer = await init(node)
        await add(node, producer, 0)
        await end(node, producer, 4)
        await settle()
        written = len(state.batches)
        response = await end(node, producer, 4, committed=False)
        assert response.error_code == ErrorCode.INVALID_TXN_STATE
        assert (len(state.batches), markers(orders[0])) == (written, 1)

    with_transactions(test)


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_unknown_partitions_fail_the_whole_request(version: int) -> None:
    async def test(node: FakeNode, state: FakePartition, _orders: list[FakePartition]) -> None:
        producer = await init(node)
        written = len(state.batches)
        unknown, skipped = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        assert await add(node, producer, 0, 3, -1, version=version) == [skipped, unknown, unknown]
        assert await add(node, producer, 0, topic="no", version=version) == [unknown]
        assert len(state.batches) == written

    with_transactions(test)


@pytest.mark.parametrize("topic", [TRANSACTION_TOPIC, OFFSETS_TOPIC])
def test_clients_cannot_add_internal_topics(topic: str) -> None:
    async def test(node: FakeNode, _state: FakePartition, _orders: list[FakePartition]) -> None:
        producer = await init(node)
        assert await add_offsets(node, producer) == ErrorCode.NONE
        assert await add(node, producer, 0, topic=topic) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        if topic == OFFSETS_TOPIC:
            assert await add(node, producer, 0, topic=topic, version=5) == [ErrorCode.NONE]

    with_transactions(test)


def test_a_transactional_id_that_no_record_can_hold_is_refused() -> None:
    async def test(node: FakeNode, state: FakePartition, _orders: list[FakePartition]) -> None:
        huge = "x" * 32767
        producer = await init(node, transactional_id=huge)
        assert await add(node, producer, 0, transactional_id=huge) == [ErrorCode.NONE]
        written = len(state.batches)
        state.config = replace(state.config, max_message_bytes=10_000)
        request = init_request(transactional_id="y" * 32767)
        response = await answer(node, INIT, 5, request)
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert len(state.batches) == written
        await init(node, transactional_id="z")

    with_transactions(test)


def test_too_few_replicas_in_sync_refuse_and_change_nothing() -> None:
    async def test(node: FakeNode, state: FakePartition, _orders: list[FakePartition]) -> None:
        producer = await init(node)
        await add(node, producer, 0)
        state.leader.enough_in_sync = False
        refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await add(node, producer, 1) == [refused]
        assert (await end(node, producer)).error_code == refused
        assert (await answer(node, INIT, 5, init_request())).error_code == refused
        state.leader.enough_in_sync = True
        assert (await end(node, producer)).error_code == ErrorCode.NONE

    with_transactions(test)


# Administration


def test_transactions_are_described() -> None:
    async def test(node: FakeNode, _state: FakePartition, _orders: list[FakePartition]) -> None:
        producer = await init(node, transaction_timeout_ms=5_000)
        await add(node, producer, 1, 0)
        request = DescribeTransactionsRequest(transactional_ids=(TRANSACTIONAL_ID, "no", ""))
        states = (await answer(node, DESCRIBE, 0, request)).transaction_states
        assert [state.error_code for state in states] == [
            ErrorCode.NONE,
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            ErrorCode.INVALID_REQUEST,
        ]
        known = states[0]
        assert (known.transaction_state, known.transaction_timeout_ms) == ("Ongoing", 5_000)
        assert (known.producer_id, known.producer_epoch) == producer
        assert [(topic.topic, topic.partitions) for topic in known.topics] == [("orders", (0, 1))]

    with_transactions(test)


@pytest.mark.parametrize("version", range(3))
def test_transactions_are_listed_by_filters(version: int) -> None:
    async def test(node: FakeNode, _state: FakePartition, _orders: list[FakePartition]) -> None:
        producer = await init(node)
        await init(node, transactional_id="other")
        await add(node, producer, 0)
        await asyncio.sleep(10)

        async def listed(**filters: Any) -> list[str]:
            response = await answer(node, LIST, version, ListTransactionsRequest(**filters))
            assert response.error_code == ErrorCode.NONE
            return sorted(state.transactional_id for state in response.transaction_states)

        assert await listed() == ["other", TRANSACTIONAL_ID]
        assert await listed(state_filters=("Ongoing",)) == [TRANSACTIONAL_ID]
        assert await listed(state_filters=("Nonsense",)) == []
        assert await listed(producer_id_filters=(producer.id,)) == [TRANSACTIONAL_ID]
        if version >= 1:
            assert TRANSACTIONAL_ID in await listed(duration_filter=5_000)
            assert TRANSACTIONAL_ID not in await listed(duration_filter=50_000)
        if version >= 2:
            assert await listed(transactional_id_pattern="o.*") == ["other"]
            assert await listed(transactional_id_pattern="o") == []

    with_transactions(test)


def test_many_transactions_are_listed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 transactional ids held the event loop for 0.27 s."""
    monkeypatch.setattr(list_handler, "LISTED_TRANSACTIONS_A_TURN", 2)

    async def test(node: FakeNode, _state: FakePartition, _orders: list[FakePartition]) -> None:
        for number in range(20):
            await init(node, transactional_id=f"t{number}")
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        others = asyncio.create_task(count_turns())
        response = await answer(node, LIST, 2, ListTransactionsRequest(state_filters=("Empty",)))
        all_turns, turns = turns, 0
        await answer(node, LIST, 2, ListTransactionsRequest(state_filters=("Nonsense",)))
        others.cancel()
        assert len(response.transaction_states) == 20
        assert min(all_turns, turns) >= 10

    with_transactions(test)


def test_unknown_states_and_malformed_patterns_are_reported() -> None:
    async def main(node: FakeNode) -> None:
        request = ListTransactionsRequest(state_filters=("Ongoing", "Nonsense", "ongoing"))
        response = await answer(node, LIST, 2, request)
        assert response.unknown_state_filters == ("Nonsense", "ongoing")
        malformed = ListTransactionsRequest(transactional_id_pattern="(")
        response = await answer(node, LIST, 2, malformed)
        assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    run(main, **SETTINGS)
