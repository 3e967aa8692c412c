"""Batches of the metadata log: built from records, divided, and decoded. PURE."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import ErrorCode, KafkaError
from penstock.limits import METADATA_FETCH_BYTES
from penstock.node.quorum.voter_records import voter_control_records
from penstock.protocol.internal.control_records import (
    ControlType,
    LeaderChangeMessage,
    encode_control_key,
    encode_control_value,
)
from penstock.protocol.internal.metadata_records import decode_record, encode_record
from penstock.raft.voters import VoterSet
from penstock.records.batch import BatchHeader, batches, crc_matches
from penstock.records.build import NewRecord, build_batch
from penstock.records.record import records_of


def build_batches(
    records: tuple[object, ...], timestamp: int, *, is_atomic: bool
) -> Iterator[bytes]:
    """Yield one batch of all records if they are atomic, otherwise batches that replicas fetch one
    at a time."""
    encoded = [NewRecord(None, encode_record(record), (), timestamp) for record in records]
    for part in [encoded] if is_atomic else _divided(encoded):
        yield build_batch(part)


def _divided(records: list[NewRecord]) -> Iterator[list[NewRecord]]:
    part: list[NewRecord] = []
    size = 0
    for record in records:
        part.append(record)
        size += len(record.value or b"")
        if size >= METADATA_FETCH_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def leader_change_batch(
    leader_id: int,
    voters: tuple[int, ...],
    granting_voters: tuple[int, ...],
    timestamp: int,
    new_voters: VoterSet | None = None,
    kraft_version: int = 0,
) -> bytes:
    """With `new_voters` the records of kraft.version and of the voters follow, as in Kafka."""
    change = LeaderChangeMessage(
        leader_id=leader_id,
        voters=tuple(LeaderChangeMessage.Voter(voter_id=voter) for voter in voters),
        granting_voters=tuple(
            LeaderChangeMessage.Voter(voter_id=voter) for voter in granting_voters
        ),
    )
    key, value = encode_control_key(ControlType.LEADER_CHANGE), encode_control_value(change)
    records = [NewRecord(key, value, (), timestamp)]
    if new_voters is not None:
        records += voter_control_records(new_voters, kraft_version, timestamp)
    return build_batch(records, control=True)


def voters_batch(voters: VoterSet, kraft_version: int | None, timestamp: int) -> bytes:
    return build_batch(voter_control_records(voters, kraft_version, timestamp), control=True)


def decode_batches(data: bytes) -> Iterator[tuple[BatchHeader, list[object]]]:
    """Yield the header and the metadata records of each batch; control batches have none."""
    for position, header in batches(data):
        if not crc_matches(data, position, header):
            message = (
                "the metadata log is damaged: the batch at offset "
                f"{header.base_offset} has a wrong CRC"
            )
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message)
        if header.is_control:
            yield header, []
        else:
            records = records_of(data, header, position)
            yield header, [decode_record(record.value or b"") for record in records]
