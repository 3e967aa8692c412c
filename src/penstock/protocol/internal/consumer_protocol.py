"""What classic consumers tell each other through the group coordinator: subscriptions in JoinGroup,
assignments in SyncGroup.

The coordinator passes these on unread, except where it must understand them: to describe a group,
to keep offsets of subscribed topics, and when a classic group becomes a consumer group. Members
write the version they know; a newer one is read as the newest that we know.
"""

from __future__ import annotations

from typing import TypeVar

from penstock.errors import ProtocolError
from penstock.ids import Buffer
from penstock.protocol.codec import decode_from
from penstock.protocol.internal.versioned import VERSION_BYTES, encode_versioned, read_int16
from penstock.protocol.schema import array, blob, int32, message, schema_of, string, struct


@message(versions="0-3")
class ConsumerProtocolSubscription:
    @struct
    class OwnedPartition:
        topic: str = string("1+")
        partitions: tuple[int, ...] = array(int32, "1+")

    topics: tuple[str, ...] = array(string, "0+")
    user_data: bytes | None = blob("0+", nullable="0+", default=None)
    owned_partitions: tuple[OwnedPartition, ...] = array(OwnedPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


@message(versions="0-3")
class ConsumerProtocolAssignment:
    @struct
    class AssignedPartition:
        topic: str = string("0+")
        partitions: tuple[int, ...] = array(int32, "0+")

    assigned_partitions: tuple[AssignedPartition, ...] = array(AssignedPartition, "0+")
    user_data: bytes | None = blob("0+", nullable="0+", default=None)


T = TypeVar("T", ConsumerProtocolSubscription, ConsumerProtocolAssignment)


def encode_consumer_protocol(
    message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int | None = None
) -> bytes:
    """Without a version, in the newest one."""
    return encode_versioned(message, version)


def decode_consumer_protocol(cls: type[T], buffer: Buffer) -> T:
    """Later versions add fields at the end, so what follows the fields that we know is left unread,
    as Kafka does."""
    version = read_int16(buffer, cls.__name__)
    if version < 0:
        raise ProtocolError(f"{cls.__name__} in version {version}")
    message, _ = decode_from(cls, min(version, schema_of(cls).versions.last), buffer, VERSION_BYTES)
    return message
