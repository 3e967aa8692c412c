"""The lines of kafka-dump-log.sh for each kind of file. Validates what it reads."""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from penstock.cli.kafka.message_json import as_json, as_object
from penstock.cli.kafka.options import Options
from penstock.errors import KafkaError, ProtocolError
from penstock.log.producers.snapshot import SnapshotDamaged, decode_snapshot
from penstock.log.recovery import scan_batches
from penstock.protocol.internal.coordinator_logs import (
    GROUP_LOG,
    TRANSACTION_LOG,
    CoordinatorLog,
)
from penstock.protocol.internal.metadata_records import decode_record
from penstock.protocol.internal.versioned import read_int16
from penstock.protocol.primitives import read_uvarint
from penstock.protocol.schema import schema_of
from penstock.records.batch import BatchHeader, CorruptBatch, read_header
from penstock.records.compression import Codec
from penstock.records.record import (
    ControlRecord,
    Record,
    control_kind,
    coordinator_epoch,
    records_of,
)
from penstock.world import Disk

_OFFSET_ENTRY, _TIME_ENTRY = struct.Struct(">ii"), struct.Struct(">qi")
_ABORTED_ENTRY = struct.Struct(">hqqqq")
_DECODERS = ("offsets-decoder", "transaction-log-decoder", "cluster-metadata-decoder")


class DumpFailed(Exception):
    """The file is corrupt, or not of the kind that its name says."""


def segment_lines(disk: Disk, path: str, options: Options) -> Iterator[str]:
    name = os.path.basename(path)
    snapshot = re.fullmatch(r"(\d{20})-(\d{10})\.checkpoint", name)
    if snapshot:
        yield f"Snapshot end offset: {int(snapshot[1])}, epoch: {int(snapshot[2])}"
    elif name == "bootstrap.checkpoint":
        yield "KRaft bootstrap snapshot"
    else:
        yield f"Log starting offset: {_base_offset(path)}"
    file = disk.open(path)
    size = min(file.size(), options.number("max-bytes") or 2**63)
    decoded = options.has(*_DECODERS)
    try:
        for position, header, batch in scan_batches(file, size):
            yield _batch_line(position, header)
            if options.has("print-data-log", "deep-iteration") or decoded:
                yield from _record_lines(header, batch, options)
    except CorruptBatch as error:
        raise DumpFailed(f"Found {error.message} in {path}") from error


def _batch_line(position: int, header: BatchHeader) -> str:
    codec = Codec(header.codec).name.lower() if header.codec in list(Codec) else str(header.codec)
    horizon = (
        f"OptionalLong[{header.base_timestamp}]"
        if header.has_delete_horizon
        else "OptionalLong.empty"
    )
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} "
        f"count: {header.record_count} baseSequence: {header.base_sequence} "
        f"lastSequence: {header.last_sequence} producerId: {header.producer_id} "
        f"producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} "
        f"isTransactional: {_word(header.is_transactional)} isControl: {_word(header.is_control)} "
        f"deleteHorizonMs: {horizon} position: {position} "
        f"{_time_type(header)}: {header.max_timestamp} size: {header.size} magic: {header.magic} "
        f"compresscodec: {codec} crc: {header.crc} isvalid: true"
    )


def _record_lines(header: BatchHeader, batch: memoryview, options: Options) -> Iterator[str]:
    try:
        for record in records_of(batch, header):
            yield "| " + " ".join(_record_words(header, record, options))
    except KafkaError as error:
        raise DumpFailed(
            f"the records of the batch at offset {header.base_offset} are corrupt: {error}"
        ) from error


def _record_words(header: BatchHeader, record: Record, options: Options) -> Iterator[str]:
    if not options.has("skip-record-metadata"):
        sequence = (
            -1
            if header.base_sequence < 0
            else (header.base_sequence + record.offset - header.base_offset) % 2**31
        )
        yield (
            f"offset: {record.offset} {_time_type(header)}: {record.timestamp} "
            f"keySize: {_size(record.key)}"
        )
        yield (
            f"valueSize: {_size(record.value)} sequence: {sequence} "
            f"headerKeys: [{','.join(key for key, _ in record.headers)}]"
        )
        if header.is_control:
            yield from _control(record)
    if header.is_control:
        return
    if options.has("offsets-decoder"):
        yield from _coordinator_record(GROUP_LOG, record)
    elif options.has("transaction-log-decoder"):
        yield from _coordinator_record(TRANSACTION_LOG, record)
    elif options.has("cluster-metadata-decoder"):
        yield f"payload: {_metadata_record(record)}"
    elif options.has("print-data-log"):
        if record.key is not None:
            yield f"key: {record.key.decode(errors='replace')}"
        if record.value is not None:
            yield f"payload: {record.value.decode(errors='replace')}"


def _control(record: Record) -> Iterator[str]:
    kind = control_kind(record.key)
    if kind in (ControlRecord.ABORT, ControlRecord.COMMIT):
        yield f"endTxnMarker: {kind.name} coordinatorEpoch: {coordinator_epoch(record.value)}"
    elif kind is not ControlRecord.UNKNOWN:
        yield f"controlType: {kind.name}({kind.value})"


def _coordinator_record(log: CoordinatorLog, record: Record) -> Iterator[str]:
    key = record.key or b""
    try:
        decoded = log.decode_key(key)
        yield f'key: {{"type":"{read_int16(key, "a key")}","data":{as_json(decoded, 0)}}}'
        if record.value is None:
            yield "payload: <DELETE>"
        else:
            version = read_int16(record.value, "a value")
            data = as_json(log.decode_value(decoded, record.value), version)
            yield f'payload: {{"version":"{version}","data":{data}}}'
    except ProtocolError as error:
        yield f"payload: unreadable, {error}"


def _metadata_record(record: Record) -> str:
    value = record.value or b""
    try:
        message = decode_record(value)
        _frame, position = read_uvarint(value, 0)
        _key, position = read_uvarint(value, position)
        version, _position = read_uvarint(value, position)
    except ProtocolError as error:
        return f"unreadable, {error}"
    kind = re.sub(r"(?<!^)(?=[A-Z])", "_", type(message).__name__).upper()
    data = {"type": kind, "version": version, "data": as_object(message, version)}
    return (
        json.dumps(data, separators=(",", ":"))
        if schema_of(type(message)).api_key is not None
        else "unreadable"
    )


def offset_index_lines(
    disk: Disk, path: str, *, only_check: bool, only_compare: bool
) -> Iterator[str]:
    base = _base_offset(path)
    entries = [
        (base + relative, position) for relative, position in _entries(disk, path, _OFFSET_ENTRY)
    ]
    if not entries:
        yield f"{path} is empty."
        return
    if entries != sorted(set(entries)):
        raise DumpFailed(
            f"Corrupt index found, index file ({path}) has entries that are not in order"
        )
    if only_check:
        yield f"{path} passed sanity check."
        return
    segment = disk.open(str(Path(path).with_suffix(".log")))
    for offset, position in entries:
        header = (
            read_header(segment.pread(61, position)) if position + 61 <= segment.size() else None
        )
        if header is None or header.last_offset != offset:
            found = "none" if header is None else header.last_offset
            raise DumpFailed(
                f"Mismatches in :{path}\n  Index offset: {offset}, log offset: {found}"
            )
        if not only_compare:
            yield f"offset: {offset} position: {position}"


def time_index_lines(
    disk: Disk, path: str, *, only_check: bool, only_compare: bool
) -> Iterator[str]:
    base = _base_offset(path)
    entries = [(time, base + relative) for time, relative in _entries(disk, path, _TIME_ENTRY)]
    if only_check:
        if entries != sorted(entries):
            raise DumpFailed(
                f"Corrupt time index found, time index file ({path}) has entries that are not in "
                "order"
            )
        yield f"{path} passed sanity check."
        return
    largest = _largest_times(disk, str(Path(path).with_suffix(".log")))
    for time, offset in entries:
        if largest.get(offset) != time:
            raise DumpFailed(
                f"Found timestamp mismatch in :{path}\n  Index timestamp: {time}, log timestamp: "
                f"{largest.get(offset)}"
            )
        if not only_compare:
            yield f"timestamp: {time} offset: {offset}"


def _largest_times(disk: Disk, segment: str) -> dict[int, int]:
    """Return each batch's largest timestamp by its last offset."""
    file = disk.open(segment)
    return {
        header.last_offset: header.max_timestamp
        for _position, header, _batch in scan_batches(file, file.size())
    }


def aborted_lines(disk: Disk, path: str) -> Iterator[str]:
    for version, producer, first, last, stable in _entries(disk, path, _ABORTED_ENTRY):
        yield (
            f"version: {version} producerId: {producer} firstOffset: {first} lastOffset: {last} "
            f"lastStableOffset: {stable}"
        )


def producer_lines(disk: Disk, path: str) -> Iterator[str]:
    try:
        producers = decode_snapshot(disk.read(path))
    except SnapshotDamaged as error:
        raise DumpFailed(f"{path}: {error}") from error
    for number, producer in producers:
        txn = (
            "OptionalLong.empty"
            if producer.txn_first_offset is None
            else f"OptionalLong[{producer.txn_first_offset}]"
        )
        line = (
            f"producerId: {number} producerEpoch: {producer.epoch} "
            f"coordinatorEpoch: {producer.coordinator_epoch} "
            f"currentTxnFirstOffset: {txn} lastTimestamp: {producer.last_timestamp} "
        )
        if producer.batches:
            last = producer.batches[-1]
            line += (
                f"firstSequence: {last.first_sequence} lastSequence: {last.last_sequence} "
                f"lastOffset: {last.last_offset} "
                f"offsetDelta: {last.last_offset - last.first_offset} timestamp: {last.timestamp}"
            )
        yield line


def _entries(disk: Disk, path: str, entry: struct.Struct) -> list[tuple[int, ...]]:
    data = disk.read(path)
    if len(data) % entry.size:
        raise DumpFailed(
            f"{path}: the size {len(data)} is not a multiple of the entry size {entry.size}"
        )
    return list(entry.iter_unpack(data))


def _base_offset(path: str) -> int:
    digits = os.path.basename(path).split(".")[0]
    if not digits.isdecimal():
        raise DumpFailed(f"{path}: the file name does not start with an offset")
    return int(digits)


def _time_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.log_append_time else "CreateTime"


def _word(value: bool) -> str:
    return "true" if value else "false"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
