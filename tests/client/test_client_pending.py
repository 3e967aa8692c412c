"""Batches, sequences and what a batch's futures are told."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.producer.pending import (
    NO_IDENTITY,
    BatchQueue,
    Delivered,
    PendingBatch,
    ProducerIdentity,
    Sequences,
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


def future() -> asyncio.Future[Delivered]:
    return asyncio.Future(loop=asyncio.new_event_loop())


def queue_of(count: int, *, batch_bytes: int = 461) -> BatchQueue:
    queue = BatchQueue(PARTITION, batch_bytes, linger_s=5.0)
    for number in range(count):
        queue.add(RECORD, size_of(RECORD), future(), float(number))
    return queue


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
def test_no_record_is_larger_than_it_is_taken_for(record: NewRecord) -> None:
    assert len(build_batch([record])) <= BATCH_HEADER_BYTES + size_of(record)


def test_a_full_batch_is_ready_at_once_and_an_open_one_lingers() -> None:
    assert queue_of(0).ready_at(flushing=True) is None
    queue = queue_of(3)
    assert queue.ready_at(flushing=False) == 5.0
    assert queue.ready_at(flushing=True) == 0.0
    assert queue_of(4).ready_at(flushing=False) == 0.0
    queue = queue_of(5)
    assert len(queue) == 2
    assert len(queue.take().records) == 4
    assert queue.ready_at(flushing=False) == 9.0


def test_a_record_too_large_for_any_batch_has_one_of_its_own() -> None:
    queue = queue_of(1)
    large = NewRecord(None, bytes(10_000))
    queue.add(large, size_of(large), future(), 1.0)
    queue.add(RECORD, size_of(RECORD), future(), 2.0)
    assert [len(queue.take().records) for _ in range(3)] == [1, 1, 1]


def test_a_taken_batch_is_closed_and_what_comes_back_comes_first() -> None:
    queue = queue_of(5)
    first, second = queue.take(), queue.take()
    queue.add(RECORD, size_of(RECORD), future(), 6.0)
    queue.put_back([first, second])
    assert queue.take() is first
    assert queue.take() is second
    assert len(queue.take().records) == 1


def numbered(sequences: Sequences, count: int) -> int:
    one = PendingBatch(PARTITION, 0.0)
    for _ in range(count):
        one.add(RECORD, 100, future())
    sequences.number(one)
    before = one.sequence
    sequences.number(one)
    assert one.sequence == before
    return before


def test_sequences_count_records_and_begin_again_after_the_last() -> None:
    sequences = Sequences()
    assert [numbered(sequences, count) for count in (3, 1, 5)] == [0, 3, 4]
    sequences._next = 2**31 - 2
    assert [numbered(sequences, count) for count in (3, 1)] == [2**31 - 2, 1]


def test_a_retry_sends_the_same_bytes_until_the_sequence_is_forgotten() -> None:
    one = PendingBatch(PARTITION, 0.0)
    one.add(RECORD, 100, future())
    one.sequence = 7
    sent = one.encode(Codec.NONE, ProducerIdentity(5, 1))
    assert one.encode(Codec.NONE, ProducerIdentity(6, 0)) is sent
    assert read_header(sent)[9:12] == (5, 1, 7)
    one.forget_sequence()
    assert read_header(one.encode(Codec.NONE, NO_IDENTITY)).base_sequence == NO_SEQUENCE


def test_every_record_is_told_its_own_fate() -> None:
    one = PendingBatch(PARTITION, 0.0)
    futures = [future() for _ in range(3)]
    for each in futures:
        one.add(NewRecord(None, b"", (), 42), 100, each)
    futures[1].cancel()
    one.succeed(10, -1)
    assert futures[2].result() == Delivered("t", 0, 12, 42)
    other = PendingBatch(PARTITION, 0.0)
    more = [future(), future()]
    for each in more:
        other.add(RECORD, 100, each)
    errors = [
        KafkaError(ErrorCode.INVALID_RECORD, "no key"),
        KafkaError(ErrorCode.INVALID_RECORD, "another"),
    ]
    other.fail(errors)
    assert [each.exception() for each in more] == errors
