"""Prints the files of a log as text, for operators. Reads one file and trusts nothing in it.

The records of a coordinator's log (__transaction_state, __consumer_offsets, __share_group_state)
are decoded. The name of the file's directory tells which log it is.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable, Iterator
from uuid import UUID

from penstock.errors import KafkaError, ProtocolError
from penstock.limits import BATCH_HEADER_BYTES
from penstock.log import names
from penstock.log.index import TXN_ENTRY, AbortedTxn, OffsetIndex, TimeIndex
from penstock.log.producers.snapshot import SnapshotDamaged, decode_snapshot
from penstock.log.recovery import scan_batches
from penstock.protocol.internal.coordinator_logs import (
    GROUP_LOG,
    SHARE_STATE_LOG,
    TRANSACTION_LOG,
    CoordinatorLog,
)
from penstock.protocol.schema import fields_of
from penstock.records.batch import BatchHeader, CorruptBatch, read_header
from penstock.records.compression import Codec
from penstock.records.record import Record, control_kind, records_of
from penstock.world import Disk

_SHOWN_BYTES = 100

_COORDINATOR_LOGS = {log.topic: log for log in (GROUP_LOG, TRANSACTION_LOG, SHARE_STATE_LOG)}
_TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


class CannotDump(Exception):
    """The file is of an unknown kind, or damaged; everything valid before the damage was
    printed."""


def dump(disk: Disk, path: str, *, records: bool) -> Iterator[str]:
    """Yield lines that describe a file. Raises CannotDump at the first damage."""
    name = path.rpartition("/")[2].removesuffix(names.DELETED)
    parsed = names.parse_segment_file(name)
    if parsed is None:
        yield from _text(disk, path)
        return
    base_offset, suffix = parsed
    if suffix == names.LOG:
        yield from _segment(disk, path, _record_printer(path) if records else None)
    elif suffix == names.OFFSET_INDEX:
        yield from _entries(
            disk,
            path,
            OffsetIndex.entry,
            lambda relative, position: f"offset {base_offset + relative}  position {position}",
        )
    elif suffix == names.TIME_INDEX:
        yield from _entries(
            disk,
            path,
            TimeIndex.entry,
            lambda time, relative: f"timestamp {_time(time)}  offset {base_offset + relative}",
        )
    elif suffix == names.TXN_INDEX:
        yield from _entries(disk, path, TXN_ENTRY, _aborted)
    else:
        yield from _snapshot(disk, path)


def _record_printer(path: str) -> Callable[[Record], str]:
    """Return what prints a record of this segment."""
    directory = path.rpartition("/")[0].rpartition("/")[2]
    # The directory of a log that is being moved or deleted has a suffix.
    partition = names.parse_partition_dir(directory.partition(".")[0])
    log = None if partition is None else _COORDINATOR_LOGS.get(partition.topic)
    return _record if log is None else lambda record: _coordinator_record(log, record)


def _segment(disk: Disk, path: str, print_record: Callable[[Record], str] | None) -> Iterator[str]:
    file = disk.open(path)
    size = file.size()
    end, count, batch_count = 0, 0, 0
    try:
        for position, header, batch in scan_batches(file, size):
            yield _batch_line(position, header)
            if print_record is not None:
                yield from _record_lines(header, batch, print_record)
            end, count, batch_count = (
                position + header.size,
                count + header.record_count,
                batch_count + 1,
            )
    except CorruptBatch as error:
        yield from _damaged(file.pread(BATCH_HEADER_BYTES, end), end)
        raise CannotDump(
            f"{path}: {error.message}; {size - end} of {size} bytes are not shown"
        ) from error
    yield f"{batch_count} batches, {count} records, {size} bytes"


def _batch_line(position: int, header: BatchHeader) -> str:
    words = [
        f"@{position}",
        f"offsets {header.base_offset}..{header.last_offset}",
        f"{header.record_count} records",
        f"{header.size} bytes",
        Codec(header.codec).name.lower()
        if header.codec in list(Codec)
        else f"codec {header.codec}",
        (
            f"{'LogAppendTime' if header.log_append_time else 'CreateTime'} "
            f"{_time(header.max_timestamp)}"
        ),
        f"epoch {header.leader_epoch}",
    ]
    if header.has_producer:
        words.append(f"producer {header.producer_id} epoch {header.producer_epoch}")
        words.append(f"sequences {header.base_sequence}..{header.last_sequence}")
    words += [
        word
        for word, is_set in (
            ("transactional", header.is_transactional),
            ("control", header.is_control),
        )
        if is_set
    ]
    words.append(f"crc {header.crc:08x}")
    return "  ".join(words)


def _record_lines(
    header: BatchHeader, batch: memoryview, print_record: Callable[[Record], str]
) -> Iterator[str]:
    try:
        for record in records_of(batch, header):
            text = _control(record) if header.is_control else print_record(record)
            yield f"    {record.offset}  {text}"
    except KafkaError as error:
        raise CannotDump(
            f"the batch at offset {header.base_offset} has a valid checksum, but its records "
            f"cannot be decoded: {error}"
        ) from error


def _record(record: Record) -> str:
    headers = "".join(f"  {key}={_bytes(value)}" for key, value in record.headers)
    return (
        f"{_time(record.timestamp)}  key {_bytes(record.key)}  value "
        f"{_bytes(record.value)}{headers}"
    )


def _coordinator_record(log: CoordinatorLog, record: Record) -> str:
    """Print a record of a coordinator's log: the fields of its key and of its value."""
    try:
        key = log.decode_key(record.key or b"")
        value = None if record.value is None else log.decode_value(key, record.value)
    except ProtocolError as error:
        return f"{_record(record)}  (cannot be decoded: {error})"
    words = [_time(record.timestamp), type(key).__name__.removesuffix("Key"), *_fields(key)]
    words += ["tombstone"] if value is None else _fields(value)
    return "  ".join(words)


def _fields(message: object) -> Iterator[str]:
    """Print the fields of a message, without optional ones that have their default value."""
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if field.tag is None or value != field.default:
            state = ""
            if field.name == "transaction_status" and 0 <= value < len(_TRANSACTION_STATES):
                state = f" ({_TRANSACTION_STATES[value]})"
            yield f"{field.name}={_value(value)}{state}"


def _value(value: object) -> str:
    if value is None or isinstance(value, bytes | bytearray | memoryview):
        return _bytes(None if value is None else bytes(value))
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str | int | float | UUID):
        return repr(value) if isinstance(value, str) else str(value)
    return f"{{{' '.join(_fields(value))}}}"


def _control(record: Record) -> str:
    return (
        f"{_time(record.timestamp)}  {control_kind(record.key).name}  value {_bytes(record.value)}"
    )


def _damaged(start: bytes, position: int) -> Iterator[str]:
    if len(start) == BATCH_HEADER_BYTES:
        yield f"damaged: {_batch_line(position, read_header(start))}"


def _entries(
    disk: Disk, path: str, entry: struct.Struct, line: Callable[..., str]
) -> Iterator[str]:
    data = disk.read(path)
    whole = len(data) // entry.size
    for fields in entry.iter_unpack(data[: whole * entry.size]):
        yield line(*fields)
    yield f"{whole} entries"
    if len(data) % entry.size:
        raise CannotDump(
            f"{path}: {len(data) % entry.size} bytes are left over after {whole} entries of "
            f"{entry.size}"
        )


def _aborted(_version: int, *fields: int) -> str:
    txn = AbortedTxn(*fields)
    return (
        f"aborted: producer {txn.producer_id}  offsets {txn.first_offset}..{txn.last_offset}  "
        f"last stable offset {txn.last_stable_offset}"
    )


def _snapshot(disk: Disk, path: str) -> Iterator[str]:
    try:
        producers = list(decode_snapshot(disk.read(path)))
    except SnapshotDamaged as error:
        raise CannotDump(f"{path}: {error}") from error
    for producer_id, producer in producers:
        txn = (
            ""
            if producer.txn_first_offset is None
            else f"  transaction open since offset {producer.txn_first_offset}"
        )
        last = producer.batches[-1].last_offset if producer.batches else -1
        yield (
            f"producer {producer_id}  epoch {producer.epoch}  last sequence "
            f"{producer.last_sequence}  last offset {last}  "
            f"{_time(producer.last_timestamp)}  coordinator epoch {producer.coordinator_epoch}{txn}"
        )
    yield f"{len(producers)} producers"


def _text(disk: Disk, path: str) -> Iterator[str]:
    data = disk.read(path)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise CannotDump(
            f"{path} is neither a segment's file (.log, .index, .timeindex, .txnindex, .snapshot) "
            "nor text"
        ) from error
    yield from text.splitlines()


def _time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "-"
    try:
        return (
            datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
    except (OverflowError, ValueError):
        return str(timestamp_ms)


def _bytes(data: bytes | None) -> str:
    if data is None:
        return "null"
    shown = data[:_SHOWN_BYTES]
    rest = f"… ({len(data)} bytes)" if len(data) > _SHOWN_BYTES else ""
    try:
        text = shown.decode()
    except UnicodeDecodeError:
        return f"0x{shown.hex()}{rest}"
    return (repr(text) if text.isprintable() else f"0x{shown.hex()}") + rest
