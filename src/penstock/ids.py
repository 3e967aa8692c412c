"""The names of things: small types that keep one kind of number from being taken for another."""

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
# Kafka keeps the first hundred ids for itself (KIP-866: MIGRATING, UNASSIGNED and LOST directories;
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
    """Kafka writes a uuid as URL-safe base64 without padding: 22 characters."""
    return base64.urlsafe_b64encode(uuid.bytes).decode().rstrip("=")


def parse_uuid(text: str) -> UUID:
    """The inverse of `uuid_text`; ValueError when the text is no uuid."""
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
    """One partition of a topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
