"""The consumer protocol of classic groups: subscriptions in JoinGroup, assignments in SyncGroup.

The coordinator passes them on as opaque bytes. It decodes them only to describe a group, to keep
the offsets of subscribed topics, and to convert a classic group to a consumer group. A version
newer than ours is decoded as our newest.
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
    """Encode a subscription or assignment, in the newest version by default."""
    return encode_versioned(message, version)


def decode_consumer_protocol(cls: type[T], buffer: Buffer) -> T:
    """Decode a subscription or assignment. Later versions add fields at the end, so trailing bytes
    are ignored, as in Kafka."""
    version = read_int16(buffer, cls.__name__)
    if version < 0:
        raise ProtocolError(f"{cls.__name__}: negative version {version}")
    message, _ = decode_from(cls, min(version, schema_of(cls).versions.last), buffer, VERSION_BYTES)
    return message
