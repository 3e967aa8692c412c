"""Voters as control records of the metadata log and of snapshots (KIP-853). PURE.

`VotersRecord` has the voters, `KRaftVersionRecord` the kraft.version. `replay_control` adds those
of a batch to the history of a log's voters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.errors import ErrorCode, KafkaError, ProtocolError
from penstock.ids import Buffer
from penstock.limits import MAX_VOTER_LISTENERS, MAX_VOTERS
from penstock.protocol.internal.control_records import (
    ControlType,
    KRaftVersionRecord,
    VotersRecord,
    decode_control_key,
    decode_control_value,
    encode_control_key,
    encode_control_value,
)
from penstock.protocol.internal.versioned import UnknownRecord
from penstock.raft.voters import Endpoint, Voter, VotersEntry, VoterSet, VoterSetHistory
from penstock.records.batch import BatchHeader
from penstock.records.build import NewRecord
from penstock.records.record import records_of

_Record = VotersRecord.Voter


def voters_record(voters: VoterSet) -> VotersRecord:
    return VotersRecord(
        voters=tuple(
            _Record(
                voter_id=voter.id,
                voter_directory_id=voter.directory_id,
                endpoints=tuple(
                    _Record.Endpoint(name=endpoint.name, host=endpoint.host, port=endpoint.port)
                    for endpoint in voter.endpoints
                ),
                k_raft_version_feature=_Record.KRaftVersionFeature(
                    min_supported_version=voter.min_version,
                    max_supported_version=voter.max_version,
                ),
            )
            for voter in voters.voters
        )
    )


def voter_set(record: VotersRecord) -> VoterSet:
    """Raises KafkaError if the voters are none that a leader writes: the CRC of the batch is right,
    so that no retry helps."""
    try:
        if not 0 < len(record.voters) <= MAX_VOTERS:
            raise ValueError(f"it has {len(record.voters)} voters")
        if any(len(voter.endpoints) > MAX_VOTER_LISTENERS for voter in record.voters):
            raise ValueError("a voter has too many endpoints")
        return VoterSet.of(map(_voter, record.voters))
    except ValueError as error:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"a VotersRecord of the metadata log is invalid: {error}"
        ) from error


def _voter(record: VotersRecord.Voter) -> Voter:
    levels = record.k_raft_version_feature
    return Voter(
        record.voter_id,
        record.voter_directory_id,
        tuple(Endpoint(each.name, each.host, each.port) for each in record.endpoints),
        levels.min_supported_version,
        levels.max_supported_version,
    )


# Control batches


def control_record(value: object, timestamp: int) -> NewRecord:
    kind = _KINDS[type(value)]
    return NewRecord(encode_control_key(kind), encode_control_value(value), (), timestamp)


def voter_control_records(
    voters: VoterSet, kraft_version: int | None, timestamp: int
) -> Iterator[NewRecord]:
    """Yield the VotersRecord, with a kraft.version after its record."""
    if kraft_version is not None:
        record = KRaftVersionRecord(k_raft_version=kraft_version)
        yield control_record(record, timestamp)
    yield control_record(voters_record(voters), timestamp)


def control_values(
    data: Buffer, header: BatchHeader, position: int = 0
) -> Iterator[tuple[int, object]]:
    """Yield offset and value of the KRaftVersionRecords and VotersRecords of a control batch."""
    for record in records_of(data, header, position):
        try:
            kind = decode_control_key(record.key or b"")
        except UnknownRecord:
            continue
        if kind in (ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS):
            try:
                yield record.offset, decode_control_value(kind, record.value or b"")
            except ProtocolError as error:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"the control record at offset {record.offset} of the metadata log is "
                    f"invalid: {error}",
                ) from error


def replay_control(
    history: VoterSetHistory, data: Buffer, header: BatchHeader, position: int = 0
) -> None:
    """Add the voters and the kraft.version of a control batch of the log."""
    for offset, value in control_values(data, header, position):
        if isinstance(value, KRaftVersionRecord):
            history.add_kraft_version(offset, value.k_raft_version)
        elif isinstance(value, VotersRecord):
            history.add_voters(offset, voter_set(value))


def entry_of_snapshot(offset: int, values: Iterable[object]) -> VotersEntry | None:
    """Return the voters that the control records of a snapshot have; None if there are none.
    `offset` is that of the last record in the snapshot."""
    kraft_version, voters = 0, None
    for value in values:
        if isinstance(value, KRaftVersionRecord):
            kraft_version = value.k_raft_version
        elif isinstance(value, VotersRecord):
            voters = voter_set(value)
    return None if voters is None else VotersEntry(offset, kraft_version, voters)


_KINDS: dict[type, ControlType] = {
    KRaftVersionRecord: ControlType.KRAFT_VERSION,
    VotersRecord: ControlType.KRAFT_VOTERS,
}
