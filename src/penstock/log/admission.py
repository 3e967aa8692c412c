"""What a leader asks of batches before it appends them, and what it writes into their headers.
PURE: nothing here touches a disk."""

from __future__ import annotations

from penstock.config.topic import LogConfig
from penstock.errors import ErrorCode, KafkaError
from penstock.ids import NO_PRODUCER_ID, NO_TIMESTAMP, Buffer
from penstock.log.producers.state import AppendedBatch, EndMarker, ProducerStates
from penstock.records.batch import BatchHeader, patch, patch_log_append_time


def check_producers(
    producers: ProducerStates, headers: list[BatchHeader], markers: list[EndMarker | None]
) -> AppendedBatch | None:
    """The earlier append that a batch repeats; None where all are new. KafkaError where one may not
    be appended."""
    for header, marker in zip(headers, markers, strict=True):
        if marker is not None:
            producers.check_marker(header, marker)
        elif header.producer_id > NO_PRODUCER_ID and not header.is_control:
            duplicate = producers.check(header)
            if duplicate is not None:
                return duplicate
    return None


def check_timestamps(config: LogConfig, headers: list[BatchHeader], now_ms: int) -> None:
    """From the headers alone: of times before the limit only that of a batch's first record is
    seen."""
    for header in headers:
        if header.max_timestamp == NO_TIMESTAMP:
            continue
        too_late = header.max_timestamp - now_ms > config.message_timestamp_after_max_ms
        if too_late or now_ms - header.base_timestamp > config.message_timestamp_before_max_ms:
            time = header.max_timestamp if too_late else header.base_timestamp
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP,
                (
                    f"timestamp {time} is further from the broker's time, {now_ms}, than "
                    "message.timestamp.before/after.max.ms allow"
                ),
            )


def with_offsets(
    records: Buffer,
    headers: list[BatchHeader],
    offset: int,
    leader_epoch: int,
    append_time_ms: int | None,
) -> tuple[memoryview, list[BatchHeader]]:
    """The batches with the offsets, the epoch and, where it is asked for, the time that the leader
    gives them: written in place where the buffer allows it."""
    view = memoryview(records)
    if view.readonly:
        view = memoryview(bytearray(records))
    position, patched = 0, []
    for header in headers:
        patch(view, position, offset, leader_epoch)
        header = BatchHeader._make((offset, header.batch_length, leader_epoch, *header[3:]))
        patched.append(
            header
            if append_time_ms is None
            else patch_log_append_time(view, position, header, append_time_ms)
        )
        position += header.size
        offset = header.next_offset
    return view, patched
