"""Framing of the cluster metadata log: each record's value is a frame version, the record's key and
version, and then its fields.

The records themselves are in the `metadata_*` files beside this one.
"""

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
from penstock.protocol.internal.unknown import UnknownRecord
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
    """A record's value; without a version in its newest one. The controller picks versions by the
    metadata.version of the cluster."""
    cls: type = type(record)
    if version is None:
        version = schema_of(cls).versions.last
    return _frame(cls, version) + encode_bytes(record, version)


@cache
def _frame(record: type, version: int) -> bytes:
    key = schema_of(record).api_key
    if key is None or _BY_KEY.get(key) is not record:
        raise ValueError(f"{record.__name__} is no record of the metadata log")
    return encode_uvarint(FRAME_VERSION) + encode_uvarint(key) + encode_uvarint(version)


def decode_record(buffer: Buffer) -> object:
    """The record in a value. UnknownRecord if it was written by a newer release: its meaning cannot
    be guessed."""
    try:
        frame_version, position = read_uvarint(buffer, 0)
        key, position = read_uvarint(buffer, position)
        version, position = read_uvarint(buffer, position)
    except IndexError as error:
        raise ProtocolError(
            f"a metadata record of {len(buffer)} bytes is too short for its frame"
        ) from error
    record = _BY_KEY.get(key)
    if (
        frame_version != FRAME_VERSION
        or record is None
        or version not in schema_of(record).versions
    ):
        raise UnknownRecord(
            f"metadata record with frame version {frame_version}, key {key} and version {version}"
        )
    message: object
    message, position = decode_from(record, version, buffer, position)
    if position != len(buffer):
        raise ProtocolError(
            f"{record.__name__} v{version}: {len(buffer) - position} bytes are left over after "
            "the record"
        )
    return message
