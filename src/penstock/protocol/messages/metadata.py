"""Metadata: returns the brokers, the topics and the leader of each partition."""

from __future__ import annotations

from uuid import UUID

from penstock.protocol.schema import array, boolean, int16, int32, message, string, struct, uuid


@message(api_key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    @struct
    class Topic:
        topic_id: UUID = uuid("10+", ignorable=True)
        name: str | None = string("0+", nullable="10+")

    topics: tuple[Topic, ...] | None = array(Topic, "0+", nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@message(api_key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    @struct
    class Broker:
        node_id: int = int32("0+")
        host: str = string("0+")
        port: int = int32("0+")
        rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)

    @struct
    class Topic:
        @struct
        class Partition:
            error_code: int = int16("0+")
            partition_index: int = int32("0+")
            leader_id: int = int32("0+")
            leader_epoch: int = int32("7+", default=-1, ignorable=True)
            replica_nodes: tuple[int, ...] = array(int32, "0+")
            isr_nodes: tuple[int, ...] = array(int32, "0+")
            offline_replicas: tuple[int, ...] = array(int32, "5+", ignorable=True)

        error_code: int = int16("0+")
        name: str | None = string("0+", nullable="12+")
        topic_id: UUID = uuid("10+", ignorable=True)
        is_internal: bool = boolean("1+", ignorable=True)
        partitions: tuple[Partition, ...] = array(Partition, "0+", may_be_encoded=True)
        topic_authorized_operations: int = int32("8+", default=-(2**31))

    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: tuple[Broker, ...] = array(Broker, "0+")
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: tuple[Topic, ...] = array(Topic, "0+", may_be_encoded=True)
    cluster_authorized_operations: int = int32("8-10", default=-(2**31))
    error_code: int = int16("13+", ignorable=True)
