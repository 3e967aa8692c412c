"""Records of the cluster metadata log about topics and partitions. `metadata_records` frames
them."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, int8, int32, message, string, uuid


@message(api_key=2, versions="0", flexible="0+")
class TopicRecord:
    name: str = string("0+")
    topic_id: UUID = uuid("0+")


@message(api_key=3, versions="0-2", flexible="0+")
class PartitionRecord:
    partition_id: int = int32("0+", default=-1)
    topic_id: UUID = uuid("0+")
    replicas: tuple[int, ...] = array(int32, "0+")
    isr: tuple[int, ...] = array(int32, "0+")
    removing_replicas: tuple[int, ...] = array(int32, "0+")
    adding_replicas: tuple[int, ...] = array(int32, "0+")
    leader: int = int32("0+", default=-1)
    leader_recovery_state: int = int8("0+", tag=0)
    leader_epoch: int = int32("0+", default=-1)
    partition_epoch: int = int32("0+", default=-1)
    directories: tuple[UUID, ...] = array(uuid, "1+")
    eligible_leader_replicas: tuple[int, ...] | None = array(
        int32, "2+", nullable="2+", tag=1, default=None
    )
    last_known_elr: tuple[int, ...] | None = array(int32, "2+", nullable="2+", tag=2, default=None)


@message(api_key=5, versions="0-2", flexible="0+")
class PartitionChangeRecord:
    """Changes part of a partition; a leader of -2 means no change."""

    partition_id: int = int32("0+", default=-1)
    topic_id: UUID = uuid("0+")
    isr: tuple[int, ...] | None = array(int32, "0+", nullable="0+", tag=0, default=None)
    leader: int = int32("0+", tag=1, default=-2)
    replicas: tuple[int, ...] | None = array(int32, "0+", nullable="0+", tag=2, default=None)
    removing_replicas: tuple[int, ...] | None = array(
        int32, "0+", nullable="0+", tag=3, default=None
    )
    adding_replicas: tuple[int, ...] | None = array(int32, "0+", nullable="0+", tag=4, default=None)
    leader_recovery_state: int = int8("0+", tag=5, default=-1)
    directories: tuple[UUID, ...] | None = array(uuid, "1+", nullable="1+", tag=8, default=None)
    eligible_leader_replicas: tuple[int, ...] | None = array(
        int32, "2+", nullable="2+", tag=6, default=None
    )
    last_known_elr: tuple[int, ...] | None = array(int32, "2+", nullable="2+", tag=7, default=None)


@message(api_key=9, versions="0", flexible="0+")
class RemoveTopicRecord:
    topic_id: UUID = uuid("0+")


@message(api_key=28, versions="0", flexible="0+")
class ClearElrRecord:
    """Clears the eligible leader replicas of a topic, or of all topics if the name is empty
    (KIP-966)."""

    topic_name: str = string("0+")
