"""Keys and values of __consumer_offsets for committed offsets and classic groups.
`coordinator_logs` frames them."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, blob, int32, int64, message, string, struct, uuid


@message(api_key=0, versions="0")
class LegacyOffsetCommitKey:
    """Read, never written."""

    group: str = string("0+")
    topic: str = string("0+")
    partition: int = int32("0+")


@message(api_key=0, versions="0")
class LegacyOffsetCommitValue:
    """Read, never written."""

    offset: int = int64("0+")
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")


@message(api_key=1, versions="0")
class OffsetCommitKey:
    group: str = string("0+")
    topic: str = string("0+")
    partition: int = int32("0+")


@message(api_key=1, versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: UUID = uuid("4+", tag=0, ignorable=True)


@message(api_key=2, versions="0")
class GroupMetadataKey:
    group: str = string("0+")


@message(api_key=2, versions="0-4", flexible="4+")
class GroupMetadataValue:
    @struct
    class Member:
        member_id: str = string("0+")
        group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
        client_id: str = string("0+")
        client_host: str = string("0+")
        rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
        session_timeout: int = int32("0+")
        subscription: bytes = blob("0+")
        assignment: bytes = blob("0+")

    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable="0+")
    leader: str | None = string("0+", nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: tuple[Member, ...] = array(Member, "0+")
