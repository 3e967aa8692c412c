"""Encoding and decoding of the records of __consumer_offsets. PURE.

Values are written in the versions that Kafka 4 writes, so that its tools and older brokers read the
log.
"""

from __future__ import annotations

from penstock.coordinator.runtime.step import Record
from penstock.ids import NO_UUID, Buffer
from penstock.protocol.internal.classic_group_records import GroupMetadataValue, OffsetCommitValue
from penstock.protocol.internal.coordinator_logs import GROUP_LOG

_GROUP_METADATA_VERSION = 3


def record(key: object, value: object | None) -> Record:
    """Encode a record; a value of None makes a tombstone."""
    return Record(
        GROUP_LOG.encode_key(key),
        None if value is None else GROUP_LOG.encode_value(value, _version(value)),
    )


def _version(value: object) -> int | None:
    """Return the version to write. None, the newest, is right for the consumer protocol's records,
    which have one version each."""
    if isinstance(value, GroupMetadataValue):
        return _GROUP_METADATA_VERSION
    if isinstance(value, OffsetCommitValue):
        # Only version 1 has the expiry time, and only version 4 the topic id.
        return 1 if value.expire_timestamp != -1 else 3 if value.topic_id == NO_UUID else 4
    return None


def decode(key: Buffer, value: Buffer | None) -> tuple[object, object | None]:
    """Decode a record. UnknownRecord: its type or version is not known."""
    typed = GROUP_LOG.decode_key(key)
    return typed, None if value is None else GROUP_LOG.decode_value(typed, value)
