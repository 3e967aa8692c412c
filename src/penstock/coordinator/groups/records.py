"""Records of `__consumer_offsets` to and from their typed keys and values. PURE.

Owns which version a value is written in: the one that Kafka 4 writes, so that its tools and older
brokers read the log.
"""

from __future__ import annotations

from penstock.coordinator.runtime.step import Record
from penstock.ids import NO_UUID, Buffer
from penstock.protocol.internal.classic_group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from penstock.protocol.internal.coordinator_logs import GROUP_LOG

_GROUP_METADATA_VERSION = 3


def record(key: object, value: object, version: int | None = None) -> Record:
    """Without a version, in the newest: right for all records of the consumer protocol, which have
    one version each."""
    return Record(GROUP_LOG.encode_key(key), GROUP_LOG.encode_value(value, version))


def tombstone(key: object) -> Record:
    return Record(GROUP_LOG.encode_key(key), None)


def decode(key: Buffer, value: Buffer | None) -> tuple[object, object | None]:
    """UnknownRecord for a type or version that we do not know."""
    typed = GROUP_LOG.decode_key(key)
    return typed, None if value is None else GROUP_LOG.decode_value(typed, value)


def group_record(group_id: str, value: GroupMetadataValue) -> Record:
    return record(GroupMetadataKey(group=group_id), value, _GROUP_METADATA_VERSION)


def group_tombstone(group_id: str) -> Record:
    return tombstone(GroupMetadataKey(group=group_id))


def offset_record(group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> Record:
    """Version 1 alone has the time of expiry, and version 4 alone the topic's id."""
    version = 1 if value.expire_timestamp != -1 else 3 if value.topic_id == NO_UUID else 4
    return record(OffsetCommitKey(group=group_id, topic=topic, partition=partition), value, version)


def offset_tombstone(group_id: str, topic: str, partition: int) -> Record:
    return tombstone(OffsetCommitKey(group=group_id, topic=topic, partition=partition))
