"""The transactional producer against a scripted coordinator: transcripts of its requests, and what
each error means for the application."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.admin.groups import ConsumerGroupMetadata, OffsetAndMetadata
from penstock.client.client import Client
from penstock.client.producer.accumulator import NO_PRODUCER, ProducerIdAndEpoch
from penstock.client.producer.producer import Producer
from penstock.client.producer.transaction_state import (
    AbortableTransactionError,
    FatalTransactionError,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.records.batch import batches
from tests.client.scripted_broker import (
    LOSE_REQUEST,
    LOSE_RESPONSE,
    TOPIC,
    Fault,
    Refuse,
    play,
)
from tests.client.scripted_transactions import (
    PRODUCER_ID,
    Injected,
    TransactionalBroker,
    partition,
)
from tests.client.workload import numbers

V1, V2 = 1, 2
APIS = ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"]
GROUP = "copy"
MEMBER = ConsumerGroupMetadata("member-1", 3)
OFFSETS = {partition(0): OffsetAndMetadata(7)}


def transactional(client: Client, **options: object) -> Producer:
    return client.producer(transactional_id="t", **options)


async def transact(producer: Producer, *values: bytes, index: int = 0) -> None:
    producer.begin_transaction()
    for value in values:
        await producer.send(TOPIC, value, partition=index)
    await producer.commit_transaction()


def test_with_transaction_version_2_leaders_add_partitions_and_every_end_bumps_the_epoch() -> None:
    broker = TransactionalBroker(V2)

    async def scenario(client: Client) -> None:
        async with transactional(client) as producer:
            await producer.init_transactions()
            assert producer.producer_id_and_epoch == ProducerIdAndEpoch(PRODUCER_ID, 0)
            await transact(producer, b"a", b"b")
            producer.begin_transaction()
            await producer.send(TOPIC, b"lost", partition=0)
            await producer.flush()
            await producer.send_offsets_to_transaction(OFFSETS, GROUP, MEMBER)
            await producer.abort_transaction()
            producer.begin_transaction()
            await producer.send(TOPIC, b"c", partition=0)
            await producer.send_offsets_to_transaction(OFFSETS, GROUP, MEMBER)
            await producer.commit_transaction()
            assert producer.producer_id_and_epoch == ProducerIdAndEpoch(PRODUCER_ID, 3)

    play(broker, scenario)
    assert broker.transcript == [
        "FindCoordinator transaction t",
        "InitProducerId v5 -1/-1",
        "EndTxn v5 epoch 0 commit",
        "FindCoordinator group copy",
        "TxnOffsetCommit v5 epoch 1 group copy member member-1/3",
        "EndTxn v5 epoch 1 abort",
        "TxnOffsetCommit v5 epoch 2 group copy member member-1/3",
        "EndTxn v5 epoch 2 commit",
    ]
    assert broker.committed() == [b"a", b"b", b"c"]
    assert broker.offsets == {partition(0): 7}
    produced = [header for _at, header in batches(broker.partitions[0].data)]
    assert all(header.is_transactional for header in produced)
    assert {header.base_sequence for header in produced if not header.is_control} == {0}


def test_without_it_the_producer_adds_partitions_and_keeps_its_epoch() -> None:
    broker = TransactionalBroker(V1)

    async def scenario(client: Client) -> None:
        async with transactional(client) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send(TOPIC, b"a", partition=0)
            await producer.send(TOPIC, b"b", partition=1)
            await producer.flush()
            await producer.send_offsets_to_transaction(OFFSETS, GROUP)
            await producer.commit_transaction()
            await transact(producer, b"c")

    play(broker, scenario)
    assert broker.transcript == [
        "FindCoordinator transaction t",
        "InitProducerId v5 -1/-1",
        "AddPartitionsToTxn v3 epoch 0 partitions [0, 1]",
        "AddOffsetsToTxn v4 epoch 0 group copy",
        "FindCoordinator group copy",
        "TxnOffsetCommit v4 epoch 0 group copy member /-1",
        "EndTxn v4 epoch 0 commit",
        "AddPartitionsToTxn v3 epoch 0 partitions [0]",
        "EndTxn v4 epoch 0 commit",
    ]
    assert broker.committed(0) == [b"a", b"c"]
    assert broker.committed(1) == [b"b"]
    versions = {version for key, version, _request in broker.requests if key == 0}
    assert versions == {11}
    sequences = [header.base_sequence for _at, header in batches(broker.partitions[0].data)]
    assert sequences == [0, -1, 1, -1]


@pytest.mark.parametrize("version", [V1, V2])
def test_an_empty_transaction_sends_nothing(version: int) -> None:
    broker = TransactionalBroker(version)

    async def scenario(client: Client) -> None:
        async with transactional(client) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.commit_transaction()
            producer.begin_transaction()
            await producer.send_offsets_to_transaction({}, GROUP)
            await producer.abort_transaction()

    play(broker, scenario)
    assert broker.transcript == ["FindCoordinator transaction t", "InitProducerId v5 -1/-1"]


RETRIED: list[tuple[str, list[Injected]]] = [
    ("InitProducerId", [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]),
    ("InitProducerId", [ErrorCode.NOT_COORDINATOR, LOSE_RESPONSE]),
    ("EndTxn", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE]),
    ("EndTxn", [LOSE_RESPONSE, ErrorCode.CONCURRENT_TRANSACTIONS]),
    ("TxnOffsetCommit", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, LOSE_RESPONSE]),
    ("AddPartitionsToTxn", [ErrorCode.CONCURRENT_TRANSACTIONS, LOSE_RESPONSE]),
    ("AddOffsetsToTxn", [ErrorCode.NOT_COORDINATOR, LOSE_RESPONSE]),
]


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize(("api", "errors"), RETRIED)
def test_retriable_errors_are_retried_without_duplicates(
    version: int, api: str, errors: list[Injected]
) -> None:
    broker = TransactionalBroker(version)
    broker.inject(api, *errors)

    async def scenario(client: Client) -> None:
        async with transactional(client) as producer:
            await producer.init_transactions()
            for number in range(3):
                producer.begin_transaction()
                await producer.send(TOPIC, b"%d" % number, partition=0)
                await producer.send_offsets_to_transaction(
                    {partition(0): OffsetAndMetadata(number)}, GROUP
                )
                await producer.commit_transaction()

    play(broker, scenario)
    assert broker.committed() == numbers(3)
    assert broker.offsets == {partition(0): 2}


@pytest.mark.parametrize("version", [V1, V2])
def test_produce_faults_are_retried_in_order_within_the_transaction(version: int) -> None:
    broker = TransactionalBroker(version)
    broker.faults.extend(
        [
            Refuse(ErrorCode.CONCURRENT_TRANSACTIONS),
            LOSE_RESPONSE,
            None,
            LOSE_REQUEST,
            Refuse(ErrorCode.NOT_ENOUGH_REPLICAS),
        ]
    )

    async def scenario(client: Client) -> None:
        async with transactional(client, batch_bytes=300, linger_s=0.0) as producer:
            await producer.init_transactions()
            await transact(producer, *numbers(60))
            await transact(producer, b"60")

    play(broker, scenario)
    assert broker.committed() == numbers(61)


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize(
    ("refused", "raised"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
def test_a_refused_batch_makes_the_transaction_abortable(
    version: int, refused: ErrorCode, raised: ErrorCode
) -> None:
    """The epoch of the next transaction is newer, so that the gap in the sequences does not
    matter."""
    broker = TransactionalBroker(version)
    broker.faults.extend([None, Refuse(refused)])

    async def scenario(client: Client) -> None:
        async with transactional(client, batch_bytes=300, linger_s=0.0) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            futures = [
                await producer.send(TOPIC, b"%d" % number, partition=0) for number in range(60)
            ]
            with pytest.raises(AbortableTransactionError) as failed:
                await producer.commit_transaction()
            assert failed.value.code is raised
            assert any(future.exception() for future in futures)
            with pytest.raises(AbortableTransactionError):
                await producer.send(TOPIC, b"late", partition=0)
            with pytest.raises(AbortableTransactionError):
                await producer.commit_transaction()
            await producer.abort_transaction()
            await transact(producer, b"next")

    play(broker, scenario)
    assert broker.committed() == [b"next"]
    ends = [line for line in broker.transcript if line.startswith(("EndTxn", "Init"))]
    assert ends == [
        "InitProducerId v5 -1/-1",
        *(
            ["EndTxn v5 epoch 0 abort", "EndTxn v5 epoch 1 commit"]
            if version == V2
            else [
                "EndTxn v4 epoch 0 abort",
                f"InitProducerId v5 {PRODUCER_ID}/0",
                "EndTxn v4 epoch 1 commit",
            ]
        ),
    ]


def test_records_that_cannot_be_delivered_in_time_make_the_transaction_abortable() -> None:
    broker = TransactionalBroker(V2)
    broker.faults.extend([Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 200)

    async def scenario(client: Client) -> None:
        async with transactional(client, delivery_timeout_s=5.0) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send(TOPIC, b"late", partition=0)
            with pytest.raises(AbortableTransactionError) as failed:
                await producer.commit_transaction()
            assert failed.value.code is ErrorCode.TRANSACTION_ABORTABLE
            broker.faults.clear()
            await producer.abort_transaction()
            await transact(producer, b"next")

    play(broker, scenario)
    assert broker.committed() == [b"next"]


FATAL = [
    ("EndTxn", V2, ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_FENCED),
    ("EndTxn", V1, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED),
    ("EndTxn", V2, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ("EndTxn", V2, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ("AddPartitionsToTxn", V1, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED),
    ("AddPartitionsToTxn", V1, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ("AddOffsetsToTxn", V1, ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_FENCED),
    ("TxnOffsetCommit", V2, ErrorCode.PRODUCER_FENCED, ErrorCode.PRODUCER_FENCED),
    ("TxnOffsetCommit", V2, ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_GROUP_ID),
]
ABORTABLE = [
    ("EndTxn", V2, ErrorCode.TRANSACTION_ABORTABLE),
    ("EndTxn", V1, ErrorCode.UNKNOWN_PRODUCER_ID),
    ("AddPartitionsToTxn", V1, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ("AddPartitionsToTxn", V1, ErrorCode.TRANSACTION_ABORTABLE),
    ("AddOffsetsToTxn", V1, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ("TxnOffsetCommit", V2, ErrorCode.ILLEGAL_GENERATION),
    ("TxnOffsetCommit", V2, ErrorCode.UNKNOWN_MEMBER_ID),
    ("TxnOffsetCommit", V1, ErrorCode.FENCED_INSTANCE_ID),
    ("TxnOffsetCommit", V2, ErrorCode.GROUP_AUTHORIZATION_FAILED),
]


async def copy_once(producer: Producer, value: bytes) -> None:
    producer.begin_transaction()
    await producer.send(TOPIC, value, partition=0)
    await producer.send_offsets_to_transaction(OFFSETS, GROUP, MEMBER)
    await producer.commit_transaction()


@pytest.mark.parametrize(("api", "version", "injected", "raised"), FATAL)
def test_fatal_errors_end_the_producer(
    api: str, version: int, injected: ErrorCode, raised: ErrorCode
) -> None:
    broker = TransactionalBroker(version)
    broker.inject(api, injected)

    async def scenario(client: Client) -> None:
        async with transactional(client) as producer:
            await producer.init_transactions()
            with pytest.raises(FatalTransactionError) as failed:
                await copy_once(producer, b"a")
            assert failed.value.code is raised
            for repeated in (
                producer.abort_transaction,
                producer.commit_transaction,
                producer.init_transactions,
            ):
                with pytest.raises(FatalTransactionError):
                    await repeated()
            with pytest.raises(FatalTransactionError):
                producer.begin_transaction()

    play(broker, scenario)
    assert broker.committed() == []


@pytest.mark.parametrize(
    "errors",
    [
        [ErrorCode.TOPIC_AUTHORIZATION_FAILED],
        [ErrorCode.OPERATION_NOT_ATTEMPTED],
        [LOSE_RESPONSE, ErrorCode.TOPIC_AUTHORIZATION_FAILED],
    ],
)
def test_a_transaction_that_the_coordinator_may_not_know_is_aborted(
    errors: list[Injected],
) -> None:
    broker = TransactionalBroker(V1)
    broker.inject("AddPartitionsToTxn", *errors)

    async def scenario(client: Client) -> None:
        async with transactional(client) as producer:
            await producer.init_transactions()
            with pytest.raises(AbortableTransactionError):
                await transact(producer, b"a")
            await producer.abort_transaction()
            await transact(producer, b"b")

    play(broker, scenario)
    assert broker.committed() == [b"b"]
    assert not broker.open


@pytest.mark.parametrize(("api", "version", "injected"), ABORTABLE)
def test_after_an_abortable_error_the_producer_continues(
    api: str, version: int, injected: ErrorCode
) -> None:
    broker = TransactionalBroker(version)
    broker.inject(api, injected)

    async def scenario(client: Client) -> None:
        async with transactional(client) as producer:
            await producer.init_transactions()
            with pytest.raises(AbortableTransactionError) as failed:
                await copy_once(producer, b"a")
            assert failed.value.code is injected
            await producer.abort_transaction()
            await copy_once(producer, b"b")

    play(broker, scenario)
    assert broker.committed() == [b"b"]


PRODUCE_FAULTS = st.sampled_from(
    [
        None,
        LOSE_REQUEST,
        LOSE_RESPONSE,
        Refuse(ErrorCode.CONCURRENT_TRANSACTIONS),
        Refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Refuse(ErrorCode.MESSAGE_TOO_LARGE),
        Refuse(ErrorCode.TRANSACTION_ABORTABLE),
    ]
)
COORDINATOR_FAULTS = st.tuples(
    st.sampled_from(APIS),
    st.sampled_from(
        [
            LOSE_RESPONSE,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ]
    ),
)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([V1, V2]),
    st.lists(PRODUCE_FAULTS, max_size=15),
    st.lists(COORDINATOR_FAULTS, max_size=10),
)
def test_any_faults_leave_every_transaction_committed_once_and_in_order(
    version: int, faults: list[Fault], coordinator_faults: list[tuple[str, Injected]]
) -> None:
    """The application repeats a transaction until it is committed."""
    broker = TransactionalBroker(version)
    broker.faults.extend(faults)
    for api, error in coordinator_faults:
        broker.inject(api, error)

    async def scenario(client: Client) -> None:
        async with transactional(client, batch_bytes=300, linger_s=0.0) as producer:
            await producer.init_transactions()
            for number in range(5):
                while True:
                    producer.begin_transaction()
                    try:
                        for index in (0, 1):
                            for part in range(12):
                                value = b"%d.%d" % (number, part)
                                await producer.send(TOPIC, value, partition=index)
                        await producer.send_offsets_to_transaction(
                            {partition(0): OffsetAndMetadata(number)}, GROUP
                        )
                        await producer.commit_transaction()
                    except AbortableTransactionError:
                        await producer.abort_transaction()
                    else:
                        break

    play(broker, scenario)
    expected = [b"%d.%d" % (number, part) for number in range(5) for part in range(12)]
    assert broker.committed(0) == broker.committed(1) == expected
    assert broker.offsets == {partition(0): 4}
    assert not broker.open


def test_a_producer_is_fenced_by_the_next_one() -> None:
    broker = TransactionalBroker(V2)

    async def scenario(client: Client) -> None:
        async with transactional(client) as zombie, transactional(client) as producer:
            await zombie.init_transactions()
            zombie.begin_transaction()
            await (await zombie.send(TOPIC, b"zombie", partition=0))
            await producer.init_transactions()
            with pytest.raises(AbortableTransactionError) as refused:
                await zombie.send(TOPIC, b"late", partition=0)
                await zombie.commit_transaction()
            assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
            with pytest.raises(FatalTransactionError) as fenced:
                await zombie.abort_transaction()
            assert fenced.value.code is ErrorCode.PRODUCER_FENCED
            await transact(producer, b"a")

    play(broker, scenario)
    assert broker.committed() == [b"a"]


def test_a_given_producer_id_and_epoch_must_be_current() -> None:
    broker = TransactionalBroker(V2)

    async def scenario(client: Client) -> None:
        async with transactional(client) as first:
            await first.init_transactions()
        given = first.producer_id_and_epoch
        async with transactional(client, producer=given) as second:
            await second.init_transactions()
            assert second.producer_id_and_epoch == ProducerIdAndEpoch(PRODUCER_ID, 1)
            await transact(second, b"a")
        async with transactional(client, producer=given) as stale:
            with pytest.raises(FatalTransactionError) as fenced:
                await stale.init_transactions()
            assert fenced.value.code is ErrorCode.PRODUCER_FENCED

    play(broker, scenario)


def test_a_cluster_that_is_upgraded_to_transaction_version_2_gets_a_new_epoch_first() -> None:
    broker = TransactionalBroker(V1)

    async def scenario(client: Client) -> None:
        async with transactional(client) as producer:
            await producer.init_transactions()
            await transact(producer, b"a")
            broker.transaction_version = V2
            client.cluster.close()
            await transact(producer, b"b")
            await transact(producer, b"c")

    play(broker, scenario)
    assert broker.transcript[-4:] == [
        "AddPartitionsToTxn v3 epoch 0 partitions [0]",
        "EndTxn v4 epoch 0 commit",
        f"InitProducerId v5 {PRODUCER_ID}/0",
        "EndTxn v5 epoch 1 commit",
    ]
    assert broker.committed() == [b"a", b"b", b"c"]


def test_methods_out_of_order_are_refused_and_change_nothing() -> None:
    async def scenario(client: Client) -> None:
        async with transactional(client) as producer:
            for refused in (producer.commit_transaction, producer.abort_transaction):
                with pytest.raises(RuntimeError, match="not initialized"):
                    await refused()
            with pytest.raises(RuntimeError, match="not initialized"):
                producer.begin_transaction()
            await producer.init_transactions()
            with pytest.raises(RuntimeError, match="begin a transaction first"):
                await producer.send(TOPIC, b"a")
            with pytest.raises(RuntimeError, match="begin a transaction first"):
                await producer.send_offsets_to_transaction(OFFSETS, GROUP)
            with pytest.raises(RuntimeError, match="two_phase_commit"):
                await producer.prepare_transaction()
            producer.begin_transaction()
            with pytest.raises(RuntimeError, match="is in a transaction"):
                producer.begin_transaction()
            with pytest.raises(RuntimeError, match="is in a transaction"):
                await producer.init_transactions()
        async with client.producer() as plain:
            with pytest.raises(RuntimeError, match="no transactional id"):
                plain.begin_transaction()
        with pytest.raises(ValueError, match="acks"):
            transactional(client, acks=1)
        with pytest.raises(ValueError, match="transactional id"):
            client.producer(two_phase_commit=True)

    play(TransactionalBroker(), scenario)


def test_leaving_the_producer_aborts_its_open_transaction() -> None:
    broker = TransactionalBroker(V2)

    async def scenario(client: Client) -> None:
        with pytest.raises(KeyError):
            async with transactional(client) as producer:
                await producer.init_transactions()
                producer.begin_transaction()
                await (await producer.send(TOPIC, b"a", partition=0))
                raise KeyError

    play(broker, scenario)
    assert broker.transcript[-1] == "EndTxn v5 epoch 0 abort"
    assert not broker.open


def test_a_commit_that_timed_out_is_repeated_and_cannot_be_aborted() -> None:
    broker = TransactionalBroker(V2)
    broker.inject("EndTxn", *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 30)

    async def scenario(client: Client) -> None:
        async with transactional(client, max_block_s=5.0) as producer:
            await producer.init_transactions()
            with pytest.raises(KafkaError) as timed_out:
                await transact(producer, b"a")
            assert timed_out.value.code is ErrorCode.REQUEST_TIMED_OUT
            with pytest.raises(RuntimeError, match="is committing"):
                await producer.abort_transaction()
            broker.injected.clear()
            await producer.commit_transaction()
            await transact(producer, b"b")

    play(broker, scenario)
    assert broker.committed() == [b"a", b"b"]


def test_a_commit_that_is_cancelled_before_it_was_sent_leaves_the_transaction_open() -> None:
    broker = TransactionalBroker(V2)

    async def scenario(client: Client) -> None:
        async with transactional(client) as producer:
            await producer.init_transactions()
            broker.faults.extend([Refuse(ErrorCode.NOT_ENOUGH_REPLICAS)] * 50)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.0):
                    await transact(producer, b"a")
            broker.faults.clear()
            await producer.send(TOPIC, b"b", partition=0)
            await producer.commit_transaction()

    play(broker, scenario)
    assert broker.committed() == [b"a", b"b"]


TWO_PHASE = 6


def two_phase_broker() -> TransactionalBroker:
    broker = TransactionalBroker(V2)
    broker.served[22] = (0, TWO_PHASE)
    return broker


def test_two_phase_commit_is_prepared_by_one_producer_and_completed_by_another() -> None:
    broker = two_phase_broker()

    async def scenario(client: Client) -> None:
        async with transactional(client, two_phase_commit=True) as writer:
            assert await writer.init_transactions() == NO_PRODUCER
            writer.begin_transaction()
            await writer.send(TOPIC, b"a", partition=0)
            prepared = await writer.prepare_transaction()
            with pytest.raises(RuntimeError, match="is prepared"):
                await writer.send(TOPIC, b"late", partition=0)
        assert broker.open
        async with transactional(client, two_phase_commit=True) as successor:
            found = await successor.init_transactions(keep_prepared_transaction=True)
            assert found == prepared == ProducerIdAndEpoch(PRODUCER_ID, 0)
            await successor.complete_transaction(prepared)
            await transact(successor, b"b")

    play(broker, scenario)
    assert broker.committed() == [b"a", b"b"]
    assert broker.transcript == [
        "FindCoordinator transaction t",
        "InitProducerId v6 -1/-1 2pc",
        "FindCoordinator transaction t",
        "InitProducerId v6 -1/-1 2pc keep",
        "EndTxn v5 epoch 1 commit",
        "EndTxn v5 epoch 2 commit",
    ]


@pytest.mark.parametrize("completed", [True, False])
def test_a_prepared_transaction_is_taken_over_without_init_producer_id(completed: bool) -> None:
    broker = two_phase_broker()

    async def scenario(client: Client) -> None:
        async with transactional(client, two_phase_commit=True) as writer:
            await writer.init_transactions()
            writer.begin_transaction()
            await writer.send(TOPIC, b"a", partition=0)
            prepared = await writer.prepare_transaction()
        async with transactional(client, two_phase_commit=True) as driver:
            driver.resume_transaction(prepared)
            await driver.complete_transaction(prepared if completed else NO_PRODUCER)
            assert driver.producer_id_and_epoch == ProducerIdAndEpoch(PRODUCER_ID, 1)
            await transact(driver, b"b")

    play(broker, scenario)
    assert broker.committed() == ([b"a", b"b"] if completed else [b"b"])
    assert [line for line in broker.transcript if line.startswith("Init")] == [
        "InitProducerId v6 -1/-1 2pc"
    ]


def test_two_phase_commit_needs_a_broker_that_allows_it() -> None:
    async def scenario(client: Client) -> None:
        async with transactional(client, two_phase_commit=True) as producer:
            with pytest.raises(FatalTransactionError, match=r"two\.phase\.commit\.enable=true"):
                await producer.init_transactions()
        async with transactional(client) as producer:
            with pytest.raises(ValueError, match="two_phase_commit"):
                await producer.init_transactions(keep_prepared_transaction=True)

    play(TransactionalBroker(V2), scenario)
