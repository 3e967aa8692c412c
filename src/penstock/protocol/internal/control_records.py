"""Control records: transaction markers in any partition; leader changes, voters, kraft.version and
snapshot headers and footers in the metadata log.

The key of a control record is a version and a type. The value of a transaction marker begins with
its version. The quorum's records have their version as a field, and Kafka always uses version 0.
"""

from __future__ import annotations

from enum import IntEnum
from uuid import UUID

from penstock.errors import ProtocolError
from penstock.ids import Buffer
from penstock.protocol.codec import decode, decode_from, encode_bytes
from penstock.protocol.internal.versioned import (
    VERSION_BYTES,
    UnknownRecord,
    decode_versioned,
    encode_versioned,
    read_int16,
)
from penstock.protocol.schema import (
    array,
    int16,
    int32,
    int64,
    message,
    nested,
    string,
    struct,
    uint16,
    uuid,
)


@message(versions="0")
class ControlRecordTypeSchema:
    type: int = int16("0+")


@message(versions="0")
class EndTxnMarker:
    coordinator_epoch: int = int32("0+")


@message(versions="0-1", flexible="0+")
class LeaderChangeMessage:
    @struct
    class Voter:
        voter_id: int = int32("0+")
        voter_directory_id: UUID = uuid("1+")

    version: int = int16("0+")
    leader_id: int = int32("0+")
    voters: tuple[Voter, ...] = array(Voter, "0+")
    granting_voters: tuple[Voter, ...] = array(Voter, "0+")


@message(versions="0", flexible="0+")
class SnapshotHeaderRecord:
    version: int = int16("0+")
    last_contained_log_timestamp: int = int64("0+")


@message(versions="0", flexible="0+")
class SnapshotFooterRecord:
    version: int = int16("0+")


@message(versions="0", flexible="0+")
class KRaftVersionRecord:
    version: int = int16("0+")
    k_raft_version: int = int16("0+")


@message(versions="0", flexible="0+")
class VotersRecord:
    @struct
    class Voter:
        @struct
        class Endpoint:
            name: str = string("0+")
            host: str = string("0+")
            port: int = uint16("0+")

        @struct
        class KRaftVersionFeature:
            min_supported_version: int = int16("0+")
            max_supported_version: int = int16("0+")

        voter_id: int = int32("0+")
        voter_directory_id: UUID = uuid("0+")
        endpoints: tuple[Endpoint, ...] = array(Endpoint, "0+")
        k_raft_version_feature: KRaftVersionFeature = nested(KRaftVersionFeature, "0+")

    version: int = int16("0+")
    voters: tuple[Voter, ...] = array(Voter, "0+")


class ControlType(IntEnum):
    """Kafka's types of control records."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_QUORUM_RECORDS: dict[ControlType, type] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}


def encode_control_key(control_type: ControlType) -> bytes:
    return encode_versioned(ControlRecordTypeSchema(type=control_type))


def decode_control_key(buffer: Buffer) -> ControlType:
    """Decode the key of a control record. Raise UnknownRecord for an unknown type, which readers
    skip. Later key versions may only add fields."""
    if read_int16(buffer, "the key of a control record") < 0:
        raise ProtocolError("the key of a control record has a negative version")
    key, _ = decode_from(ControlRecordTypeSchema, 0, buffer, VERSION_BYTES)
    if key.type not in ControlType.__members__.values():
        raise UnknownRecord(f"unknown control record type {key.type}")
    return ControlType(key.type)


def encode_control_value(value: object) -> bytes:
    return encode_versioned(value) if isinstance(value, EndTxnMarker) else encode_bytes(value, 0)


def decode_control_value(control_type: ControlType, buffer: Buffer) -> object:
    if control_type in (ControlType.ABORT, ControlType.COMMIT):
        return decode_versioned(EndTxnMarker, buffer)
    return decode(_QUORUM_RECORDS[control_type], 0, buffer)
