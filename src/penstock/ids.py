"""Identifiers: small types that keep different kinds of numbers apart."""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple, NewType
from uuid import UUID

Buffer = bytes | bytearray | memoryview

NodeId = NewType("NodeId", int)
PartitionId = NewType("PartitionId", int)
TopicId = UUID
DirectoryId = UUID

NO_UUID = UUID(int=0)
# Kafka reserves the first hundred uuids (KIP-858: MIGRATING, UNASSIGNED and LOST directories;
# KIP-516: the metadata topic).
METADATA_TOPIC_ID = UUID(int=1)
RESERVED_UUIDS = 100

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1
UNKNOWN_OFFSET = -1

METADATA_TOPIC = "__cluster_metadata"


def uuid_text(uuid: UUID) -> str:
    """Return a uuid in Kafka's text form: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(uuid.bytes).decode().rstrip("=")


def parse_uuid(text: str) -> UUID:
    """Parse Kafka's text form of a uuid. Raise ValueError if it is none."""
    if len(text) > 24:
        raise ValueError(f"{text[:24]!r}… is too long for a Kafka uuid, which has 22 characters")
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError(f"{text!r} is not a Kafka uuid: {error}") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a Kafka uuid: it holds {len(raw)} bytes, not 16")
    return UUID(bytes=raw)


class TopicPartition(NamedTuple):
    """A partition of a topic, by the topic's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
