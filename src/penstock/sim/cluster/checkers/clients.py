"""Rules that clients can check from outside: what they sent, what was acknowledged, what they
read."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.ids import TopicPartition
from penstock.sim.cluster.events import (
    ClocksJumped,
    EpochEndFetched,
    ImpostorFetched,
    OffsetOutOfRange,
    RecordAcknowledged,
    RecordConsumed,
    RecordSent,
    TopicCreated,
)
from penstock.sim.cluster.history import History, Violation


def no_acknowledged_write_is_lost(history: History) -> Iterator[Violation]:
    """Rule 1."""
    values = {
        partition: {value for _offset, value in records}
        for partition, records in history.final_records.items()
    }
    for write in _durable_writes(history):
        if _is_deleted(history, write):
            continue
        if write.partition in values and write.value not in values[write.partition]:
            text = f"{write.value!r} was acknowledged at offset {write.offset} of {write.partition}"
            yield Violation(write.at, f"{text}, but is lost")
    for refused in history.of(OffsetOutOfRange):
        if history.is_durable(refused.partition):
            text = f"{refused.consumer} had read {refused.partition} up to {refused.offset}"
            yield Violation(refused.at, f"{text}, which is now out of range")


def no_consumed_record_is_reported_truncated(history: History) -> Iterator[Violation]:
    """Rule 1: a new leader does not make a consumer believe that what it has read is gone."""
    for event in history.of(EpochEndFetched):
        if event.end_offset < event.position and history.is_durable(event.partition):
            text = f"{event.consumer} had read {event.partition} up to {event.position}"
            yield Violation(event.at, f"{text}, but its epoch ends at {event.end_offset}")


def no_record_comes_from_elsewhere(history: History) -> Iterator[Violation]:
    """Rule 12: a partition has only records that were sent to it. Those of a deleted topic do not
    appear in the next topic of that name."""
    sent = {(event.partition, event.value) for event in history.of(RecordSent)}
    for partition, records in history.final_records.items():
        for offset, value in records:
            if (partition, value) not in sent:
                yield Violation(
                    history.ended_at, f"{value!r} at {offset} of {partition} was not sent to it"
                )


def retention_deletes_no_more_than_it_may(history: History) -> Iterator[Violation]:
    """Rule 1: what retention.bytes leaves is at least that large, unless a client deleted more."""
    for partition, replicas in history.final_logs.items():
        least = history.retention_bytes.get(partition.topic)
        if least is None:
            continue
        for node, log in replicas.items():
            size = sum(len(data) for _base, _next, data in log.batches)
            if size < least and log.start_offset > history.deletions.get(partition, 0):
                yield Violation(
                    history.ended_at,
                    f"retention.bytes of {partition} was never below {least}, but replica {node} "
                    f"has {size} bytes from offset {log.start_offset} on",
                )


def no_created_topic_is_lost(history: History) -> Iterator[Violation]:
    """Rule 1, for metadata."""
    for created in history.of(TopicCreated):
        if history.final_topics and created.topic not in history.final_topics:
            yield Violation(created.at, f"topic {created.topic} was created, but is lost")


def no_false_acknowledgement(history: History) -> Iterator[Violation]:
    """Rule 2: with acks=all a record is acknowledged only below the high watermark."""
    for write in history.of(RecordAcknowledged):
        acks_all = history.producers[write.producer].acks_all
        if acks_all and write.offset >= write.max_high_watermark:
            text = f"{write.value!r} was acknowledged at offset {write.offset} of {write.partition}"
            yield Violation(
                write.at, f"{text}, but no high watermark was above {write.max_high_watermark}"
            )


def one_value_per_offset(history: History) -> Iterator[Violation]:
    """Rule 3: all acknowledgements and all reads, ever, agree."""
    seen: dict[tuple[TopicPartition, int], bytes] = {}
    events: list[RecordAcknowledged | RecordConsumed] = [
        *_durable_writes(history),
        *history.of(RecordConsumed),
    ]
    observations = [(event.at, event.partition, event.offset, event.value) for event in events]
    observations += [
        (history.ended_at, partition, offset, value)
        for partition, records in history.final_records.items()
        for offset, value in records
    ]
    for at, partition, offset, value in observations:
        if offset < 0 or not history.is_durable(partition):
            continue
        first = seen.setdefault((partition, offset), value)
        if first != value:
            yield Violation(at, f"offset {offset} of {partition} was {first!r}, and is {value!r}")


def no_duplicate_from_an_idempotent_producer(history: History) -> Iterator[Violation]:
    """Rule 4."""
    for partition, records in history.final_records.items():
        seen: dict[bytes, int] = {}
        for offset, value in records:
            idempotent = history.producers[producer_of(value)].idempotent
            if idempotent and seen.setdefault(value, offset) != offset:
                yield Violation(
                    history.ended_at,
                    f"{value!r} is at offsets {seen[value]} and {offset} of {partition}",
                )


def log_order_is_send_order(history: History) -> Iterator[Violation]:
    """Rule 5, for acknowledged records. A record whose producer gave up may still be appended
    later, and the retry of a plain producer may be appended twice."""
    number = {event.value: count for count, event in enumerate(history.of(RecordSent))}
    acknowledged = {event.value for event in history.of(RecordAcknowledged)}
    for partition, records in history.final_records.items():
        last: dict[str, bytes] = {}
        for value in _first_occurrences(records):
            if value not in acknowledged:
                continue
            before = last.get(producer_of(value))
            if before is not None and number[before] > number[value]:
                yield Violation(
                    history.ended_at,
                    f"{value!r} was sent before {before!r}, but is after it in {partition}",
                )
            last[producer_of(value)] = value


def offsets_are_dense(history: History) -> Iterator[Violation]:
    """Rule 6, for the final read and for each consumer during the run."""
    for partition, records in history.final_records.items():
        offsets = [offset for offset, _value in records]
        first = offsets[0] if offsets and partition.topic in history.retention_bytes else 0
        if offsets != list(range(first, first + len(offsets))):
            yield Violation(
                history.ended_at, f"the offsets of {partition} are not dense: {offsets}"
            )
    positions: dict[tuple[str, TopicPartition], int] = {}
    for read in history.of(RecordConsumed):
        expected = positions.get((read.consumer, read.partition), 0)
        if read.offset != expected and history.is_durable(read.partition):
            text = f"{read.consumer} read offset {read.offset} of {read.partition}"
            yield Violation(read.at, f"{text}, but {expected} was next")
        positions[read.consumer, read.partition] = read.offset + 1


def nothing_above_the_high_watermark_is_served(history: History) -> Iterator[Violation]:
    """Rule 8."""
    for read in history.of(RecordConsumed):
        if read.offset >= read.max_high_watermark:
            text = f"{read.consumer} read offset {read.offset} of {read.partition}"
            yield Violation(
                read.at, f"{text}, but no high watermark was above {read.max_high_watermark}"
            )


def impostors_get_nothing_more(history: History) -> Iterator[Violation]:
    """Rule 8, for a client that poses as a replica."""
    for fetch in history.of(ImpostorFetched):
        if fetch.end_offset > fetch.max_high_watermark:
            text = (
                f"a client that posed as broker {fetch.replica} got {fetch.partition} up to "
                f"{fetch.end_offset}"
            )
            yield Violation(
                fetch.at, f"{text}, but no high watermark was above {fetch.max_high_watermark}"
            )


def cluster_heals(history: History) -> Iterator[Violation]:
    """Rule 25."""
    if history.heal_failure is not None:
        yield Violation(history.ended_at, history.heal_failure)


def clock_jumps_move_no_leader(history: History) -> Iterator[Violation]:
    """Rule 26: clock jumps in a healthy cluster cause no election."""
    for event in history.of(ClocksJumped):
        if event.elections:
            yield Violation(
                event.at,
                f"the clocks jumped in a healthy cluster, and {event.elections} leaders moved",
            )


def producer_of(value: bytes) -> str:
    """Return the producer of a value. Values are `producer:number`."""
    return value.partition(b":")[0].decode()


def _is_deleted(history: History, write: RecordAcknowledged) -> bool:
    """Whether retention or DeleteRecords may have deleted a record, or it is not known whether."""
    if write.partition.topic not in history.retention_bytes:
        return False
    records = history.final_records.get(write.partition)
    return not records or write.offset < records[0][0]


def _durable_writes(history: History) -> list[RecordAcknowledged]:
    return [
        event
        for event in history.of(RecordAcknowledged)
        if history.producers[event.producer].acks_all and history.is_durable(event.partition)
    ]


def _first_occurrences(records: list[tuple[int, bytes]]) -> list[bytes]:
    return list(dict.fromkeys(value for _offset, value in records))
