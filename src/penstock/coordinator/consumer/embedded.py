"""The consumer protocol embedded in JoinGroup and SyncGroup, which the coordinator reads and writes
for classic members of consumer groups. It names topics; the coordinator uses ids. PURE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from penstock.coordinator.assignors.spec import Assignment, by_topic
from penstock.metadata.image import MetadataImage
from penstock.protocol.internal.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_consumer_protocol,
    encode_consumer_protocol,
)
from penstock.protocol.internal.versioned import read_int16
from penstock.protocol.schema import schema_of


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """ProtocolError: the metadata is no subscription."""
    return decode_consumer_protocol(ConsumerProtocolSubscription, metadata)


def owned_partitions(
    subscription: ConsumerProtocolSubscription, image: MetadataImage
) -> Assignment:
    """Return the partitions that a member reports to own. A member with an eager assignor owns none
    when it joins."""
    return _by_id(
        ((topic.topic, topic.partitions) for topic in subscription.owned_partitions), image
    )


def read_assignment(assignment: bytes, image: MetadataImage) -> Assignment:
    """Return the assignment without deleted topics; empty if the member never got one.
    ProtocolError: it is malformed."""
    if not assignment:
        return {}
    read = decode_consumer_protocol(ConsumerProtocolAssignment, assignment)
    return _by_id(((topic.topic, topic.partitions) for topic in read.assigned_partitions), image)


def _by_id(listed: Iterable[tuple[str, tuple[int, ...]]], image: MetadataImage) -> Assignment:
    return by_topic(
        (image.topics[name].id, partition)
        for name, partitions in listed
        if name in image.topics
        for partition in partitions
    )


def assignment_bytes(
    partitions: Mapping[UUID, Iterable[int]], metadata: bytes, image: MetadataImage
) -> bytes:
    """Encode an assignment in the version of the member's subscription, which is `metadata`."""
    assigned = tuple(
        ConsumerProtocolAssignment.AssignedPartition(
            topic=image.topic_names[topic], partitions=tuple(sorted(numbers))
        )
        for topic, numbers in sorted(partitions.items(), key=lambda item: item[0].int)
        if topic in image.topic_names
    )
    version = min(
        read_int16(metadata, "ConsumerProtocolSubscription"),
        schema_of(ConsumerProtocolAssignment).versions.last,
    )
    return encode_consumer_protocol(
        ConsumerProtocolAssignment(assigned_partitions=assigned), version
    )
