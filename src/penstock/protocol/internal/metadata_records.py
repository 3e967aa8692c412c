"""Framing of the metadata log: the value of a record is a frame version, the record's type (its api
key), its version, and its fields. The other `metadata_*` modules declare the records."""

from __future__ import annotations

from functools import cache

from penstock.errors import ProtocolError
from penstock.ids import Buffer
from penstock.protocol.codec import decode_from, encode_bytes
from penstock.protocol.internal import (
    metadata_nodes,
    metadata_security,
    metadata_settings,
    metadata_topics,
)
from penstock.protocol.internal.versioned import UnknownRecord
from penstock.protocol.primitives import encode_uvarint, read_uvarint
from penstock.protocol.schema import schema_of

FRAME_VERSION = 1

RECORDS: tuple[type, ...] = (
    metadata_nodes.RegisterBrokerRecord,
    metadata_nodes.UnregisterBrokerRecord,
    metadata_topics.TopicRecord,
    metadata_topics.PartitionRecord,
    metadata_settings.ConfigRecord,
    metadata_topics.PartitionChangeRecord,
    metadata_nodes.FenceBrokerRecord,
    metadata_nodes.UnfenceBrokerRecord,
    metadata_topics.RemoveTopicRecord,
    metadata_security.DelegationTokenRecord,
    metadata_security.UserScramCredentialRecord,
    metadata_settings.FeatureLevelRecord,
    metadata_settings.ClientQuotaRecord,
    metadata_nodes.ProducerIdsRecord,
    metadata_nodes.BrokerRegistrationChangeRecord,
    metadata_security.AccessControlEntryRecord,
    metadata_security.RemoveAccessControlEntryRecord,
    metadata_settings.NoOpRecord,
    metadata_settings.ZkMigrationStateRecord,
    metadata_security.RemoveUserScramCredentialRecord,
    metadata_settings.BeginTransactionRecord,
    metadata_settings.EndTransactionRecord,
    metadata_settings.AbortTransactionRecord,
    metadata_security.RemoveDelegationTokenRecord,
    metadata_nodes.RegisterControllerRecord,
    metadata_topics.ClearElrRecord,
)

_BY_KEY = {schema_of(record).api_key: record for record in RECORDS}


def encode_record(record: object, version: int | None = None) -> bytes:
    """Encode a record, in its newest version by default. The controller picks versions by the
    cluster's metadata.version."""
    cls: type = type(record)
    if version is None:
        version = schema_of(cls).versions.last
    return _frame(cls, version) + encode_bytes(record, version)


@cache
def _frame(record: type, version: int) -> bytes:
    key = schema_of(record).api_key
    if key is None or _BY_KEY.get(key) is not record:
        raise ValueError(f"{record.__name__} is not a metadata record")
    return encode_uvarint(FRAME_VERSION) + encode_uvarint(key) + encode_uvarint(version)


def decode_record(buffer: Buffer) -> object:
    """Decode a record. Raise UnknownRecord if a newer release wrote it."""
    try:
        frame_version, position = read_uvarint(buffer, 0)
        key, position = read_uvarint(buffer, position)
        version, position = read_uvarint(buffer, position)
    except IndexError as error:
        raise ProtocolError(
            f"metadata record of {len(buffer)} bytes is too short for its frame"
        ) from error
    record = _BY_KEY.get(key)
    if (
        frame_version != FRAME_VERSION
        or record is None
        or version not in schema_of(record).versions
    ):
        raise UnknownRecord(
            f"unknown metadata record: frame version {frame_version}, key {key}, version {version}"
        )
    message: object
    message, position = decode_from(record, version, buffer, position)
    if position != len(buffer):
        raise ProtocolError(
            f"{record.__name__} v{version}: {len(buffer) - position} bytes are left over after "
            "the record"
        )
    return message
