"""The record accumulator: batches, sequence numbers, and the futures of a batch's records."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.producer.accumulator import (
    NO_PRODUCER,
    ProducerBatch,
    ProducerIdAndEpoch,
    RecordAccumulator,
    RecordMetadata,
    SequenceNumbers,
    size_of,
)
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_SEQUENCE, TopicPartition
from penstock.limits import BATCH_HEADER_BYTES
from penstock.records.batch import read_header
from penstock.records.build import NewRecord, build_batch
from penstock.records.compression import Codec

PARTITION = TopicPartition("t", 0)
RECORD = NewRecord(None, b"x" * 79)  # 100 bytes with its overhead


# Futures without callbacks need a loop, but not a running one.
LOOP = asyncio.new_event_loop()
LOOP.close()


def future() -> asyncio.Future[RecordMetadata]:
    return asyncio.Future(loop=LOOP)


def accumulator_of(count: int, *, batch_bytes: int = 461) -> RecordAccumulator:
    accumulator = RecordAccumulator(PARTITION, batch_bytes, linger_s=5.0)
    for number in range(count):
        accumulator.add(RECORD, size_of(RECORD), future(), float(number))
    return accumulator


@given(
    st.builds(
        NewRecord,
        st.none() | st.binary(max_size=300),
        st.none() | st.binary(max_size=300),
        st.lists(
            st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=20)), max_size=3
        ).map(tuple),
        st.integers(0, 2**41),
    )
)
def test_the_size_estimate_is_an_upper_bound(record: NewRecord) -> None:
    assert len(build_batch([record])) <= BATCH_HEADER_BYTES + size_of(record)


def test_a_full_batch_is_ready_immediately_and_an_open_one_lingers() -> None:
    assert accumulator_of(0).ready_at(flushing=True) is None
    accumulator = accumulator_of(3)
    assert accumulator.ready_at(flushing=False) == 5.0
    assert accumulator.ready_at(flushing=True) == 0.0
    assert accumulator_of(4).ready_at(flushing=False) == 0.0
    accumulator = accumulator_of(5)
    assert len(accumulator) == 2
    assert len(accumulator.drain().records) == 4
    assert accumulator.ready_at(flushing=False) == 9.0


def test_a_record_larger_than_the_batch_size_gets_its_own_batch() -> None:
    accumulator = accumulator_of(1)
    large = NewRecord(None, bytes(10_000))
    accumulator.add(large, size_of(large), future(), 1.0)
    accumulator.add(RECORD, size_of(RECORD), future(), 2.0)
    assert [len(accumulator.drain().records) for _ in range(3)] == [1, 1, 1]


def test_a_drained_batch_is_closed_and_reenqueued_batches_come_first() -> None:
    accumulator = accumulator_of(5)
    first, second = accumulator.drain(), accumulator.drain()
    accumulator.add(RECORD, size_of(RECORD), future(), 6.0)
    accumulator.reenqueue([first, second])
    assert accumulator.drain() is first
    assert accumulator.drain() is second
    assert len(accumulator.drain().records) == 1


def base_sequence(sequences: SequenceNumbers, count: int) -> int:
    batch = ProducerBatch(PARTITION, 0.0)
    for _ in range(count):
        batch.add(RECORD, 100, future())
    sequences.assign(batch)
    before = batch.sequence
    sequences.assign(batch)
    assert batch.sequence == before
    return before


def test_sequences_count_records_and_wrap_to_zero() -> None:
    sequences = SequenceNumbers()
    assert [base_sequence(sequences, count) for count in (3, 1, 5)] == [0, 3, 4]
    sequences._next = 2**31 - 2
    assert [base_sequence(sequences, count) for count in (3, 1)] == [2**31 - 2, 1]


def test_a_retry_sends_the_same_bytes_until_the_sequence_is_reset() -> None:
    batch = ProducerBatch(PARTITION, 0.0)
    batch.add(RECORD, 100, future())
    batch.sequence = 7
    sent = batch.encode(Codec.NONE, ProducerIdAndEpoch(5, 1))
    assert batch.encode(Codec.NONE, ProducerIdAndEpoch(6, 0)) is sent
    assert read_header(sent)[9:12] == (5, 1, 7)
    batch.reset_sequence()
    assert read_header(batch.encode(Codec.NONE, NO_PRODUCER)).base_sequence == NO_SEQUENCE


def test_every_record_gets_its_own_result() -> None:
    batch = ProducerBatch(PARTITION, 0.0)
    futures = [future() for _ in range(3)]
    for record_future in futures:
        batch.add(NewRecord(None, b"", (), 42), 100, record_future)
    futures[1].cancel()
    batch.succeed(10, -1)
    assert futures[2].result() == RecordMetadata("t", 0, 12, 42)
    other = ProducerBatch(PARTITION, 0.0)
    more = [future(), future()]
    for record_future in more:
        other.add(RECORD, 100, record_future)
    errors = [
        KafkaError(ErrorCode.INVALID_RECORD, "no key"),
        KafkaError(ErrorCode.INVALID_RECORD, "another"),
    ]
    other.fail(errors)
    assert [record_future.exception() for record_future in more] == errors
